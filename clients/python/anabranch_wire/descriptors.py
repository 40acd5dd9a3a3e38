"""The one descriptor pool that every protocol message of this project is built from.

The pool is private: nothing is registered in protobuf's default pool, so other libraries that carry
their own copy of the same protocol (tritonclient, the KServe SDK) import beside this one, before
or after it.
"""

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

__all__ = ["POOL", "names_of"]


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for name in ("oip.binpb", "ranking.binpb"):
        data = resources.files("anabranch_wire").joinpath(name).read_bytes()
        for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
            pool.AddSerializedFile(file.SerializeToString(deterministic=True))
    return pool


POOL: Final = _pool()
"""Holds every file under clients/proto. gRPC reflection is given this pool; a server that also
reflects other services (health) adds their files to it before it starts, from one thread."""


def names_of(file: str) -> Mapping[str, object]:
    """Return what a module generated from one proto file would define at its top level.

    That is `DESCRIPTOR`, each message class, each enum and each enum value. Classes are made once:
    a second call returns the same ones.

    Args:
        file: path below clients/proto, as in `"anabranch/v1/ranking.proto"`.

    Raises:
        KeyError: the pool holds no such file.
    """
    descriptor = POOL.FindFileByName(file)
    names: dict[str, object] = {"DESCRIPTOR": descriptor}
    for name, message in descriptor.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
    for name, enum in descriptor.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update(_values(enum))
    return MappingProxyType(names)


def _values(enum: EnumDescriptor) -> dict[str, int]:
    return {name: value.number for name, value in enum.values_by_name.items()}
