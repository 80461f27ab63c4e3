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

from .driving import DEAD, DEAD_TOPIC, PRODUCER_ID, QUEUE, START_MS, TO_DEAD, VISIBILITY_MS, Place, offsets

POISON = DeliverySettings(max_deliveries=2, dead_letter=DEAD)
REJECTS = DeliverySettings(dead_letter=DEAD)
ELSEWHERE = Destination(bytes(16), 3)


def rejected(place: Place, count: int) -> None:
    place.acquire("ada", count)
    for offset in range(count):
        assert place.say("ada", AckType.REJECT, offset) is None


def test_a_poison_message_goes_to_the_dead_letters_when_it_would_be_delivered_once_more() -> None:
    place = Place(POISON, end=1)
    for holder in ("ada", "bob"):
        assert offsets(place.acquire(holder)) == [0]
        place.later(VISIBILITY_MS)
    assert place.carries() == [], "nobody has asked for it"
    assert place.acquire("cyd") == []
    (copy_effect,) = place.carries()
    assert copy_effect == CopyMessage(QUEUE, 0, 2, START_MS, TO_DEAD, ProducerKey(PRODUCER_ID, 0), 0)
    assert place.delivery.counts(place.now_ms) == Counts(0, 0, 0, 1)
    place.do(copy_effect.done())
    assert place.delivery.start == 1
    assert place.carries() == []


def test_without_dead_letters_a_poison_message_is_finished() -> None:
    place = Place(DeliverySettings(max_deliveries=1), end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS)
    assert place.acquire("bob") == []
    assert place.delivery.start == 1


def test_very_many_dead_messages_go_in_several_decisions_and_none_is_forgotten() -> None:
    count = 2 * DEAD_LETTERS_MAX + 10
    place = Place(DeliverySettings(max_deliveries=1, dead_letter=DEAD), end=count)
    for number in range(count):
        place.acquire(f"w{number}")
    place.later(VISIBILITY_MS)
    for _ in range(3):
        assert place.acquire("cyd") == []
        assert place.batches[-1] <= 2 * DEAD_LETTERS_MAX
    sent = []
    while carries := place.carries():
        sent.append(carries[0].offset)
        place.do(carries[0].done())
    assert sent == list(range(count))


def test_a_limit_of_none_is_no_limit() -> None:
    place = Place(end=1)
    for number in range(30):
        assert [one.count for one in place.acquire(f"w{number}")] == [number + 1]
        place.later(VISIBILITY_MS)


def test_the_last_holder_may_still_say_that_it_is_done() -> None:
    place = Place(DeliverySettings(max_deliveries=1, dead_letter=DEAD), end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS)
    assert place.say("ada", AckType.DONE, 0) is None
    assert place.acquire("bob") == []
    assert place.carries() == []


def test_a_message_on_its_way_is_nobodys() -> None:
    place = Place(REJECTS, end=1)
    rejected(place, 1)
    assert type(place.say("ada", AckType.DONE, 0)) is AlreadyFinished
    place.later(VISIBILITY_MS)
    assert place.acquire("bob") == []


def test_messages_go_one_at_a_time_with_consecutive_numbers() -> None:
    place = Place(REJECTS)
    rejected(place, 3)
    sent = []
    while carries := place.carries():
        (copy_effect,) = carries
        sent.append((copy_effect.offset, copy_effect.sequence))
        place.do(copy_effect.done())
    assert sent == [(0, 0), (1, 1), (2, 2)]
    place.acquire("bob")
    place.say("bob", AckType.REJECT, 3)
    (copy_effect,) = place.carries()
    assert (copy_effect.offset, copy_effect.sequence) == (3, 3)


def test_of_those_that_are_rejected_together_one_sets_out() -> None:
    place = Place(REJECTS)
    place.do(SetProducer(PRODUCER_ID))
    place.acquire("ada", 3)
    place.acknowledge(Acknowledgement(0, 0, "ada", AckType.REJECT), Acknowledgement(2, 2, "ada", AckType.REJECT))
    (copy_effect,) = place.carries()
    assert copy_effect.offset == 0
    place.do(copy_effect.done())
    assert [(other.offset, other.sequence) for other in place.carries()] == [(2, 1)]


def test_a_range_is_moved_message_by_message() -> None:
    place = Place(REJECTS)
    place.acquire("ada", 3)
    place.say("ada", AckType.REJECT, 0, 2)
    sent = []
    while carries := place.carries():
        sent.append(carries[0].offset)
        place.do(carries[0].done())
    assert sent == [0, 1, 2]
    assert place.delivery.start == 3


def test_ways_to_different_places_do_not_wait_for_each_other() -> None:
    place = Place(DeliverySettings(dead_letter=DeadLetter(DEAD_TOPIC, 2)))
    place.do(SetProducer(PRODUCER_ID))
    rejected(place, 4)
    carries = place.carries()
    assert [(copy_effect.offset, copy_effect.destination.partition) for copy_effect in carries] == [(0, 0), (1, 1)]
    assert [copy_effect.sequence for copy_effect in carries] == [0, 0]
    place.do(carries[1].done())
    assert [copy_effect.offset for copy_effect in place.carries()] == [3]


def test_messages_of_one_group_go_to_one_partition() -> None:
    three = DeadLetter(DEAD_TOPIC, 3)
    assert len({destination_of(DeliveryRange(at, at, group="customer-7"), three) for at in range(9)}) == 1
    assert len({destination_of(DeliveryRange(at, at), three) for at in range(9)}) == 3


def test_a_move_task_takes_a_message_where_it_says() -> None:
    place = Place(end=1)
    place.acquire("task")
    assert place.say("task", AckType.MOVE, 0, destination=ELSEWHERE) is None
    (copy_effect,) = place.carries()
    assert copy_effect.destination == ELSEWHERE
    place.do(copy_effect.done())
    assert place.delivery.start == 1


# -- repeated


def test_whoever_leads_next_repeats_what_was_under_way_with_the_same_number() -> None:
    place = Place(REJECTS)
    rejected(place, 2)
    (before,) = place.carries()
    place.restart()
    place.wake()
    assert place.effects == [before]
    place.do(before.done())
    place.effects.clear()
    place.restart()
    (after,) = place.carries()
    assert (after.offset, after.sequence) == (1, 1)


def test_news_of_a_move_that_is_over_means_nothing() -> None:
    place = Place(REJECTS)
    rejected(place, 2)
    (first,) = place.carries()
    place.do(first.done())
    (second,) = place.carries()
    count = len(place.records)
    for command in (
        first.done(),
        second.done()._replace(sequence=7),
        second.done()._replace(producer=ProducerKey(1, 1)),
        MoveDone("unknown", 0, TO_DEAD, ProducerKey(1, 1), 0),
        first.failed(0),
    ):
        assert place.do(command) is None
    assert len(place.records) == count


def test_what_could_not_be_persisted_is_said_again() -> None:
    place = Place(REJECTS)
    rejected(place, 2)
    (copy_effect,) = place.carries()
    place.broken = True
    place.do(copy_effect.done())
    place.broken = False
    assert place.carries() == []
    place.do(copy_effect.done())
    assert [other.offset for other in place.carries()] == [1]


def test_a_producer_is_asked_for_until_there_is_one() -> None:
    place = Place(REJECTS)
    rejected(place, 1)
    place.wake()
    assert place.effects == [NeedProducer()]
    place.wake()
    assert place.effects == [NeedProducer()]
    assert place.machine.wake_at_ms == START_MS + RETRY_MS
    place.later(RETRY_MS)
    place.wake()
    assert place.effects == [NeedProducer()] * 2
    place.do(SetProducer(5))
    place.do(SetProducer(6))
    place.effects.clear()
    place.wake()
    assert [copy_effect.producer for copy_effect in place.effects] == [ProducerKey(5, 0)]
    assert place.machine.wake_at_ms is None


def test_what_waits_when_it_is_read_back_sets_out() -> None:
    place = Place(REJECTS)
    rejected(place, 1)
    place.restart()
    assert [copy_effect.offset for copy_effect in place.carries()] == [0]


def test_sequences_begin_again_after_the_last_one() -> None:
    place = Place(REJECTS)
    place.do(SetProducer(PRODUCER_ID))
    place.machine.apply(route_record(TO_DEAD, Route(PRODUCER_ID, 0, SEQUENCE_SPAN - 1)), NO_PRODUCER)
    rejected(place, 2)
    (copy_effect,) = place.carries()
    assert copy_effect.sequence == SEQUENCE_SPAN - 1
    place.do(copy_effect.done())
    assert [other.sequence for other in place.carries()] == [0]


# -- given up


def test_a_destination_that_is_gone_leaves_the_message_where_it_was() -> None:
    place = Place(POISON, end=1)
    place.acquire("ada")
    place.say("ada", AckType.REJECT, 0)
    (copy_effect,) = place.carries()
    place.do(copy_effect.failed(place.now_ms + 3000))
    assert place.delivery.counts(place.now_ms) == Counts(0, 0, 1, 0)
    place.later(3000)
    (again,) = place.acquire("bob")
    assert (again.first, again.count) == (0, 2)


def test_after_a_move_that_was_given_up_the_next_has_a_new_epoch() -> None:
    place = Place(REJECTS)
    rejected(place, 3)
    (copy_effect,) = place.carries()
    place.do(Trimmed(QUEUE, 1))
    (after,) = place.carries()
    assert (copy_effect.producer.epoch, copy_effect.sequence) == (0, 0)
    assert (after.offset, after.producer.epoch, after.sequence) == (1, 1, 0)


def test_nothing_overtakes_what_waits_to_set_out() -> None:
    place = Place(REJECTS)
    rejected(place, 3)
    place.carries()
    place.do(Trimmed(QUEUE, 1))
    place.later(10)
    place.acquire("bob")
    place.say("bob", AckType.REJECT, 3)
    assert [copy_effect.offset for copy_effect in place.carries()] == [1]


def test_when_the_epochs_are_used_up_there_is_another_producer() -> None:
    place = Place(REJECTS)
    place.do(SetProducer(PRODUCER_ID))
    place.machine.apply(route_record(TO_DEAD, Route(PRODUCER_ID, EPOCH_MAX, 0)), NO_PRODUCER)
    rejected(place, 2)
    (copy_effect,) = place.carries()
    assert copy_effect.producer.epoch == EPOCH_MAX
    place.do(copy_effect.failed(0))
    place.later(RETRY_MS)
    place.wake()
    assert place.effects == [NeedProducer()]
    place.do(SetProducer(PRODUCER_ID + 1))
    place.effects.clear()
    place.wake()
    assert [other.producer for other in place.effects] == [ProducerKey(PRODUCER_ID + 1, 0)]


def test_a_group_that_is_forgotten_gives_up_its_moves_and_others_go_on() -> None:
    place = Place(REJECTS)
    place.do(SetPosition("other", 0))
    rejected(place, 1)
    place.carries()
    place.machine.group("other")
    place.do(DeleteGroup(QUEUE))
    assert place.carries() == []
    place.do(SetPosition(QUEUE, 1))
    place.acquire("bob")
    place.acknowledge(Acknowledgement(1, 1, "bob", AckType.REJECT))
    (copy_effect,) = place.carries()
    assert (copy_effect.offset, copy_effect.producer.epoch) == (1, 1)


def test_order_within_a_group_is_kept_on_the_way() -> None:
    place = Place(DeliverySettings(is_fifo=True, max_deliveries=1, dead_letter=DEAD))
    fresh = tuple(Fresh(offset, group="a") for offset in range(4))
    for number in range(4):
        place.acquire_of(f"w{number}", 1, fresh[number:])
        place.later(VISIBILITY_MS)
    place.acquire_of("last", 1, ())
    sent = []
    while carries := place.carries():
        sent.append(carries[0].offset)
        place.restart()
        place.do(carries[0].done())
    assert sent == [0, 1, 2, 3]
