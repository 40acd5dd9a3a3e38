"""Running a version's graph: how its rows flow, and requests that it was seen to compute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.examples import Example
from anabranch_model_store.feature_examples import FeatureExamples
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.row_layouts import RowQuestion, row_layout
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.store_trials import StoreTrial
from anabranch_model_store.user_inputs import repeat_users
from anabranch_model_store.version_contents import VersionContents
from anabranch_model_store.version_tables import VersionTables
from anabranch_model_store.warmup_runs import (
    MakeUp,
    Pad,
    made_up_examples,
    plain_example,
    plain_make_up,
    proven_examples,
)
from anabranch_runtime.models import DenseModel

__all__ = ["GraphTrial"]


@dataclass(frozen=True, slots=True, eq=False)
class _Requests:
    """Requests of a version, and how to make others.

    Attributes:
        samples: those that it brings along.
        make_up: given a source of inputs of the graph, what makes requests up.
        pad: repeats rows; None where requests are the inputs of the graph.
    """

    samples: tuple[Example, ...]
    make_up: Callable[[ExampleInputs], MakeUp]
    pad: Pad | None


@dataclass(frozen=True, slots=True, eq=False)
class GraphTrial:
    """A version that is tried; for one thread.

    Attributes:
        contents: what its files say.
        meaning: its model.yaml.
        deployment: the model's serving.yaml.
        runner: runs the graph.
    """

    contents: VersionContents
    meaning: ModelMeaning
    deployment: Deployment
    runner: ModelRunner

    def run(
        self, rows: StoreTrial | None, tables: VersionTables
    ) -> tuple[DenseModel, tuple[Example, ...]]:
        """Return what a backend builds, and requests that it was seen to compute.

        Belongs into `malformed_graphs_refused`.

        Args:
            rows: that lookups read; None where there are none.
            tables: that they come from.

        Raises:
            InvalidInput: a request does not fit, fails or has other answers than it says.
            TooLarge: a request passes a limit.
        """
        contents, runner = self.contents, self.runner
        path, graph, signature = contents.onnx_file.path, contents.graph, contents.signature
        requests = self._requests(rows, tables)
        source = None
        if self.deployment.warmup.generate:
            source = ExampleInputs(signature, graph, contents.axes)
        samples = [example.inputs for example in requests.samples]
        question = RowQuestion(path, graph, signature, contents.axes, source, samples)
        layout = row_layout(question, self.meaning.row_independent, runner)
        model = DenseModel(
            path, signature.inputs, signature.outputs, layout, lookups=contents.lookups
        )
        if requests.samples:
            budget = self.meaning.optimize.budget.max_abs_diff
            return model, proven_examples(requests.samples, model, budget, runner, requests.pad)
        if source is None:
            return model, ()
        return model, made_up_examples(requests.make_up(source), model, runner)

    def answers(self, example: Example) -> Mapping[str, Array]:
        """Return what the graph answers to a request, output name -> array."""
        return self.runner.run(self.contents.onnx_file.path, example.inputs)

    def _requests(self, rows: StoreTrial | None, tables: VersionTables) -> _Requests:
        contents = self.contents
        signature, axes, users = contents.signature, contents.row_axes, contents.user_inputs
        if rows is None:
            repeated = repeat_users(contents.samples, users, signature, axes)
            return _Requests(tuple(map(plain_example, repeated)), plain_make_up, None)
        features = FeatureExamples(signature, axes, users, rows.source)
        keys = rows.keys(tables)
        return _Requests(
            tuple(map(features.read, contents.samples)),
            lambda source: partial(features.made_up, source, keys),
            features.padded,
        )
