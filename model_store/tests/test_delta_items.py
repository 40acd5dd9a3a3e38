"""Item tables of deltas: they take the place of the version's, or are refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_runtime.ranking.item_table import ItemTable
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_testing.ranked_deltas import RankedShop, items_file


@pytest.fixture
def shop(tmp_path: Path) -> RankedShop:
    return RankedShop(tmp_path)


def ids(plan: RankingPlan | None) -> int:
    """How many items the table of a plan has."""
    assert plan is not None
    assert plan.item_table is not None
    return ItemTable(Path(plan.item_table.path)).rows


def test_a_new_item_table_takes_the_place_of_the_old_one(shop: RankedShop) -> None:
    shop.publish(items={"items": items_file(shop.root / "new.parquet", {1: 5.0, 9: 6.0})})
    before = shop.target.ranking

    made = shop.apply(1)

    assert made.fault is None
    assert (ids(before), ids(made.target.ranking)) == (3, 2)
    assert made.target.ranking is not None
    assert before is not None
    assert made.target.model is shop.target.model
    for name in RankingPlan.__struct_fields__:
        if name != "item_table":
            assert getattr(made.target.ranking, name) == getattr(before, name)


def test_of_several_deltas_the_last_table_counts(shop: RankedShop) -> None:
    for number in (1, 2):
        prices = dict.fromkeys(range(number * 10), 1.0)
        shop.publish(items={"items": items_file(shop.root / f"{number}.parquet", prices)})
    shop.publish({1: [5, 5]})

    assert ids(shop.apply(1).target.ranking) == 10
    assert ids(shop.apply(3).target.ranking) == 20


def test_the_same_table_is_imported_once(shop: RankedShop) -> None:
    new = items_file(shop.root / "new.parquet", {1: 5.0})
    shop.publish(items={"items": new})
    shop.publish(items={"items": new})

    first, second = shop.apply(1).target, shop.apply(2).target

    assert first.ranking == second.ranking


@pytest.mark.parametrize(
    ("column", "prices", "words"),
    [
        ("cost", {1: 5.0}, "no column 'price'; the file has 'id', 'cost'"),
        ("price", {1: "x"}, "column 'price' is string; feature 'price' expects numbers"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    shop: RankedShop, column: str, prices: dict[int, float], words: str
) -> None:
    shop.publish(items={"items": items_file(shop.root / "new.parquet", prices, column)})

    made = shop.apply(1)

    assert made.target.ranking is shop.target.ranking
    assert made.fault is not None
    assert made.fault.reason == "invalid"
    assert words in made.fault.error.message


def test_a_file_that_is_no_parquet_is_refused(shop: RankedShop) -> None:
    path = shop.root / "new.parquet"
    path.write_bytes(b"no Parquet at all")
    shop.publish(items={"items": path})

    fault = shop.apply(1).fault

    assert fault is not None
    assert fault.reason == "invalid"


def test_a_table_that_is_not_declared_is_refused_with_those_that_are(shop: RankedShop) -> None:
    shop.publish(items={"wares": items_file(shop.root / "new.parquet", {1: 5.0})})

    fault = shop.apply(1).fault

    assert fault is not None
    assert "there is no item table 'wares'; model.yaml declares 'items', 'unused'" in (
        fault.error.message
    )


def test_a_table_that_no_ranking_reads_is_left_alone(shop: RankedShop) -> None:
    shop.publish(items={"unused": items_file(shop.root / "new.parquet", {1: 5.0})})

    made = shop.apply(1)

    assert made.fault is None
    assert made.target.ranking is shop.target.ranking


def test_where_nothing_ranks_there_is_nothing_to_replace(shop: RankedShop) -> None:
    shop.publish(items={"items": items_file(shop.root / "new.parquet", {1: 5.0})})

    made = shop.apply(1, replace(shop.target, ranking=None))

    assert made.fault is None
    assert made.target.ranking is None
