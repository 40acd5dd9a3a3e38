"""Ranking of model.yaml against a graph: what it becomes, and in which words it is refused."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.ranking_plans import ranking_plan
from anabranch_model_store.version_contents import (
    check_unpublished,
    find_onnx_file,
    malformed_graphs_refused,
    read_contents,
)
from anabranch_model_store.version_files import verify_version
from anabranch_model_store.version_tables import read_tables
from anabranch_model_store.yaml_files import read_meaning
from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    CalibrationPlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
    VocabularyPlan,
)
from anabranch_wire.errors import InvalidInput, NotFound
from anabranch_wire.names import ModelName
from anabranch_wire.snapshots import Snapshot

GRAPH = """
rank (int64[N] user_id, int64[N, 1] item_id, float[N, 1] price, float[N, 3] affinity,
      int64[N, 4] hist, int64[N] hist_len, float[N, 6] X)
  => (float[N] ctr, float[N, 1] cvr, float[N, 3] wide)
{
  p = Squeeze (price)
  ctr = Sigmoid (p)
  cvr = Sigmoid (price)
  wide = Exp (affinity)
}
"""
YAML = """
user_inputs: [user_id, affinity, hist, hist_len]
features:
  - {name: user_id, side: user, type: string, hash: {function: xxh64, seed: 3, num_buckets: 100}}
  - {name: item_id, side: candidate, type: int64}
  - {name: price, side: candidate, type: float32, default: 1}
  - {name: affinity, side: user, type: float32, shape: [3], default: [0, 1, 2.5]}
  - name: clicks
    side: user
    type: int64
    ragged: {max_length: 3, keep: last, pad_to: 4, padding: -1, lengths_input: hist_len}
    input: hist
  - {name: slot, side: candidate, type: int64, input: {name: X, columns: [0, 1]}}
  - name: last
    side: user
    type: float32
    bucketize: {boundaries: [0.5, 1]}
    ragged: {max_length: 2, pad_to: 2}
    default: []
    input: {name: X, columns: [1, 3], length_column: 3}
  - name: author
    side: candidate
    type: int64
    multi_hash: {method: quotient_remainder, num_buckets: 10, tables: [a, b], combine: concat}
    input: {name: X, columns: [4, 6]}
ranking: {id: item_id, score: {output: ctr}, routing_key: user_id}
"""


class Version:
    """A version folder; `plan` compiles its ranking."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "m" / "1"
        self.folder.mkdir(parents=True)

    def write(self, graph: str, yaml: str, files: dict[str, bytes] | None = None) -> "Version":
        text = f'<ir_version: 8, opset_import: ["": 17]> {graph}'
        onnx.save(onnx.parser.parse_model(text), self.folder / "model.onnx")
        (self.folder / "model.yaml").write_text(yaml)
        for name, data in (files or {}).items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        return self

    def table(self, name: str, dim: int) -> "Version":
        (self.folder / "tables").mkdir(exist_ok=True)
        np.save(self.folder / "tables" / f"{name}.npy", np.zeros((5, dim), np.float32))
        return self

    def plan(self) -> RankingPlan | None:
        files = verify_version(self.folder, Snapshot(ModelName("m"), 1))
        meaning = read_meaning(files, self.folder.parent)
        onnx_file = find_onnx_file(files, meaning)
        with malformed_graphs_refused(onnx_file):
            contents = read_contents(onnx_file, files, meaning, read_tables(files, meaning))
        cache = BuiltGraphs(self.root / "cache", 1 << 30)
        plan = ranking_plan(meaning, contents, files, cache)
        if plan is not None:  # it crosses processes as it is
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=RankingPlan) == plan
        return plan


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path)


def test_features_fill_the_inputs_of_the_graph(version: Version) -> None:
    plan = version.write(GRAPH, YAML).plan()

    assert plan is not None
    assert plan.tensors == (
        TensorFill("user_id", "INT64", (), True),
        TensorFill("item_id", "INT64", (1,), False),
        TensorFill("price", "FP32", (1,), False),
        TensorFill("affinity", "FP32", (3,), True),
        TensorFill("hist", "INT64", (4,), True),
        TensorFill("hist_len", "INT64", (), True),
        TensorFill("X", "FP32", (6,), False),
    )
    assert plan.features == (
        FeaturePlan(
            name="user_id", side="user", type="string", transform=HashPlan("xxh64", 100, 3),
            values=(SinkPlan(0, 0),),
        ),
        FeaturePlan(name="item_id", side="candidate", type="int64", values=(SinkPlan(1, 0),)),
        FeaturePlan(
            name="price", side="candidate", type="float32", default=(1.0,),
            values=(SinkPlan(2, 0),),
        ),
        FeaturePlan(
            name="affinity", side="user", type="float32", shape=(3,), default=(0.0, 1.0, 2.5),
            values=(SinkPlan(3, 0),),
        ),
        FeaturePlan(
            name="clicks", side="user", type="int64", ragged=RaggedPlan(3, "last", 4, -1.0),
            values=(SinkPlan(4, 0),), lengths=SinkPlan(5, 0),
        ),
        FeaturePlan(name="slot", side="candidate", type="int64", values=(SinkPlan(6, 0),)),
        FeaturePlan(
            name="last", side="user", type="float32", transform=BucketizePlan((0.5, 1.0)),
            ragged=RaggedPlan(2, "error", 2, 0.0), default=(), values=(SinkPlan(6, 1),),
            lengths=SinkPlan(6, 3),
        ),
        FeaturePlan(
            name="author", side="candidate", type="int64", transform=MultiHashPlan(10, (), 0),
            values=(SinkPlan(6, 4), SinkPlan(6, 5)),
        ),
    )  # fmt: skip
    assert (plan.id, plan.routing_key, plan.item_table) == ("item_id", "user_id", None)
    assert (plan.formula, plan.heads, plan.weights) == ("head", ("ctr",), (1.0,))
    assert (plan.descending, plan.report_bad, plan.calibration) == (True, False, {})
    assert isinstance(plan.features[2].default, tuple)
    assert isinstance(plan.features[2].default[0], float)


def test_without_ranking_there_is_no_plan(version: Version) -> None:
    assert version.write(GRAPH, YAML.partition("ranking:")[0]).plan() is None


SCORES = """
outputs: {cvr: {kind: logit}}
ranking:
  id: item_id
  score: {SCORE}
  order: ascending
  on_bad_candidate: report
calibration:
  ctr: {negative_sampling: 0.1}
  cvr: {platt: [2, 1]}
  wide: {isotonic: {x: [0, 1], y: [0, 0.5]}}
"""


@pytest.mark.parametrize(
    ("score", "formula", "weights"),
    [
        ("weighted_sum: {ctr: 0.7, cvr: -1}", "weighted_sum", (0.7, -1.0)),
        ("product_of_powers: {ctr: 1, cvr: 0.5}", "product_of_powers", (1.0, 0.5)),
    ],
)
def test_heads_make_a_score(
    version: Version, score: str, formula: str, weights: tuple[float, ...]
) -> None:
    text = SCORES.replace("{SCORE}", f"{{{score}}}")
    yaml = YAML.partition("ranking:")[0] + text.replace(
        "outputs: {cvr: {", "outputs: {ctr: {}, wide: {}, cvr: {"
    )
    plan = version.write(GRAPH, yaml).plan()

    assert plan is not None
    assert (plan.formula, plan.heads, plan.weights) == (formula, ("ctr", "cvr"), weights)
    assert (plan.descending, plan.report_bad) == (False, True)
    assert plan.calibration == {
        "ctr": CalibrationPlan(negative_sampling=0.1),
        "cvr": CalibrationPlan(platt=(2.0, 1.0), logits=True),
        "wide": CalibrationPlan(isotonic_x=(0.0, 1.0), isotonic_y=(0.0, 0.5)),
    }


# --- lookups -------------------------------------------------------------------------------------

LOOKED_UP = """
rank (float[N, 8] emb, float[N, 4] users, int64[N, 1] n_tags, string[N] lang) => (float[N, 1] y)
{ s = ReduceSum <keepdims: int = 1> (emb) y = Sigmoid (s) }
"""
LOOKUPS = """
user_inputs: [users]
features:
  - {name: item, side: candidate, type: string, hash: {function: xxh64, num_buckets: 0}}
  - {name: lang, side: user, type: string, default: ""}
  - name: author
    side: candidate
    type: string
    multi_hash:
      {method: hashes, functions: [xxh64, farmhash_fingerprint64], num_buckets: 9, tables: [q, r],
       combine: sum, seed: 4}
  - {name: city, side: user, type: int64}
  - name: tags
    side: candidate
    type: int64
    ragged: {max_length: 5, lengths_input: n_tags}
    weights: true
lookups:
  - {feature: author, table: r, output: {input: emb, columns: [0, 4]}}
  - {feature: tags, table: q, combiner: mean, output: {input: emb, columns: [4, 8]}}
  - {feature: author, table: q, output: {input: emb, columns: [0, 4]}}
  - {feature: city, table: r, output: {input: users, columns: [0, 4]}}
ranking: {id: item, score: {output: y}, routing_key: city}
"""


def looked_up(version: Version, yaml: str = LOOKUPS) -> RankingPlan:
    plan = version.write(LOOKED_UP, yaml).table("q", 4).table("r", 4).plan()
    assert plan is not None
    return plan


def test_keys_of_lookups_go_to_no_input(version: Version) -> None:
    plan = looked_up(version)

    assert plan.tensors == (
        TensorFill("n_tags", "INT64", (1,), False),
        TensorFill("lang", "BYTES", (), False),
    )
    item, lang, author, city, tags = plan.features
    assert (item.values, item.keys) == ((), ())  # only answered
    assert (lang.values, lang.transform, lang.default) == ((SinkPlan(1, 0),), None, ("",))
    # In the order in which it makes them, whatever the order of lookups.
    assert (author.values, author.keys) == ((), ("author.q", "author.r"))
    assert author.transform == MultiHashPlan(9, ("xxh64", "farmhash_fingerprint64"), 4)
    assert (city.values, city.keys) == ((), ("city",))
    assert (tags.values, tags.keys, tags.lengths) == ((), ("tags",), SinkPlan(0, 0))
    assert tags.weighted
    assert tags.ragged == RaggedPlan(5, "error", None, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "  - {name: city, side: user, type: int64}\n",
            "",
            "lookups read feature 'city', which is not under features",
        ),
        (
            "name: city, side: user, type: int64",
            "name: city, side: user, type: string",
            "feature 'city' is string and lookups read it; give it hash or vocabulary",
        ),
        (
            "name: city, side: user, type: int64",
            "name: city, side: user, type: int64, input: lang",
            "feature 'city': lookups read it, so it has no input:",
        ),
        (
            '  - {name: lang, side: user, type: string, default: ""}\n',
            "",
            "input 'lang': no feature fills it",
        ),
        (", lengths_input: n_tags", "", "input 'n_tags': no feature fills it"),
    ],
)
def test_features_of_lookups_that_cannot_be_ranked_with(
    version: Version, old: str, new: str, words: str
) -> None:
    assert LOOKUPS.count(old) == 1
    text = LOOKUPS.replace(old, new)
    if "routing_key: city" in text and "name: city" not in text:
        text = text.replace(", routing_key: city", "")
    with pytest.raises(InvalidInput, match=r"^model\.yaml: ranking: ") as caught:
        looked_up(version, text)
    assert words in caught.value.message


# --- refusals ------------------------------------------------------------------------------------

SMALL = "m (TYPE x, float[N, 2] y) => (float[N, 1] s) { s = ReduceSum <keepdims: int = 1> (y) }"
Y = "{name: y, side: candidate, type: float32, shape: [2]}"


def small(type_: str, features: str, more: str = "") -> tuple[str, str]:
    """A graph with an input `x` of a type, and model.yaml with features beside `y`."""
    yaml = (
        f"features:\n  - {Y}\n  - {{name: id, side: candidate, type: string}}\n"
        + "".join(f"  - {line}\n" for line in features.splitlines() if line.strip())
        + f"ranking: {{id: id, score: {{output: s}}}}\n{more}"
    )
    return SMALL.replace("TYPE", type_), yaml


IDS = "{name: x, side: candidate, type: int64}"
NUMBER = "{name: x, side: candidate, type: float32}"
TEXT = "{name: x, side: candidate, type: string}"
SEQUENCE = "{name: x, side: candidate, type: int64, ragged: {max_length: 3, pad_to: 4, MORE}}"
PAIR = (
    "{name: p, side: candidate, type: int64, multi_hash: {method: quotient_remainder, "
    "num_buckets: 3, tables: [x, other], combine: concat}MORE}"
)


@pytest.mark.parametrize(
    ("type_", "features", "shape"),
    [
        ("int64[N]", IDS, ()),
        ("int32[N, 1]", IDS, (1,)),
        ("float16[N, M]", IDS, (1,)),
        ("double[N]", IDS, ()),
        ("float[N]", NUMBER, ()),
        ("double[N, 1]", NUMBER, (1,)),
        ("float16[N]", NUMBER, ()),
        ("string[N]", TEXT, ()),
        ("string[N, 1]", TEXT, (1,)),
        ("float[N]", NUMBER.replace("float32", "float32, shape: [1]"), ()),
        ("float[N, 2, 3]", NUMBER.replace("float32", "float32, shape: [2, 3]"), (2, 3)),
        ("float[N, A, 3]", NUMBER.replace("float32", "float32, shape: [2, 3]"), (2, 3)),
        ("int32[N, 4]", SEQUENCE.replace("MORE", "padding: -1"), (4,)),
        ("float[N, L]", SEQUENCE.replace("MORE", ""), (4,)),
        ("float[N, L]", "{name: a, side: user, type: int64, input: {name: x, columns: [0, 1]}}\n"
         "{name: b, side: candidate, type: float32, shape: [2], input: {name: x, columns: [1, 3]}}",
         (3,)),
        ("int64[N, 2]", PAIR.replace("MORE", ", input: x"), (2,)),
        ("int64[N, K]", PAIR.replace("MORE", ", input: {name: x, columns: [0, 2]}"), (2,)),
    ],
)  # fmt: skip
def test_shapes_and_types_that_fit(
    version: Version, type_: str, features: str, shape: tuple[int, ...]
) -> None:
    plan = version.write(*small(type_, features)).plan()
    assert plan is not None
    assert plan.tensors[0].shape == shape
    assert plan.features[1].values == ()


def test_keys_of_several_hashes_go_to_inputs_called_as_tables(version: Version) -> None:
    graph, yaml = small("int64[N], int64[N, 1] other", "")
    graph = graph.replace("int64[N], int64[N, 1] other x", "int64[N] x, int64[N, 1] other")
    plan = version.write(
        graph, yaml.replace("ranking:", f"  - {PAIR.replace('MORE', '')}\nranking:")
    ).plan()
    assert plan is not None
    assert plan.features[-1].values == (SinkPlan(0, 0), SinkPlan(1, 0))


@pytest.mark.parametrize(
    ("type_", "features", "words"),
    [
        ("int64[N]", "", "input 'x': no feature fills it; add one under features"),
        ("bool[N]", IDS, "feature 'x' makes ids; input 'x' is BOOL, expected INT64 or INT32 or"),
        ("string[N]", IDS, "feature 'x' makes ids; input 'x' is BYTES"),
        ("int64[N]", NUMBER, "feature 'x' makes numbers; input 'x' is INT64, expected FP64 or"),
        ("float[N]", TEXT, "feature 'x' is a string; input 'x' is FP32, expected BYTES; give it"),
        ("int64[N, 3]", IDS, "feature 'x' has rows for [-1]; input 'x' is [-1, 3]"),
        ("int64[N, 1, 1]", IDS, "feature 'x' has rows for [-1]; input 'x' is [-1, 1, 1]"),
        (
            "float[N, 3]",
            NUMBER.replace("float32", "float32, shape: [2]"),
            "feature 'x' has rows for [-1, 2]; input 'x' is [-1, 3]",
        ),
        (
            "float[N, 6]",
            NUMBER.replace("float32", "float32, shape: [2, 3]"),
            "feature 'x' has rows for [-1, 2, 3]; input 'x' is [-1, 6]",
        ),
        ("int64[N, 5]", SEQUENCE.replace("MORE", ""), "rows for [-1, 4]; input 'x' is [-1, 5]"),
        (
            "int64[N, 4]",
            "{name: x, side: candidate, type: int64, ragged: {max_length: 4}}",
            "feature 'x' is a bag (ragged without pad_to), and no lookup reads it",
        ),
        (
            "string[N, 4]",
            SEQUENCE.replace("MORE", "").replace("int64", "string"),
            "feature 'x' is a sequence of strings; give it hash or vocabulary",
        ),
        (
            "int64[N, 4]",
            SEQUENCE.replace("MORE", "padding: 0.5"),
            "feature 'x': ragged.padding: 0.5; ids in input 'x' (INT64) are padded with an integer",
        ),
        (
            "int32[N, 4]",
            SEQUENCE.replace("MORE", "padding: 2147483648"),
            "(INT32) are padded with an integer of at most 2147483647",
        ),
        (
            "float16[N, 4]",
            SEQUENCE.replace("MORE", "padding: 2049"),
            "(FP16) are padded with an integer of at most 2048",
        ),
        *(
            (type_, features, f"rows of {width} values in input 'x'; expected at most 16777216")
            for width in (2**24 + 1, 10**12, 2**62, 2**63, 10**30)
            for type_, features in (
                ("int64[N, L]", SEQUENCE.replace("pad_to: 4, MORE", f"pad_to: {width}")),
                ("float[N, L]", NUMBER.replace("float32", f"float32, shape: [{width}]")),
                ("float[N, 2, L]", NUMBER.replace("float32", f"float32, shape: [1, {width}]")),
            )
        ),
        (
            "float[N, 3]",
            "{name: a, side: user, type: int64, input: {name: x, columns: [0, 1]}}\n"
            "{name: b, side: candidate, type: int64, input: {name: x, columns: [2, 3]}}",
            "input 'x': no feature fills column 1; add one under features",
        ),
        (
            "float[N, 5]",
            "{name: a, side: user, type: int64, input: {name: x, columns: [0, 1]}}",
            "input 'x': no feature fills columns 1 to 5",
        ),
        (
            "float[N, 1]",
            "{name: a, side: user, type: float32, shape: [2], input: {name: x, columns: [0, 2]}}",
            "input 'x': features fill columns up to 2; it has 1",
        ),
        (
            "float[N]",
            "{name: a, side: user, type: int64, input: {name: x, columns: [0, 1]}}",
            "input 'x': features fill columns of it; expected shape [rows, columns], found [-1]",
        ),
        (
            "int64[N, 2]",
            "{name: a, side: user, type: float32, input: {name: x, columns: [0, 1]}}\n"
            "{name: b, side: user, type: int64, input: {name: x, columns: [1, 2]}}",
            "feature 'a' makes numbers; input 'x' is INT64",
        ),
        (
            "float16[N, 2049]",
            "{name: x, side: candidate, type: int64, ragged: {max_length: 2049, pad_to: 2049}, "
            "input: {name: x, columns: [0, 2049], length_column: 2049}}",
            "feature 'x': ragged.max_length: 2049; its input 'x' (FP16) takes numbers up to 2048",
        ),
        ("float[3, 2]", NUMBER, "input 'x': axis 0 does not count rows"),
        ("int64[M]", IDS, "axis 0 of input"),
        (
            "int64[N]",
            IDS.replace("int64", "int64, default: 9223372036854775808"),
            "feature 'x': default: 9223372036854775808; expected a 64-bit integer",
        ),
        (
            "float[N]",
            NUMBER.replace("float32", "float32, default: 1.0e39"),
            "feature 'x': default: 1e+39 is beyond float32",
        ),
        (
            "int64[N]",
            TEXT.replace("string", "string, vocabulary: {values: [a, b]}, default: c"),
            "feature 'x': default: 'c' is not in its vocabulary",
        ),
        (
            "int64[N]",
            TEXT.replace("string", "int64, vocabulary: {values: [1, 9223372036854775808]}"),
            "feature 'x': vocabulary.values: expected 64-bit integers, got 9223372036854775808",
        ),
        (
            "int64[N]",
            TEXT.replace("string", "string, vocabulary: {values: [a, b], "
                         "first_id: 9223372036854775807}"),
            "feature 'x': vocabulary.first_id: expected 64-bit integers",
        ),
        (
            "int64[N]",
            TEXT.replace("string", "string, vocabulary: {values: [a], "
                         "unknown: -9223372036854775809}"),
            "feature 'x': vocabulary.unknown: expected 64-bit integers",
        ),
    ],
)  # fmt: skip
def test_features_that_do_not_fit_the_graph_are_refused(
    version: Version, type_: str, features: str, words: str
) -> None:
    with pytest.raises(InvalidInput, match=r"^model\.yaml: ranking: ") as caught:
        version.write(*small(type_, features)).plan()
    assert words in caught.value.message


HEADS = """
m (float[N, 2] y) => (float[N, 1] s, float[N, 2] v, float[N, 1, 2] one, string[N] t)
<int64[1] at = {1}>
{ s = ReduceSum <keepdims: int = 1> (y) v = Exp (y) one = Unsqueeze (y, at) }
"""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "score: {output: v}",
            "ranking.score: output 'v' is FP32 [-1, 2] (-1 = any); expected one",
        ),
        (
            "score: {output: one}",
            "ranking.score: output 'one' is FP32 [-1, 1, 2] (-1 = any); expected one number",
        ),
        ("score: {weighted_sum: {s: 1, t: 2}}", "ranking.score: output 't' is BYTES [-1]"),
        ("score: {output: z}", "ranking.score: the graph has no output 'z'"),
        (
            "score: {output: s}}\noutputs: {s: {kind: logit}}\n"
            "calibration: {s: {negative_sampling: 0.5}",
            "calibration['s']: outputs say that it is a logit; only platt corrects logits",
        ),
        (
            "score: {output: s}}\ncalibration: {t: {negative_sampling: 0.5}",
            "calibration['t']: the output is BYTES; expected numbers",
        ),
        ("score: {output: s}, routing_key: u", "ranking.routing_key: feature 'u' is float32"),
    ],
)
def test_scores_that_cannot_be_made_are_refused(version: Version, more: str, words: str) -> None:
    graph = HEADS.replace("(y) v =", "(y) t = Identity (w) v =").replace(
        "(float[N, 2] y)", "(float[N, 2] y, string[N] w)"
    )
    yaml = (
        f"features:\n  - {Y}\n  - {{name: id, side: candidate, type: string, input: w}}\n"
        "  - {name: u, side: user, type: float32}\n"
        f"ranking: {{id: id, {more}}}\n"
    )
    if "routing_key" not in more:
        yaml = yaml.replace("  - {name: u, side: user, type: float32}\n", "")
    with pytest.raises(InvalidInput) as caught:
        version.write(graph, yaml).plan()
    assert caught.value.message.startswith("model.yaml: ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("type: float32", "ranking.id: feature 'id' is float32; expected one int64 or string"),
        ("type: int64, ragged: {max_length: 1}", "ranking.id: feature 'id' is ragged"),
    ],
)
def test_ids_are_one_integer_or_string(version: Version, form: str, words: str) -> None:
    graph, yaml = small("int64[N]", IDS)
    text = yaml.replace(
        "name: id, side: candidate, type: string", f"name: id, side: candidate, {form}"
    )
    with pytest.raises(InvalidInput, match=words):
        version.write(graph, text).plan()


def test_candidates_that_the_graph_knows_nothing_of_cannot_be_ranked(version: Version) -> None:
    graph, yaml = small("int64[N]", IDS)
    text = yaml.replace("{name: x, side: candidate", "{name: x, side: user")
    text = text.replace("{name: y, side: candidate", "{name: y, side: user")
    with pytest.raises(InvalidInput, match="no feature of candidates goes into the graph"):
        version.write(graph, text).plan()


def test_a_feature_that_nothing_takes_is_refused(version: Version) -> None:
    graph, yaml = small("int64[N]", IDS + "\n{name: more, side: user, type: int64}")
    with pytest.raises(InvalidInput, match="the graph has no input 'more'"):
        version.write(graph, yaml).plan()


def test_whoever_publishes_hears_of_it_first(version: Version) -> None:
    version.write(*small("int64[N]", ""))
    with pytest.raises(InvalidInput, match="ranking: input 'x': no feature fills it"):
        check_unpublished(version.folder, version.folder.parent)


# --- vocabularies --------------------------------------------------------------------------------

LINES = "{name: x, side: candidate, type: TYPE, vocabulary: {file: vocab/x.txt, MORE}}"


def with_file(version: Version, data: bytes, kind: str = "string", more: str = "") -> Any:
    line = LINES.replace("TYPE", kind).replace("MORE", more or "unknown: 0, first_id: 1")
    plan = version.write(*small("int64[N]", line), files={"vocab/x.txt": data}).plan()
    assert plan is not None
    return plan.features[-1].transform


def test_a_short_vocabulary_travels_with_the_plan(version: Version) -> None:
    assert with_file(version, b"ios\nandroid\r\n\nw\xc3\xa9b") == VocabularyPlan(
        ("ios", "android", "", "wéb"), None, 1, 0
    )


def test_a_vocabulary_of_integers_is_parsed(version: Version) -> None:
    found = with_file(version, b"5\n-12\n0\n", "int64", "unknown: error")
    assert found == VocabularyPlan((5, -12, 0), None, 0, None)


def test_a_long_vocabulary_lies_in_the_cache_in_one_form(version: Version) -> None:
    values = [f"value {number}" for number in range(5000)]
    found = with_file(version, "\r\n".join(values).encode())

    assert found.values == ()
    place = Path(found.file)
    assert version.root / "cache" in place.parents
    assert place.read_bytes() == "".join(f"{value}\n" for value in values).encode()


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", "string", "vocab/x.txt: found no line; expected one value a line"),
        (b"a\nb\xff\n", "string", "vocab/x.txt, line 2: expected UTF-8"),
        (b"\xef\xbb\xbfa\n", "string", "vocab/x.txt, line 1: found a byte order mark"),
        (b"a\nb\na\n", "string", "vocab/x.txt, line 3: 'a' is on line 1 already"),
        (b"1\n\n", "int64", "vocab/x.txt, line 2: expected an integer as -12, got ''"),
        (b"1\n01\n", "int64", "line 2: expected an integer as -12, got '01'"),
        (b"1\n 2\n", "int64", "line 2: expected an integer as -12, got ' 2'"),
        (b"1\n9223372036854775808\n", "int64", "line 2: expected 64-bit integers, got 92233720"),
        ("1\n٣\n".encode(), "int64", "line 2: expected an integer as -12, got '٣'"),
    ],
)
def test_malformed_vocabularies_are_refused(
    version: Version, data: bytes, kind: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_file(version, data, kind)
    assert words in caught.value.message


def test_a_vocabulary_is_a_file_of_the_version(version: Version) -> None:
    line = LINES.replace("TYPE", "string").replace("MORE", "unknown: 0")
    with pytest.raises(NotFound, match=r"vocab/x\.txt: no such file in the version"):
        version.write(*small("int64[N]", line)).plan()


def test_a_value_that_is_no_line_travels_with_the_plan(version: Version) -> None:
    values = [f"value {number}\r" for number in range(2000)]
    found = with_file(version, "".join(f"{value}\r\n" for value in values).encode())
    assert found.file is None
    assert found.values == tuple(values)


# --- the example ---------------------------------------------------------------------------------

EXAMPLE = """
click (int64[N, 4] user_features, int64[N] item_id, int64[N, 3] item_features,
       float[N, 1] item_value, int64[N] position, float[N, 1] affinity, int64[N, 5] top_items)
  => (float[N, 1] click) { click = Add (item_value, affinity) }
"""


def test_the_example_fills_its_graph(version: Version) -> None:
    text = Path(__file__).parents[2] / "examples" / "open_bandit" / "model.yaml"
    plan = version.write(EXAMPLE, text.read_text()).plan()

    assert plan is not None
    assert [(one.name, one.shape, one.once) for one in plan.tensors] == [
        ("user_features", (4,), True),
        ("item_id", (), False),
        ("item_features", (3,), False),
        ("item_value", (1,), False),
        ("position", (), True),
        ("affinity", (1,), False),
        ("top_items", (5,), True),
    ]
    assert {one.side for one in plan.features if plan.tensors[one.values[0].tensor].once} == {
        "user"
    }
