"""Deltas of real models through a started server: each answers as a version with the same weights.

One server goes through the whole story for all models, and tests look at what it answered.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray

from anabranch_publish import Publisher, publish_version
from anabranch_testing import new_connections
from anabranch_testing.lengths import is_soak
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client
from anabranch_testing.weight_histories import (
    UPDATES,
    WeightHistory,
    WeightUpdate,
    weight_histories,
)
from anabranch_wire.tensors import datatype_of

Client: TypeAlias = Any  # tritonclient has no types
Batch = dict[str, NDArray[Any]]

TOLERANCE = 1e-5  # absolute, float32: what the corpus itself promises
PATIENCE_S = 120.0

SERVING = """\
format: 1
executors: {per_worker: 1}
batching: {max_rows: 64, split_rows: "off"}
warmup: {rounds: 1}
"""
FORMS = {"as by default": "", "all tables cut": "optimize: {min_table_bytes: 0}\n"}
DRAWN = ("deepctr_torch_esmm_dynamo18", "own_bag_weighted_ts17", "torch_rechub_mmoe_ts17")

pytestmark = pytest.mark.soak


@dataclass(frozen=True, eq=False)
class Subject:
    """A model in one form: itself, and the same where its deltas were there from the start."""

    history: WeightHistory
    form: str

    @property
    def name(self) -> str:
        return f"{self.history.name}.{list(FORMS).index(self.form)}"

    @property
    def backlogged(self) -> str:
        return f"{self.name}.backlog"

    def whole(self, done: int) -> str:
        """Name of the model that has the weights after `done` updates from the start."""
        return self.name if done == 0 else f"{self.name}.whole{done}"


SUBJECTS = {
    subject.name: subject
    for history in weight_histories(None if is_soak() else DRAWN)
    for subject in (Subject(history, form) for form in FORMS)
    if is_soak() or history.is_recorded or subject.form == "all tables cut"
}


@dataclass
class Told:
    """What was answered, to both batches, and what admins were told."""

    answers: dict[tuple[str, str], list[Batch]] = field(default_factory=dict)
    deltas: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    trouble: dict[tuple[str, str], str] = field(default_factory=dict)
    wholes: dict[tuple[str, int], Path] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)


def publish(repository: Path, name: str, onnx: Path, form: str, meaning: Path) -> None:
    meaning.write_text(FORMS[form])
    publish_version(repository / name, onnx, version=1, model_yaml=meaning)
    (repository / name / "serving.yaml").write_text(SERVING)


def publish_delta(folder: Path, update: WeightUpdate) -> int:
    with Publisher(folder, version=1) as publisher:
        delta = publisher.delta()
        for table, (rows, values) in update.rows.items():
            delta.upsert(table, rows, values)
        if update.weights:
            delta.dense(dict(update.weights))
        return int(delta.publish())


def ask(client: Client, module: Any, name: str, batch: Batch) -> tuple[Batch, int]:
    """Return the answer and the delta that it is of."""
    inputs = []
    for each, array in batch.items():
        tensor = module.InferInput(each, list(array.shape), datatype_of(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    answer = client.infer(name, inputs)
    told = answer.get_response()
    if module is triton_grpc:
        outputs = [output.name for output in told.outputs]
        delta = told.parameters["delta"].int64_param
    else:
        outputs = [output["name"] for output in told["outputs"]]
        delta = told["parameters"]["delta"]
    return {each: answer.as_numpy(each) for each in outputs}, int(delta)


def look(told: Told, moment: str, server: RunningServer, names: list[str], module: Any) -> None:
    """Ask all these models for both batches."""
    address = server.grpc if module is triton_grpc else server.http
    client = module.InferenceServerClient(address)
    for name in names:
        subject = SUBJECTS[next(one for one in SUBJECTS if name.startswith(one))]
        try:
            answers = [ask(client, module, name, one) for one in subject.history.model.batches()]
        except Exception as error:
            told.trouble[name, moment] = f"{error}"
            continue
        told.answers[name, moment] = [batch for batch, _ in answers]
        told.deltas[name, moment] = {delta for _, delta in answers}
    client.close() if module is triton_grpc else retire_http_client(client)


def await_delta(told: Told, moment: str, server: RunningServer, names: list[str], at: int) -> None:
    """Wait until all these models are at a delta, or something is said to be in their way."""
    end = time.monotonic() + PATIENCE_S
    left = set(names)
    while left and time.monotonic() < end:
        models = new_connections.get(f"http://{server.admin}/admin/v1/models").json()["models"]
        for model in models:
            name = model["name"]
            if name in left and [one["delta"] for one in model["versions"]] == [at]:
                left.discard(name)
            elif name in left and model["last_error"] is not None:
                told.trouble[name, f"way to {moment}"] = json.dumps(model["last_error"])
                left.discard(name)
        time.sleep(0.05)
    for name in left:
        told.trouble[name, f"way to {moment}"] = f"not within {PATIENCE_S} s"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("deltas")
    repository, scratch = folder / "repository", folder / "scratch"
    repository.mkdir()
    scratch.mkdir()
    told = Told()
    for subject in SUBJECTS.values():
        original = subject.history.model.folder / "model.onnx"
        for done in range(1, UPDATES + 1):
            target = folder / f"{subject.history.name}.{done}.onnx"
            told.wholes[subject.history.name, done] = (
                target if target.exists() else subject.history.write(done, target)
            )
            whole = told.wholes[subject.history.name, done]
            publish(repository, subject.whole(done), whole, subject.form, folder / "m.yaml")
        for name in (subject.name, subject.backlogged):
            publish(repository, name, original, subject.form, folder / "m.yaml")
        for update in subject.history.updates:
            publish_delta(repository / subject.backlogged, update)

    names = list(SUBJECTS)
    with started_server(repository, scratch, "--poll-s", "0.2", timeout_s=300) as server:
        wholes = [one.whole(done) for one in SUBJECTS.values() for done in (1, UPDATES)]
        look(told, "start", server, [*names, *wholes], triton_http)
        look(told, "start", server, [one.backlogged for one in SUBJECTS.values()], triton_http)
        for done in range(1, UPDATES + 1):
            for name, subject in SUBJECTS.items():
                assert publish_delta(repository / name, subject.history.updates[done - 1]) == done
            await_delta(told, f"delta {done}", server, names, done)
            look(told, f"delta {done}", server, names, triton_http)
        look(told, "grpc", server, names, triton_grpc)
    (scratch / "ready.json").unlink(missing_ok=True)
    (scratch / "server.log").rename(scratch / "first.log")
    with started_server(repository, scratch, "--poll-s", "0.2", timeout_s=300) as server:
        models = server.ready["models"]
        assert isinstance(models, Mapping)
        told.models.update(models)
        look(told, "restart", server, names, triton_http)
    return told


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]


def answered(told: Told, name: str, moment: str, delta: int) -> list[Batch]:
    """Return the answers of a moment, which must be of that delta."""
    troubles = {where: text for (of, where), text in told.trouble.items() if of == name}
    assert not troubles
    assert told.deltas[name, moment] == {delta}
    return told.answers[name, moment]


def assert_equal(found: list[Batch], expected: list[Batch], where: str) -> None:
    """Bit by bit: a delta is no other way to compute."""
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys(), where
        for name, array in one.items():
            assert array.dtype == other[name].dtype
            assert array.shape == other[name].shape
            worst = np.max(np.abs(array - other[name]), initial=0)
            assert array.tobytes() == other[name].tobytes(), f"{where}: {name} differs by {worst}"


def test_every_delta_answers_as_a_version_with_the_same_weights(
    told: Told, subject: Subject
) -> None:
    for done in range(1, UPDATES + 1):
        found = answered(told, subject.name, f"delta {done}", done)
        fresh = answered(told, subject.whole(done), "start", 0)
        assert_equal(found, fresh, f"after delta {done}")


def test_answers_are_those_that_the_original_gives(told: Told, subject: Subject) -> None:
    for done in range(UPDATES + 1):
        moment = f"delta {done}" if done else "start"
        found = answered(told, subject.name, moment, done)
        whole = told.wholes[subject.history.name, done] if done else None
        expected = (
            subject.history.model.expected()
            if whole is None
            else subject.history.expected(done, whole)
        )
        for one, other in zip(found, expected, strict=True):
            for name, array in other.items():
                np.testing.assert_allclose(one[name], array, rtol=0, atol=TOLERANCE)


def test_updates_change_the_answers(told: Told, subject: Subject) -> None:
    moments = [(0, "start"), (1, "delta 1"), (2, "delta 2")]
    one, two, three = [answered(told, subject.name, moment, done) for done, moment in moments]

    assert any((one[0][name] != two[0][name]).any() for name in one[0])
    assert any((two[0][name] != three[0][name]).any() for name in two[0])


def test_a_backlog_is_applied_before_the_first_answer(told: Told, subject: Subject) -> None:
    found = answered(told, subject.backlogged, "start", UPDATES)
    assert_equal(found, answered(told, subject.whole(UPDATES), "start", 0), "backlog")


def test_a_restart_answers_as_before_at_once(told: Told, subject: Subject) -> None:
    assert told.models[subject.name] == f"1+{UPDATES}"
    found = answered(told, subject.name, "restart", UPDATES)
    assert_equal(found, answered(told, subject.name, f"delta {UPDATES}", UPDATES), "restart")


def test_both_protocols_answer_the_same(told: Told, subject: Subject) -> None:
    found = answered(told, subject.name, "grpc", UPDATES)
    assert_equal(found, answered(told, subject.name, f"delta {UPDATES}", UPDATES), "grpc")
