"""The configuration of a served version: Triton's field names where it has them, then our own."""

from dataclasses import dataclass

from anabranch_runtime.models import DenseModel
from anabranch_runtime.served import ServedVersion
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = [
    "BatchingConfiguration",
    "ConfiguredTensor",
    "InstanceGroup",
    "ModelConfiguration",
    "QueueConfiguration",
    "RowConfiguration",
    "configuration_of",
]


@dataclass(frozen=True, slots=True)
class ConfiguredTensor:
    """One input or output.

    Attributes:
        name: the ONNX graph's own name, or that of a feature.
        data_type: Triton's datatype name, such as `TYPE_FP32`.
        dims: axes without the row axis where `max_batch_size` is above 0, else all of them.
    """

    name: str
    data_type: str
    dims: list[int]


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """The executors of the model.

    Attributes:
        name: model name.
        kind: where they run.
        count: how many of them this process has.
    """

    name: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class RowConfiguration:
    """How the rows of requests are treated.

    Attributes:
        independent: whether rows were proven independent, so that requests are merged and split.
        reason: why they were not; empty if they were.
        min_rows: fewer rows than this are padded.
        max_rows: more rows than this in one request are refused.
    """

    independent: bool
    reason: str
    min_rows: int
    max_rows: int


@dataclass(frozen=True, slots=True)
class BatchingConfiguration:
    """How requests meet in batches.

    Attributes:
        merge: whether waiting requests are computed together.
        max_rows: rows of such a batch at most.
        max_delay_us: how long an idle executor waits for more.
        split_rows: rows that are worth an executor of their own; 0 = requests are never cut.
    """

    merge: bool
    max_rows: int
    max_delay_us: int
    split_rows: int


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """How much may wait, and for how long.

    Attributes:
        max_requests: waiting requests at most.
        max_rows: waiting rows at most.
        default_timeout_ms: of requests that name none.
        max_timeout_ms: longest that is granted.
        priority_levels: number of levels.
    """

    max_requests: int
    max_rows: int
    default_timeout_ms: float
    max_timeout_ms: float
    priority_levels: int


@dataclass(frozen=True, slots=True)
class ModelConfiguration:
    """How one version is served.

    Attributes:
        name: model name.
        platform: format and runtime.
        backend: the runtime alone.
        max_batch_size: rows of one request at most, if axis 0 of every tensor is the rows; else 0.
        input: dense inputs in the graph's order, then features.
        output: outputs in the graph's order.
        instance_group: executors.
        default_model_filename: file in the version folder.
        description: the modeller's words; may be empty.
        user_inputs: inputs that may be sent once per request.
        rows: row independence.
        batching: merging and splitting.
        queue: bounds and deadlines.
    """

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ConfiguredTensor]
    output: list[ConfiguredTensor]
    instance_group: list[InstanceGroup]
    default_model_filename: str
    description: str
    user_inputs: list[str]
    rows: RowConfiguration
    batching: BatchingConfiguration
    queue: QueueConfiguration


def configuration_of(served: ServedVersion, max_rows: int) -> ModelConfiguration:
    """Return the configuration of `served`.

    Args:
        served: a served version.
        max_rows: `limits.max_rows`.
    """
    model = served.model
    settings = served.group.settings
    largest = min(max_rows, settings.queue.max_rows)
    rows_first = _rows_come_first(model)
    return ModelConfiguration(
        name=served.snapshot.model,
        platform=served.platform,
        backend=served.platform.removesuffix("_onnx"),
        max_batch_size=largest if rows_first else 0,
        input=[_tensor(spec, rows_first) for spec in served.inputs],
        output=[_tensor(spec, rows_first) for spec in served.outputs],
        instance_group=[InstanceGroup(served.snapshot.model, "KIND_CPU", settings.executors)],
        default_model_filename=model.path.name,
        description=served.description,
        user_inputs=list(served.user_inputs),
        rows=RowConfiguration(
            model.rows.independent, model.rows.reason, model.rows.min_rows, largest
        ),
        batching=BatchingConfiguration(
            merge=served.mergeable,
            max_rows=served.max_rows,
            max_delay_us=round(settings.batching.max_delay_s * 1e6),
            split_rows=served.split_rows,
        ),
        queue=QueueConfiguration(
            max_requests=settings.queue.max_requests,
            max_rows=settings.queue.max_rows,
            default_timeout_ms=settings.queue.default_timeout_s * 1e3,
            max_timeout_ms=settings.queue.max_timeout_s * 1e3,
            priority_levels=settings.queue.priority_levels,
        ),
    )


def _rows_come_first(model: DenseModel) -> bool:
    if model.lookups is not None and any(feature.ragged for feature in model.lookups.features):
        return False  # flat ids have no axis of rows
    return all(axis == 0 for axis in (*model.rows.input_axes, *model.rows.output_axes))


def _tensor(spec: TensorSpec, rows_first: bool) -> ConfiguredTensor:
    dims = spec.shape[1:] if rows_first else spec.shape
    return ConfiguredTensor(spec.name, _data_type(spec.datatype), list(dims))


def _data_type(datatype: Datatype) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
