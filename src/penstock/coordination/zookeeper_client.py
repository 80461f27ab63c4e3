"""ZooKeeper client on asyncio: bridges kazoo's threads, and keeps responses and watch events in connection order.

kazoo passes events and responses to two threads, which loses their order, and has no recursive watches. So this
client reads both on kazoo's connection thread. That part of kazoo is not public, so kazoo's version is pinned.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque, namedtuple
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Watch, int_struct, write_string
from kazoo.protocol.states import KazooState, KeeperState

from penstock.coordination.store import StoreUnavailable
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.watchers import in_time

logger = logging.getLogger(__name__)
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
# kazoo warns of every connection attempt; below, losing and restoring the connection are logged once.
_kazoo_logger.setLevel(logging.ERROR)

IN_FLIGHT_MAX: Final = 128
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}


class Answer(NamedTuple):
    value: Any
    zxid: int
    """Zxid of the last transaction on the server when it answered; after a write, the zxid of that write."""


class AddWatch(namedtuple("AddWatch", "path")):
    """Request that watches a node and all nodes below it as long as the connection lasts (ZooKeeper 3.6)."""

    type = 106
    _PERSISTENT_RECURSIVE: Final = 1

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(self._PERSISTENT_RECURSIVE))

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> None:
        return None


class _PendingRequest:
    """Receives the result of a request, in place of kazoo's AsyncResult. Its methods are called on kazoo's thread."""

    __slots__ = ("_client", "_future")

    def __init__(self, client: "ZookeeperClient", future: "asyncio.Future[Answer]") -> None:
        self._client = client
        self._future = future

    def set(self, value: Any = None) -> None:
        self._client.answered(self._future, value)

    def set_exception(self, error: Exception) -> None:
        self._client.answered(self._future, error)


def _security_options(security: StoreSecurity) -> dict[str, Any]:
    """Returns kazoo's options for TLS and a login. The login is of the scheme `digest`, which needs no setup."""
    options: dict[str, Any] = {}
    if security.username:
        options["auth_data"] = [("digest", f"{security.username}:{security.password}")]
    if security.tls is not None:
        options |= {"use_ssl": True, "verify_certs": True, "check_hostname": security.tls.checks_host}
        if security.tls.truststore:
            options["ca"] = security.tls.truststore
        if security.tls.keystore:
            options |= {"certfile": security.tls.keystore, "keyfile": security.tls.keystore}
    return options


class ZookeeperClient:
    """A ZooKeeper connection; replaces expired sessions. Delivers responses and watch events in order of arrival."""

    def __init__(self, hosts: str, ttl_s: float, timeout_s: float, security: StoreSecurity) -> None:
        self.name = f"ZooKeeper at {hosts}"
        self.timeout_s = timeout_s
        self.zxid = 0
        """The highest zxid in the server's responses. All watch events up to this zxid have been delivered."""
        self.connection = 0
        """Number of connects and disconnects so far, to detect that the connection has changed."""
        self.on_event: Callable[[str], None] = lambda path: None
        self.on_connected: Callable[[], None] = lambda: None
        self.on_session_lost: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._is_closing = False
        self._waiting: deque[tuple[Any, asyncio.Future[Answer]]] = deque()
        self._in_flight = 0
        self._starting = threading.Lock()
        self._kazoo = KazooClient(
            hosts=hosts,
            timeout=ttl_s,
            randomize_hosts=False,
            connection_retry=dict(_RECONNECT),
            logger=_kazoo_logger,
            **_security_options(security),
        )
        self._kazoo.add_listener(self._state_changed)
        self._kazoo._connection._read_watch_event = self._on_watch_event
        self._send_ping = self._kazoo._connection._send_ping
        self._kazoo._connection._send_ping = self._ping_if_alive
        self._silence_max_s = ttl_s / 3
        self._ticked_s = time.monotonic()
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def open(self) -> None:
        """Starts connecting; returns once the first connection is made."""
        self._tick()
        self._kazoo.start_async()
        await self.connected()

    async def connected(self) -> None:
        async with in_time(self.timeout_s, self.name):
            await self._connected.wait()

    def send(self, request: Any) -> "asyncio.Future[Answer]":
        """Sends a request without waiting. Requests are executed in the order in which they are sent.

        The future raises NoNodeError, NodeExistsError, or StoreUnavailable for all other failures.
        """
        if not self.is_connected:
            raise StoreUnavailable(f"{self.name} cannot be reached")
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.append((request, future))
        self._send_waiting()
        return future

    def _send_waiting(self) -> None:
        """Passes queued requests to kazoo, up to a limit: too many fill kazoo's wake-up pipe and block the sender."""
        while self._waiting and self._in_flight < IN_FLIGHT_MAX:
            request, future = self._waiting.popleft()
            if not future.done():
                self._in_flight += 1
                self._kazoo._call(request, _PendingRequest(self, future))

    async def ask(self, request: Any) -> Answer:
        """Waits for a connection, sends a request, and returns the answer."""
        async with in_time(self.timeout_s, self.name):
            await self._connected.wait()
            return await self.send(request)

    async def close(self) -> None:
        """Ends the session. Waits at most `self.timeout_s` seconds for a server that does not answer."""
        self._is_closing = True
        if self._ticker is not None:
            self._ticker.cancel()
        self._connected.clear()
        self._fail_waiting()
        stopped = asyncio.Event()

        def stop() -> None:
            try:
                with self._starting:
                    self._kazoo.stop()
                    self._kazoo.close()
            except KazooException as error:
                logger.info("zookeeper_not_closed reason=%r", str(error))
            finally:
                self._call_on_loop(stopped.set)

        self._on_thread(stop)
        with contextlib.suppress(StoreUnavailable):
            async with in_time(self.timeout_s, self.name):
                await stopped.wait()

    def _tick(self) -> None:
        """Records that the event loop is running; kazoo's thread checks that before it sends a heartbeat."""
        self._ticked_s = time.monotonic()
        self._ticker = self._loop.call_later(self._silence_max_s / 4, self._tick)

    # -- called on kazoo's thread

    def _ping_if_alive(self, connect_timeout: float) -> None:
        """Sends a heartbeat unless the event loop hangs: a broker that answers no requests must lose its session."""
        if time.monotonic() - self._ticked_s <= self._silence_max_s:
            self._send_ping(connect_timeout)
        else:
            logger.warning("session_not_renewed store=%r reason='the event loop does not respond'", self.name)

    def answered(self, future: "asyncio.Future[Answer]", value: Any) -> None:
        self._call_on_loop(self._deliver, future, value, self._kazoo.last_zxid)

    def _on_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        self._call_on_loop(self._deliver_event, event.path)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._fail_stale_requests()
        self._call_on_loop(self._on_state, state, self._kazoo.client_state)

    def _fail_stale_requests(self) -> None:
        """Fails the requests that kazoo queued while it had no connection, so that they are not executed later."""
        queue = self._kazoo._queue
        while queue and not self._is_closing:
            _, asked = queue.popleft()
            if asked is not None:
                asked.set_exception(StoreUnavailable("the connection was lost"))

    def _call_on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)

    # -- called on the event loop

    def _deliver(self, future: "asyncio.Future[Answer]", value: Any, zxid: int) -> None:
        self.zxid = max(self.zxid, zxid)
        self._in_flight = max(0, self._in_flight - 1)
        self._send_waiting()
        if future.done():
            return  # the caller has timed out or was cancelled
        if isinstance(value, NoNodeError | NodeExistsError | StoreUnavailable):
            future.set_exception(value)
        elif isinstance(value, Exception):
            future.set_exception(StoreUnavailable(f"{self.name} did not answer: {type(value).__name__}"))
        else:
            future.set_result(Answer(value, zxid))

    def _deliver_event(self, path: str) -> None:
        self.on_event(path)

    def _on_state(self, state: str, keeper_state: str) -> None:
        if self._is_closing:
            return
        self.connection += 1
        self._fail_waiting()
        if state == KazooState.CONNECTED:
            logger.info("store_connected store=%r", self.name)
            self._connected.set()
            self.on_connected()
            return
        if self._connected.is_set():
            logger.warning("store_disconnected store=%r", self.name)
        self._connected.clear()
        if state == KazooState.LOST:
            logger.warning("store_session_lost store=%r", self.name)
            self.on_session_lost()
            if keeper_state == KeeperState.CLOSED:
                # kazoo's connection thread has ended, as it does after a response that it cannot parse.
                self._on_thread(self._restart)

    def _fail_waiting(self) -> None:
        """Fails the requests that are still queued, because the connection has changed or is being closed."""
        self._in_flight = 0
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(StoreUnavailable(f"{self.name} cannot be reached"))

    def _restart(self) -> None:
        with self._starting:
            if not self._is_closing:
                self._kazoo.start_async()

    @staticmethod
    def _on_thread(work: Callable[[], object]) -> None:
        """Runs a function on a thread, since kazoo blocks while it starts and stops."""
        threading.Thread(target=work, name="zookeeper", daemon=True).start()
