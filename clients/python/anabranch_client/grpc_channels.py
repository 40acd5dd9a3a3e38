"""What both gRPC transports ask of a channel."""

from typing import Final

__all__ = ["OPTIONS"]

OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),  # the client's own rules count
    # A server that was started again is found soon; who asks in between is told at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # connecting may take that long
    ("grpc.max_reconnect_backoff_ms", 1000),
)
