from dataclasses import replace
from html.parser import HTMLParser

from anabranch_server.administration import OperationView
from anabranch_server.ages import age
from anabranch_server.app import create_admin_app
from anabranch_server.app.status_page import Status, render_status
from anabranch_server.describe import FailureView, VersionView, WorkerView
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.asgi import fetch

NOW = 1_764_417_660.0
EVIL = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(**fields: object) -> Page:
    shown = {"version": "0.1.0", "now": NOW, "fault": "", "models": (), "operations": ()}
    return Page(render_status(Status(**({**shown, "workers": ()} | fields))))  # type: ignore[arg-type]  # of many types


def test_the_page_shows_what_is_served_kept_and_held_and_how_old_it_is() -> None:
    versions = [
        VersionView(43, "LOADING", 0),
        VersionView(42, "READY", 17, event_time=NOW - 300, published=NOW - 90, applied=NOW - 61),
        VersionView(41, "UNAVAILABLE", 0, kept=True),
        VersionView(40, "UNAVAILABLE", 0, last_error="wrong base"),
    ]
    model = model_view("ctr", labels={"stable": 42}, pinned="42+17", state="READY")

    text = page_of(models=[replace(model, versions=versions)]).text

    assert "held at 42+17" in text
    assert "stable = 42" in text
    assert "latest: 1" in text
    assert "5 min old" in text
    assert "61 s ago" in text
    assert "kept" in text
    assert "wrong base" in text


def test_the_page_shows_times_that_no_calendar_has() -> None:
    odd = [VersionView(number, "READY", 1, published=1e308, event_time=1e308) for number in (1, 2)]

    text = page_of(models=[replace(model_view("ctr"), versions=odd)]).text

    assert "ctr" in text


def test_the_page_shows_what_is_at_work_and_what_came_of_it() -> None:
    running = OperationView(
        "op-000002", "reload", "ctr", "RUNNING", "building", 0.4, 4, 10, NOW - 5, None, None
    )
    failed = OperationView(
        "op-000001", "load", "ctr", "FAILED", None, None, 0, 0, NOW - 60, NOW - 50, "disk full"
    )
    old = [replace(failed, id=f"op-9{index:05}", error="old") for index in range(20)]

    page = page_of(operations=[running, failed, *old])

    assert page.tags.count("progress") == 1
    assert "40%" in page.text
    assert "building" in page.text
    assert "took 10 s" in page.text
    assert "disk full" in page.text
    assert page.text.count("old") == 9


def test_the_page_shows_the_workers() -> None:
    worker = WorkerView(1, 4244, "dead", NOW - 7200, 3, {"ctr": "42+17", "home": "7"})

    text = page_of(workers=[worker]).text

    for shown in ("4244", "dead", "2 h ago", "3", "ctr 42+17, home 7"):
        assert shown in text


def test_everything_is_escaped() -> None:
    failure = FailureView(NOW, None, None, EVIL, EVIL)
    model = model_view(
        EVIL, policy={EVIL: EVIL}, labels={EVIL: 42}, pinned=EVIL, last_error=failure
    )
    versions = [VersionView(42, "READY", 0, last_error=EVIL)]
    operation = OperationView(EVIL, "load", EVIL, "FAILED", EVIL, 0.5, 0, 0, NOW, NOW, EVIL)
    running = replace(operation, state="RUNNING")
    worker = WorkerView(0, 1, "serving", NOW, 0, {EVIL: EVIL})

    page = page_of(
        version=EVIL,
        fault=EVIL,
        models=[model, replace(model, versions=versions)],
        operations=[operation, running],
        workers=[worker],
    )

    assert "script" not in page.tags
    assert page.text.count(EVIL) >= 20


def test_the_page_says_why_the_server_is_not_ready_and_looks_again_by_itself() -> None:
    administration = MemoryAdministration(unready="required models that cannot answer: ctr")
    app = create_admin_app(administration, "0.1.0")

    page = fetch(app, "/")

    assert "Not ready: required models that cannot answer: ctr" in Page(page.text).text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src" not in page.headers["content-security-policy"]
    assert page.headers["refresh"] == "5"
    assert fetch(app, "/status.css").headers["content-type"].startswith("text/css")


def test_an_empty_server_has_a_page_too() -> None:
    text = Page(fetch(create_admin_app(MemoryAdministration(), "0.1.0"), "/").text).text

    assert "Ready" in text
    assert "The repository has no model." in text
    assert "No worker is known." in text


def test_ages_are_short() -> None:
    seconds = (-1, 0.4, 59, 119.6, 120, 7199, 7200, 172_799, 172_800, 9e6)
    assert [age(each) for each in seconds] == [
        "0 s", "0 s", "59 s", "120 s", "2 min", "120 min", "2 h", "48 h", "2 d", "104 d",
    ]  # fmt: skip
