"""The schema ids that this broker knows to be registered, for topics with schema.validation=true."""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.log.admission import SchemaIds
from penstock.log.settings import SubjectRule
from penstock.wire.messages.known_schema_ids import IDS_MAX

REFRESH_S: Final = 30.0
"""Age, in seconds, after which the ids of a rule are looked up again when they are used."""
TRUST_S: Final = 300.0
"""Age, in seconds, after which ids are no longer used: the longest that a schema deleted for good is accepted."""
INTERVAL_S: Final = 0.05
"""Seconds between two requests to the registry, each for all ids that wait: invented ids cannot flood its leader."""
RULES_MAX: Final = 10_000
"""Maximum number of rules whose ids are kept; those not used for longest are dropped."""
RULE_IDS_MAX: Final = 2048
"""Maximum number of ids kept for a rule; they are dropped when it is reached."""

Questions = Mapping[SubjectRule, Collection[int]]
Ask = Callable[[Questions], Awaitable[Mapping[SubjectRule, frozenset[int]]]]
"""A function that returns, for each rule, which of the ids are registered as it requires. Raises PenstockError."""
_NO_IDS: Final = array("i")


class SchemaIdsUnavailable(PenstockError):
    """The schema registry cannot be asked whether ids are registered; producers retry."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS  # producers retry after this error


class _Rule:
    """The ids that are registered as a rule requires."""

    __slots__ = ("checked_s", "ids", "is_refreshing")

    def __init__(self, ids: Collection[int], checked_s: float) -> None:
        self.ids = array("i", sorted(ids))
        self.checked_s = checked_s
        """When the registry was asked for those ids that were asked for longest ago."""
        self.is_refreshing = False


class KnownSchemaIds:
    """Caches registered ids, and asks the registry for others: one request at a time, and no more than one each
    INTERVAL_S. That an id is not registered is never cached, because it may be registered the next moment."""

    def __init__(self, ask: Ask, now_s: Callable[[], float]) -> None:
        self._ask = ask
        self._now_s = now_s
        self._rules: OrderedDict[SubjectRule, _Rule] = OrderedDict()
        self._next: dict[SubjectRule, set[int]] = {}
        """The ids of the next request."""
        self._answered: asyncio.Future[Mapping[SubjectRule, frozenset[int]] | PenstockError] | None = None
        """The answer to the next request."""
        self._asked_s = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0
        """Number of requests sent so far."""

    def find(self, rule: SubjectRule, refused: frozenset[int] = frozenset()) -> SchemaIds:
        """Returns the ids that are known to be registered as a rule requires; looks old ones up again, later."""
        found = self._rules.get(rule)
        if found is None:
            return SchemaIds(rule, _NO_IDS, refused)
        age_s = self._now_s() - found.checked_s
        if age_s > TRUST_S:
            del self._rules[rule]
            return SchemaIds(rule, _NO_IDS, refused)
        self._rules.move_to_end(rule)
        if age_s > REFRESH_S and not found.is_refreshing:
            found.is_refreshing = True
            self._spawn(self._refresh(rule, found))
        return SchemaIds(rule, found.ids, refused)

    async def resolve(self, rule: SubjectRule, ids: Collection[int]) -> frozenset[int]:
        """Asks the registry for ids; returns those that are not registered. Raises SchemaIdsUnavailable."""
        asked_s = self._now_s()
        known = await self._known(rule, ids)
        found = self._rules.get(rule)
        kept = set(known) if found is None else known.union(found.ids)
        if found is None or len(kept) > RULE_IDS_MAX:
            self._rules[rule] = _Rule(known, asked_s)
            while len(self._rules) > RULES_MAX:
                self._rules.popitem(last=False)
        else:
            found.ids = array("i", sorted(kept))
        return frozenset(ids) - known

    async def _refresh(self, rule: SubjectRule, found: _Rule) -> None:
        asked_s, ids = self._now_s(), found.ids.tolist()
        try:
            gone = frozenset(ids) - await self._known(rule, ids)
            found.ids = array("i", (each for each in found.ids if each not in gone))
            found.checked_s = asked_s
        except SchemaIdsUnavailable:
            pass  # the next use tries it again
        finally:
            found.is_refreshing = False

    async def _known(self, rule: SubjectRule, ids: Collection[int]) -> frozenset[int]:
        """Returns those ids that are registered as a rule requires."""
        if sum(map(len, self._next.values())) + len(ids) > IDS_MAX:
            raise SchemaIdsUnavailable(f"{IDS_MAX} schema ids wait to be looked up in the registry; retry")
        self._next.setdefault(rule, set()).update(ids)
        if self._answered is None:
            self._answered = asyncio.get_running_loop().create_future()
            self._spawn(self._send())
        answer = await asyncio.shield(self._answered)
        if isinstance(answer, PenstockError):
            raise SchemaIdsUnavailable(f"the schema registry cannot be asked for schema ids; retry: {answer}")
        return answer[rule].intersection(ids)

    async def _send(self) -> None:
        """Sends the next request, when it may be sent."""
        assert self._answered is not None
        await asyncio.sleep(max(0.0, self._asked_s + INTERVAL_S - self._now_s()))
        questions, answered = self._next, self._answered
        self._next, self._answered, self._asked_s = {}, None, self._now_s()
        self.requests += 1
        try:
            answered.set_result(await self._ask(questions))
        except PenstockError as error:
            answered.set_result(error)
        finally:
            answered.cancel()  # unless it is answered

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
