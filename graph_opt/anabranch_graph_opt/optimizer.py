"""From any ONNX model of a recommender to lookups, and the graph that is left without them."""

from anabranch_graph_opt.cutting.cut import Cut, cut_lookups
from anabranch_graph_opt.model_source import ModelSource, open_model
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import LookupVerdict, Optimized
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.placement.finding import find_lookups
from anabranch_graph_opt.row_axes import resolve_row_axes
from anabranch_graph_opt.signature import read_signature
from anabranch_graph_opt.structure_hashes import structure_hash
from anabranch_graph_opt.weight_maps import map_weights

__all__ = ["optimize"]


def optimize(source: ModelSource, options: OptimizeOptions) -> Optimized:
    """Return the optimised form of a model; nothing is promised before it was compared.

    Tables are not read: what leaves the graph stays mapped where it is external.

    Args:
        source: the model, which is not changed.
        options: of its owner.

    Raises:
        NotFound, Corrupt, InvalidInput, Unsupported: as `open_model` and `read_signature`.
    """
    model = open_model(source)
    signature = read_signature(model)
    axes = resolve_row_axes(signature, options.axes)
    normalised = normalise(model)
    structure = structure_hash(normalised.model, options)
    whole = normalised.model.clone()
    found = find_lookups(normalised.model, options.min_table_bytes)
    cut = cut_lookups(normalised.model, found, axes)
    graphs = [graph for graph in (cut.dense, cut.prelude) if graph is not None]
    buffers = {buffer.name for buffer in cut.buffers}
    return Optimized(
        inputs=signature.inputs,
        outputs=signature.outputs,
        dense=cut.dense,
        prelude=cut.prelude,
        user=None,
        tables=cut.tables,
        buffers=cut.buffers,
        lookups=cut.lookups,
        pass_through=tuple(
            str(value.name) for value in cut.dense.graph.inputs if value.name not in buffers
        ),
        weights=map_weights(normalised.weights, whole, cut.tables, graphs),
        verdicts=_verdicts(cut),
        user_inputs=(),
        structure_hash=structure,
        notes=(),
    )


def _verdicts(cut: Cut) -> tuple[LookupVerdict, ...]:
    verdicts = []
    for found, ids in zip(cut.found, cut.sources, strict=True):
        tensor = found.table.const_value
        assert tensor is not None
        rows, dim = tensor.shape.numpy()
        verdicts.append(
            LookupVerdict(
                node=found.node.name or str(found.output.name),
                table=str(found.table.name),
                rows=rows,
                dim=dim,
                ids=ids,
                reason=found.reason,
            )
        )
    return tuple(verdicts)
