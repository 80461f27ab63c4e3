"""The faults of a cluster. Each begins at once, and returns the function that ends it."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .cluster_broker import ClusterBroker
from .cluster_lab import CLIENTS, Lab

DISK_BYTES_S: Final = 32 << 10
"""How much a slow disk takes in a second."""
CGROUP: Final = Path("/sys/fs/cgroup/blkio")
STORE: Final = "store"

Heal = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One that has been drawn, and has not begun."""

    what: str
    touches: frozenset[str]
    """No two faults that touch the same thing go on at once."""
    lasts_s: float
    begin: Callable[[], Heal]


Draw = Callable[["Faults"], "Fault | None"]
DRAWS: dict[str, Draw] = {}
"""All kinds of faults, by name. None: it cannot be done here, or not now."""


def draws(make: Draw) -> Draw:
    DRAWS[make.__name__.replace("_", "-")] = make
    return make


class Faults:
    """What faults are drawn from."""

    def __init__(self, lab: Lab, rng: random.Random) -> None:
        self.lab = lab
        self.rng = rng

    def broker(self) -> ClusterBroker:
        return self.rng.choice(list(self.lab.brokers.values()))

    def moment_s(self) -> float:
        """Shorter than a session, about as long, or longer."""
        session_s = self.lab.session_s
        return self.rng.choice((self.rng.uniform(0.2, 3), self.rng.uniform(session_s - 1, session_s + 4)))

    def cuts(self, pairs: list[tuple[str, str]], what: str, touches: set[str]) -> Fault:
        """One way, the other way or both ways, at random."""
        way = self.rng.choice(("there", "back", "both"))
        back = [(receiver, sender) for sender, receiver in pairs]
        chosen = {"there": pairs, "back": back, "both": pairs + back}[way]
        network = self.lab.network

        def begin() -> Heal:
            for pair in chosen:
                network.cut(*pair)

            def heal() -> None:
                for pair in chosen:
                    network.join(*pair)

            return heal

        links = frozenset(f"link {thing}" for thing in touches)
        return Fault(what=f"{what} {way}", touches=links, lasts_s=self.moment_s() + 1, begin=begin)


def _on(broker: ClusterBroker) -> frozenset[str]:
    return frozenset({broker.name})


# -- processes


@draws
def kill(faults: Faults) -> Fault:
    return _killed(faults.broker(), faults.rng.choice((0.0, faults.moment_s())), "killed")


def _killed(broker: ClusterBroker, lasts_s: float, what: str) -> Fault:
    def begin() -> Heal:
        broker.kill()
        return broker.start

    return Fault(what=f"{broker.name} {what}", touches=_on(broker), lasts_s=lasts_s, begin=begin)


@draws
def kill_controller(faults: Faults) -> Fault | None:
    node = faults.lab.controller()
    broker = faults.lab.brokers.get(node) if node is not None else None
    return None if broker is None else _killed(broker, faults.moment_s(), "the controller, killed")


@draws
def restart(faults: Faults) -> Fault:
    broker = faults.broker()

    def begin() -> Heal:
        if broker.is_ready:
            broker.stop()
        else:
            broker.kill()  # one that has only just begun does not listen yet
        return broker.start

    return Fault(what=f"{broker.name} stopped", touches=_on(broker), lasts_s=faults.moment_s() / 2, begin=begin)


@draws
def pause(faults: Faults) -> Fault:
    broker, rng = faults.broker(), faults.rng
    lasts_s = rng.uniform(20, 60) if rng.random() < 0.15 else faults.moment_s()

    def begin() -> Heal:
        broker.pause()
        return broker.resume

    return Fault(what=f"{broker.name} paused for {lasts_s:.1f} s", touches=_on(broker), lasts_s=lasts_s, begin=begin)


# -- links


@draws
def cut_brokers(faults: Faults) -> Fault:
    one, two = faults.rng.sample(sorted(broker.name for broker in faults.lab.brokers.values()), 2)
    return faults.cuts([(one, two)], f"{one}-{two} cut", {one, two})


@draws
def cut_store(faults: Faults) -> Fault:
    broker, names = faults.broker().name, faults.lab.stores.names
    reached = faults.rng.choice((names, faults.rng.sample(names, 2), faults.rng.sample(names, 1)))
    return faults.cuts([(broker, name) for name in reached], f"{broker}-{','.join(reached)} cut", {broker})


@draws
def cut_clients(faults: Faults) -> Fault:
    broker = faults.broker().name
    return faults.cuts([(broker, CLIENTS)], f"{broker}-clients cut", {broker})


@draws
def isolate(faults: Faults) -> Fault:
    """A broker cut off from other brokers and the store, or from all; only clients may still reach it."""
    broker, lab = faults.broker().name, faults.lab
    others = [other.name for other in lab.brokers.values() if other.name != broker] + lab.stores.names
    if faults.rng.random() < 0.5:
        others.append(CLIENTS)
    everyone = {other.name for other in lab.brokers.values()}
    return faults.cuts([(broker, other) for other in others], f"{broker} isolated", everyone)


@draws
def slow_link(faults: Faults) -> Fault | None:
    if shutil.which("tc") is None:
        return None
    name, network = faults.broker().name, faults.lab.network

    def begin() -> Heal:
        network.slow(name)
        return lambda: network.quicken(name)

    return Fault(
        what=f"{name} slow", touches=frozenset({f"speed {name}"}), lasts_s=faults.moment_s() + 2, begin=begin
    )


# -- disks


@draws
def slow_disk(faults: Faults) -> Fault | None:
    """Its writes to the device are throttled, so that fsync is slow."""
    broker = faults.broker()
    if not (CGROUP / "blkio.throttle.write_bps_device").exists() or broker.data_dir == faults.lab.small_disk:
        return None
    device = broker.data_dir.stat().st_dev
    group = CGROUP / f"pk-{os.getpid()}-{broker.name}"

    def limit(bytes_s: int) -> None:
        line = f"{os.major(device)}:{os.minor(device)} {bytes_s}"
        (group / "blkio.throttle.write_bps_device").write_text(line)

    def begin() -> Heal:
        group.mkdir(exist_ok=True)
        limit(DISK_BYTES_S)
        if broker.is_running:
            (group / "cgroup.procs").write_text(str(broker.pid))

        def heal() -> None:
            limit(0)
            if broker.is_running:
                (CGROUP / "cgroup.procs").write_text(str(broker.pid))
            group.rmdir()

        return heal

    lasts_s = faults.moment_s() + 2
    return Fault(what=f"{broker.name} slow disk", touches=_on(broker), lasts_s=lasts_s, begin=begin)


@draws
def full_disk(faults: Faults) -> Fault | None:
    disk = faults.lab.small_disk
    if disk is None:
        return None
    broker = next(broker for broker in faults.lab.brokers.values() if broker.data_dir == disk)
    ballast = disk / "ballast"

    def begin() -> Heal:
        with ballast.open("wb", buffering=0) as file:
            chunk = bytes(1 << 20)
            while chunk:
                try:
                    file.write(chunk)
                except OSError:
                    chunk = chunk[: len(chunk) // 2]  # down to the last byte
        return ballast.unlink

    return Fault(what=f"{broker.name} full disk", touches=_on(broker), lasts_s=faults.moment_s(), begin=begin)


# -- clocks


@draws
def clock_jump(faults: Faults) -> Fault | None:
    """Forward or back, for a while: by a second, or by a day."""
    if not faults.lab.clocks:
        return None
    node = faults.rng.choice(sorted(faults.lab.clocks))
    seconds = faults.rng.choice((-1, 1)) * faults.rng.choice((1.5, 60.0, 3000.0, 86_400.0))
    clock = faults.lab.clocks[node]

    def begin() -> Heal:
        clock.jump(seconds)
        return lambda: clock.jump(0)

    what = f"b{node} clock {seconds:+g} s"
    return Fault(what=what, touches=frozenset({f"clock {node}"}), lasts_s=faults.moment_s(), begin=begin)


# -- the store


@draws
def kill_store_leader(faults: Faults) -> Fault | None:
    leader = faults.lab.stores.leader()
    return None if leader is None else _store_killed(faults, [leader], "leader")


@draws
def lose_quorum(faults: Faults) -> Fault:
    two = faults.rng.sample(range(len(faults.lab.stores.servers)), 2)
    return _store_killed(faults, two, "quorum") if faults.rng.random() < 0.5 else _store_paused(faults, two)


@draws
def pause_store(faults: Faults) -> Fault:
    return _store_paused(faults, [faults.rng.randrange(len(faults.lab.stores.servers))])


def _store_killed(faults: Faults, numbers: list[int], what: str) -> Fault:
    servers = [faults.lab.stores.servers[number] for number in numbers]

    def begin() -> Heal:
        for server in servers:
            server.kill()

        def heal() -> None:
            for server in servers:
                server.start()

        return heal

    name = f"store {what} {numbers} killed"
    return Fault(what=name, touches=frozenset({STORE}), lasts_s=faults.moment_s(), begin=begin)


def _store_paused(faults: Faults, numbers: list[int]) -> Fault:
    servers = [faults.lab.stores.servers[number] for number in numbers]

    def begin() -> Heal:
        for server in servers:
            server.pause()

        def heal() -> None:
            for server in servers:
                server.resume()

        return heal

    name = f"store {numbers} paused"
    return Fault(what=name, touches=frozenset({STORE}), lasts_s=faults.moment_s(), begin=begin)


# -- one fault after another


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    fault: Fault
    ends_s: float
    heal: Heal


class Nemesis:
    """Draws faults, and has up to so many of them go on at once."""

    def __init__(
        self,
        faults: Faults,
        note: Callable[[str], None],
        at_once: int = 3,
        draws: Mapping[str, Draw] = DRAWS,
    ) -> None:
        self._faults = faults
        self._draws = draws
        self._note = note
        self._at_once = at_once
        self._open: list[_Open] = []
        self._kinds: Iterator[str] = iter(())
        self.done: dict[str, int] = {}
        self.not_here: set[str] = set()

    def _next_kind(self) -> str:
        """Every kind once, in any order, and again."""
        kind = next(self._kinds, None)
        if kind is None:
            self._kinds = iter(self._faults.rng.sample(sorted(self._draws), len(self._draws)))
            return self._next_kind()
        return kind

    def step(self) -> None:
        """Starts one more fault, after those that exclude it have ended."""
        while True:
            kind = self._next_kind()
            if kind == "kill-store-leader":
                self._end(lambda open_: STORE in open_.fault.touches)
            fault = self._draws[kind](self._faults)
            if fault is not None:
                break
            self.not_here.add(kind)
        self.not_here.discard(kind)
        self._end(lambda open_: not open_.fault.touches.isdisjoint(fault.touches))
        by_end = sorted(self._open, key=lambda open_: open_.ends_s)
        too_many = by_end[: max(0, len(by_end) + 1 - self._at_once)]
        self._end(lambda open_: open_ in too_many)
        self._note(f"begin {fault.what}")
        heal = fault.begin()
        self._open.append(_Open(fault=fault, ends_s=time.monotonic() + fault.lasts_s, heal=heal))
        self.done[kind] = self.done.get(kind, 0) + 1

    def rest(self, seconds: float) -> None:
        """Let time pass, and end what has lasted long enough."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._end(lambda open_: open_.ends_s <= time.monotonic())
            self._faults.lab.tend()
            time.sleep(0.05)

    def rest_out(self) -> None:
        """Let what goes on last as long as it should."""
        while self._open:
            self.rest(0.1)

    def _end(self, is_over: Callable[[_Open], bool]) -> None:
        for open_ in [each for each in self._open if is_over(each)]:
            self._open.remove(open_)
            self._note(f"end {open_.fault.what}")
            open_.heal()
