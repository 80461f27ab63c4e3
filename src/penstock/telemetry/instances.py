"""Client instances (KIP-714): instance ids, throttling of subscription requests and pushes.

An instance belongs to the connection that it used last, and is removed when the connection closes: so there are at
most as many instances as connections.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

import crc32c

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError, UnsupportedCompression
from penstock.foundation.ids import uuid_text
from penstock.telemetry.subscriptions import Client, PushSettings, Subscription, push_settings_for

NEW_INSTANCE: Final = bytes(16)
_RESERVED: Final = (NEW_INSTANCE, bytes(15) + b"\x01")
COMPRESSIONS: Final = (4, 3, 1, 2)
"""Accepted compression types in order of preference (zstd, lz4, gzip, snappy): clients use the first they support."""
_UNCOMPRESSED: Final = 0
KEPT_S_MIN: Final = 60.0
KEPT_INTERVALS: Final = 3
"""Number of push intervals without a request after which an instance expires, but not before KEPT_S_MIN seconds."""

DescribeClient = Callable[[bytes], Client]
"""Type of functions that return the properties of the connected client; the argument is its instance id."""


class Throttled(PenstockError):
    """The client has sent a request before its push interval had passed."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class UnknownSubscription(PenstockError):
    """The subscriptions have changed since the client fetched them; the client has to fetch them again."""

    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class TelemetryTooLarge(PenstockError):
    code = ErrorCode.TELEMETRY_TOO_LARGE


class Instance:
    """One client instance with its push settings and its last requests."""

    __slots__ = (
        "_asked_s",
        "_error",
        "_pushed_s",
        "client",
        "computed_from",
        "expires_s",
        "instance_id",
        "is_terminating",
        "peer",
        "subscription_id",
        "wanted",
    )

    def __init__(self, instance_id: bytes, client: Client, wanted: PushSettings, computed_from: object) -> None:
        self.instance_id = instance_id
        self.client = client
        self.wanted = wanted
        self.computed_from = computed_from
        """The settings of all subscriptions from which `wanted` was computed."""
        self.subscription_id = _subscription_id(wanted, instance_id)
        self.peer = ""
        self.is_terminating = False
        self.expires_s = 0.0
        self._asked_s = self._pushed_s = float("-inf")
        self._error = ErrorCode.NONE

    def ask(self, now_s: float) -> None:
        """Records a GetTelemetrySubscriptions request. Raises Throttled if the push interval has not passed since
        the last request or push, unless that push failed because its subscription or compression was not accepted."""
        is_early = now_s - max(self._asked_s, self._pushed_s) < self._interval_s
        may_repeat = self._error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if is_early and not may_repeat:
            raise Throttled(
                f"{uuid_text(self.instance_id)} fetched subscriptions again within {self.wanted.interval_ms} ms"
            )
        self._asked_s = now_s
        self._error = ErrorCode.NONE

    def push(
        self, now_s: float, *, subscription_id: int, compression: int, size: int, size_max: int, terminating: bool
    ) -> None:
        """Records a PushTelemetry request. Raises an error if the push is not allowed; stores the error's code."""
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
            raise InvalidRequest(f"{name} pushed again after a push with terminating=true")
        # The first push after subscriptions were fetched may come early: clients wait 0.5 to 1.5 intervals.
        may_push = self._asked_s >= self._pushed_s or now_s - self._pushed_s >= self._interval_s
        if not may_push and not terminating:
            raise Throttled(f"{name} pushed again within {self.wanted.interval_ms} ms")
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
        """Postpones the expiry of the instance after a request."""
        self.expires_s = now_s + max(KEPT_S_MIN, KEPT_INTERVALS * self._interval_s)


class ClientInstances:
    """All client instances that are connected to this broker."""

    def __init__(self, forget: Callable[[bytes], None]) -> None:
        """`forget` is called with the id of each instance that is removed."""
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
        """Replaces all subscriptions with `settings` (by name); instances adopt them at their next request."""
        if settings is not self._settings:
            self._settings = settings
            self._subscriptions = tuple(map(Subscription.read, settings.values()))

    def new_id(self) -> bytes:
        while True:
            made = secrets.token_bytes(16)
            if made not in _RESERVED and made not in self._by_id:
                return made

    def find_or_create(self, instance_id: bytes, peer: str, describe: DescribeClient, now_s: float) -> Instance:
        """Returns the instance that has sent a request; creates it if the id is new.

        Raises InvalidRequest for a reserved id.
        """
        if instance_id in _RESERVED:
            raise InvalidRequest(f"client instance id {uuid_text(instance_id)} is reserved; request a new one")
        known = self._by_id.get(instance_id)
        if known is None or known.computed_from is not self._settings:
            client = describe(instance_id) if known is None else known.client
            made = Instance(instance_id, client, push_settings_for(client, self._subscriptions), self._settings)
            if known is not None:
                made.peer = known.peer
                self._by_peer[made.peer] = made
            self._by_id[instance_id] = known = made
        self._bind(known, peer)
        known.touch(now_s)
        return known

    def _bind(self, instance: Instance, peer: str) -> None:
        """Binds an instance to a connection, one to one: removes the instance that the connection had before."""
        if instance.peer == peer:
            return
        if (before := self._by_peer.get(peer)) is not None:
            self._drop(before)
        if instance.peer:
            del self._by_peer[instance.peer]
        instance.peer = peer
        self._by_peer[peer] = instance

    def disconnect(self, peer: str) -> None:
        """Removes the instance of a connection (`peer`) that was closed."""
        if (found := self._by_peer.get(peer)) is not None:
            self._drop(found)

    def expire(self, now_s: float) -> None:
        for instance in [each for each in self._by_id.values() if each.expires_s <= now_s]:
            self._drop(instance)

    def _drop(self, instance: Instance) -> None:
        del self._by_id[instance.instance_id]
        del self._by_peer[instance.peer]
        self._forget(instance.instance_id)


def _subscription_id(wanted: PushSettings, instance_id: bytes) -> int:
    """Returns the subscription id: a hash of metrics, push interval and instance id, the same on every broker."""
    checksum: int = crc32c.crc32c(f"{wanted.interval_ms}:{','.join(wanted.metrics)}".encode())
    mixed = checksum ^ crc32c.crc32c(instance_id)
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed
