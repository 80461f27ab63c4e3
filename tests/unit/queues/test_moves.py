"""Dead letters and move tasks: exactly once, by steps that can be repeated."""

from penstock.foundation.decision import NO_PRODUCER, ProducerKey
from penstock.log.producers import SEQUENCE_SPAN
from penstock.queues.acquisition import DEAD_LETTERS_MAX
from penstock.queues.commands import (
    Acknowledgement,
    AckType,
    CopyMessage,
    Counts,
    DeleteGroup,
    Destination,
    Fresh,
    MoveDone,
    NeedProducer,
    SetPosition,
    SetProducer,
    Trimmed,
)
from penstock.queues.draft import destination_of
from penstock.queues.errors import AlreadyFinished
from penstock.queues.machine import RETRY_MS
from penstock.queues.records import EPOCH_MAX, DeliveryRange, Route, route_record
from penstock.queues.settings import DeadLetter, DeliverySettings

from .machine_harness import (
    DEAD,
    DEAD_TOPIC,
    PRODUCER_ID,
    QUEUE,
    START_MS,
    TO_DEAD,
    VISIBILITY_MS,
    MachineHarness,
    offsets,
)

POISON = DeliverySettings(max_deliveries=2, dead_letter=DEAD)
REJECTS = DeliverySettings(dead_letter=DEAD)
ELSEWHERE = Destination(bytes(16), 3)


def rejected(harness: MachineHarness, count: int) -> None:
    harness.acquire("ada", count)
    for offset in range(count):
        assert harness.say("ada", AckType.REJECT, offset) is None


def test_a_poison_message_goes_to_the_dead_letters_when_it_would_be_delivered_once_more() -> None:
    harness = MachineHarness(POISON, end=1)
    for holder in ("ada", "bob"):
        assert offsets(harness.acquire(holder)) == [0]
        harness.later(VISIBILITY_MS)
    assert harness.carries() == [], "no move was requested"
    assert harness.acquire("cyd") == []
    (copy_effect,) = harness.carries()
    assert copy_effect == CopyMessage(QUEUE, 0, 2, START_MS, TO_DEAD, ProducerKey(PRODUCER_ID, 0), 0)
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 0, 0, 1)
    harness.do(copy_effect.done())
    assert harness.delivery.start == 1
    assert harness.carries() == []


def test_without_dead_letters_a_poison_message_is_finished() -> None:
    harness = MachineHarness(DeliverySettings(max_deliveries=1), end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS)
    assert harness.acquire("bob") == []
    assert harness.delivery.start == 1


def test_very_many_dead_messages_go_in_several_decisions_and_none_is_forgotten() -> None:
    count = 2 * DEAD_LETTERS_MAX + 10
    harness = MachineHarness(DeliverySettings(max_deliveries=1, dead_letter=DEAD), end=count)
    for number in range(count):
        harness.acquire(f"w{number}")
    harness.later(VISIBILITY_MS)
    for _ in range(3):
        assert harness.acquire("cyd") == []
        assert harness.batches[-1] <= 2 * DEAD_LETTERS_MAX
    sent = []
    while carries := harness.carries():
        sent.append(carries[0].offset)
        harness.do(carries[0].done())
    assert sent == list(range(count))


def test_a_limit_of_none_is_no_limit() -> None:
    harness = MachineHarness(end=1)
    for number in range(30):
        assert [one.count for one in harness.acquire(f"w{number}")] == [number + 1]
        harness.later(VISIBILITY_MS)


def test_the_last_holder_may_still_say_that_it_is_done() -> None:
    harness = MachineHarness(DeliverySettings(max_deliveries=1, dead_letter=DEAD), end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS)
    assert harness.say("ada", AckType.DONE, 0) is None
    assert harness.acquire("bob") == []
    assert harness.carries() == []


def test_a_message_that_is_being_moved_is_not_delivered() -> None:
    harness = MachineHarness(REJECTS, end=1)
    rejected(harness, 1)
    assert type(harness.say("ada", AckType.DONE, 0)) is AlreadyFinished
    harness.later(VISIBILITY_MS)
    assert harness.acquire("bob") == []


def test_messages_go_one_at_a_time_with_consecutive_numbers() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 3)
    sent = []
    while carries := harness.carries():
        (copy_effect,) = carries
        sent.append((copy_effect.offset, copy_effect.sequence))
        harness.do(copy_effect.done())
    assert sent == [(0, 0), (1, 1), (2, 2)]
    harness.acquire("bob")
    harness.say("bob", AckType.REJECT, 3)
    (copy_effect,) = harness.carries()
    assert (copy_effect.offset, copy_effect.sequence) == (3, 3)


def test_messages_rejected_together_are_moved_one_at_a_time() -> None:
    harness = MachineHarness(REJECTS)
    harness.do(SetProducer(PRODUCER_ID))
    harness.acquire("ada", 3)
    harness.acknowledge(Acknowledgement(0, 0, "ada", AckType.REJECT), Acknowledgement(2, 2, "ada", AckType.REJECT))
    (copy_effect,) = harness.carries()
    assert copy_effect.offset == 0
    harness.do(copy_effect.done())
    assert [(other.offset, other.sequence) for other in harness.carries()] == [(2, 1)]


def test_a_range_is_moved_message_by_message() -> None:
    harness = MachineHarness(REJECTS)
    harness.acquire("ada", 3)
    harness.say("ada", AckType.REJECT, 0, 2)
    sent = []
    while carries := harness.carries():
        sent.append(carries[0].offset)
        harness.do(carries[0].done())
    assert sent == [0, 1, 2]
    assert harness.delivery.start == 3


def test_ways_to_different_places_do_not_wait_for_each_other() -> None:
    harness = MachineHarness(DeliverySettings(dead_letter=DeadLetter(DEAD_TOPIC, 2)))
    harness.do(SetProducer(PRODUCER_ID))
    rejected(harness, 4)
    carries = harness.carries()
    assert [(copy_effect.offset, copy_effect.destination.partition) for copy_effect in carries] == [(0, 0), (1, 1)]
    assert [copy_effect.sequence for copy_effect in carries] == [0, 0]
    harness.do(carries[1].done())
    assert [copy_effect.offset for copy_effect in harness.carries()] == [3]


def test_messages_of_one_group_go_to_one_partition() -> None:
    three = DeadLetter(DEAD_TOPIC, 3)
    assert len({destination_of(DeliveryRange(at, at, group="customer-7"), three) for at in range(9)}) == 1
    assert len({destination_of(DeliveryRange(at, at), three) for at in range(9)}) == 3


def test_a_move_task_takes_a_message_where_it_says() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("task")
    assert harness.say("task", AckType.MOVE, 0, destination=ELSEWHERE) is None
    (copy_effect,) = harness.carries()
    assert copy_effect.destination == ELSEWHERE
    harness.do(copy_effect.done())
    assert harness.delivery.start == 1


# -- repeated


def test_a_new_leader_repeats_moves_in_progress_with_the_same_sequence() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 2)
    (before,) = harness.carries()
    harness.restart()
    harness.wake()
    assert harness.effects == [before]
    harness.do(before.done())
    harness.effects.clear()
    harness.restart()
    (after,) = harness.carries()
    assert (after.offset, after.sequence) == (1, 1)


def test_news_of_a_move_that_is_over_means_nothing() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 2)
    (first,) = harness.carries()
    harness.do(first.done())
    (second,) = harness.carries()
    count = len(harness.records)
    for command in (
        first.done(),
        second.done()._replace(sequence=7),
        second.done()._replace(producer=ProducerKey(1, 1)),
        MoveDone("unknown", 0, TO_DEAD, ProducerKey(1, 1), 0),
        first.failed(0),
    ):
        assert harness.do(command) is None
    assert len(harness.records) == count


def test_a_move_that_could_not_be_persisted_is_repeated() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 2)
    (copy_effect,) = harness.carries()
    harness.broken = True
    harness.do(copy_effect.done())
    harness.broken = False
    assert harness.carries() == []
    harness.do(copy_effect.done())
    assert [other.offset for other in harness.carries()] == [1]


def test_a_producer_is_asked_for_until_there_is_one() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 1)
    harness.wake()
    assert harness.effects == [NeedProducer()]
    harness.wake()
    assert harness.effects == [NeedProducer()]
    assert harness.machine.wake_at_ms == START_MS + RETRY_MS
    harness.later(RETRY_MS)
    harness.wake()
    assert harness.effects == [NeedProducer()] * 2
    harness.do(SetProducer(5))
    harness.do(SetProducer(6))
    harness.effects.clear()
    harness.wake()
    assert [copy_effect.producer for copy_effect in harness.effects] == [ProducerKey(5, 0)]
    assert harness.machine.wake_at_ms is None


def test_pending_moves_start_when_they_are_read_back() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 1)
    harness.restart()
    assert [copy_effect.offset for copy_effect in harness.carries()] == [0]


def test_sequences_begin_again_after_the_last_one() -> None:
    harness = MachineHarness(REJECTS)
    harness.do(SetProducer(PRODUCER_ID))
    harness.machine.apply(route_record(TO_DEAD, Route(PRODUCER_ID, 0, SEQUENCE_SPAN - 1)), NO_PRODUCER)
    rejected(harness, 2)
    (copy_effect,) = harness.carries()
    assert copy_effect.sequence == SEQUENCE_SPAN - 1
    harness.do(copy_effect.done())
    assert [other.sequence for other in harness.carries()] == [0]


# -- given up


def test_a_destination_that_is_gone_leaves_the_message_where_it_was() -> None:
    harness = MachineHarness(POISON, end=1)
    harness.acquire("ada")
    harness.say("ada", AckType.REJECT, 0)
    (copy_effect,) = harness.carries()
    harness.do(copy_effect.failed(harness.now_ms + 3000))
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 0, 1, 0)
    harness.later(3000)
    (again,) = harness.acquire("bob")
    assert (again.first, again.count) == (0, 2)


def test_after_an_abandoned_move_the_next_has_a_new_epoch() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 3)
    (copy_effect,) = harness.carries()
    harness.do(Trimmed(QUEUE, 1))
    (after,) = harness.carries()
    assert (copy_effect.producer.epoch, copy_effect.sequence) == (0, 0)
    assert (after.offset, after.producer.epoch, after.sequence) == (1, 1, 0)


def test_nothing_overtakes_what_waits_to_set_out() -> None:
    harness = MachineHarness(REJECTS)
    rejected(harness, 3)
    harness.carries()
    harness.do(Trimmed(QUEUE, 1))
    harness.later(10)
    harness.acquire("bob")
    harness.say("bob", AckType.REJECT, 3)
    assert [copy_effect.offset for copy_effect in harness.carries()] == [1]


def test_when_the_epochs_are_used_up_there_is_another_producer() -> None:
    harness = MachineHarness(REJECTS)
    harness.do(SetProducer(PRODUCER_ID))
    harness.machine.apply(route_record(TO_DEAD, Route(PRODUCER_ID, EPOCH_MAX, 0)), NO_PRODUCER)
    rejected(harness, 2)
    (copy_effect,) = harness.carries()
    assert copy_effect.producer.epoch == EPOCH_MAX
    harness.do(copy_effect.failed(0))
    harness.later(RETRY_MS)
    harness.wake()
    assert harness.effects == [NeedProducer()]
    harness.do(SetProducer(PRODUCER_ID + 1))
    harness.effects.clear()
    harness.wake()
    assert [other.producer for other in harness.effects] == [ProducerKey(PRODUCER_ID + 1, 0)]


def test_a_group_that_is_forgotten_gives_up_its_moves_and_others_go_on() -> None:
    harness = MachineHarness(REJECTS)
    harness.do(SetPosition("other", 0))
    rejected(harness, 1)
    harness.carries()
    harness.machine.group("other")
    harness.do(DeleteGroup(QUEUE))
    assert harness.carries() == []
    harness.do(SetPosition(QUEUE, 1))
    harness.acquire("bob")
    harness.acknowledge(Acknowledgement(1, 1, "bob", AckType.REJECT))
    (copy_effect,) = harness.carries()
    assert (copy_effect.offset, copy_effect.producer.epoch) == (1, 1)


def test_order_within_a_group_is_kept_on_the_way() -> None:
    harness = MachineHarness(DeliverySettings(is_fifo=True, max_deliveries=1, dead_letter=DEAD))
    fresh = tuple(Fresh(offset, group="a") for offset in range(4))
    for number in range(4):
        harness.acquire_of(f"w{number}", 1, fresh[number:])
        harness.later(VISIBILITY_MS)
    harness.acquire_of("last", 1, ())
    sent = []
    while carries := harness.carries():
        sent.append(carries[0].offset)
        harness.restart()
        harness.do(carries[0].done())
    assert sent == [0, 1, 2, 3]
