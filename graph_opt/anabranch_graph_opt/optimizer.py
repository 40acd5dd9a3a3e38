"""From any ONNX model of a recommender to lookups, and the graph that is left without them."""

from dataclasses import replace
from typing import Final

import onnx_ir as ir
from onnx_ir.passes import common as library

from anabranch_graph_opt.bags.finding import find_bags
from anabranch_graph_opt.cutting.buffer_views import BufferViewsPass
from anabranch_graph_opt.cutting.cut import Cut, cut_lookups
from anabranch_graph_opt.model_source import ModelSource, open_model
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import LookupVerdict, Optimized
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.placement.finding import find_lookups
from anabranch_graph_opt.precision.dense_precision import Int8Precision
from anabranch_graph_opt.row_axes import RowAxes, resolve_row_axes
from anabranch_graph_opt.running import ModelRunner
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_graph_opt.structure_hashes import structure_hash
from anabranch_graph_opt.user_side.known_sizes import KnownSizesPass
from anabranch_graph_opt.user_side.mac_counts import UserGain, user_gain
from anabranch_graph_opt.user_side.product_splitting import ProductSplittingPass
from anabranch_graph_opt.user_side.splitting import USER_INDEX, UserSplit, split_users
from anabranch_graph_opt.weight_maps import map_weights

__all__ = ["optimize"]

_CANDIDATES: Final = 1000
"""Of the request that gains are told for."""


def optimize(
    source: ModelSource,
    options: OptimizeOptions,
    precision: Int8Precision | None = None,
    runner: ModelRunner | None = None,
) -> Optimized:
    """Return the optimised form of a model; nothing is promised before it was compared.

    Tables are not read: what leaves the graph stays mapped where it is external.

    Args:
        source: the model, which is not changed.
        options: of its owner.
        precision: how layers compute where `dense` of the options is not f32; what activations
            are has to be seen first.
        runner: runs parts of the model, to prove what they compute; by default the reference
            implementation of ONNX.

    Raises:
        ValueError: `precision` does not fit `dense` of the options.
        NotFound, Corrupt, InvalidInput, Unsupported: as `open_model` and `read_signature`.
    """
    if options.dense.startswith("int8") != (precision is not None):
        raise ValueError(f"dense: {options.dense}, with precision {precision}")
    model = open_model(source)
    signature = read_signature(model)
    axes = resolve_row_axes(signature, options.axes)
    normalised = normalise(model)
    structure = structure_hash(normalised.model, options)
    whole = normalised.model.clone()
    reduced = () if precision is None else precision.apply(normalised.model)
    found = find_lookups(normalised.model, options.min_table_bytes)
    users = _users(signature, axes, options)
    bags = find_bags(normalised.model, found, axes, normalised.weights, runner)
    cut = cut_lookups(normalised.model, found, axes, users, bags)
    split = _split(cut, users, axes)
    dense, user = cut.dense, None
    notes: tuple[str, ...] = ()
    if isinstance(split, UserSplit):
        dense, user = split.dense, split.user
        gain = None if reduced else user_gain(whole, user, dense, _CANDIDATES)
        notes = () if gain is None else (_gain_note(gain),)
    elif users:  # a lookup once per user does not pay for itself
        note = f"nothing is computed once per user: {split}"
        by_row = optimize(source, replace(options, user_once=False), precision, runner)
        return replace(by_row, notes=(note,))
    graphs = [graph for graph in (dense, cut.prelude, user) if graph is not None]
    made = {buffer.name for buffer in cut.buffers} | {USER_INDEX}
    if user is not None:
        made |= {str(value.name) for value in user.graph.outputs}
    return Optimized(
        inputs=signature.inputs,
        outputs=signature.outputs,
        dense=dense,
        prelude=cut.prelude,
        user=user,
        tables=cut.tables,
        buffers=cut.buffers,
        lookups=cut.lookups,
        pass_through=tuple(
            str(value.name) for value in dense.graph.inputs if value.name not in made
        ),
        weights=map_weights(normalised.weights, whole, cut.tables, graphs, frozenset(reduced)),
        verdicts=_verdicts(cut),
        user_inputs=tuple(spec.name for spec in signature.inputs if spec.name in users)
        if user is not None
        else (),
        structure_hash=structure,
        notes=notes,
        reduced_layers=len(reduced),
    )


def _gain_note(gain: UserGain) -> str:
    return (
        f"of the multiplications for {_CANDIDATES:,} candidates of one user, {gain.share:.0%} are "
        f"saved by computing the user once: at most {gain.bound:,.1f} times faster"
    )


def _users(signature: Signature, axes: RowAxes, options: OptimizeOptions) -> frozenset[str]:
    """Return the inputs that hold a user, where what they make is to be computed once."""
    if not options.user_once or isinstance(options.user_inputs, str):
        return frozenset()
    rows = {name for name, axis in axes.kinds.items() if axis.kind == "rows"}
    users = rows.intersection(options.user_inputs)
    # Without an input of candidates there is nobody to meet.
    return frozenset(users) if users < rows else frozenset()


def _split(cut: Cut, users: frozenset[str], axes: RowAxes) -> UserSplit | str:
    if not users:
        return ""
    shared = {name for name, axis in axes.kinds.items() if axis.kind != "rows"}
    if shared or any(value.shape and value.shape[0] == 1 for value in cut.dense.graph.inputs):
        return "some inputs are the same for all rows of a request"
    own = users | {buffer.name for buffer in cut.buffers if buffer.side == "user"}
    return split_users(_products_split(cut, own), own, frozenset(shared))


def _products_split(cut: Cut, users: frozenset[str]) -> ir.Model:
    """Return the graph with products of user and candidate columns taken apart."""
    views = BufferViewsPass([buffer.name for buffer in cut.buffers])
    model = cut.dense
    tidy = library.RemoveUnusedNodesPass()
    for each in (KnownSizesPass(), ProductSplittingPass(users), views, tidy):
        model = each(model).model
    return model


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
