"""The gRPC door: Open Inference Protocol v2, health and reflection over a sync grpcio server."""

from anabranch_server.rpc.door import GrpcDoor

__all__ = ["GrpcDoor"]
