"""Which outputs a request wants, in which order, and which of them in binary."""

from collections.abc import Sequence

from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.oip.json_tensors import BINARY_ONLY
from anabranch_server.oip.messages import OutputParameters, RequestedOutput
from anabranch_wire.errors import InvalidInput, TooLarge, Unsupported

__all__ = ["wanted_outputs"]

_NO_PARAMETERS = OutputParameters()


def wanted_outputs(
    requested: Sequence[RequestedOutput] | None,
    binary_default: bool,
    served: ServedVersion,
    limits: Limits,
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the indexes of the outputs to answer, and per answered output whether in binary.

    No indexes means all outputs in the model's order, as the protocol has it for an absent or
    empty list.

    Raises:
        InvalidInput: no such output, one twice, or JSON asked for a datatype that has none.
        TooLarge: more outputs than `limits.max_tensors`.
        Unsupported: shared memory or classification.
    """
    if not requested:
        if not binary_default:
            for spec in served.outputs:
                _check_json(spec.name, spec.datatype in BINARY_ONLY, spec.datatype)
        return (), (binary_default,) * len(served.outputs)
    if len(requested) > limits.max_tensors:
        raise TooLarge(f"{len(requested)} outputs: at most {limits.max_tensors} are allowed")
    indexes: list[int] = []
    binary: list[bool] = []
    for output in requested:
        index = served.output_index.get(output.name)
        if index is None:
            names = ", ".join(repr(spec.name) for spec in served.outputs[:20])
            raise InvalidInput(f"output {output.name[:200]!r}: no such output; expected {names}")
        if index in indexes:
            raise InvalidInput(f"output {output.name!r} is requested twice")
        parameters = output.parameters or _NO_PARAMETERS
        if parameters.classification:
            raise Unsupported(f"output {output.name!r}: classification is not supported")
        if parameters.shared_memory_region is not None:
            raise Unsupported(f"output {output.name!r}: shared memory is not supported")
        in_binary = parameters.binary_data
        if in_binary is None:
            in_binary = binary_default
        if not in_binary:
            datatype = served.outputs[index].datatype
            _check_json(output.name, datatype in BINARY_ONLY, datatype)
        indexes.append(index)
        binary.append(in_binary)
    return tuple(indexes), tuple(binary)


def _check_json(name: str, binary_only: bool, datatype: str) -> None:
    if binary_only:
        raise InvalidInput(
            f"output {name!r}: {datatype} is answered as binary data only; set 'binary_data' of "
            "the output or 'binary_data_output' of the request"
        )
