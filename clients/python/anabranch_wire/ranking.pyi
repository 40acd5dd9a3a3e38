# Made by scripts/generate_protos from clients/proto/anabranch/v1/ranking.proto.
# mypy: disable-error-code="type-arg"
# ruff: noqa
# fmt: off
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TYPE_UNSPECIFIED: _ClassVar[Type]
    INT64: _ClassVar[Type]
    FLOAT32: _ClassVar[Type]
    STRING: _ClassVar[Type]
TYPE_UNSPECIFIED: Type
INT64: Type
FLOAT32: Type
STRING: Type

class Column(_message.Message):
    __slots__ = ("type", "raw", "int64s", "floats", "strings", "lengths", "weights")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    INT64S_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    type: Type
    raw: bytes
    int64s: _containers.RepeatedScalarFieldContainer[int]
    floats: _containers.RepeatedScalarFieldContainer[float]
    strings: _containers.RepeatedScalarFieldContainer[bytes]
    lengths: bytes
    weights: bytes
    def __init__(self, type: _Optional[_Union[Type, str]] = ..., raw: _Optional[bytes] = ..., int64s: _Optional[_Iterable[int]] = ..., floats: _Optional[_Iterable[float]] = ..., strings: _Optional[_Iterable[bytes]] = ..., lengths: _Optional[bytes] = ..., weights: _Optional[bytes] = ...) -> None: ...

class RankRequest(_message.Message):
    __slots__ = ("model_name", "model_version", "id", "user", "candidates", "top_k", "outputs", "explain", "timeout_us", "priority", "routing_key")
    class UserEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Column
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...
    class CandidatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Column
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    model_name: str
    model_version: str
    id: str
    user: _containers.MessageMap[str, Column]
    candidates: _containers.MessageMap[str, Column]
    top_k: int
    outputs: _containers.RepeatedScalarFieldContainer[str]
    explain: bool
    timeout_us: int
    priority: int
    routing_key: str
    def __init__(self, model_name: _Optional[str] = ..., model_version: _Optional[str] = ..., id: _Optional[str] = ..., user: _Optional[_Mapping[str, Column]] = ..., candidates: _Optional[_Mapping[str, Column]] = ..., top_k: _Optional[int] = ..., outputs: _Optional[_Iterable[str]] = ..., explain: _Optional[bool] = ..., timeout_us: _Optional[int] = ..., priority: _Optional[int] = ..., routing_key: _Optional[str] = ...) -> None: ...

class Explain(_message.Message):
    __slots__ = ("step", "event_time", "missed", "defaulted", "stages_ms", "age_s")
    class MissedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Missed
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Missed, _Mapping]] = ...) -> None: ...
    class StagesMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    DEFAULTED_FIELD_NUMBER: _ClassVar[int]
    STAGES_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    step: int
    event_time: float
    missed: _containers.MessageMap[str, Missed]
    defaulted: _containers.RepeatedScalarFieldContainer[str]
    stages_ms: _containers.ScalarMap[str, float]
    age_s: float
    def __init__(self, step: _Optional[int] = ..., event_time: _Optional[float] = ..., missed: _Optional[_Mapping[str, Missed]] = ..., defaulted: _Optional[_Iterable[str]] = ..., stages_ms: _Optional[_Mapping[str, float]] = ..., age_s: _Optional[float] = ...) -> None: ...

class BadCandidate(_message.Message):
    __slots__ = ("position", "error")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    position: int
    error: str
    def __init__(self, position: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Missed(_message.Message):
    __slots__ = ("keys", "user", "candidates")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    keys: int
    user: bool
    candidates: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, keys: _Optional[int] = ..., user: _Optional[bool] = ..., candidates: _Optional[_Iterable[int]] = ...) -> None: ...

class RankResponse(_message.Message):
    __slots__ = ("model_name", "model_version", "delta", "id", "ids", "scores", "positions", "outputs", "explain", "bad_candidates")
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Column
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    BAD_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    model_name: str
    model_version: str
    delta: int
    id: str
    ids: Column
    scores: bytes
    positions: bytes
    outputs: _containers.MessageMap[str, Column]
    explain: Explain
    bad_candidates: _containers.RepeatedCompositeFieldContainer[BadCandidate]
    def __init__(self, model_name: _Optional[str] = ..., model_version: _Optional[str] = ..., delta: _Optional[int] = ..., id: _Optional[str] = ..., ids: _Optional[_Union[Column, _Mapping]] = ..., scores: _Optional[bytes] = ..., positions: _Optional[bytes] = ..., outputs: _Optional[_Mapping[str, Column]] = ..., explain: _Optional[_Union[Explain, _Mapping]] = ..., bad_candidates: _Optional[_Iterable[_Union[BadCandidate, _Mapping]]] = ...) -> None: ...
