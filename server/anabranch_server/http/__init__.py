"""The hot HTTP door: a protocol class under uvicorn that answers scoring requests without ASGI."""

from anabranch_server.http.door import hot_protocol
from anabranch_server.http.loop_sink import LoopSink

__all__ = ["LoopSink", "hot_protocol"]
