"""The real handlers and coordinators of one broker of the simulated cluster, without sockets and threads."""

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from itertools import count
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.configs import Configs
from penstock.broker.coordinators import Coordinators
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.peers import AskPeer
from penstock.broker.registry import APIS, load_handlers
from penstock.cluster.image import ClusterImage
from penstock.foundation.clock import Clock, Timer
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime
from penstock.replication.runtimes import StateRuntimes
from penstock.wire.frames import read_response
from penstock.wire.schema import message_of

LOAD_S = 0.005

load_handlers()


def load_soon(runtime: StateRuntime, timer: Timer) -> None:
    """Read a machine's state back, a little later."""

    def load() -> None:
        if runtime.partition.is_online and runtime.partition.is_leader:
            while runtime.read_back():
                pass
            runtime.begin_when_committed(lambda: None)

    timer(LOAD_S, load)


class SimRuntimes(StateRuntimes):
    """Loads without an event loop."""

    def _start_load(self, number: int, runtime: StateRuntime) -> None:
        load_soon(runtime, self._timer)

    def _stop_load(self, number: int) -> None:
        """If it is closed meanwhile, it does not start."""


class SimCoordinators(Coordinators):
    runtimes = SimRuntimes


class _Metadata:
    """What a broker knows of the cluster."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    @property
    def image(self) -> ClusterImage:
        return self._image()


class _ProducerIds:
    """From one counter, as from the store."""

    def __init__(self, numbers: "count[int]") -> None:
        self._numbers = numbers

    async def take(self) -> int:
        return next(self._numbers)


class SimServer:
    """One incarnation of a broker."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        image: Callable[[], ClusterImage],
        clock: Clock,
        timer: Timer,
        ask: AskPeer,
        settings: Mapping[str, str],
        producer_ids: "count[int]",
    ) -> None:
        configs = Configs(static=settings, node_id=node_id, image=image)
        metadata: Any = _Metadata(image)
        ids: Any = _ProducerIds(producer_ids)
        self.coordinators = SimCoordinators(
            node_id=node_id,
            partitions=partitions,
            configs=configs,
            clock=clock,
            timer=timer,
            threads=Executor(),
            image=image,
            ask=ask,
            new_member_id=lambda client_id: f"{client_id}-{next(producer_ids)}",
        )
        self.broker = Broker(
            node_id=node_id,
            metadata=metadata,
            partitions=partitions,
            configs=configs,
            sessions=FetchSessions(0),
            producer_ids=ids,
            clock=clock,
            timer=timer,
            log_dir="",
            disk_space=lambda: (0, 0),
            threads=Executor(),
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            ask=ask,
        )

    def handle(self, request: Any, version: int, answer: Callable[[Any], None]) -> None:
        """Have a request answered, by the handler that real connections have it answered by."""
        key = message_of(type(request)).key

        def on_answer(call: Call) -> None:
            assert call.parts is not None
            frame = b"".join(call.parts)
            answer(read_response(key, version, memoryview(frame)[4:])[1])

        call = Call(key, version, 0, "client", 0.0, 0, "/host:1", on_answer)
        result = APIS[key].handler(request, call, self.broker)
        if isinstance(result, Coroutine):
            try:
                result.send(None)
            except StopIteration as done:
                result = done.value
            else:
                raise AssertionError(f"{key.name} waits for something that is not simulated")
        if result is not None:
            call.answer(result)
