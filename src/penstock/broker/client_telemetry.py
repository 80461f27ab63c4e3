"""Client telemetry on this broker (KIP-714): client instances, pushed OTLP metrics, and their series for /metrics."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple, TypeVar

from penstock.foundation.errors import CorruptMessage, InvalidRecord, MessageTooLarge, PenstockError
from penstock.foundation.ids import uuid_text
from penstock.foundation.steps import Steps
from penstock.records.compression import Codec, decompress
from penstock.telemetry.client_metrics import SERIES_PER_CLIENT_MAX, ClientMetrics, group_by_name
from penstock.telemetry.instances import NEW_INSTANCE, ClientInstances, Instance, TelemetryTooLarge
from penstock.telemetry.otlp import TEXT_CHARS_MAX, Pushed, read_metrics
from penstock.telemetry.subscriptions import Client
from penstock.wire.messages.push_telemetry import PushTelemetryRequest

T = TypeVar("T")

_INLINE_BYTES: Final = 8 << 10
"""Maximum size, in bytes, of compressed metrics that are decompressed on the event loop rather than on a thread."""


class Software(NamedTuple):
    """The client software name and version sent in ApiVersions."""

    name: str
    version: str


class ClientTelemetry:
    """The client instances connected to this broker, and the metrics that the clients pushed."""

    def __init__(
        self,
        *,
        subscriptions: Callable[[], Mapping[str, Mapping[str, str]]],
        setting: Callable[[str], Any],
        now_s: Callable[[], float],
        run: Callable[[Steps[Any]], Awaitable[Any]],
        threads: Executor,
    ) -> None:
        """`run` runs a generator in time slices of the event loop; `setting` returns a broker setting's value."""
        self._subscriptions = subscriptions
        self._setting = setting
        self._now_s = now_s
        self._run = run
        self._threads = threads
        self._software: dict[str, Software] = {}
        """Client software name and version, by connection (host:port of the client)."""
        self.collected: Final = ClientMetrics()
        self._resources: dict[bytes, dict[str, str]] = {}
        self._instances = ClientInstances(self._drop_metrics)
        self.pushes: Final[Counter[str]] = Counter()
        """Number of PushTelemetry requests by result: `ok`, or the name of the error."""
        self.skipped = 0
        """Number of pushed metrics that were ignored."""

    @property
    def max_bytes(self) -> int:
        return int(self._setting("telemetry.max.bytes"))

    def instances(self) -> list[tuple[Client, Mapping[str, str]]]:
        """Returns the registered client instances and the OTLP resource attributes that each one sent."""
        return [(each.client, self._resources.get(each.instance_id, {})) for each in self._instances.all()]

    def client_id(self, instance_id: bytes) -> str:
        """Returns the client id of a client instance; empty if the instance is not registered."""
        known = self._instances.get(instance_id)
        return (known.client.client_id or "")[:TEXT_CHARS_MAX] if known is not None else ""

    def set_software(self, peer: str, name: str, version: str) -> None:
        """Stores the software name and version of the client on a connection."""
        self._software[peer] = Software(name[:TEXT_CHARS_MAX], version[:TEXT_CHARS_MAX])

    def disconnect(self, peer: str) -> None:
        """Removes the client instances of a closed connection."""
        self._software.pop(peer, None)
        self._instances.disconnect(peer)

    def expire(self) -> None:
        """Removes client instances that have sent no telemetry request for too long."""
        self._instances.expire(self._now_s())

    def find_subscription(self, instance_id: bytes, client_id: str | None, peer: str) -> Instance:
        """Returns the client instance, which has the list of metrics to push; registers it if it is new. Raises a
        Kafka error if the request is refused."""
        instance = self._find_or_register(instance_id if instance_id != NEW_INSTANCE else None, client_id, peer)
        instance.ask(self._now_s())
        return instance

    async def push(self, request: PushTelemetryRequest, client_id: str | None, peer: str) -> None:
        """Stores the metrics of a PushTelemetry request. Raises a Kafka error if the request is refused."""
        try:
            await self._push(request, client_id, peer)
        except PenstockError as error:
            self.pushes[error.code.name.lower()] += 1
            raise
        self.pushes["ok"] += 1

    async def _push(self, request: PushTelemetryRequest, client_id: str | None, peer: str) -> None:
        instance = self._find_or_register(request.client_instance_id, client_id, peer)
        limit = self.max_bytes
        instance.push(
            self._now_s(),
            subscription_id=request.subscription_id,
            compression=request.compression_type,
            size=len(request.metrics),
            size_max=limit,
            terminating=request.terminating,
        )
        if not request.metrics or not instance.wanted.metrics:
            return
        metrics = await self._decompress(Codec(request.compression_type), request.metrics, limit)
        pushed: Pushed = await self._run(read_metrics(metrics, instance.wanted.includes, SERIES_PER_CLIENT_MAX))
        drafts = await self._run(group_by_name(pushed.points))
        self.skipped += pushed.skipped
        if self._instances.get(instance.instance_id) is not None:  # unless it disconnected meanwhile
            self._resources[instance.instance_id] = pushed.resource
            self.collected.replace(instance.instance_id, drafts, self._setting("client.telemetry.max.series"))

    async def _decompress(self, codec: Codec, data: bytes, limit: int) -> bytes:
        try:
            if codec is Codec.NONE or len(data) <= _INLINE_BYTES:
                return decompress(codec, data, limit)
            return await asyncio.get_running_loop().run_in_executor(self._threads, decompress, codec, data, limit)
        except MessageTooLarge:
            raise TelemetryTooLarge(
                f"the decompressed metrics have more than {limit} bytes (telemetry.max.bytes)"
            ) from None
        except CorruptMessage as error:
            raise InvalidRecord(f"metrics cannot be decompressed: {error}") from None

    def _find_or_register(self, instance_id: bytes | None, client_id: str | None, peer: str) -> Instance:
        self._instances.apply(self._subscriptions())

        def new_client(new_id: bytes) -> Client:
            software = self._software.get(peer)
            host, _, port = peer.rpartition(":")
            return Client(
                client_instance_id=uuid_text(new_id),
                client_id=client_id,
                client_software_name=software and software.name,
                client_software_version=software and software.version,
                client_source_address=host.removeprefix("/"),
                client_source_port=port,
            )

        return self._instances.find_or_create(
            instance_id or self._instances.new_id(), peer, new_client, self._now_s()
        )

    def _drop_metrics(self, instance_id: bytes) -> None:
        self.collected.forget(instance_id)
        self._resources.pop(instance_id, None)
