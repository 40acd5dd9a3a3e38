from pathlib import Path

import pytest

from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.supported import (
    check_deployment,
    check_meaning,
    idle_keys,
    unused_keys,
)
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_wire.errors import Unsupported

DOCUMENTS = Path(__file__).parent / "documents"


LOOKUP = "lookups: [{feature: a, table: t, output: {input: e, columns: [0, 8]}}]"


def meaning(text: str) -> ModelMeaning:
    return read_yaml(text.encode(), ModelMeaning, "model.yaml")


def deployment(text: str) -> Deployment:
    return read_yaml(text.encode(), Deployment, "serving.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user_inputs: auto",
        "user_inputs: [user]",
        "row_independent: true",
        "optimize: {split: off, user_once: off, allow: [custom_ops]}",
        "tables: {t: {alias: [a], keys: dense_id, missing: original, capacity: {max_rows: 9}}}",
        "tables: {t: {missing: {policy: original}}}",
        "extra: {a: 1}",
        f"features: [{{name: a, side: user, type: int64}}]\n{LOOKUP}",
        f"tables: {{t: {{keys: hashed, missing: error, padding_key: 0}}}}\n{LOOKUP}",
        f"tables: {{t: {{rows: f16}}}}\noptimize: {{parity: {{}}}}\n{LOOKUP}",
        "tables: {t: {rows: f16}}\noptimize: {dense: int8, parity: {}}",
        "optimize: {dense: int8_dynamic, parity: {}}",
        f"tables: {{other: {{alias: [t], keys: hashed}}}}\n{LOOKUP}",
    ],
)
def test_what_changes_no_answer_may_lie_unused(text: str) -> None:
    check_meaning(meaning(text))
    assert unused_keys(meaning(text)) == ()


def test_keys_of_doors_that_are_not_open_yet_are_named() -> None:
    text = """
    features: [{name: item, side: candidate, type: int64}]
    ranking: {id: item, score: {output: y}}
    """
    check_meaning(meaning(text))
    assert unused_keys(meaning(text)) == ()
    text = """
    features: [{name: item, side: candidate, type: int64}]
    item_tables: {items: {file: items/0000.parquet, key: id}}
    easyrec: {features: {item: iid}}
    """
    assert unused_keys(meaning(text)) == ("features", "item_tables", "easyrec")


RANKING = """
features: [{name: item, side: candidate, type: int64}]
ranking: {id: item, score: {output: y}, item_table: items}
calibration: {y: {platt: [1, 0]}}
item_tables:
  items: {file: items/0000.parquet, key: id}
"""


def test_what_ranking_uses_is_used() -> None:
    check_meaning(meaning(RANKING))
    assert unused_keys(meaning(RANKING)) == ()
    other = "  more: {file: items/0001.parquet, key: id}\n"
    assert unused_keys(meaning(RANKING + other)) == ("item_tables",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("calibration: {y: {platt: [1, 0]}}", "calibration without ranking"),
        (
            "features: [{name: a, side: user, type: int64, ragged: {max_length: 2}, multi_hash: "
            "{method: quotient_remainder, num_buckets: 2, tables: [t, u], combine: concat}}]\n"
            "lookups:\n"
            "  - {feature: a, table: t, combiner: sum, output: {input: e, columns: [0, 8]}}\n"
            "  - {feature: a, table: u, combiner: sum, output: {input: e, columns: [8, 16]}}",
            "features: 'a': multi_hash of a ragged feature (list a feature for each table",
        ),
        ("optimize: {dense: f16, parity: {max_abs_diff: 0.1}}", "optimize.dense: f16 (for GPU"),
        ("optimize: {dense: bf16, parity: {max_abs_diff: 0.1}}", "optimize.dense: bf16 (for GPU"),
        ("optimize: {allow: [external_data_outside]}", "external_data_outside"),
        ("tables: {t: {keys: hashed}}", "tables['t'].keys"),
        (
            "tables: {t: {rows: f16}}\noptimize: {split: off, parity: {}}",
            "tables['t'].rows: f16 (the table stays in the graph: optimize.split is off)",
        ),
        (
            f"tables: {{u: {{rows: f16}}}}\noptimize: {{parity: {{}}}}\n{LOOKUP}",
            "tables['u'].rows: f16 (the table stays in the graph: model.yaml has lookups)",
        ),
        ("tables: {t: {missing: zeros}}", "tables['t'].missing: zeros"),
        ("tables: {t: {missing: {policy: key, key: 0}}}", "tables['t'].missing: key"),
        ("tables: {t: {padding_key: 0}}", "tables['t'].padding_key"),
        (f"tables: {{u: {{keys: hashed}}}}\n{LOOKUP}", "tables['u'].keys"),
    ],
)
def test_a_meaning_that_would_be_ignored_is_refused(text: str, named: str) -> None:
    with pytest.raises(Unsupported) as caught:
        check_meaning(meaning(text))
    assert caught.value.message.startswith("model.yaml: not available in this release: ")
    assert named in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "required: false\nmemory: {max_bytes: 9}\nversions: all\nlabels: {stable: 1}",
        "traffic: {default: stable, split: {canary: 0}, sticky: user}",
        "shadow: {label: canary, percent: 0}",
        "executors: {select: mod, cpusets: 0-3}",
        "executors: {devices: [1], streams: separate, buckets: [1], cpu_fallback: allow}",
        "deltas: {apply: manual}\ncatch_up: allow\ngolden: warn\nwarmup: {rounds: 0}",
    ],
)
def test_a_deployment_that_can_be_carried_out_passes(text: str) -> None:
    check_deployment(deployment(text))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("executors: {backend: ort-cuda}", "executors.backend: ort-cuda"),
        ("traffic: {split: {canary: 5}}", "traffic.split"),
        ("shadow: {label: canary}", "shadow"),
    ],
)
def test_a_deployment_that_would_be_ignored_is_refused(text: str, named: str) -> None:
    with pytest.raises(Unsupported) as caught:
        check_deployment(deployment(text))
    assert named in caught.value.message


def test_every_reason_is_named_at_once() -> None:
    everything = read_yaml((DOCUMENTS / "model.yaml").read_bytes(), ModelMeaning, "model.yaml")
    with pytest.raises(Unsupported) as caught:
        check_meaning(everything)
    for named in ("optimize.allow", "tables['a'].missing"):
        assert named in caught.value.message
    assert unused_keys(everything) == ("easyrec",)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        ("executors: {devices: [0], per_worker: 3}\nkeep_previous: 1", ()),
        ("keep_previous: 2\ncatch_up: allow", ()),
        ("executors: {streams: separate}", ("executors.streams",)),
        ("deltas: {verify: after, non_finite: allow}", ("deltas.verify",)),
        ("traffic: {sticky: user}", ("traffic.sticky",)),
    ],
)
def test_changed_keys_that_nothing_acts_on_are_named(text: str, keys: tuple[str, ...]) -> None:
    assert idle_keys(deployment(text)) == keys
