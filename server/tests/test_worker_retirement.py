from anabranch_server.worker.retirement import Retired, Retirement

FIRST, SECOND = Retired("m", 1), Retired("m", 2)


def test_what_was_unloaded_is_due_after_its_time_and_only_once() -> None:
    retirement = Retirement(after_s=300)
    retirement.unloaded(FIRST, 1000)
    retirement.unloaded(SECOND, 1010)

    assert retirement.due(1299) == []
    assert retirement.due(1300) == [FIRST]
    assert retirement.due(1310) == [SECOND]
    assert retirement.due(9999) == []


def test_what_is_loaded_again_stays_and_its_model_with_it() -> None:
    retirement = Retirement(after_s=300)
    for what in (FIRST, SECOND, Retired("m"), Retired("other")):
        retirement.unloaded(what, 0)
    retirement.loaded(FIRST)

    assert retirement.due(300) == [SECOND, Retired("other")]


def test_what_is_unloaded_again_begins_its_time_anew() -> None:
    retirement = Retirement(after_s=300)
    retirement.unloaded(FIRST, 0)
    retirement.unloaded(FIRST, 200)

    assert retirement.due(300) == []
    assert retirement.due(500) == [FIRST]


def test_more_than_there_is_room_for_go_early_the_oldest_first() -> None:
    retirement = Retirement(after_s=300, most=3)
    for number in range(5):
        retirement.unloaded(Retired("m", number), number)

    assert [what.version for what in retirement.due(5)] == [0, 1]
    assert len(retirement) == 3
