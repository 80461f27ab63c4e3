"""The cache of registered schema ids: it is bounded, forgets, and never asks the registry too often."""

import asyncio
from collections.abc import Mapping

import pytest

from penstock.broker.schemas import known_ids
from penstock.broker.schemas.known_ids import (
    INTERVAL_S,
    REFRESH_S,
    RULE_IDS_MAX,
    TRUST_S,
    KnownSchemaIds,
    Questions,
    SchemaIdsUnavailable,
)
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import NotCoordinator
from penstock.log.settings import SubjectRule
from penstock.wire.messages.known_schema_ids import IDS_MAX

ORDERS = SubjectRule("orders-value", False)
ANY = SubjectRule("", True)


class Registry:
    """The registry that is asked, and the clock."""

    def __init__(self, *ids: int) -> None:
        self.now_s = 1000.0
        self.ids = set(ids)
        self.is_down = False
        self.asked: list[dict[SubjectRule, set[int]]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.known = KnownSchemaIds(self.ask, lambda: self.now_s)

    async def ask(self, questions: Questions) -> Mapping[SubjectRule, frozenset[int]]:
        self.asked.append({rule: set(ids) for rule, ids in questions.items()})
        await self.may_answer.wait()
        self.now_s += INTERVAL_S
        if self.is_down:
            raise NotCoordinator("no leader")
        return {rule: frozenset(self.ids.intersection(ids)) for rule, ids in questions.items()}

    def found(self, rule: SubjectRule = ORDERS) -> list[int]:
        return self.known.find(rule).known.tolist()


async def turns() -> None:
    """Lets all tasks go on that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_registered_ids_are_kept_and_others_are_asked_for_each_time() -> None:
    registry = Registry(1, 5)
    assert await registry.known.resolve(ORDERS, [5, 7, 1]) == {7}
    assert registry.found() == [1, 5]
    assert registry.found(ANY) == [], "each rule has ids of its own"
    assert await registry.known.resolve(ORDERS, [7]) == {7}
    registry.ids.add(7)
    assert await registry.known.resolve(ORDERS, [7]) == set()
    assert registry.found() == [1, 5, 7]


async def test_questions_that_wait_are_sent_together() -> None:
    registry = Registry(1)
    registry.may_answer.clear()
    first = asyncio.create_task(registry.known.resolve(ORDERS, [1]))
    await turns()
    others = [asyncio.create_task(registry.known.resolve(ORDERS, [number])) for number in range(100, 150)]
    others.append(asyncio.create_task(registry.known.resolve(ANY, [1])))
    registry.now_s += INTERVAL_S
    await turns()
    registry.may_answer.set()
    assert await first == set()
    answers = await asyncio.gather(*others)
    assert answers[-1] == set()
    assert all(answers[:-1])
    assert registry.asked == [{ORDERS: {1}}, {ORDERS: set(range(100, 150)), ANY: {1}}]


async def test_requests_keep_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, pauses = Registry(), list[float]()
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        registry.now_s += seconds
        await sleep(0)

    monkeypatch.setattr(known_ids.asyncio, "sleep", note)
    registry.now_s = 1000.0
    for number in range(4):
        began_s = registry.now_s
        assert await registry.known.resolve(ORDERS, [number]) == {number}
        registry.now_s = began_s + 0.01
    assert pauses[0] == 0.0
    assert all(pause > 0.0 for pause in pauses[1:])


async def test_too_many_ids_that_wait_are_refused_and_the_producer_retries() -> None:
    registry = Registry()
    registry.may_answer.clear()
    waiting = asyncio.create_task(registry.known.resolve(ANY, range(IDS_MAX)))
    await asyncio.sleep(0)
    with pytest.raises(SchemaIdsUnavailable) as caught:
        await registry.known.resolve(ORDERS, [1])
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    registry.may_answer.set()
    assert len(await waiting) == IDS_MAX


async def test_a_registry_that_cannot_be_asked_makes_producers_retry() -> None:
    registry = Registry(1)
    registry.is_down = True
    with pytest.raises(SchemaIdsUnavailable, match="no leader"):
        await registry.known.resolve(ORDERS, [1])
    assert registry.found() == []
    registry.is_down = False
    assert await registry.known.resolve(ORDERS, [1]) == set()


async def test_a_deleted_id_is_refused_after_a_while() -> None:
    registry = Registry(1, 2)
    await registry.known.resolve(ORDERS, [1, 2])
    registry.ids.discard(2)
    registry.now_s += REFRESH_S - 1
    assert registry.found() == [1, 2]
    await turns()
    assert len(registry.asked) == 1
    registry.now_s += 2
    assert registry.found() == [1, 2], "the batch does not wait for the answer"
    assert registry.found() == [1, 2]
    await turns()
    assert registry.found() == [1]
    assert len(registry.asked) == 2, "it is asked once"


async def test_old_ids_are_not_trusted_while_the_registry_is_down() -> None:
    registry = Registry(1)
    await registry.known.resolve(ORDERS, [1])
    registry.is_down = True
    registry.now_s += TRUST_S - 10
    assert registry.found() == [1]
    await turns()
    assert registry.found() == [1], "the registry may come back"
    registry.now_s += 20
    assert registry.found() == []
    with pytest.raises(SchemaIdsUnavailable):
        await registry.known.resolve(ORDERS, [1])


async def test_the_cache_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(*range(1, 3 * RULE_IDS_MAX))
    await registry.known.resolve(ANY, range(1, RULE_IDS_MAX + 1))
    await registry.known.resolve(ANY, [RULE_IDS_MAX + 5])
    assert registry.found(ANY) == [RULE_IDS_MAX + 5]
    monkeypatch.setattr(known_ids, "RULES_MAX", 3)
    rules = [SubjectRule(f"topic{number}-value", False) for number in range(5)]
    for rule in rules:
        await registry.known.resolve(rule, [1])
    assert [registry.found(rule) for rule in rules] == [[], [], [1], [1], [1]]


async def test_a_request_that_is_cancelled_takes_no_answer_from_others() -> None:
    registry = Registry(1)
    registry.may_answer.clear()
    gone = asyncio.create_task(registry.known.resolve(ORDERS, [1]))
    waits = asyncio.create_task(registry.known.resolve(ORDERS, [2]))
    await turns()
    gone.cancel()
    await turns()
    registry.may_answer.set()
    assert await waits == {2}
    assert gone.cancelled()
