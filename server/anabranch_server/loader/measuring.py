"""How long batches of a version take: measured once, by a process that no request waits for."""

from contextlib import closing

from anabranch_model_store.preparation import PreparedVersion
from anabranch_model_store.store_trials import StoreTrial, TrialStore
from anabranch_runtime.admission import InputRules
from anabranch_runtime.backends import load_backend
from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_engines import build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.examples import examples_of
from anabranch_runtime.warming import measured_costs, warm

__all__ = ["batch_costs"]


def batch_costs(prepared: PreparedVersion) -> tuple[BatchCost, ...]:
    """Return the times of batches, by rising rows; none where nothing can be measured.

    Raises:
        AnabranchError: the version cannot be built, or cannot compute its examples.
    """
    model, store = prepared.model, prepared.store
    rules = InputRules.of(model, prepared.user_inputs)  # its examples bring a user for each row
    source = cut = None
    if store is not None and model.lookups is not None:
        source = StoreTrial(store.segment, model.lookups).source
    if store is not None and model.cut is not None:
        cut = CutSource.open(model.cut, TrialStore(store.segment).view)
    examples = examples_of(prepared.examples, rules, model.rows.input_axes, source)
    ending = Cancellation()
    backend = load_backend(prepared.deployment.executors.backend)
    with (
        closing(build_engine(backend, model, ending)) as engine,
        closing(engine.bind()) as binding,
    ):
        warm(binding, examples.requests, 1, ending, cut)
        return measured_costs(
            model.rows, binding, examples.requests, ending, look_up=examples.look_up, source=cut
        )
