import pytest

from anabranch_server.trace_context import read_trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_the_answer_names_the_same_trace_and_a_span_of_ours() -> None:
    trace = read_trace(GOOD.encode(), b"vendor=1,other=2")

    assert trace is not None
    assert trace.trace_id == TRACE
    assert trace.span_id != SPAN
    assert trace.parent == f"00-{TRACE}-{trace.span_id}-01"
    assert trace.lines().decode() == (
        f"traceparent: {trace.parent}\r\ntracestate: vendor=1,other=2\r\n"
    )
    assert trace.entries() == (("traceparent", trace.parent), ("tracestate", "vendor=1,other=2"))
    assert read_trace(trace.parent) is not None


def test_spans_differ() -> None:
    spans = {trace.span_id for _ in range(100) if (trace := read_trace(GOOD))}
    assert len(spans) == 100


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    later = read_trace(f"01-{TRACE}-{SPAN}-00-more")
    assert later is not None
    assert later.parent.startswith(f"00-{TRACE}-")


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "nonsense",
        GOOD.upper(),
        GOOD + "-more",
        GOOD + " ",
        GOOD + "\n",
        GOOD[:-1],
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{SPAN}-00more",
        f"{GOOD}, {GOOD}",
        GOOD.replace("4", "\u0664"),
        b"\xff" * 55,
    ],
)
def test_what_is_malformed_is_as_good_as_none(parent: str | bytes | None) -> None:
    assert read_trace(parent, "vendor=1") is None


@pytest.mark.parametrize("state", ["", "a\r\nSet-Cookie: b", "\x00", "x" * 513, b"\xff"])
def test_a_state_that_cannot_stand_in_a_header_is_left_out(state: str | bytes) -> None:
    trace = read_trace(GOOD, state)
    assert trace is not None
    assert trace.state == ""
    assert b"tracestate" not in trace.lines()
