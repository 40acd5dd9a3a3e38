import random
from pathlib import Path

import pytest

from anabranch_model_store.serving_yaml import (
    AutoBuckets,
    Deployment,
    VersionPolicy,
    executor_places,
    parse_cpusets,
)
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_wire.errors import AnabranchError, InvalidInput

EVERYTHING = Path(__file__).parent / "documents" / "serving.yaml"


def deployment(text: str) -> Deployment:
    return read_yaml(text.encode(), Deployment, "serving.yaml")


def test_an_empty_file_holds_the_defaults() -> None:
    found = deployment("")
    assert found == Deployment()
    assert found.required
    assert found.versions == VersionPolicy(latest=1)
    assert found.executors.buckets == (1, 8, 64, 256, 1024)
    assert (found.keep_previous, found.catch_up, found.golden) == (1, "require", "refuse")


def test_everything_that_can_be_said_is_read() -> None:
    found = read_yaml(EVERYTHING.read_bytes(), Deployment, "serving.yaml")
    assert found.versions == VersionPolicy(specific=(41, 42))
    assert isinstance(found.executors.buckets, AutoBuckets)
    assert found.batching.split_rows == "off"
    assert found.golden == "off"
    assert found.traffic.split == {"canary": 5.0, "other": 12.5}
    assert found.queue.max_timeout_ms == 50.5
    assert deployment("versions: all").versions == "all"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requierd: true", "line 1: requierd: unknown key, did you mean 'required'?"),
        ("required: yes", "required: expected true or false"),
        ("memory: {max_bytes: -1}", "memory.max_bytes: expected an integer >= 0"),
        ("executors: {per_worker: -1}", "executors.per_worker"),
        ("executors: {backend: cuda}", "did you mean 'ort-cuda'?"),
        ("executors: {cpusets: '0-3;;1'}", "cpusets: found ''"),
        ("executors: {cpusets: 3-1}", "runs backwards"),
        ("executors: {devices: [0, 0]}", "devices: found [0, 0]"),
        ("executors: {buckets: [8, 1]}", "expected increasing numbers"),
        ("executors: {buckets: []}", "expected increasing numbers"),
        ("executors: {buckets: {auto: {max_rows: 0}}}", "executors.buckets.auto.max_rows"),
        ("batching: {max_rows: many}", "batching.max_rows: found 'many'; expected auto"),
        ("batching: {max_delay_us: -1}", "batching.max_delay_us"),
        ("batching: {split_rows: 0}", "batching.split_rows"),
        ("queue: {default_timeout_ms: 9, max_timeout_ms: 8}", "9 is more than max_timeout_ms 8"),
        ("queue: {priority_levels: 0}", "queue.priority_levels"),
        ("versions: {latest: 0}", "versions.latest: expected an integer >= 1"),
        ("versions: {}", "expected {latest: N}, {specific: [N, ...]} or the word all"),
        ("versions: {latest: 1, specific: [1]}", "expected {latest: N}"),
        ("versions: {specific: [1, 1]}", "stands there twice"),
        ("versions: {specific: []}", "at least one version"),
        ("versions: none", "found 'none'; expected all or a mapping"),
        ("labels: {42: 42}", "labels['42']"),
        ('labels: {"stable\\n": 42}', "labels['stable"),
        ("labels: {stable: 0}", "labels['stable']: expected an integer >= 1"),
        ("traffic: {split: {a: 60, b: 50}}", "split: 110 percent; expected at most 100 together"),
        ("traffic: {split: {a: -1}}", "traffic.split['a']"),
        ("shadow: {percent: 5}", "missing key 'label'"),
        ("shadow: {label: a, percent: 101}", "shadow.percent"),
        ("deltas: {apply: never}", "deltas.apply: found 'never'; expected one of auto, manual"),
        ("warmup: {rounds: -1}", "warmup.rounds"),
        ("golden: false", "golden: found false; expected one of refuse, warn, off"),
        ("batching: {max_rows: many}", "found 'many'; expected auto or an integer"),
        ("batching: {max_rows: 1.5}", "found 1.5; expected auto or an integer"),
        ("batching: {split_rows: true}", "found true; expected one of auto, off or an integer"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        deployment(text)
    assert caught.value.message.startswith("serving.yaml: line 1: ")
    assert message in caught.value.message


def test_cpusets_name_the_processors_of_each_executor() -> None:
    assert parse_cpusets("") == parse_cpusets("  ") == ()
    assert parse_cpusets("5;6") == (frozenset({5}), frozenset({6}))
    assert parse_cpusets("0-2, 8 ;4") == (frozenset({0, 1, 2, 8}), frozenset({4}))
    for text in (";", "a", "1-", "1-2-3", "-1", "1;", "123456"):
        with pytest.raises(InvalidInput):
            parse_cpusets(text)


def test_cpusets_give_the_number_of_executors_where_nothing_else_does() -> None:
    four = tuple(frozenset({number}) for number in range(4))
    executors = deployment("executors: {cpusets: '0;1;2;3'}").executors
    assert executor_places(executors, 2, 7) == (2, four)
    assert executor_places(executors, 4, 7) == (1, four)
    assert executor_places(deployment("{}").executors, 4, 7) == (7, ())
    with pytest.raises(InvalidInput, match="4 entries cannot be shared out evenly among 3 workers"):
        executor_places(executors, 3, 7)
    three = deployment("executors: {per_worker: 3, cpusets: '0;1;2;3'}").executors
    with pytest.raises(InvalidInput, match=r"4 entries, expected 6: .* 2 workers with 3 executors"):
        executor_places(three, 2, 7)


def test_ten_thousand_mutations_are_read_or_refused() -> None:
    lines = EVERYTHING.read_text().splitlines()
    choose = random.Random(13)
    words = ["", "[]", "{}", "null", "-1", "1.5", "true", "x: y", "{a: {a: 1}}", "9" * 30, "*a"]
    refusals = []
    for _ in range(10_000):
        mutated = list(lines)
        for _ in range(choose.randint(1, 3)):
            at = choose.randrange(len(mutated))
            head, colon, _ = mutated[at].rpartition(choose.choice([":", ",", "["]))
            mutated[at] = f"{head}{colon} {choose.choice(words)}"
        try:
            deployment("\n".join(mutated))
        except AnabranchError as error:
            refusals.append(error)
    assert 1000 < len(refusals) < 10_000
    assert all(error.message.startswith("serving.yaml: ") for error in refusals)
    assert all(error.http in (400, 413, 501) for error in refusals)
