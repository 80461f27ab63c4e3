"""A broker for handlers, without sockets: real partitions, coordinators and settings; timers run by the test."""

from collections.abc import Callable

from penstock.broker.broker import Broker
from penstock.broker.configs import Configs
from penstock.broker.coordinators import Coordinators
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.peers import Peers
from penstock.broker.transactions.producer_ids import ProducerIds

from ..replication.broker_state import NODE, World


class Timers:
    """What was set and not stopped, to be fired by hand."""

    def __init__(self) -> None:
        self._set: dict[object, tuple[float, Callable[[], None]]] = {}

    def __call__(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        ticket = object()
        self._set[ticket] = seconds, action

        def stop() -> None:
            self._set.pop(ticket, None)

        return stop

    def fire(self, waits: bool = False) -> None:
        """Those for now, or those that wait."""
        for ticket, (seconds, action) in list(self._set.items()):
            if (seconds > 0) == waits and self._set.pop(ticket, None):
                action()


def broker_of(world: World, timers: Timers) -> Broker:
    configs = Configs(static={}, node_id=NODE, image=lambda: world.metadata.image)
    peers = Peers(NODE, lambda: world.metadata.image)
    coordinators = Coordinators(
        node_id=NODE,
        partitions=world.partitions,
        configs=configs,
        clock=world.clock,
        timer=timers,
        threads=world.threads,
        image=lambda: world.metadata.image,
        ask=peers.ask,
    )
    return Broker(
        node_id=NODE,
        metadata=world.metadata,
        partitions=world.partitions,
        configs=configs,
        sessions=FetchSessions(10),
        producer_ids=ProducerIds(world.metadata),
        clock=world.clock,
        timer=timers,
        log_dir="",
        disk_space=lambda: (0, 0),
        threads=world.threads,
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        ask=peers.ask,
    )
