from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.progress import Progress, Track
from penstock.foundation.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 3)


def test_nothing_is_due_before_anything_was_handed_over() -> None:
    progress = Progress()
    progress.gain([ORDERS])
    assert progress.due() == {}


def test_an_offset_is_due_when_all_before_it_are_finished() -> None:
    track = Track(ORDERS)
    for offset in (5, 6, 9):  # there may be gaps: compaction, markers
        track.hand_over(offset)
    assert track.due() == 5
    track.finish(6)
    assert track.due() == 5
    track.finish(5)
    assert track.due() == 9
    track.finish(9)
    assert track.due() == 10
    assert track.unfinished == 0


def test_what_is_passed_over_counts_as_finished() -> None:
    track = Track(ORDERS)
    track.skip(3)
    assert track.due() == 4
    track.hand_over(4)
    track.skip(5)
    assert track.due() == 4


def test_what_was_asked_for_is_not_due_again_unless_it_failed() -> None:
    track = Track(ORDERS)
    track.skip(0)
    track.ask()
    assert track.due() is None
    assert track.due(even_if_asked=True) == 1
    track.settle(1, is_done=False)
    assert track.due() == 1
    track.ask()
    track.settle(1, is_done=True)
    assert track.due() is None
    assert track.due(even_if_asked=True) is None


def test_an_older_commit_that_fails_does_not_matter_once_a_newer_one_is_under_way() -> None:
    track = Track(ORDERS)
    track.skip(0)
    track.ask()
    track.skip(1)
    track.ask()
    track.settle(1, is_done=False)
    assert track.due() is None
    track.settle(2, is_done=False)
    assert track.due() == 2


def test_what_is_handed_back_was_never_handed_over() -> None:
    track = Track(ORDERS)
    track.skip(0)
    track.ask()
    track.settle(1, is_done=True)
    track.hand_over(1)
    track.hand_over(2)
    track.finish(1)
    track.hand_back()
    assert (track.due(), track.unfinished) == (None, 0)
    track.hand_over(1)
    track.finish(1)
    assert track.due() == 2


def test_a_partition_that_went_and_came_back_starts_anew() -> None:
    progress = Progress()
    progress.gain([ORDERS, OTHERS])
    before = progress.track(ORDERS)
    assert before is not None
    before.hand_over(7)
    progress.lose([ORDERS])
    assert not before.is_ours
    progress.gain([ORDERS])
    before.finish(7)
    assert progress.due() == {}
    after = progress.track(ORDERS)
    assert after is not before
    assert progress.track(OTHERS) is not None


def test_what_is_due_can_be_asked_for_some_partitions() -> None:
    progress = Progress()
    progress.gain([ORDERS, OTHERS])
    for place in (ORDERS, OTHERS):
        track = progress.track(place)
        assert track is not None
        track.hand_over(1)
        track.finish(1)
    assert progress.due([OTHERS, TopicPartition("gone", 0)]) == {OTHERS: 2}
    progress.ask({OTHERS: 2})
    assert progress.due() == {ORDERS: 2}
    progress.settle(OTHERS, 2, is_done=False)
    assert progress.due() == {ORDERS: 2, OTHERS: 2}
    progress.settle(TopicPartition("gone", 0), 1, is_done=True)  # it went meanwhile


def test_losing_what_is_not_ours_is_nothing() -> None:
    progress = Progress()
    progress.lose([ORDERS])
    assert progress.unfinished == 0


@given(st.data())
def test_the_watermark_never_passes_anything_unfinished(data: st.DataObject) -> None:
    track = Track(ORDERS)
    offset = data.draw(st.integers(0, 5))
    unfinished: set[int] = set()
    highest = None
    for _ in range(data.draw(st.integers(0, 40))):
        action = data.draw(st.sampled_from(["hand over", "finish", "skip", "again"]))
        if action in ("hand over", "skip"):
            offset += data.draw(st.integers(1, 3))
            highest = offset
            if action == "skip":
                track.skip(offset)
            else:
                track.hand_over(offset)
                unfinished.add(offset)
        elif unfinished:
            chosen = data.draw(st.sampled_from(sorted(unfinished)))
            if action == "again":
                track.hand_over(chosen)
            else:
                track.finish(chosen)
                unfinished.remove(chosen)
        expected = min(unfinished) if unfinished else None if highest is None else highest + 1
        assert track.watermark == expected
        assert track.unfinished == len(unfinished)
