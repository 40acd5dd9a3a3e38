"""The hot HTTP door: a protocol class under uvicorn that answers scoring requests without ASGI."""

from anabranch_server.http.door import hot_protocol
from anabranch_server.http.loop_sink import LoopSink
from anabranch_server.http.port import HttpPort
from anabranch_server.http.siblings import Siblings

__all__ = ["HttpPort", "LoopSink", "Siblings", "hot_protocol"]
