"""The rules of a client as pure code: budgets, balancing, hedging, and the course of a call."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_client.policy import (
    Attempt,
    Blame,
    CallPolicy,
    Course,
    EjectionRules,
    Fail,
    Failure,
    HedgeRules,
    RetryRules,
    Start,
    Wait,
    failure_of,
)
from anabranch_client.policy.balancing import Balancer
from anabranch_client.policy.budgets import Budget, BudgetRules
from anabranch_client.policy.hedging import Latencies
from anabranch_client.policy.retrying import backoff_s
from anabranch_wire.errors import DeadlineExceeded, InvalidInput, Overloaded, Unavailable

DOWN = Failure(Unavailable("gone"), safe=True, blame=Blame.DOWN)
RULES = RetryRules(base_s=0.1, most_s=1.0)


def policy(
    endpoints: int = 1,
    retries: RetryRules = RULES,
    hedges: HedgeRules | None = None,
    chance: float = 1.0,
) -> CallPolicy:
    return CallPolicy(
        endpoints,
        retries=retries,
        hedges=hedges,
        ejection=EjectionRules(),
        chance=lambda: chance,
        now=0.0,
    )


def started(course: Course, now: float) -> Attempt:
    step = course.step(now)
    assert isinstance(step, Start)
    return step.attempt


def until(course: Course, now: float) -> float:
    step = course.step(now)
    assert isinstance(step, Wait)
    return step.until


# --- budgets ------------------------------------------------------------------------------------


@given(
    share=st.floats(0, 1),
    floor=st.floats(0, 5),
    initial=st.floats(0, 10),
    events=st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=200),
)
def test_what_is_spent_stays_within_the_share_the_floor_and_what_there_was_at_first(
    share: float, floor: float, initial: float, events: list[tuple[bool, float]]
) -> None:
    budget = Budget(BudgetRules(share, floor, initial, capacity=20.0), 100.0)
    now, requests, spent = 100.0, 0, 0
    for is_request, passed in events:
        now += passed
        if is_request:
            requests += 1
            budget.earn()
        else:
            spent += budget.spend(now)
        assert spent <= initial + share * requests + floor * (now - 100.0) + 1e-6


def test_a_tenth_of_the_requests_is_exactly_that() -> None:
    budget = Budget(BudgetRules(share=0.1), 0.0)
    spent = 0
    for _ in range(1000):
        budget.earn()
        spent += budget.spend(0.0)
    assert spent == 100


def test_what_is_saved_up_has_a_limit() -> None:
    budget = Budget(BudgetRules(share=1.0, floor_per_s=100.0, capacity=3.0), 0.0)
    for _ in range(50):
        budget.earn()
    assert [budget.spend(1000.0) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("rules", [{"share": -0.1}, {"share": 1.1}, {"share": 0, "initial": 200}])
def test_budgets_that_mean_nothing_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        BudgetRules(**rules)


# --- back-off -----------------------------------------------------------------------------------


@given(retry=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_waits_are_anything_up_to_a_doubling_limit(retry: int, chance: float) -> None:
    wait = backoff_s(RULES, retry, chance)
    assert 0 <= wait <= min(1.0, 0.1 * 2.0 ** min(retry - 1, 50))
    assert backoff_s(RULES, retry, 0.0) == 0.0


# --- balancing ----------------------------------------------------------------------------------


@given(
    endpoints=st.integers(1, 5),
    events=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([None, *Blame]), st.floats(0, 40)),
        max_size=120,
    ),
)
def test_attempts_go_to_the_fewest_pending_of_those_that_are_in(
    endpoints: int, events: Sequence[tuple[int, Blame | None, float]]
) -> None:
    balancer = Balancer(endpoints, EjectionRules())
    pending: list[int] = []
    now = 0.0
    for choice, blame, passed in events:
        if choice < 5 or not pending:
            before = [balancer.pending(number) for number in range(endpoints)]
            ins = [number for number in range(endpoints) if not balancer.is_out(number)]
            number = balancer.begin(now)
            pending.append(number)
            if number in ins and len(ins) == endpoints:
                assert before[number] == min(before)
        else:
            now += passed
            balancer.end(pending.pop(choice % len(pending)), now, blame, None)
        counts = [balancer.pending(number) for number in range(endpoints)]
        assert counts == [pending.count(number) for number in range(endpoints)]


def test_equal_endpoints_take_turns() -> None:
    balancer = Balancer(3, EjectionRules())
    seen = [balancer.begin(0.0) for _ in range(9)]
    assert sorted(seen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def fail(balancer: Balancer, number: int, now: float) -> None:
    """Let attempts begin until one goes to `number`, which fails; the others are answered."""
    while True:
        chosen = balancer.begin(now)
        balancer.end(chosen, now, Blame.DOWN if chosen == number else Blame.NONE, None)
        if chosen == number:
            return


def test_an_endpoint_that_fails_is_left_out_tried_once_and_left_out_for_longer() -> None:
    balancer = Balancer(2, EjectionRules(failures=3, base_s=1.0))
    for _ in range(3):
        assert not balancer.is_out(0)
        fail(balancer, 0, 0.0)
    assert {balancer.begin(0.9) for _ in range(20)} == {1}

    assert balancer.begin(1.0) == 0  # though nothing is pending there, and 20 at the other
    assert {balancer.begin(1.0) for _ in range(20)} == {1}
    balancer.end(0, 1.1, Blame.DOWN, None)
    assert {balancer.begin(3.0) for _ in range(20)} == {1}

    assert balancer.begin(3.2) == 0
    balancer.end(0, 3.3, Blame.NONE, None)
    assert not balancer.is_out(0)
    assert {balancer.begin(3.3) for _ in range(20)} == {0}  # the other has 60 pending


def test_where_all_are_left_out_the_one_whose_turn_is_first_is_taken() -> None:
    balancer = Balancer(2, EjectionRules(failures=1, base_s=10.0))
    balancer.end(first := balancer.begin(0.0), 0.0, Blame.DOWN, None)
    balancer.end(second := balancer.begin(1.0), 1.0, Blame.DOWN, None)
    assert {first, second} == {0, 1}
    assert balancer.begin(2.0) == first


def test_late_answers_leave_an_endpoint_in_as_long_as_it_answers_anybody() -> None:
    balancer = Balancer(2, EjectionRules(silent_s=1.0))
    for step in range(40):
        now = step / 10
        balancer.begin(now)
        balancer.begin(now)
        balancer.end(0, now, Blame.SILENT, None)
        balancer.end(1, now, Blame.SILENT if step % 4 else Blame.NONE, None)
        assert balancer.is_out(0) is (step >= 10)
        assert not balancer.is_out(1)
        if balancer.is_out(0):
            return
    pytest.fail("the endpoint without answers was never left out")


def test_an_endpoint_that_asked_for_rest_is_passed_by_while_another_is_not() -> None:
    balancer = Balancer(2, EjectionRules())
    chosen = balancer.begin(0.0)
    balancer.end(chosen, 0.0, Blame.BUSY, 2.0)
    assert {balancer.begin(1.0) for _ in range(10)} == {1 - chosen}
    assert balancer.rest_s(1.0) == 0.0
    balancer.end(1 - chosen, 1.0, Blame.BUSY, 3.0)
    assert balancer.rest_s(1.0) == 1.0


# --- latencies ----------------------------------------------------------------------------------


def test_a_percentile_is_known_after_enough_calls_and_follows_the_newest() -> None:
    latencies = Latencies()
    for number in range(Latencies.LEAST - 1):
        latencies.add(number / 1000)
        assert latencies.value() is None
    for number in range(2000):
        latencies.add(1.0 + (number % 100) / 100)
    value = latencies.value()
    assert value is not None
    assert 1.93 <= value <= 1.97


# --- courses ------------------------------------------------------------------------------------


def test_a_call_that_is_answered_is_sent_once() -> None:
    course = policy().begin(0.0, 10.0, hedged=True)
    attempt = started(course, 0.0)
    assert until(course, 0.0) == 10.0
    course.answered(attempt, 0.5)
    assert course.sent == 1


def test_what_is_safe_is_sent_again_after_a_wait_with_full_jitter() -> None:
    course = policy(chance=0.5).begin(0.0, 10.0, hedged=True)
    course.failed(started(course, 0.0), DOWN, 1.0)
    assert until(course, 1.0) == pytest.approx(1.05)
    course.failed(started(course, 1.05), DOWN, 2.0)
    assert until(course, 2.0) == pytest.approx(2.1)
    course.failed(started(course, 2.1), DOWN, 3.0)
    assert course.step(3.0) == Fail(DOWN.error)


def test_another_endpoint_is_tried_next() -> None:
    course = policy(3, chance=0.0).begin(0.0, 10.0, hedged=True)
    seen = set()
    for _ in range(3):
        attempt = started(course, 1.0)
        seen.add(attempt.endpoint)
        course.failed(attempt, DOWN, 1.0)
    assert seen == {0, 1, 2}


@pytest.mark.parametrize(
    "failure", [failure_of(InvalidInput("no")), Failure(Unavailable("broke off"))]
)
def test_what_is_not_safe_is_the_end(failure: Failure) -> None:
    course = policy().begin(0.0, 10.0, hedged=True)
    course.failed(started(course, 0.0), failure, 0.1)
    assert course.step(0.1) == Fail(failure.error)


def test_advice_when_to_come_back_is_followed_if_there_is_time() -> None:
    busy = failure_of(Overloaded("full", 2.0))
    course = policy(chance=0.5).begin(0.0, 10.0, hedged=True)
    course.failed(started(course, 0.0), busy, 1.0)
    assert until(course, 1.0) == pytest.approx(3.05)

    short = policy().begin(0.0, 2.0, hedged=True)
    short.failed(started(short, 0.0), busy, 1.0)
    assert short.step(1.0) == Fail(busy.error)


def test_advice_of_one_endpoint_does_not_keep_a_call_from_another() -> None:
    busy = failure_of(Overloaded("full", 5.0))
    course = policy(2, chance=0.0).begin(0.0, 10.0, hedged=True)
    first = started(course, 0.0)
    course.failed(first, busy, 1.0)
    assert started(course, 1.0).endpoint != first.endpoint


def test_the_deadline_ends_a_call_whatever_it_waits_for() -> None:
    course = policy().begin(0.0, 1.0, hedged=True)
    started(course, 0.0)
    step = course.step(1.0)
    assert isinstance(step, Fail)
    assert isinstance(step.error, DeadlineExceeded)
    assert "no answer within 1 s" in step.error.message


def test_without_time_nothing_is_sent() -> None:
    course = policy().begin(5.0, 5.0, hedged=True)
    assert isinstance(course.step(5.0), Fail)
    assert course.sent == 0


def test_a_spent_budget_ends_retries() -> None:
    rules = RetryRules(attempts=100, base_s=0, budget=BudgetRules(share=0.0, initial=2.0))
    course = policy(retries=rules).begin(0.0, 10.0, hedged=True)
    for _ in range(3):
        course.failed(started(course, 0.0), DOWN, 0.0)
    assert course.step(0.0) == Fail(DOWN.error)


def earned(hedges: HedgeRules) -> CallPolicy:
    """Return a policy of two endpoints whose next hedge is within the budget."""
    made = policy(2, hedges=hedges)
    for _ in range(20):
        course = made.begin(0.0, 10.0, hedged=True)
        course.answered(started(course, 0.0), 0.001)
    return made


def test_a_slow_call_is_sent_to_another_endpoint_too() -> None:
    course = earned(HedgeRules(after_s=0.2)).begin(0.0, 10.0, hedged=True)
    first = started(course, 0.0)
    assert until(course, 0.0) == 0.2
    second = started(course, 0.2)
    assert second.endpoint != first.endpoint
    assert until(course, 0.2) == 10.0
    course.answered(second, 0.3)
    course.close(0.3)
    assert not course.in_flight


def test_a_hedge_that_fails_leaves_the_first_attempt_alone() -> None:
    course = earned(HedgeRules(after_s=0.2)).begin(0.0, 10.0, hedged=True)
    first = started(course, 0.0)
    course.failed(started(course, 0.2), DOWN, 0.3)
    assert until(course, 0.3) == 10.0
    course.failed(first, DOWN, 0.4)
    assert until(course, 0.4) < 10.0


def test_an_answer_that_all_would_give_ends_both() -> None:
    wrong = failure_of(InvalidInput("no"))
    course = earned(HedgeRules(after_s=0.2)).begin(0.0, 10.0, hedged=True)
    started(course, 0.0)
    course.failed(started(course, 0.2), wrong, 0.3)
    assert course.step(0.3) == Fail(wrong.error)


def test_calls_that_may_not_be_hedged_are_not() -> None:
    course = earned(HedgeRules(after_s=0.2)).begin(0.0, 10.0, hedged=False)
    started(course, 0.0)
    assert until(course, 0.0) == 10.0


def test_without_a_delay_the_percentile_of_what_was_seen_counts() -> None:
    made = policy(2, hedges=HedgeRules())
    for number in range(100):
        course = made.begin(0.0, 10.0, hedged=True)
        course.answered(started(course, 0.0), (number + 1) / 100)
    course = made.begin(0.0, 10.0, hedged=True)
    started(course, 0.0)
    assert 0.9 <= until(course, 0.0) <= 0.99


@given(slow=st.lists(st.booleans(), min_size=1, max_size=400))
def test_hedges_are_never_more_than_one_in_twenty(slow: list[bool]) -> None:
    made = policy(2, hedges=HedgeRules(after_s=0.1))
    hedges = 0
    for number, is_slow in enumerate(slow, 1):
        course = made.begin(0.0, 10.0, hedged=True)
        first = started(course, 0.0)
        if is_slow and isinstance(course.step(0.1), Start):
            hedges += 1
        course.answered(first, 0.2)
        course.close(0.2)
        assert hedges <= 0.05 * number + 1e-9


@given(
    endpoints=st.integers(1, 4),
    calls=st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=60),
    share=st.floats(0, 0.2),
)
def test_every_course_ends_and_retries_stay_within_their_budget(
    endpoints: int, calls: list[list[int]], share: float
) -> None:
    rules = RetryRules(attempts=4, base_s=0.1, budget=BudgetRules(share=share, initial=3.0))
    made = policy(endpoints, retries=rules, hedges=HedgeRules(after_s=0.05), chance=0.7)
    failures = [DOWN, failure_of(Overloaded("full", 0.3)), failure_of(InvalidInput("no"))]
    sent, now = 0, 0.0
    for events in calls:
        course = made.begin(now, now + 1.0, hedged=True)
        flying: list[Attempt] = []
        left = iter(events)
        for _ in range(100):
            step = course.step(now)
            if isinstance(step, Fail):
                break
            if isinstance(step, Start):
                flying.append(step.attempt)
                continue
            assert step.until > now
            event = next(left, None)
            if flying and event is not None and event < 4:
                now += 0.001
                attempt = flying.pop(event % len(flying))
                if event == 3:
                    course.answered(attempt, now)
                    break
                course.failed(attempt, failures[event], now)
            else:
                now = step.until
        else:
            pytest.fail("the course never ended")
        course.close(now)
        assert not course.in_flight
        sent += course.sent
    assert sent <= len(calls) * (1 + share + 0.05) + 3.0 + 1e-6


@pytest.mark.parametrize(
    ("error", "safe", "blame"),
    [
        (Unavailable("x"), True, Blame.DOWN),
        (Overloaded("x", 1.0), True, Blame.BUSY),
        (DeadlineExceeded("x"), False, Blame.NONE),
        (InvalidInput("x"), False, Blame.NONE),
    ],
)
def test_answers_are_safe_to_ask_for_again_where_they_say_not_now(
    error: Unavailable | Overloaded | DeadlineExceeded | InvalidInput, safe: bool, blame: Blame
) -> None:
    failure = failure_of(error)
    assert (failure.safe, failure.blame, failure.final) == (safe, blame, not safe)


@pytest.mark.parametrize(
    ("rules", "arguments"),
    [
        (RetryRules, {"attempts": 0}),
        (RetryRules, {"base_s": 2.0}),
        (HedgeRules, {"share": 0.06}),
        (HedgeRules, {"after_s": -1.0}),
        (EjectionRules, {"failures": 0}),
        (EjectionRules, {"base_s": 0.0}),
        (EjectionRules, {"silent_s": -1.0}),
    ],
)
def test_rules_that_mean_nothing_are_refused(
    rules: type[RetryRules | HedgeRules | EjectionRules], arguments: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match="expected"):
        rules(**arguments)  # type: ignore[arg-type]  # some of the arguments are integers
