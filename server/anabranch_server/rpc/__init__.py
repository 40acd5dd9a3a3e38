"""The gRPC door: Open Inference Protocol v2, ranking, health and reflection over sync grpcio."""

from anabranch_server.rpc.door import GrpcDoor

__all__ = ["GrpcDoor"]
