"""Client instances: who may ask and push, and when. Pure.

An instance belongs to the connection that it last used, and is forgotten with it: memory is bounded by the number of
connections.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

import crc32c

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError, UnsupportedCompression
from penstock.foundation.ids import uuid_text
from penstock.telemetry.subscriptions import Client, Subscription, Wanted, wanted_of

NEW_INSTANCE: Final = bytes(16)
_RESERVED: Final = (NEW_INSTANCE, bytes(15) + b"\x01")
COMPRESSIONS: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: the first that a client has is used."""
_UNCOMPRESSED: Final = 0
KEPT_S_MIN: Final = 60.0
KEPT_INTERVALS: Final = 3
"""An instance is forgotten after so many intervals of silence, and not before KEPT_S_MIN."""

Introduce = Callable[[bytes], Client]
"""What is known of the client with this instance id, on this connection."""


class Throttled(PenstockError):
    """It is too early for the next request."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class UnknownSubscription(PenstockError):
    """The subscriptions have changed since the client asked: it asks again at once."""

    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class TelemetryTooLarge(PenstockError):
    code = ErrorCode.TELEMETRY_TOO_LARGE


class Instance:
    """One client, as far as this broker has heard of it."""

    __slots__ = (
        "_asked_s",
        "_error",
        "_pushed_s",
        "client",
        "expires_s",
        "instance_id",
        "is_terminating",
        "made_from",
        "peer",
        "subscription_id",
        "wanted",
    )

    def __init__(self, instance_id: bytes, client: Client, wanted: Wanted, made_from: object) -> None:
        self.instance_id = instance_id
        self.client = client
        self.wanted = wanted
        self.made_from = made_from
        """The subscriptions from which `wanted` was worked out."""
        self.subscription_id = _subscription_id(wanted, instance_id)
        self.peer = ""
        self.is_terminating = False
        self.expires_s = 0.0
        self._asked_s = self._pushed_s = float("-inf")
        self._error = ErrorCode.NONE

    def ask(self, now_s: float) -> None:
        """The client asks what to push. Raises Throttled if it did so, or has pushed, a moment ago."""
        is_early = now_s - max(self._asked_s, self._pushed_s) < self._interval_s
        may_repeat = self._error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if is_early and not may_repeat:
            raise Throttled(
                f"{uuid_text(self.instance_id)} asked again before {self.wanted.interval_ms} ms had passed"
            )
        self._asked_s = now_s
        self._error = ErrorCode.NONE

    def push(
        self, now_s: float, *, subscription_id: int, compression: int, size: int, size_max: int, terminating: bool
    ) -> None:
        """The client pushes. Raises an error, and remembers it, unless it may."""
        try:
            self._check_push(now_s, subscription_id, compression, size, size_max, terminating)
            self._error = ErrorCode.NONE
        except PenstockError as error:
            self._error = error.code
            raise
        finally:
            self.is_terminating = terminating

    def _check_push(
        self, now_s: float, subscription_id: int, compression: int, size: int, size_max: int, terminating: bool
    ) -> None:
        name = uuid_text(self.instance_id)
        if self.is_terminating:
            raise InvalidRequest(f"{name} pushed after it had said that it terminates")
        # The first push after an answer may come early: clients wait between half an interval and one and a half.
        may_push = self._asked_s >= self._pushed_s or now_s - self._pushed_s >= self._interval_s
        if not may_push and not terminating:
            raise Throttled(f"{name} pushed again before {self.wanted.interval_ms} ms had passed")
        if may_push:
            self._pushed_s = now_s
        if subscription_id != self.subscription_id:
            raise UnknownSubscription(f"{name} pushed for subscription {subscription_id}, which is not current")
        if compression != _UNCOMPRESSED and compression not in COMPRESSIONS:
            raise UnsupportedCompression(f"{name} pushed with compression type {compression}; 0 to 4 are supported")
        if size > size_max:
            raise TelemetryTooLarge(f"{name} pushed {size} bytes; telemetry.max.bytes is {size_max}")

    @property
    def _interval_s(self) -> float:
        return self.wanted.interval_ms / 1000

    def touch(self, now_s: float) -> None:
        """It was heard now."""
        self.expires_s = now_s + max(KEPT_S_MIN, KEPT_INTERVALS * self._interval_s)


class ClientInstances:
    """All instances that this broker knows."""

    def __init__(self, forget: Callable[[bytes], None]) -> None:
        """`forget` is called with the id of an instance that is forgotten."""
        self._forget = forget
        self._by_id: dict[bytes, Instance] = {}
        self._by_peer: dict[str, Instance] = {}
        self._settings: Mapping[str, Mapping[str, str]] = {}
        self._subscriptions: tuple[Subscription, ...] = ()

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, instance_id: bytes) -> Instance | None:
        return self._by_id.get(instance_id)

    def all(self) -> list[Instance]:
        return list(self._by_id.values())

    def apply(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """The subscriptions, by name, are these now. Instances are matched again when they are next heard."""
        if settings is not self._settings:
            self._settings = settings
            self._subscriptions = tuple(map(Subscription.read, settings.values()))

    def new_id(self) -> bytes:
        while True:
            made = secrets.token_bytes(16)
            if made not in _RESERVED and made not in self._by_id:
                return made

    def hear(self, instance_id: bytes, peer: str, introduce: Introduce, now_s: float) -> Instance:
        """The instance that sends a request, which becomes known by this.

        Raises InvalidRequest for an id that no client may have.
        """
        if instance_id in _RESERVED:
            raise InvalidRequest(f"{uuid_text(instance_id)} is not the id of a client instance; ask for one first")
        known = self._by_id.get(instance_id)
        if known is None or known.made_from is not self._settings:
            client = introduce(instance_id) if known is None else known.client
            made = Instance(instance_id, client, wanted_of(client, self._subscriptions), self._settings)
            if known is not None:
                made.peer = known.peer
                self._by_peer[made.peer] = made
            self._by_id[instance_id] = known = made
        self._tie(known, peer)
        known.touch(now_s)
        return known

    def _tie(self, instance: Instance, peer: str) -> None:
        """An instance has one connection, and a connection one instance."""
        if instance.peer == peer:
            return
        if (before := self._by_peer.get(peer)) is not None:
            self._drop(before)
        if instance.peer:
            del self._by_peer[instance.peer]
        instance.peer = peer
        self._by_peer[peer] = instance

    def hang_up(self, peer: str) -> None:
        """A connection is gone."""
        if (found := self._by_peer.get(peer)) is not None:
            self._drop(found)

    def expire(self, now_s: float) -> None:
        for instance in [each for each in self._by_id.values() if each.expires_s <= now_s]:
            self._drop(instance)

    def _drop(self, instance: Instance) -> None:
        del self._by_id[instance.instance_id]
        del self._by_peer[instance.peer]
        self._forget(instance.instance_id)


def _subscription_id(wanted: Wanted, instance_id: bytes) -> int:
    """The same on every broker, and another one when the subscriptions change."""
    checksum: int = crc32c.crc32c(f"{wanted.interval_ms}:{','.join(wanted.metrics)}".encode())
    mixed = checksum ^ crc32c.crc32c(instance_id)
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed
