"""Topologies configured with the existing topics."""

import pytest

from penstock.groups.streams import topology as module
from penstock.groups.streams.topology import Status, configure
from penstock.wire.messages.streams_group_heartbeat import Topology

from .topologies import COUNT, image, internal, part, persisted, together, topology


def found(given: Topology, **sizes: int) -> module.ConfiguredTopology:
    return configure(persisted(given), image(**sizes))


def test_topics_that_are_missing_are_to_be_created_with_as_many_partitions_as_their_sources() -> None:
    configured = found(COUNT, words=4)
    assert [(topic.name, topic.partitions) for topic in configured.missing] == [("app-c", 4), ("app-r", 4)]
    assert configured.problem == (
        Status.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: app-c, app-r",
    )
    assert not configured.task_counts


def test_once_all_topics_are_there_the_largest_source_says_how_many_tasks_a_subtopology_has() -> None:
    configured = found(COUNT, words=4, app_r=4, app_c=4)
    assert configured.is_ready
    assert configured.task_counts == {"0": 4, "1": 4}
    assert configured.stateful == {"1"}


def test_source_topics_must_be_there() -> None:
    configured = found(topology(part("0", source_topics=("a", "b", "c", "d", "words"))), words=4)
    assert configured.problem == (
        Status.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )


def test_a_repartition_topic_may_say_how_many_partitions_it_has() -> None:
    given = topology(
        part("0", source_topics=("words",), repartition_sink_topics=("app-r",)),
        part("1", repartition_source_topics=(internal("app-r", 7),), state_changelog_topics=(internal("app-c"),)),
    )
    assert [(topic.name, topic.partitions) for topic in found(given, words=2).missing] == [("app-c", 7), ("app-r", 7)]


def test_partitions_are_decided_along_a_chain_of_repartition_topics() -> None:
    given = topology(
        part("0", repartition_source_topics=(internal("b"),), repartition_sink_topics=("c",)),
        part("1", repartition_source_topics=(internal("a"),), repartition_sink_topics=("b",)),
        part("2", source_topics=("words",), repartition_sink_topics=("a",)),
        part("3", repartition_source_topics=(internal("c"),)),
    )
    assert {topic.name: topic.partitions for topic in found(given, words=5).missing} == {"a": 5, "b": 5, "c": 5}


def test_topics_that_are_joined_must_have_equally_many_partitions() -> None:
    given = topology(part("0", source_topics=("left", "right"), copartition_groups=(together(0, 1),)))
    assert found(given, left=3, right=3).is_ready
    configured = found(given, left=3, right=2)
    assert configured.problem == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [left=3, right=2]",
    )


def test_a_repartition_topic_follows_the_topic_that_it_is_joined_with() -> None:
    given = topology(
        part("0", source_topics=("words",), repartition_sink_topics=("app-r",)),
        part(
            "1",
            source_topics=("users",),
            repartition_source_topics=(internal("app-r"),),
            copartition_groups=(together(0, repartitioned=(0,)),),
        ),
    )
    assert [(topic.name, topic.partitions) for topic in found(given, words=2, users=6).missing] == [("app-r", 6)]


def test_a_repartition_topic_with_another_number_cannot_be_joined() -> None:
    given = topology(
        part("0", source_topics=("words",), repartition_sink_topics=("app-r",)),
        part(
            "1",
            source_topics=("users",),
            repartition_source_topics=(internal("app-r", 3),),
            copartition_groups=(together(0, repartitioned=(0,)),),
        ),
    )
    problem = found(given, words=2, users=6).problem
    assert problem is not None
    assert problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "[3] of repartition topic [app-r]" in problem.detail


def test_repartition_topics_that_are_joined_with_each_other_have_the_larger_number() -> None:
    given = topology(
        part("0", source_topics=("words",), repartition_sink_topics=("a",)),
        part("1", source_topics=("users",), repartition_sink_topics=("b",)),
        part(
            "2",
            repartition_source_topics=(internal("a"), internal("b")),
            copartition_groups=(together(repartitioned=(0, 1)),),
        ),
    )
    assert {topic.name: topic.partitions for topic in found(given, words=2, users=6).missing} == {"a": 6, "b": 6}


def test_an_internal_topic_that_exists_must_fit() -> None:
    problem = found(COUNT, words=4, app_r=4, app_c=3).problem
    assert problem == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic app-c has different number of partitions: expected 4, found 3",
    )


def test_a_circle_of_repartition_topics_is_invalid() -> None:
    given = topology(
        part("0", repartition_source_topics=(internal("a"),), repartition_sink_topics=("b",)),
        part("1", repartition_source_topics=(internal("b"),), repartition_sink_topics=("a",)),
    )
    assert "in a circle" in (found(given).invalid or "")


def test_a_repartition_topic_that_is_never_written_is_invalid() -> None:
    given = topology(part("0", repartition_source_topics=(internal("a"),)))
    assert found(given).invalid == "no subtopology writes the repartition topics a"


def test_there_is_a_limit_to_the_number_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASKS_MAX", 7)
    assert found(COUNT, words=4, app_r=4, app_c=4).invalid == "the topology has 8 tasks; 7 are allowed"


def test_the_settings_of_internal_topics_are_the_application_s() -> None:
    given = topology(
        part(
            "0",
            source_topics=("words",),
            state_changelog_topics=(internal("app-c", **{"cleanup.policy": "compact"}),),
        )
    )
    (topic,) = found(given, words=1).missing
    assert (topic.replication_factor, topic.configs) == (-1, {"cleanup.policy": "compact"})
