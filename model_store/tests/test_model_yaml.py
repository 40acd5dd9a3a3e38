import json
import random
from pathlib import Path

import msgspec
import pytest

from anabranch_model_store.model_yaml import ModelMeaning, Parity
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_model_store.yaml_text import parse_yaml
from anabranch_wire.errors import AnabranchError, InvalidInput, Unsupported

DOCUMENTS = Path(__file__).parent / "documents"
EVERYTHING = DOCUMENTS / "model.yaml"

FEATURES = """
features:
  - {name: user_id, side: user, type: int64}
  - {name: item_id, side: candidate, type: int64}
"""


class Case(msgspec.Struct):
    given: dict[str, object]
    says: str


def cases(file: str) -> list[Case]:
    return msgspec.convert(parse_yaml((DOCUMENTS / file).read_bytes(), file)[0], list[Case])


def meaning(text: str) -> ModelMeaning:
    return read_yaml(text.encode(), ModelMeaning, "model.yaml")


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        meaning(text)
    return caught.value.message


def test_an_empty_file_holds_the_defaults() -> None:
    assert meaning("") == meaning("{}") == meaning("format: 1") == ModelMeaning()
    assert ModelMeaning().user_inputs == "none"
    assert ModelMeaning().row_independent == "auto"
    assert ModelMeaning().optimize.min_table_bytes == 65_536
    assert ModelMeaning().optimize.budget == Parity(max_abs_diff=1e-5, min_rank_agreement=1.0)


def test_everything_that_can_be_said_is_read() -> None:
    found = read_yaml(EVERYTHING.read_bytes(), ModelMeaning, "model.yaml")
    features = {feature.name: feature for feature in found.features}
    assert found.user_inputs == ("user_id", "hist", "hist_len")
    assert found.inputs["values"].bag == "offsets"
    assert features["device"].vocabulary is not None
    assert features["device"].vocabulary.values == ("ios", "android", "web", "no")
    assert features["query"].default is msgspec.UNSET
    assert features["country"].default == ""
    assert found.tables["tag_emb"].missing_policy == "zeros"
    assert found.tables["q"].missing_policy == "vector"
    assert found.tables["a"].missing_policy == "error"
    assert found.tables["r"].padding_key == 2**64 - 1
    assert found.optimize.user_once == "off"
    assert found.ranking is not None
    assert found.ranking.score.heads == ("ctr", "cvr")
    assert found.extra == {"team": {"name": "shop", "pager": [1, None, True]}}


def test_a_feature_says_which_columns_of_which_inputs_it_fills() -> None:
    found = read_yaml(EVERYTHING.read_bytes(), ModelMeaning, "model.yaml")
    spans = {f.name: [span[:3] for span in f.spans] for f in found.features}
    assert spans["clicks"] == [("X", 4, 14), ("X", 14, 15)]
    assert [name for name, *_ in spans["recent_items"]] == ["hist", "hist_len"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "usr_inputs: [a]",
            "model.yaml: line 1: usr_inputs: unknown key, did you mean 'user_inputs'?",
        ),
        (
            "format: 1\noptimize:\n  splitt: auto",
            "model.yaml: line 3: optimize.splitt: unknown key, did you mean 'split'?",
        ),
        (
            "tables:\n  a.b:\n    row: f16",
            "model.yaml: line 3: tables['a.b'].row: unknown key, did you mean 'rows'?",
        ),
        ("row_independent: yes", "found 'yes'; expected one of auto, true, false"),
        ("row_independent: 1", "row_independent: found 1; expected one of auto, true, false"),
        ("user_inputs: autp", "did you mean 'auto'? expected one of auto, none or a list"),
        ("user_inputs: {a: b}", "user_inputs: found a mapping; expected one of auto, none or"),
        ("tables: {t: {missing: 4}}", "found 4; expected one of original, zeros, error or a map"),
        ("inputs: {x: {axis: row}}", "did you mean 'rows'? expected one of rows, ids, bag, none"),
        (
            f"{FEATURES}\n  - name: x\n    side: item\n    type: int64",
            "line 7: features[2].side: found 'item'; expected one of user, candidate",
        ),
        ("\n\n[]", "line 3: expected a mapping"),
        ("user_inputs:", "line 1: user_inputs: "),
    ],
)
def test_a_refusal_names_line_path_and_what_was_meant(text: str, message: str) -> None:
    assert message in refusal(text)


def test_a_newer_format_is_not_guessed_at() -> None:
    with pytest.raises(Unsupported, match="format 2 is newer"):
        meaning("format: 2\nanything: goes")


@pytest.mark.parametrize("case", cases("refused_features.yaml"))
def test_a_feature_that_cannot_work_is_refused(case: Case) -> None:
    found = refusal(json.dumps({"features": [{"name": "f", **case.given}]}))
    assert found.startswith("model.yaml: line 1: features[0]")
    assert case.says in found


@pytest.mark.parametrize("case", cases("refused_models.yaml"))
def test_parts_that_contradict_each_other_are_refused(case: Case) -> None:
    given = dict(case.given)
    given["features"] = [
        {"name": "user_id", "side": "user", "type": "int64"},
        {"name": "item_id", "side": "candidate", "type": "int64"},
        *msgspec.convert(given.get("features", []), list[dict[str, object]]),
    ]
    assert case.says in refusal(json.dumps(given))


def test_a_contradiction_between_parts_names_the_line_where_it_can() -> None:
    assert "line 5: ranking.id: no feature" in refusal(
        f"{FEATURES}ranking: {{id: x, score: {{output: y}}}}"
    )


def test_ten_thousand_mutations_are_read_or_refused() -> None:
    lines = EVERYTHING.read_text().splitlines()
    choose = random.Random(11)
    words = [
        "",
        "[]",
        "{}",
        "null",
        "-1",
        "1.5",
        "true",
        "x: y",
        "{a: {a: 1}}",
        "9" * 30,
        "'",
        "*a",
    ]
    refusals = []
    for _ in range(10_000):
        # A dozen lines keep each document short, so that what is wrong is not always the same.
        mutated = choose.sample(lines, 12) if choose.random() < 0.3 else lines[:1]
        begin = choose.randrange(len(lines))
        mutated = mutated + lines[begin : begin + choose.randint(1, 25)]
        at = choose.randrange(len(mutated))
        head, colon, _ = mutated[at].rpartition(":")
        mutated[at] = f"{head}{colon} {choose.choice(words)}"
        try:
            meaning("\n".join(mutated))
        except AnabranchError as error:
            refusals.append(error)
    assert 1000 < len(refusals) < 10_000
    assert all(error.message.startswith("model.yaml: ") for error in refusals)
    assert all(error.http in (400, 413, 501) for error in refusals)
