"""Large requests: decoded in time slices, split into smaller requests, and answered with one joined response.

One request with 50,000 topics would block the event loop for a second. Most APIs answer each element independently:
such a request is split into parts that the ordinary handler takes one after another, and the responses are joined.
Requests that cannot be split (a group's assignment, a transaction's partitions) have a lower limit of elements.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.offset_fetch import distinct_groups
from penstock.broker.registry import Api
from penstock.foundation.codes import ErrorCode
from penstock.foundation.steps import Steps
from penstock.wire.codec import ELEMENTS_INLINE_MAX, ELEMENTS_MAX, decode_steps
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer, fields_of, with_field

UNDIVIDED_ELEMENTS_MAX: Final = 20_000
"""Maximum number of array elements in a request that cannot be split."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How large requests of one API are split, and their responses joined, at (nested) arrays given by field path."""

    requests: tuple[Path, ...]
    """Field paths of the array to split; versions differ, so the first path whose array is not empty is used."""
    responses: tuple[Path, ...]
    inline_max: int = ELEMENTS_INLINE_MAX
    """Maximum number of array elements of a request that is not split."""

    @property
    def piece(self) -> int:
        return max(1, self.inline_max // 4)


def _split(request: str, response: str, inline_max: int = ELEMENTS_INLINE_MAX) -> Split:
    """Returns how to split requests at the array with field path `request`, and to join responses at `response`.
    `|` separates the paths of different API versions. Requests with up to `inline_max` elements are not split."""
    return Split(
        requests=tuple(tuple(path.split(".")) for path in request.split("|")),
        responses=tuple(tuple(path.split(".")) for path in response.split("|")),
        inline_max=inline_max,
    )


_PARTITIONS: Final = _split("topics.partitions", "topics.partitions")
SPLITS: Final[dict[int, Split]] = {
    ApiKey.PRODUCE: _split("topic_data.partition_data", "responses.partition_responses"),
    ApiKey.LIST_OFFSETS: _split("topics.partitions", "topics.partitions", 200),
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_FETCH: _split(
        "groups.topics.partition_indexes|topics.partition_indexes", "groups.topics.partitions|topics.partitions"
    ),
    ApiKey.FIND_COORDINATOR: _split("coordinator_keys", "coordinators"),
    ApiKey.LEAVE_GROUP: _split("members", "members"),
    ApiKey.DESCRIBE_GROUPS: _split("groups", "groups", 200),
    ApiKey.CREATE_TOPICS: _split("topics", "topics", 200),
    ApiKey.DELETE_TOPICS: _split("topics|topic_names", "responses", 200),
    ApiKey.DELETE_RECORDS: _split("topics.partitions", "topics.partitions", 200),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.WRITE_TXN_MARKERS: _split("markers.topics.partition_indexes", "markers.topics.partitions", 200),
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.CREATE_ACLS: _split("creations", "results"),
    ApiKey.DELETE_ACLS: _split("filters", "filter_results"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _split("users", "results"),
    ApiKey.DESCRIBE_CONFIGS: _split("resources", "results", 40),
    ApiKey.ALTER_CONFIGS: _split("resources", "responses", 200),
    ApiKey.CREATE_PARTITIONS: _split("topics", "results", 200),
    ApiKey.DELETE_GROUPS: _split("groups_names", "results", 200),
    ApiKey.ELECT_LEADERS: _split("topic_partitions.partitions", "replica_election_results.partition_result"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _split("resources", "responses", 200),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _split("topics.partitions", "responses.partitions"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _split("topics.partition_indexes", "topics.partitions"),
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.DESCRIBE_TRANSACTIONS: _split("transactional_ids", "transaction_states", 200),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _split("group_ids", "groups", 200),
    ApiKey.SHARE_GROUP_DESCRIBE: _split("group_ids", "groups", 200),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _split("groups.topics.partitions", "groups.topics.partitions"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _split("topics.partitions", "responses.partitions"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _split("topics", "responses"),
}
SLICED_BY_HANDLER: Final = frozenset(
    (
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    )
)
"""APIs that are not split: their handlers accept large requests and work in time slices."""


DEDUPLICATED_ARRAYS: Final[dict[int, str]] = {
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "group_ids",
    ApiKey.SHARE_GROUP_DESCRIBE: "group_ids",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactional_ids",
}
"""By API: the request array whose duplicates are dropped, because the response for one element may be large."""


def inline_max(key: int) -> int:
    """Returns the number of array elements up to which a request of this API is handled without time slices."""
    split = SPLITS.get(key)
    return ELEMENTS_INLINE_MAX if split is None else split.inline_max


def elements_max(key: int) -> int:
    """Returns the maximum number of array elements that a request of this API may have."""
    return ELEMENTS_MAX if key in SPLITS or key in SLICED_BY_HANDLER else UNDIVIDED_ELEMENTS_MAX


async def handle_large(api: Api, frame: Buffer, at: int, call: Call, broker: Broker) -> Any:
    """Decodes and handles a request with too many elements for one time slice; returns the response.

    Raises MalformedRequest. Returns None if the handler answers later, or if the client has disconnected.
    """
    steps: Steps[Any] = decode_steps(api.request, call.version, frame, at, elements_max(api.key))
    request = await broker.slices.run(steps)
    request = without_duplicates(api.key, request)
    split = SPLITS.get(api.key)
    if split is None:
        result = api.handler(request, call, broker)
        return await result if isinstance(result, Coroutine) else result
    joined = JoinedResponse(split)
    is_answered = True
    for number, (piece, depth) in enumerate(cut(request, split)):
        response = await _handle_piece(api, piece, number, call, broker)
        if call.is_disconnected:
            return None
        if response is None:  # the protocol has no response (acks=0)
            is_answered = False
        else:
            joined.add(response, depth)
    if not is_answered:
        call.answer(None)
        return None
    return joined.result()


def without_duplicates(key: int, request: Any) -> Any:
    """Returns the request without duplicate elements, for APIs whose response for one element may be large."""
    if key == ApiKey.OFFSET_FETCH:
        return distinct_groups(request)
    name = DEDUPLICATED_ARRAYS.get(key)
    return request if name is None else with_field(request, name, list(dict.fromkeys(getattr(request, name))))


async def _handle_piece(api: Api, piece: Any, number: int, call: Call, broker: Broker) -> Any:
    """Handles part `number` of a split request like a whole request, in a time slice; returns its response."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    part = _PieceCall(call, answered)
    part.piece = number
    call.on_disconnect = part.cancel
    async with broker.slices:
        result = api.handler(piece, part, broker)
    if isinstance(result, Coroutine):
        result = await result
    return result if result is not None else await answered


class _PieceCall(Call):
    """The call passed to the handler of one part of a split request; stores the response so that it can be joined."""

    __slots__ = ("_answered", "_whole")

    def __init__(self, whole: Call, answered: "asyncio.Future[Any]") -> None:
        super().__init__(
            whole.api_key,
            whole.version,
            whole.correlation_id,
            whole.client_id,
            whole.started_s,
            whole.frame_bytes,
            whole.peer,
            lambda call: None,
            listener=whole.listener,
            principal=whole.principal,
            login=whole.login,
            authorizer=whole.authorizer,
            limits=whole.limits,
            audit=whole.audit,
        )
        self._whole = whole
        self._answered = answered

    def answer(self, response: Any, hang_up: bool = False) -> None:
        self._whole.hang_up = self._whole.hang_up or hang_up
        self.is_answered = True
        self.on_disconnect = None
        if not self._answered.done():
            amended = response if self.amend is None or response is None else self.amend(response)
            self._answered.set_result(amended)

    def note_changes(self, names: list[str]) -> None:
        self._whole.note_changes(names)

    def cancel(self) -> None:
        """Called when the client has disconnected: cancels the handler's work and ends the wait for its response."""
        self.is_disconnected = True
        if self.on_disconnect is not None:
            self.on_disconnect()
        if not self._answered.done():
            self._answered.set_result(None)


# -- cut and join


def cut(request: Any, split: Split) -> Iterator[tuple[Any, int]]:
    """Splits a request into requests with at most `split.piece` elements each; yields (request, depth) in order.

    Depth is 0 unless an element itself was split. Depth 1: the first element of the outermost array continues the
    last element of the previous request; depth 2: so does the first element of the array inside it, and so on.
    """
    path = next((path for path in split.requests if getattr(request, path[0])), split.requests[0])
    yield from _cut(request, path, split.piece)


def _cut(message: Any, path: Path, piece: int) -> Iterator[tuple[Any, int]]:
    name, inner = path[0], path[1:]
    items = getattr(message, name) or ()
    if not inner:
        for start in range(0, len(items), piece):
            yield with_field(message, name, items[start : start + piece]), 0
        return
    batch: list[Any] = []
    weight = 0
    for item in items:
        added = max(1, _count_elements(item, inner))
        if batch and weight + added > piece:
            yield with_field(message, name, batch), 0
            batch, weight = [], 0
        if added > piece:
            for number, (part, depth) in enumerate(_cut(item, inner, piece)):
                yield with_field(message, name, [part]), 1 + depth if number else 0
            continue
        batch.append(item)
        weight += added
    if batch:
        yield with_field(message, name, batch), 0


def _count_elements(message: Any, path: Path) -> int:
    items = getattr(message, path[0]) or ()
    return len(items) if len(path) == 1 else sum(max(1, _count_elements(item, path[1:])) for item in items)


class JoinedResponse:
    """The joined responses to all parts of a split request; if one has a top-level error, that response alone."""

    def __init__(self, split: Split) -> None:
        self._paths = split.responses
        self._root: _JoinedMessage | None = None
        self._path: Path = ()
        self._failed: Any = None

    def add(self, response: Any, depth: int) -> None:
        """Appends the response to one part. `depth`, from `cut`: 0 if the part starts with a new array element;
        else the number of nested arrays whose first element continues the last element of the previous part."""
        if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
            self._failed = response
        if self._root is None:
            self._path = next((path for path in self._paths if getattr(response, path[0])), self._paths[0])
            self._root = _JoinedMessage(response, self._path)
        else:
            self._root.add(response, depth)

    def result(self) -> Any:
        assert self._root is not None
        return self._failed if self._failed is not None else self._root.build()


class _JoinedMessage:
    """Joins the arrays of several messages into one message; elements that `cut` split are joined recursively."""

    __slots__ = ("_items", "_last", "_message", "_path")

    def __init__(self, message: Any, path: Path) -> None:
        self._message = message
        self._path = path
        self._items: list[Any] = list(getattr(message, path[0]) or ())
        self._last: _JoinedMessage | None = None
        """Joins the parts of the last array element; None while that element consists of only one part."""

    def add(self, message: Any, depth: int) -> None:
        inner = self._path[1:]
        items = getattr(message, self._path[0]) or ()
        if depth and inner and items and self._items and _are_parts_of_one(self._items[-1], items[0], inner[0]):
            if self._last is None:
                self._last = _JoinedMessage(self._items[-1], inner)
            self._last.add(items[0], depth - 1)
            items = items[1:]
        if items:
            self._close_last()
            self._items.extend(items)

    def _close_last(self) -> None:
        if self._last is not None:
            self._items[-1] = self._last.build()
            self._last = None

    def build(self) -> Any:
        self._close_last()
        return with_field(self._message, self._path[0], self._items)


def _are_parts_of_one(one: Any, other: Any, but: str) -> bool:
    """Whether two structs are equal except for the array `but`: then they are parts of one struct that was split."""
    return all(
        getattr(one, field.name) == getattr(other, field.name) for field in fields_of(type(one)) if field.name != but
    )
