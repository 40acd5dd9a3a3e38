"""Server reflection over the descriptors that the services are built from."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Final

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.answers import parse
from anabranch_server.rpc.faults import abort
from anabranch_wire.descriptors import POOL
from anabranch_wire.errors import AnabranchError

__all__ = ["REFLECTION_SERVICES", "ReflectionStream"]

REFLECTION_SERVICES: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
"""Both names of one protocol: the messages are the same on the wire."""


_OWN_FILES: Final = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)

_Answer = Callable[
    [Iterator[reflection_pb2.ServerReflectionRequest], grpc.ServicerContext],
    Iterator[reflection_pb2.ServerReflectionResponse],
]


class ReflectionStream:
    """Behaviour of ServerReflectionInfo.

    A stream occupies a thread for as long as it is open, so these threads are nobody else's.

    Args:
        names: of the port's services, beside health and reflection.
        request_ids: chooses the ids that refusals echo.
        threads: run it.
    """

    def __init__(
        self,
        names: Sequence[str],
        request_ids: RequestIds,
        threads: futures.ThreadPoolExecutor,
    ) -> None:
        files = (*(POOL.FindFileContainingSymbol(name) for name in names), *_OWN_FILES)
        services = [name for file in files for name in _services(file)]
        servicer = reflection.ReflectionServicer(services, pool=_pool_of(files))
        self._answer: _Answer = servicer.ServerReflectionInfo  # type: ignore[assignment]  # comes without types
        self._request_ids = request_ids
        self.experimental_thread_pool = threads  # grpcio's name

    def __call__(self, bodies: Iterator[bytes], call: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer each request of the stream; a malformed one ends it."""
        requests = (parse(reflection_pb2.ServerReflectionRequest, body) for body in bodies)
        try:
            for response in self._answer(requests, call):
                yield response.SerializeToString()
        except AnabranchError as error:
            abort(call, error, self._request_ids.choose(None))


def _services(file: FileDescriptor) -> Iterable[str]:
    return [service.full_name for service in file.services_by_name.values()]


def _pool_of(files: Iterable[FileDescriptor]) -> DescriptorPool:
    """A pool of its own: the server's messages and grpcio's live in two others."""
    pool = DescriptorPool()
    for file in files:
        _add(file, pool)
    return pool


def _add(file: FileDescriptor, pool: DescriptorPool) -> None:
    for dependency in file.dependencies:
        _add(dependency, pool)
    pool.AddSerializedFile(file.serialized_pb)
