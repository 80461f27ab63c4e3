"""kazoo on the event loop: its threads are bridged so that answers and events come in the order of the connection.

kazoo hands events and answers to two threads, which loses their order, and knows no recursive watches. So this takes
both from its connection thread itself; that part of kazoo has no public face, and the version is pinned for it.
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
from penstock.coordination.watchers import in_time

logger = logging.getLogger(__name__)
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
# It warns of every attempt to connect; that the connection is lost or back is said once, below.
_kazoo_logger.setLevel(logging.ERROR)

UNDER_WAY_MAX: Final = 128
_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}


class Answer(NamedTuple):
    value: Any
    zxid: int
    """The last transaction that the server knew of when it answered; for a write, the write itself."""


class AddWatch(namedtuple("AddWatch", "path")):
    """Watch a node and all below it for as long as the connection lasts (ZooKeeper 3.6)."""

    type = 106
    _PERSISTENT_RECURSIVE: Final = 1

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(self._PERSISTENT_RECURSIVE))

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> None:
        return None


class _Asked:
    """Stands where kazoo expects its own kind of result. Called on kazoo's thread."""

    __slots__ = ("_client", "_future")

    def __init__(self, client: "ZookeeperClient", future: "asyncio.Future[Answer]") -> None:
        self._client = client
        self._future = future

    def set(self, value: Any = None) -> None:
        self._client.answered(self._future, value)

    def set_exception(self, error: Exception) -> None:
        self._client.answered(self._future, error)


class ZookeeperClient:
    """One session after another. What happens is told on the event loop, in order."""

    def __init__(self, hosts: str, ttl_s: float, timeout_s: float) -> None:
        self.name = f"ZooKeeper at {hosts}"
        self.timeout_s = timeout_s
        self.zxid = 0
        """The last transaction that was heard of. All events up to it have been told."""
        self.connection = 0
        """Counts connections and losses of them, so that one can see that it is another one."""
        self.on_event: Callable[[str], None] = lambda path: None
        self.on_connected: Callable[[], None] = lambda: None
        self.on_session_lost: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._is_closing = False
        self._waiting: deque[tuple[Any, asyncio.Future[Answer]]] = deque()
        self._under_way = 0
        self._starting = threading.Lock()
        self._kazoo = KazooClient(
            hosts=hosts, timeout=ttl_s, randomize_hosts=False, connection_retry=dict(_RECONNECT), logger=_kazoo_logger
        )
        self._kazoo.add_listener(self._state_changed)
        self._kazoo._connection._read_watch_event = self._event_came
        self._send_ping = self._kazoo._connection._send_ping
        self._kazoo._connection._send_ping = self._ping_if_alive
        self._silence_max_s = ttl_s / 3
        self._ticked_s = time.monotonic()
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def open(self) -> None:
        """Returns with the first connection."""
        self._tick()
        self._kazoo.start_async()
        await self.connected()

    async def connected(self) -> None:
        async with in_time(self.timeout_s, self.name):
            await self._connected.wait()

    def send(self, request: Any) -> "asyncio.Future[Answer]":
        """Ask without waiting. Requests are carried out in the order in which they are sent.

        The answer may be a NoNodeError or a NodeExistsError; all else that goes wrong is StoreUnavailable.
        """
        if not self.is_connected:
            raise StoreUnavailable(f"{self.name} cannot be reached")
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.append((request, future))
        self._hand_over()
        return future

    def _hand_over(self) -> None:
        """Give kazoo some of what waits. It is woken by a byte for each, and where too many lie the sender blocks."""
        while self._waiting and self._under_way < UNDER_WAY_MAX:
            request, future = self._waiting.popleft()
            if not future.done():
                self._under_way += 1
                self._kazoo._call(request, _Asked(self, future))

    async def ask(self, request: Any) -> Answer:
        """Ask, if need be once there is a connection, and wait for the answer."""
        async with in_time(self.timeout_s, self.name):
            await self._connected.wait()
            return await self.send(request)

    async def close(self) -> None:
        """End the session. A server that does not answer is not waited for for ever."""
        self._is_closing = True
        if self._ticker is not None:
            self._ticker.cancel()
        self._connected.clear()
        self._forget_requests()
        stopped = asyncio.Event()

        def stop() -> None:
            try:
                with self._starting:
                    self._kazoo.stop()
                    self._kazoo.close()
            except KazooException as error:
                logger.info("zookeeper_not_closed reason=%r", str(error))
            finally:
                self._soon(stopped.set)

        self._on_thread(stop)
        with contextlib.suppress(StoreUnavailable):
            async with in_time(self.timeout_s, self.name):
                await stopped.wait()

    def _tick(self) -> None:
        """Notes that the event loop runs; kazoo's thread looks at it before it keeps the session alive."""
        self._ticked_s = time.monotonic()
        self._ticker = self._loop.call_later(self._silence_max_s / 4, self._tick)

    # -- called on kazoo's thread

    def _ping_if_alive(self, connect_timeout: float) -> None:
        """Sends a heartbeat unless the event loop hangs: a broker that answers nobody must lose its session."""
        if time.monotonic() - self._ticked_s <= self._silence_max_s:
            self._send_ping(connect_timeout)
        else:
            logger.warning("session_not_renewed store=%r reason='the event loop does not respond'", self.name)

    def answered(self, future: "asyncio.Future[Answer]", value: Any) -> None:
        self._soon(self._deliver, future, value, self._kazoo.last_zxid)

    def _event_came(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        self._soon(self._tell_event, event.path)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._drop_what_nobody_waits_for()
        self._soon(self._follow_state, state, self._kazoo.client_state)

    def _drop_what_nobody_waits_for(self) -> None:
        """What slipped into the queue while there was no connection must not be carried out who knows when."""
        queue = self._kazoo._queue
        while queue and not self._is_closing:
            _, asked = queue.popleft()
            if asked is not None:
                asked.set_exception(StoreUnavailable("the connection was lost"))

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(call, *arguments)

    # -- called on the event loop

    def _deliver(self, future: "asyncio.Future[Answer]", value: Any, zxid: int) -> None:
        self.zxid = max(self.zxid, zxid)
        self._under_way = max(0, self._under_way - 1)
        self._hand_over()
        if future.done():
            return  # whoever asked has given up
        if isinstance(value, NoNodeError | NodeExistsError | StoreUnavailable):
            future.set_exception(value)
        elif isinstance(value, Exception):
            future.set_exception(StoreUnavailable(f"{self.name} did not answer: {type(value).__name__}"))
        else:
            future.set_result(Answer(value, zxid))

    def _tell_event(self, path: str) -> None:
        self.on_event(path)

    def _follow_state(self, state: str, keeper_state: str) -> None:
        if self._is_closing:
            return
        self.connection += 1
        self._forget_requests()
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
                # Its connection thread has ended, which it does when it is told something it does not understand.
                self._on_thread(self._restart)

    def _forget_requests(self) -> None:
        """Those of the connection before are answered, or never will be."""
        self._under_way = 0
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
        """kazoo waits for its threads when it starts and stops; the event loop does not."""
        threading.Thread(target=work, name="zookeeper", daemon=True).start()
