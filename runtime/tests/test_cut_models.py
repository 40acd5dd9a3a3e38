"""Plans against the graphs that they belong to: what fits is tied together, all else is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from anabranch_runtime.cut_models import USER_INDEX, CutModel, IdRead, cut_model
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_testing.cut_graphs import INPUTS, USER_NAMES, cut_graphs, cut_parts, cut_plan
from anabranch_testing.looked_up import looked_up_model
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Ids, Lengths, Offsets, Values
from anabranch_wire.plan import Buffer, Graphs, Plan
from anabranch_wire.tensors import Datatype, TensorSpec

change = msgspec.structs.replace
Specs = tuple[TensorSpec, ...]


@pytest.fixture
def parts(tmp_path: Path) -> tuple[DenseModel, DenseModel, DenseModel]:
    dense, prelude, user = cut_parts(tmp_path)
    assert user is not None
    return dense, prelude, user


def graph(inputs: Specs, outputs: Specs = ()) -> DenseModel:
    return part_model(Path("nowhere.onnx"), inputs, outputs)


def with_lookup(plan: Plan, index: int, **fields: object) -> Plan:
    lookups = list(plan.lookups)
    lookups[index] = change(lookups[index], **fields)
    return change(plan, lookups=tuple(lookups))


def test_a_plan_that_fits_says_where_everything_comes_from(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    cut = cut_model(cut_plan(), INPUTS, *parts, USER_NAMES)

    assert cut.passed == (2, None, None, None)  # x is the third input of the original
    assert cut.buffers == (1, None)  # the second one is the user's
    assert cut.prelude_inputs == (3,)
    assert cut.reads == (
        IdRead(of_prelude=False, index=0, columns=(0, 2)),
        IdRead(of_prelude=True, index=0, columns=(0, 1)),
        IdRead(of_prelude=False, index=1, columns=(0, 1)),
    )
    assert cut.id_types == {"items": "int64", "ab_ids_0": "int64", "user": "int64"}
    assert cut.user is not None
    assert cut.user.inputs == cut.user_inputs == (1, 4)
    assert (cut.user.takes, cut.user.buffers) == ((4, None), (None, 1))
    assert (cut.user.gives, cut.user.index) == ((2,), 3)


def test_without_a_user_side_no_input_holds_a_user(tmp_path: Path) -> None:
    cut = cut_graphs(tmp_path, user_once=False).cut

    assert cut is not None
    assert (cut.user, cut.user_inputs) == (None, ())
    assert cut.passed == (2, 4, None)


@pytest.mark.parametrize(
    ("datatype", "expected"),
    [("INT64", "int64"), ("INT32", "int32"), ("FP32", "float32"), ("FP64", "float64")],
)
def test_ids_have_the_type_of_their_input(
    parts: tuple[DenseModel, DenseModel, DenseModel], datatype: Datatype, expected: str
) -> None:
    inputs = (replace(INPUTS[0], datatype=datatype), *INPUTS[1:])

    cut = cut_model(cut_plan(), inputs, *parts, USER_NAMES)

    assert cut.id_types["items"] == expected


def test_ids_may_be_columns_of_a_row_or_what_all_rows_share(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    wide = (TensorSpec("items", "INT64", (-1, 2, 3)), *INPUTS[1:])
    plan = with_lookup(cut_plan(), 0, ids=Ids(input="items", columns=(4, 6)))
    shared = (*INPUTS, TensorSpec("shop", "INT64", (1,)))
    own = with_lookup(cut_plan(), 2, ids=Ids(input="shop"))

    assert cut_model(plan, wide, *parts, USER_NAMES).reads[0].columns == (4, 6)
    assert cut_model(own, shared, *parts, USER_NAMES).reads[2] == IdRead(False, 5, (0, 1))


def no_prelude(plan: Plan) -> Plan:
    return change(plan, graphs=Graphs(dense="dense.onnx", user="user.onnx"))


def no_user(plan: Plan) -> Plan:
    return change(plan, graphs=Graphs(dense="dense.onnx", prelude="prelude.onnx"))


def other_buffer(plan: Plan) -> Plan:
    buffers = (Buffer(name="away", side="row", dtype="f32", columns=6), plan.buffers[1])
    return change(plan, buffers=buffers)


def nothing_passed(plan: Plan) -> Plan:
    return change(plan, pass_through=())


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (no_prelude, "a prelude is named, but there is none, or the reverse"),
        (no_user, "a user graph is named, but there is none, or the reverse"),
        (other_buffer, "buffer 'away' is no input of a graph"),
        (nothing_passed, "input 'x' of the dense graph is neither a buffer nor passed through"),
        (
            lambda plan: with_lookup(plan, 0, ids=Ids(input="gone")),
            r"lookups\[0\]: there is no input 'gone'",
        ),
        (
            lambda plan: with_lookup(plan, 0, max_length=1),
            r"lookups\[0\]: elements 0 to 2 of a row of 'items' .* are not the 1 ids",
        ),
        (
            lambda plan: with_lookup(plan, 0, ids=Ids(input="items", columns=(1, 3))),
            r"lookups\[0\]: elements 1 to 3 of a row of 'items'",
        ),
        (
            lambda plan: with_lookup(plan, 1, ids=Ids(input="ab_ids_0", columns=(1, 2))),
            r"lookups\[1\]: elements 1 to 2 of a row of 'ab_ids_0'",
        ),
    ],
)
def test_a_plan_that_contradicts_its_graphs_is_refused(
    parts: tuple[DenseModel, DenseModel, DenseModel], made: Callable[[Plan], Plan], words: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^plan.json: {words}"):
        cut_model(made(cut_plan()), INPUTS, *parts, USER_NAMES)


def test_graphs_that_the_plan_names_have_to_be_there(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    dense, prelude, user = parts
    with pytest.raises(InvalidInput, match="a prelude is named"):
        cut_model(cut_plan(), INPUTS, dense, None, user, USER_NAMES)
    with pytest.raises(InvalidInput, match="a user graph is named"):
        cut_model(cut_plan(), INPUTS, dense, prelude, None, USER_NAMES)


def test_graphs_take_what_the_original_takes(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    dense, prelude, user = parts
    other = TensorSpec("other", "FP32", (-1, 1))
    plan = cut_plan()

    more_dense = graph((*dense.inputs, other), dense.outputs)
    more_user = graph((*user.inputs, other), user.outputs)

    with pytest.raises(InvalidInput, match="the prelude takes 'other', which is no input"):
        cut_model(plan, INPUTS, dense, replace(prelude, inputs=(other,)), user, USER_NAMES)
    with pytest.raises(InvalidInput, match="input 'other' of the dense graph is neither"):
        cut_model(plan, INPUTS, more_dense, prelude, user, USER_NAMES)
    with pytest.raises(InvalidInput, match="the user graph takes 'other', which holds no user"):
        cut_model(plan, INPUTS, dense, prelude, more_user, USER_NAMES)
    with pytest.raises(InvalidInput, match="the user graph takes 'age', which holds no user"):
        cut_model(plan, INPUTS, dense, prelude, user, ("user",))


@pytest.mark.parametrize("missing", ["ab_once_0", USER_INDEX])
def test_a_dense_graph_takes_what_was_computed_once(
    parts: tuple[DenseModel, DenseModel, DenseModel], missing: str
) -> None:
    dense, prelude, user = parts
    less = graph(tuple(spec for spec in dense.inputs if spec.name != missing), dense.outputs)

    with pytest.raises(InvalidInput, match=f"the dense graph does not take '{missing}'"):
        cut_model(cut_plan(), INPUTS, less, prelude, user, USER_NAMES)


def test_bags_of_varying_length_are_told_by_an_input(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    inputs = (
        replace(INPUTS[0], shape=(-1,)),
        *INPUTS[1:],
        TensorSpec("starts", "INT32", (-1,)),
        TensorSpec("w", "FP32", (-1,)),
    )
    fields = {"combiner": "sum", "weights": Values(input="w"), "max_length": 100}
    plan = with_lookup(cut_plan(), 0, lengths=Offsets(input="starts"), **fields)

    cut = cut_model(plan, inputs, *parts, USER_NAMES)

    assert cut.bags == (5, None, None)
    assert cut.reads[0] == IdRead(of_prelude=False, index=0, columns=(0, 1))
    assert cut.weights[0] == IdRead(of_prelude=False, index=6, columns=(0, 1))
    assert cut.id_types["starts"] == "int32"


@pytest.mark.parametrize(
    ("ids", "bag", "error", "words"),
    [
        ("items", "starts", InvalidInput, "'items' .* is not one number an id"),
        ("flat", "gone", InvalidInput, "there is no input 'gone'"),
        ("flat", "x", Unsupported, "FP32 .* in 'x'; bags are told by one INT64 or INT32"),
        ("ab_ids_0", "starts", InvalidInput, "there is no input 'ab_ids_0'"),
    ],
)
def test_bags_that_do_not_fit_are_refused(
    parts: tuple[DenseModel, DenseModel, DenseModel],
    ids: str,
    bag: str,
    error: type[Exception],
    words: str,
) -> None:
    more = [TensorSpec(name, "INT64", (-1,)) for name in ("flat", "starts")]
    plan = with_lookup(
        cut_plan(), 0, ids=Ids(input=ids), combiner="sum", lengths=Lengths(input=bag)
    )

    with pytest.raises(error, match=rf"^plan.json: lookups\[0\](.lengths)?: {words}"):
        cut_model(plan, (*INPUTS, *more), *parts, USER_NAMES)


def test_weights_are_columns_of_an_input_or_made_by_the_prelude(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    dense, prelude, user = parts
    inputs = (*INPUTS, TensorSpec("w", "FP32", (-1, 5)))
    made = replace(prelude, outputs=(*prelude.outputs, TensorSpec("v", "FP32", (-1, 2))))
    plan = with_lookup(cut_plan(), 0, combiner="sum", weights=Values(input="w", columns=(1, 3)))

    cut = cut_model(plan, inputs, dense, made, user, USER_NAMES)
    other = with_lookup(plan, 0, combiner="sum", weights=Values(input="v"))

    assert cut.weights == (IdRead(of_prelude=False, index=5, columns=(1, 3)), None, None)
    assert cut_model(other, inputs, dense, made, user, USER_NAMES).weights[0] == IdRead(
        of_prelude=True, index=1, columns=(0, 2)
    )


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        (Values(input="gone"), InvalidInput, "there is no input 'gone'"),
        (Values(input="w"), InvalidInput, "elements 0 to 5 of a row of 'w' .* not the 2 "),
        (Values(input="n"), Unsupported, "INT64 in 'n'; weights are FP32"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    parts: tuple[DenseModel, DenseModel, DenseModel],
    weights: Values,
    error: type[Exception],
    words: str,
) -> None:
    inputs = (*INPUTS, TensorSpec("w", "FP32", (-1, 5)), TensorSpec("n", "INT64", (-1, 2)))
    plan = with_lookup(cut_plan(), 0, combiner="sum", weights=weights)

    with pytest.raises(error, match=rf"^plan.json: lookups\[0\].weights: {words}"):
        cut_model(plan, inputs, *parts, USER_NAMES)


@pytest.mark.parametrize("datatype", ["FP16", "BOOL", "UINT8", "BYTES"])
def test_ids_of_other_types_are_not_supported(
    parts: tuple[DenseModel, DenseModel, DenseModel], datatype: Datatype
) -> None:
    inputs = (replace(INPUTS[0], datatype=datatype), *INPUTS[1:])
    with pytest.raises(Unsupported, match=f"ids of type {datatype} in 'items'"):
        cut_model(cut_plan(), inputs, *parts, USER_NAMES)


def test_rows_of_varying_length_hold_no_ids_of_a_plan(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    inputs = (TensorSpec("items", "INT64", (-1, -1)), *INPUTS[1:])
    with pytest.raises(InvalidInput, match=r"a row of 'items' .* are not the 2 ids"):
        cut_model(cut_plan(), inputs, *parts, USER_NAMES)


def test_lookups_are_cut_out_or_stand_beside_a_graph(tmp_path: Path) -> None:
    beside = looked_up_model(tmp_path / "beside")
    cut: CutModel | None = cut_graphs(tmp_path / "cut").cut

    with pytest.raises(ValueError, match="cut out of a graph or stand beside it"):
        replace(beside, cut=cut)


def test_what_rows_do_is_known_of_the_original_alone(
    parts: tuple[DenseModel, DenseModel, DenseModel],
) -> None:
    for part in parts:
        unknown = (None,) * len(part.inputs), (None,) * len(part.outputs)
        assert part.rows == RowLayout(False, 1, *unknown)
