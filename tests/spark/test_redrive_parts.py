"""The parts of a redrive without Spark: rounds, ranges, options, the report."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.claims import DeliveryRange, State, Survey, merge_ranges
from penstock.queues import messages
from penstock.spark.pipelines import dead_letters
from penstock.spark.pipelines.catalogue import load
from penstock.spark.pipelines.claims import Deleted, Recovered, open_ranges
from penstock.spark.pipelines.document import PipelineInvalid
from penstock.spark.pipelines.redrive import split_rounds
from penstock.spark.pipelines.redrive_report import Cause, Outcome

OFFSETS = st.dictionaries(st.integers(0, 4), st.lists(st.integers(0, 99), unique=True, max_size=20).map(sorted))


def test_headers_are_called_as_brokers_call_them() -> None:
    for name in ("OWN_PREFIX", "MESSAGE_ID", "SOURCE_ARN", "RECEIVE_COUNT", "SENT_AT", "DELAY_MS"):
        assert getattr(dead_letters, name) == getattr(messages, name)


@given(wanted=OFFSETS, each=st.integers(1, 30), limit=st.none() | st.integers(1, 60))
def test_rounds_have_every_letter_once_and_in_order(
    wanted: dict[int, list[int]], each: int, limit: int | None
) -> None:
    rounds = list(split_rounds(wanted, each, limit))
    total = sum(map(len, wanted.values()))
    taken = {partition: [offset for one in rounds for offset in one.get(partition, ())] for partition in wanted}
    assert sum(map(len, taken.values())) == (total if limit is None else min(total, limit))
    for partition, offsets in taken.items():
        assert offsets == wanted[partition][: len(offsets)]
    assert all(0 < sum(map(len, one.values())) <= max(each, len(wanted)) for one in rounds)


@given(st.lists(st.integers(0, 60), max_size=30))
def test_ranges_side_by_side_are_joined(offsets: list[int]) -> None:
    found = merge_ranges((offset, offset) for offset in offsets)
    assert [offset for first, last in found for offset in range(first, last + 1)] == sorted(set(offsets))
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


def test_tasks_know_which_messages_are_finished_available_or_in_flight() -> None:
    survey = Survey(
        (
            DeliveryRange(2, 3, State.AVAILABLE, 1, ""),
            DeliveryRange(5, 5, State.IN_FLIGHT, 2, "ada"),
            DeliveryRange(6, 6, State.MOVING, 9, ""),
        ),
        undelivered_from=8,
        end=10,
    )
    spans = open_ranges(survey)
    assert survey.start == 2
    assert [spans.find(offset) for offset in range(10)] == [
        None,
        None,
        (1, True),
        (1, True),
        None,
        (2, False),
        (9, False),
        None,
        (0, True),
        (0, True),
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "set either queue or topic"),
        ({"queue": "a", "topic": "b"}, "set either queue or topic"),
        ({"queue": "a", "to": "a"}, "it is the dead-letter queue itself"),
        ({"queue": "a", "group": "g"}, "it requires topic"),
        ({"queue": "a", "fix.vaule": "upper(value)"}, "did you mean 'value'"),
        ({"queue": "a", "wher": "true"}, "did you mean 'where'"),
        ({"queue": "a", "max_rows": "0"}, "between 1 and 100000"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_spark_starts(options: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineInvalid, match=says):
        load("redrive", list(options.items()))


def outcome(**more: Any) -> Outcome:
    causes = [Cause("late", "jobs", 5, 4, 3, "then"), Cause(None, None, 2, 2, 2, None)]
    return Outcome(
        **{"name": "dead", "is_dry": False, "limit": None, "causes": causes, "targets": {"jobs": "jobs"}, **more}
    )


def test_the_report_adds_up() -> None:
    found = outcome(recovered=Recovered(finished=2, returned=1))
    found.add(3, Deleted(3, 0))
    report = found.report(1.25)
    assert report.is_ok
    assert report.verdict == (
        "3 of 7 dead letters of dead were sent back; 2 that an earlier run had sent back were deleted"
    )
    assert report.facts == {
        "examined": 7,
        "matched": 6,
        "sent_back": 3,
        "deleted": 3,
        "left": 4,
        "in_flight": 1,
        "without_source": 2,
        "recovered": 2,
        "given_back": 1,
        "seconds": 1.2,
    }
    assert [row[2] for row in report.tables[0].rows] == ["jobs", "nowhere"]


def test_letters_that_were_delivered_elsewhere_too_make_the_report_a_failure() -> None:
    found = outcome()
    found.add(3, Deleted(2, 1))
    report = found.report(1.0)
    assert not report.is_ok
    assert "1 were also received by another consumer" in report.verdict


def test_a_dry_run_says_how_many_would_go() -> None:
    assert outcome(is_dry=True).report(1.0).facts["would_be_sent_back"] == 3
    assert outcome(is_dry=True, limit=1).report(1.0).facts["would_be_sent_back"] == 1
