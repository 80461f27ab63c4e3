"""What the simulated runs of all kinds of groups share: the loop of steps and faults, and what a client is."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, NamedTuple

from tests.simulation.clock import FakeClock
from tests.simulation.network import Conditions, FakeNetwork

COORDINATOR = "coordinator"
CALM = Conditions(delay_ms_max=20)


class Request(NamedTuple):
    number: int
    body: Any
    version: int


class Response(NamedTuple):
    number: int
    value: Any
    """The response, or the PenstockError that was raised instead of one."""


@dataclass(kw_only=True, eq=False)
class GroupClient:
    """A member of a group as a client library implements it, over a network that loses and repeats messages."""

    rng: Random
    send: Callable[[Request], None]
    member_id: str = ""
    instance_id: str | None = None
    is_running: bool = False
    is_stuck: bool = False
    """Whether its application does not react to rebalances. Heartbeats are sent all the same."""
    requests: int = 0
    """The number of its last request."""

    def post(self, body: Any, version: int) -> int:
        """Sends a request; returns its number."""
        self.requests += 1
        self.send(Request(self.requests, body, version))
        return self.requests

    def tick(self, now_ms: int) -> None:
        """Sends what is due."""
        raise NotImplementedError

    def receive(self, number: int, response: Any, now_ms: int) -> None:
        """Handles the response to a request, unless it no longer waits for it."""
        raise NotImplementedError

    def reconnect(self) -> None:
        """Forgets the requests in flight: they are not answered any more."""
        raise NotImplementedError

    def stop(self) -> None:
        """Its process is killed."""
        raise NotImplementedError


class GroupSimulation:
    """One seeded run: steps with random faults, then none until the group has to be stable."""

    actions: ClassVar[Mapping[str, float]]
    """The methods (without underscore) that change something between two steps, by their weights."""
    fault_names: ClassVar[tuple[str, ...]]
    """Which of the counts are faults."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng = Random(seed)
        self.steps = steps
        self.clock = FakeClock()
        self.counts: Counter[str] = Counter()
        self.network: FakeNetwork
        self.clients: list[Any] = []

    @property
    def faults(self) -> int:
        return sum(self.counts[name] for name in self.fault_names)

    def run(self) -> None:
        self._start()
        for _ in range(self.steps):
            self._disturb()
            self.step(self._step_ms())
        self._end_faults()
        self._check_progress()

    def step(self, ms: int) -> None:
        self.clock.advance(ms)
        self._step()
        self.counts["steps"] += 1
        self._check()

    def _pass(self, ms: int) -> None:
        """Runs steps without new faults."""
        until_ms = self.clock.now_ms() + ms
        while self.clock.now_ms() < until_ms:
            self.step(self._calm_step_ms())

    def _deliver(self) -> None:
        """Delivers the requests and responses that have arrived."""
        for source, target, message in self.network.arrivals():
            if target == COORDINATOR:
                self._on_request(source, message)
            else:
                self._on_response(target, message)

    def _disturb(self) -> None:
        self._act()

    def _act(self, *arguments: Any) -> None:
        """Calls one of the actions."""
        (name,) = self.rng.choices(list(self.actions), list(self.actions.values()))
        getattr(self, f"_{name}")(*arguments)

    def _nothing(self, *_: Any) -> None:
        """Most steps are not disturbed."""

    def _heal(self, *_: Any) -> None:
        self.network.heal()

    def _end_faults(self) -> None:
        self.network.heal()
        self.network.conditions = CALM

    # -- what each kind of group has of its own

    def _start(self) -> None:
        """Before the first step."""

    def _step_ms(self) -> int:
        raise NotImplementedError

    def _calm_step_ms(self) -> int:
        raise NotImplementedError

    def _step(self) -> None:
        """Clients, timers and messages do what is due now."""
        raise NotImplementedError

    def _on_request(self, source: Any, message: Any) -> None:
        raise NotImplementedError

    def _on_response(self, target: Any, response: Response) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        """Checks the invariants after every step."""
        raise NotImplementedError

    def _check_progress(self) -> None:
        """Raises AssertionError if the group does not become stable without faults."""
        raise NotImplementedError
