"""Lookups of model.yaml against graph, features and tables: what they become, what is refused."""

from typing import Any

import onnx
import onnx_ir as ir
import pytest

from anabranch_graph_opt.row_axes import resolve_row_axes
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_model_store.graph_names import check_names, declared_axes
from anabranch_model_store.lookup_plans import compile_lookups, user_features
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_runtime.lookups import Lookups, lookups_of
from anabranch_wire import plan as plans
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Lengths, Values
from anabranch_wire.missing import Zeros
from anabranch_wire.plan import Plan, PlanTable, Source

GRAPH = """
rank (float[N, 2] x, float[N, 12] emb, float16[N, 4] short, float[N, D] any, int64[N, 2] ids,
      float[3, 2] fixed)
  => (float[N, 2] y) { y = Exp(x) }
"""
DIGEST = "0" * 64


def signature() -> Signature:
    text = f'<ir_version: 8, opset_import: ["": 17]> {GRAPH}'
    return read_signature(ir.serde.deserialize_model(onnx.parser.parse_model(text)))


def table(name: str, dim: int = 4, **fields: Any) -> PlanTable:
    said: dict[str, Any] = {
        "file": "tables/0000.npy", "rows": 10, "dtype": "f32", "keys": "hashed", "missing": Zeros(),
        **fields,
    }  # fmt: skip
    return PlanTable(name=name, dim=dim, **said)


TABLES = {"t": table("t"), "u": table("u", 8), "v": table("v"), "alias of t": table("t")}


def compiled(text: str) -> Plan:
    meaning = read_yaml(text.encode(), ModelMeaning, "model.yaml")
    graph = signature()
    check_names(meaning, graph)
    axes = resolve_row_axes(graph, declared_axes(meaning))
    used = {lookup.table: TABLES[lookup.table] for lookup in meaning.lookups}
    source = Source(file="model.onnx", sha256=DIGEST)
    plan = compile_lookups(meaning, graph, axes, used, source, f"sha256:{DIGEST}")
    assert plans.decode(plans.encode(plan)) == plan
    return plan


def tied(text: str) -> Lookups:
    meaning = read_yaml(text.encode(), ModelMeaning, "model.yaml")
    lookups = lookups_of(compiled(text), signature().inputs, user_features(meaning))
    assert lookups is not None
    return lookups


def lookup(
    feature: str, columns: list[int], *, name: str = "t", combiner: str = "sum", to: str = "emb"
) -> str:
    return (
        f"{{feature: {feature}, table: {name}, combiner: {combiner}, "
        f"output: {{input: {to}, columns: {columns}}}}}"
    )


def lookups(*lines: str) -> str:
    return f"lookups: [{', '.join(lines)}]\n"


def test_inputs_that_are_filled_become_buffers_and_the_others_pass_through() -> None:
    plan = compiled(
        lookups(
            lookup("a", [0, 4]),
            lookup("b", [4, 12], name="u", combiner="mean"),
            lookup("c", [0, 4], to="short"),
        )
    )
    assert [(b.name, b.side, b.dtype, b.columns) for b in plan.buffers] == [
        ("emb", "row", "f32", 12),
        ("short", "row", "f16", 4),
    ]
    assert plan.pass_through == ("x", "any", "ids", "fixed")
    assert plan.graphs.dense == "model.onnx"
    assert [one.name for one in plan.tables] == ["t", "u"]
    assert [(one.table, one.output.buffer, one.output.column) for one in plan.lookups] == [
        (0, 0, 0),
        (1, 0, 4),
        (0, 1, 0),
    ]
    assert set(plan.weights) == {"t", "u"}


def test_a_bag_that_model_yaml_does_not_list_may_have_any_length() -> None:
    (one, _) = compiled(lookups(lookup("a", [0, 4]), lookup("b", [4, 12], name="u"))).lookups
    assert one.lengths == Lengths(input="a.lengths")
    assert (one.weights, one.max_length) == (None, 2**20)


def test_a_sequence_has_as_many_ids_as_its_columns() -> None:
    (one,) = compiled(lookups(lookup("a", [0, 12], combiner="none"))).lookups
    assert (one.lengths, one.max_length) == (None, 3)
    (feature,) = tied(lookups(lookup("a", [0, 12], combiner="none"))).features
    assert feature.spec.shape == (-1, 3)


def test_an_axis_of_any_size_has_the_columns_that_are_filled() -> None:
    plan = compiled(lookups(lookup("a", [0, 4], to="any"), lookup("b", [4, 8], to="any")))
    assert plan.buffers[0].columns == 8


def test_listed_features_say_how_many_ids_they_have_and_whether_they_are_weighted() -> None:
    text = """
    features:
      - {name: one, side: candidate, type: int64}
      - {name: bag, side: candidate, type: string, ragged: {max_length: 30}, weights: true,
         hash: {function: xxh64, num_buckets: 0}}
      - {name: sequence, side: candidate, type: int64, ragged: {max_length: 5, pad_to: 5}}
    """ + lookups(
        lookup("one", [0, 4]), lookup("bag", [4, 12], name="u"),
        lookup("sequence", [0, 20], to="any", combiner="none"),
    )  # fmt: skip
    one, bag, sequence = compiled(text).lookups
    assert (one.lengths, one.max_length) == (None, 1)
    assert (bag.lengths, bag.max_length) == (Lengths(input="bag.lengths"), 30)
    assert bag.weights == Values(input="bag.weights")
    assert (sequence.lengths, sequence.max_length) == (Lengths(input="sequence.lengths"), 5)
    assert [feature.ragged for feature in tied(text).features] == [False, True, True]


def test_several_lookups_may_read_one_feature_and_several_features_one_table() -> None:
    found = tied(
        lookups(
            lookup("a", [0, 4]), lookup("a", [4, 12], name="u", combiner="max"),
            lookup("b", [0, 4], to="short"),
        )
    )  # fmt: skip
    assert [feature.name for feature in found.features] == ["a", "b"]
    assert found.sources == (0, 0, 1)
    assert [one.table for one in found.plan.lookups] == [0, 1, 0]


USER = "features:\n  - {name: user_id, side: user, type: int64}\n"
USERS = USER + "  - {name: item_id, side: candidate, type: int64}\n"


def test_an_input_of_the_user_is_filled_once_for_each_user() -> None:
    text = (
        "user_inputs: [any]\n" + USERS
        + lookups(lookup("user_id", [0, 4], to="any"), lookup("item_id", [0, 4], to="short"))
    )  # fmt: skip
    assert [(buffer.name, buffer.side) for buffer in compiled(text).buffers] == [
        ("short", "row"),
        ("any", "user"),
    ]
    user, item = tied(text).features
    assert (user.is_user, user.once) == (True, True)
    assert (item.is_user, item.once) == (False, False)


@pytest.mark.parametrize(
    "text",
    [
        # The input is not said to be of the user.
        USER + lookups(lookup("user_id", [0, 4], to="any")),
        # Another feature fills a part of it.
        "user_inputs: [any]\n" + USERS
        + lookups(lookup("user_id", [0, 4], to="any"), lookup("item_id", [4, 8], to="any")),
        # The feature is read for rows elsewhere.
        "user_inputs: [any]\n" + USER
        + lookups(lookup("user_id", [0, 4], to="any"), lookup("user_id", [0, 4], to="short")),
    ],
)  # fmt: skip
def test_elsewhere_a_user_is_looked_up_for_each_row_but_may_be_sent_once(text: str) -> None:
    assert {buffer.side for buffer in compiled(text).buffers} == {"row"}
    user = tied(text).features[0]
    assert (user.is_user, user.once) == (True, False)


def test_user_inputs_may_name_a_feature() -> None:
    text = "user_inputs: [a]\n" + lookups(lookup("a", [0, 4], to="short"))
    assert tied(text).features[0].is_user


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (lookups(lookup("a", [0, 4])), "columns 4 to 12 would stay zero"),
        (lookups(lookup("a", [4, 8]), lookup("b", [8, 12])), "columns 0 to 4 would stay zero"),
        (lookups(lookup("a", [0, 4]), lookup("b", [4, 8]), lookup("c", [8, 13])), "up to 13"),
        (lookups(lookup("a", [0, 2], to="ids")), "input 'ids': expected FP32 or FP16 [rows, colu"),
        (lookups(lookup("a", [0, 2], to="fixed")), "input 'fixed': expected FP32 or FP16 [rows"),
        (
            "inputs: {any: {axis: none}}\n" + lookups(lookup("a", [0, 4], to="any")),
            "input 'any': expected FP32",
        ),
        (
            lookups(lookup("a", [0, 12])),
            "feature 'a' in table 't': columns [0, 12] are 12; rows have 4 numbers, so 4 were",
        ),
        (
            lookups(lookup("a", [0, 6], combiner="none", to="any")),
            "columns [0, 6] are 6; rows have 4 numbers, so 4 were expected",
        ),
        (
            lookups(lookup("a", [0, 10], combiner="none", to="any")),
            "rows have 4 numbers for each of 2 ids, so 8 were expected",
        ),
        (
            lookups(
                lookup("a", [0, 12], combiner="none"),
                lookup("a", [0, 8], name="u", combiner="none", to="any"),
            ),
            "feature 'a' has columns for different numbers of ids: 3 of 't', 1 of 'u'",
        ),
        (
            "features: [{name: s, side: user, type: int64, ragged: {max_length: 5}}]\n"
            + lookups(lookup("s", [0, 12], combiner="none")),
            "feature 's' has columns for 3 ids; expected 5, as its ragged: says",
        ),
        (
            "features: [{name: f, side: user, type: float32}]\n"
            + lookups(lookup("f", [0, 4], to="short")),
            "feature 'f' is float32; keys are int64",
        ),
        (
            "features: [{name: w, side: user, type: int64, ragged: {max_length: 5}, weights: true}]"
            "\n" + lookups(lookup("w", [0, 4], to="short", combiner="max")),
            "weights have no meaning for combiner: max",
        ),
        (
            "user_inputs: [c]\nfeatures: [{name: c, side: candidate, type: int64}]\n"
            + lookups(lookup("c", [0, 4], to="short")),
            "features[0].side: candidate, but it feeds the user input 'c'",
        ),
    ],
)
def test_lookups_that_do_not_fit_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        compiled(text)
    assert caught.value.message.startswith("model.yaml: ")
    assert words in caught.value.message


@pytest.mark.parametrize("feature", ["x", "ids", "emb"])
def test_a_feature_with_the_name_of_a_graph_input_is_refused(feature: str) -> None:
    with pytest.raises(InvalidInput, match=f"another input of the model is called '{feature}'"):
        tied(lookups(lookup(feature, [0, 4], to="short")))


def test_features_whose_parts_have_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"another input of the model is called 'a\.lengths'"):
        tied(lookups(lookup("a", [0, 4], to="any"), lookup("a.lengths", [4, 8], to="any")))


SEVERAL = """
features:
  - name: author
    side: {SIDE}
    type: int64
    multi_hash: {method: quotient_remainder, num_buckets: 9, tables: [t, v], combine: {HOW}}
"""


def several(how: str, side: str = "candidate") -> str:
    return SEVERAL.replace("{SIDE}", side).replace("{HOW}", how)


@pytest.mark.parametrize("how", ["sum", "multiply"])
def test_rows_of_a_value_of_several_hashes_join_in_the_same_columns(how: str) -> None:
    text = several(how) + lookups(
        lookup("author", [0, 4], name="v", to="any", combiner="none"),
        lookup("a", [4, 8], to="any"),
        lookup("author", [0, 4], to="any", combiner="none"),
    )
    plan = compiled(text)
    assert [(one.ids.input, one.output.column, one.combine) for one in plan.lookups] == [
        ("author.v", 0, None),
        ("a", 4, None),
        ("author.t", 0, how),
    ]
    assert [one.spec.shape for one in tied(text).features] == [(-1, 1), (-1,), (-1, 1)]


def test_rows_of_a_value_of_several_hashes_may_lie_side_by_side() -> None:
    text = several("concat") + lookups(
        lookup("author", [4, 8], name="v", to="any"), lookup("author", [0, 4], to="any")
    )
    assert [(one.output.column, one.combine) for one in compiled(text).lookups] == [
        (4, None),
        (0, None),
    ]


def test_a_user_of_several_hashes_is_looked_up_once() -> None:
    text = (
        "user_inputs: [any]\n" + several("sum", "user")
        + lookups(lookup("author", [0, 4], name="v", to="any"),
                  lookup("author", [0, 4], to="any"), lookup("a", [0, 4], to="short"))
    )  # fmt: skip
    meaning = read_yaml(text.encode(), ModelMeaning, "model.yaml")
    assert user_features(meaning) == ("author.v", "author.t")
    assert [one.once for one in tied(text).features] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            several("sum") + lookups(lookup("author", [0, 4], to="any")),
            "feature 'author' (multi_hash): found lookups in 't'; expected one in each of 't', 'v'",
        ),
        (
            several("sum")
            + lookups(*[lookup("author", [0, 4], name=n, to="any") for n in ("t", "v", "t")]),
            "found lookups in 't', 'v', 't'; expected one in each",
        ),
        (
            several("sum")
            + lookups(lookup("author", [0, 4], to="any"),
                      lookup("author", [4, 8], name="v", to="any")),
            "combine: sum puts all rows into the same columns; found 2 different outputs",
        ),
        (
            several("concat")
            + lookups(lookup("author", [0, 4], to="any"),
                      lookup("author", [0, 4], name="v", to="any")),
            "'author' and 'author' both write to input 'any'",
        ),
        (
            several("sum").replace("[t, v]", "[t, u]")
            + lookups(lookup("author", [0, 4], to="any"),
                      lookup("author", [0, 4], name="u", to="any")),
            "feature 'author.u' in table 'u': columns [0, 4] are 4; rows have 8 numbers",
        ),
        (
            several("sum")
            + lookups(lookup("a", [0, 4], to="any"), lookup("author", [0, 4], to="any"),
                      lookup("author", [0, 4], name="v", to="any")),
            "both write to input 'any'",
        ),
    ],
)  # fmt: skip
def test_lookups_of_several_hashes_that_do_not_fit_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        compiled(text)
    assert words in caught.value.message


def test_an_input_that_the_graph_lacks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lookups: the graph has no input 'embb', did you mean"):
        compiled(lookups(lookup("a", [0, 4], to="embb")))
