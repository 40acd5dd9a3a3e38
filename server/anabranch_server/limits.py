"""Limits on everything a caller can size; all are checked before anything is allocated."""

from dataclasses import dataclass, fields

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The `limits` group of the settings. Sizes in bytes, times in seconds.

    Attributes:
        max_body_bytes: of one request body as received, or of one gRPC message.
        max_decompressed_bytes: of a body after gzip or deflate.
        max_json_depth: nesting of a JSON document.
        max_json_elements: numbers, strings and literals in a JSON document.
        max_string_bytes: of one string, in JSON or a BYTES tensor.
        max_uri_bytes: of the request target.
        max_in_flight_per_client: requests of one client address not yet answered by a worker.
        max_tensors: inputs or requested outputs of a request.
        max_dims: axes of a tensor.
        max_rows: rows of a request.
        max_elements: elements of a tensor.
        max_header_bytes: of all header names and values of a request.
        max_headers: number of headers.
        max_connections: open connections of a worker, per protocol.
        max_streams: concurrent gRPC calls of a connection.
        header_timeout_s: from the first byte of a request to the end of its headers.
        body_timeout_s: without a single byte of an announced body.
        write_timeout_s: without the peer taking a byte of a waiting answer.
    """

    max_body_bytes: int = 67_108_864
    max_decompressed_bytes: int = 268_435_456
    max_json_depth: int = 32
    max_json_elements: int = 20_000_000
    max_string_bytes: int = 1_048_576
    max_uri_bytes: int = 8192
    max_in_flight_per_client: int = 256
    max_tensors: int = 1024
    max_dims: int = 8
    max_rows: int = 65_536
    max_elements: int = 100_000_000
    max_header_bytes: int = 32_768
    max_headers: int = 100
    max_connections: int = 20_000
    max_streams: int = 1000
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    write_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"limits.{field.name}: expected more than 0")
