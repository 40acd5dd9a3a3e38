"""How a model is run: executors, batching, queue, memory."""

from typing import Annotated, Literal

from msgspec import Meta

from anabranch_model_store.serving_yaml.cpusets import parse_cpusets
from anabranch_wire.documents import Document
from anabranch_wire.errors import InvalidInput

__all__ = ["AutoBuckets", "Batching", "BucketBudget", "Executors", "Memory", "Queue"]

Index = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class Memory(Document, frozen=True, kw_only=True):
    """Memory that the versions of the model may take.

    Attributes:
        max_bytes: 0 is what the machine has.
    """

    max_bytes: Index = 0


class BucketBudget(Document, frozen=True, kw_only=True):
    """Bounds for buckets that the server chooses.

    Attributes:
        max_rows: largest bucket.
        max_bytes: of device memory for all of them.
    """

    max_rows: Positive = 1024
    max_bytes: Positive = 2_147_483_648


class AutoBuckets(Document, frozen=True, kw_only=True):
    """Buckets that the server chooses itself.

    Attributes:
        auto: within these bounds.
    """

    auto: BucketBudget


class Executors(Document, frozen=True, kw_only=True):
    """The executors of a worker.

    Attributes:
        backend: what runs the dense graph.
        per_worker: 0 is usable cores / workers on CPUs, 2 for each device on GPUs.
        select: how a request finds its executor.
        cpusets: processors of each executor of the machine, worker 0's first; "" pins none.
        devices: numbers of the GPUs.
        streams: one stream for copies and compute, or separate ones.
        buckets: padded batch sizes of captured graphs.
        cpu_fallback: whether a GPU backend may put nodes on the CPU.
    """

    backend: Literal["ort-cpu", "ort-cuda", "tensorrt"] = "ort-cpu"
    per_worker: Annotated[int, Meta(ge=0, le=1024)] = 0
    select: Literal["least_loaded", "round_robin", "mod"] = "least_loaded"
    cpusets: str = ""
    devices: tuple[Index, ...] = (0,)
    streams: Literal["merge", "separate"] = "merge"
    buckets: tuple[Positive, ...] | AutoBuckets = (1, 8, 64, 256, 1024)
    cpu_fallback: Literal["error", "allow"] = "error"

    def __post_init__(self) -> None:
        try:
            parse_cpusets(self.cpusets)
        except InvalidInput as error:
            raise ValueError(f"cpusets: {error.message}") from None
        if not self.devices or len(set(self.devices)) != len(self.devices):
            raise ValueError(f"devices: found {list(self.devices)}; expected different numbers")
        if isinstance(self.buckets, tuple) and (
            not self.buckets or list(self.buckets) != sorted(set(self.buckets))
        ):
            raise ValueError(f"buckets: found {list(self.buckets)}; expected increasing numbers")


class Batching(Document, frozen=True, kw_only=True):
    """How requests meet in batches.

    Attributes:
        merge: whether an executor takes what queued up while it was busy.
        max_rows: of a merged batch; `auto` is found at load.
        max_delay_us: how long an idle executor waits for more.
        split_rows: a request of many rows is cut over idle executors.
    """

    merge: bool = True
    max_rows: Positive | Literal["auto"] = "auto"
    max_delay_us: Annotated[int, Meta(ge=0, le=60_000_000)] = 0
    split_rows: Positive | Literal["auto", "off"] = "auto"


class Queue(Document, frozen=True, kw_only=True):
    """How much may wait, and how long.

    Attributes:
        max_requests: waiting requests at most.
        max_rows: waiting rows at most.
        default_timeout_ms: of requests that name no deadline.
        max_timeout_ms: longest deadline that is granted.
        priority_levels: number of levels.
    """

    max_requests: Positive = 1024
    max_rows: Positive = 65_536
    default_timeout_ms: Annotated[float, Meta(gt=0)] = 1000
    max_timeout_ms: Annotated[float, Meta(gt=0)] = 60_000
    priority_levels: Annotated[int, Meta(ge=1, le=256)] = 2

    def __post_init__(self) -> None:
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError(
                f"default_timeout_ms: {self.default_timeout_ms:g} is more than max_timeout_ms "
                f"{self.max_timeout_ms:g}"
            )
