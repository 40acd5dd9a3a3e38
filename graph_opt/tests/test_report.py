"""Reports: what they say, and that nothing of a model gets out of hand in them."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from anabranch_graph_opt.optimized import LookupVerdict
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport
from anabranch_graph_opt.reporting import report as reports
from anabranch_graph_opt.reporting.making import Outcome, graph_of, make_report
from anabranch_graph_opt.reporting.page import html_report
from anabranch_graph_opt.reporting.picture import picture
from anabranch_graph_opt.reporting.report import Report, ReportedGraph
from anabranch_graph_opt.reporting.text import text_report
from anabranch_graph_opt.reporting.words import bytes_text
from anabranch_wire.lookups import Ids, Lookup, Output
from anabranch_wire.missing import Original
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanInput, PlanTable, Source
from anabranch_wire.tensors import TensorSpec

REASON = "the table has another use; export it twice"
EVIL = "</title><script>alert(1)</script>\x1b[31m&\"'"
HASH = "sha256:" + "0" * 64


def plan(table: str = "items") -> Plan:
    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash=HASH,
        graphs=Graphs(dense="dense.onnx", user="user.onnx"),
        tables=(
            PlanTable(name=table, file="tables/0000.seg", rows=1000, dim=8, dtype="f32",
                      keys="dense_id", missing=Original()),
            PlanTable(name="words", file="tables/0000.seg", rows=10, dim=4, dtype="int8",
                      keys="dense_id", missing=Original()),
        ),
        buffers=(
            Buffer(name="ab_rows", side="row", dtype="f32", columns=8),
            Buffer(name="ab_user", side="user", dtype="f32", columns=4),
        ),
        lookups=(
            Lookup(table=0, side="row", ids=Ids(input="item"), combiner="none",
                   output=Output(buffer=0, column=0)),
            Lookup(table=1, side="user", ids=Ids(input="hist"), combiner="none",
                   output=Output(buffer=1, column=0)),
        ),
        weights={},
        inputs=tuple(
            PlanInput(name=name, datatype="INT64", shape=(-1, 1), symbols=("N", None))
            for name in ("item", "hist")
        ),
        user_inputs=("hist",),
    )  # fmt: skip


def outcome(table: str = "items") -> Outcome:
    verdicts = (
        LookupVerdict("g0", table, 1000, 8, "item[0:1]", ""),
        LookupVerdict("g1", "words", 10, 4, "hist[0:1]", ""),
        LookupVerdict("g2", "tied", 20, 4, "", REASON),
    )
    graphs = (
        ReportedGraph(role="user", file="user.onnx", nodes=3, bytes=300,
                      inputs=("ab_user",), outputs=("ab_once_0",)),
        ReportedGraph(role="dense", file="dense.onnx", nodes=1, bytes=2048,
                      inputs=("ab_rows", "ab_once_0", "price"), outputs=("y",)),
    )  # fmt: skip
    return Outcome(
        inputs=(
            TensorSpec("item", "INT64", (-1, 1)),
            TensorSpec("hist", "INT64", (-1, 1)),
            TensorSpec("price", "FP32", (-1, 2)),
        ),
        verdicts=verdicts,
        table_bytes={table: 32000, "words": 160, "tied": 320},
        parity=ParityReport(79, 2.5e-7, 0.9995, 36, ""),
        budget=ParityBudget(1e-5, 0.999),
        plan=plan(table),
        graphs=graphs,
        notes=("a note",),
    )


def report(given: Outcome | None = None, model: str = "ctr") -> Report:
    return make_report(model, given or outcome(), HASH, 1.23456, 5 * 2**20)


def test_the_document_has_what_the_command_promises() -> None:
    data = json.loads(reports.encode(report()))

    assert data["model"] == "ctr"
    assert data["structure_hash"] == HASH
    assert (data["seconds"], data["peak_bytes"]) == (1.235, 5 * 2**20)
    assert {"max_abs_diff": 2.5e-7, "cases": 79}.items() <= data["parity"].items()
    first, _, last = data["lookups"]
    assert {"table": "items", "rows": 1000, "dim": 8, "cut": True, "reason": ""}.items() <= (
        first.items()
    )
    assert (last["table"], last["cut"], last["reason"]) == ("tied", False, REASON)


def test_a_document_is_read_as_it_was_written() -> None:
    assert reports.decode(reports.encode(report())) == report()


def test_it_says_where_inputs_go_and_who_is_the_user() -> None:
    found = {one.name: (one.goes, one.is_user) for one in report().inputs}

    assert found == {
        "item": (("lookups",), False),
        "hist": (("lookups",), True),
        "price": (("dense",), False),
    }


def test_bytes_of_tables_are_those_of_the_rows_as_stored() -> None:
    items, words = report().tables

    assert (items.bytes, items.lookups) == (1000 * 8 * 4, 1)
    assert words.bytes == 10 * (4 + 4)  # int8: a scale and a bias, and a byte for each number


def test_the_text_names_every_lookup_and_every_reason() -> None:
    text = text_report(report())

    assert "ctr: 2 of 3 lookups cut: 2 tables with 31.3 KiB in the store." in text
    assert "on 79 batches, 36 of them refused by both: numbers differ by at most 2.5e-07" in text
    assert f"tied (20 x 4) at g2:\n    {REASON}" in text
    assert "hist INT64 [any, 1]: to lookups, once per user" in text
    assert "user.onnx, user graph: once per user: 3 nodes, 300 bytes" in text
    assert "a note" in text


def test_a_model_without_lookups_stays_whole() -> None:
    graph = ReportedGraph(
        role="whole", file="model.onnx", nodes=1, bytes=9, inputs=("price",), outputs=("y",)
    )
    given = replace(
        outcome(), verdicts=(), plan=None, parity=None, graphs=(graph,), notes=(), table_bytes={}
    )

    found = report(given)

    assert (found.parity.cases, found.tables, found.buffers) == (0, (), ())
    assert "The graph holds no lookups: it stays as it is." in text_report(found)
    assert "Nothing was changed, so nothing had to be compared." in html_report(found)


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def test_the_page_needs_nothing_but_itself() -> None:
    tags = read(html_report(report()))

    assert not {"script", "link", "img", "iframe", "object"} & set(tags.tags)
    assert not {"src", "href", "onload"} & {name for name, _ in tags.attributes}
    assert tags.tags.count("svg") == 1
    assert "http" not in html_report(report()).replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", ""
    )


def test_the_page_says_why_a_lookup_stays() -> None:
    text = read(html_report(report())).text

    assert "Lookups left in the graph" in text
    assert REASON in text


def test_names_out_of_a_model_stay_text() -> None:
    found = report(outcome(EVIL), EVIL)

    tags = read(html_report(found))
    assert "script" not in tags.tags
    assert "alert(1)" in tags.text
    assert "\x1b" not in text_report(found) + html_report(found)
    ElementTree.fromstring(picture(found))


def test_the_picture_shows_every_part_and_what_flows() -> None:
    drawn = ElementTree.fromstring(picture(report()))

    space = "{http://www.w3.org/2000/svg}"
    kinds = [one.get("class") for one in drawn.iter(f"{space}rect")]
    assert sorted(map(str, kinds)) == ["dense", "inputs", "inputs", "store", "user"]
    words = {one.text for one in drawn.iter(f"{space}text") if one.get("class") == "word"}
    assert {"ids", "8 columns", "4 columns", "by user"} <= words


def test_what_goes_past_a_box_goes_below_all_of_them() -> None:
    drawn = ElementTree.fromstring(picture(report()))

    bottom = max(
        int(one.get("y", "")) + int(one.get("height", ""))
        for one in drawn.iter("{http://www.w3.org/2000/svg}rect")
    )
    paths = [str(one.get("d")) for one in drawn.iter("{http://www.w3.org/2000/svg}path")]
    far = [path for path in paths if " V" in path]
    assert len(far) == 1  # price, from the inputs past the store to the dense graph
    assert int(far[0].split(" V")[1].split()[0]) > bottom


def test_boxes_of_a_picture_do_not_overlap() -> None:
    drawn = ElementTree.fromstring(picture(report()))

    boxes = [
        tuple(int(one.get(key, "")) for key in ("x", "y", "width", "height"))
        for one in drawn.iter("{http://www.w3.org/2000/svg}rect")
    ]
    _, _, right, bottom = map(int, str(drawn.get("viewBox")).split())
    for index, (x, y, width, height) in enumerate(boxes):
        assert x + width <= right
        assert y + height <= bottom
        for left, top, wide, high in boxes[index + 1 :]:
            apart = x + width <= left or left + wide <= x or y + height <= top or top + high <= y
            assert apart


def test_long_lists_are_counted_not_drawn() -> None:
    many = tuple(TensorSpec(f"input_{number}", "INT64", (-1,)) for number in range(200))

    drawn = picture(report(replace(outcome(), inputs=many)))

    assert "and 191 more" in drawn
    assert "input_8" in drawn
    assert "input_9 " not in drawn


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB"),
     (3 * 2**50, "3072.0 TiB")],
)  # fmt: skip
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_graphs_are_counted_with_the_weights_beside_them(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), "<f4"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "dense.onnx"
    onnx.save(model, path, save_as_external_data=True, location="dense.onnx.data")

    found = graph_of("dense", path)

    assert found.bytes == path.stat().st_size + 64 * 64 * 4
    assert (found.nodes, found.inputs, found.outputs) == (1, ("x",), ("y",))
