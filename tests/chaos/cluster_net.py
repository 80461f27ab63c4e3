"""A simulated network: one namespace per machine, all of them on one bridge.

A cut is one way, and silent: what a machine sends to another goes to a MAC address that no machine has. That
needs neither a firewall nor netem, which a kernel may lack. Nothing of it shows in the namespace that tests start in.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/var/run/netns")
UNUSED_MAC: Final = "02:00:00:00:00:00"
"""Of all machines on the wire, none has this address."""
SLOW_KBIT: Final = 400
_NEW_NET: Final = 0x40000000
"""CLONE_NEWNET."""


class CannotDo(Exception):
    """A tool of the system has refused."""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotDo(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def why_not() -> str | None:
    """The reason why no such network can be made here."""
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"{tool} is not on the PATH: apt-get install iproute2 util-linux"
    network = Network(f"pk{os.getpid()}t")
    try:
        network.open()
        network.add("a")
    except CannotDo as error:
        return f"network namespaces cannot be made here: {error}"
    finally:
        network.close()
    return None


class Network:
    """Machines by name. `close` takes all of it down, however far it has come."""

    def __init__(self, tag: str) -> None:
        """`tag`: what the names of the namespaces begin with."""
        self._tag = tag
        self._made: list[str] = []
        self.addresses: dict[str, str] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._slow: set[str] = set()

    def open(self) -> None:
        self._make("switch")
        run("ip", "-n", self._space("switch"), "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self._space("switch"), "link", "set", "bridge", "up")

    def _make(self, name: str) -> None:
        run("ip", "netns", "add", self._space(name))
        self._made.append(name)

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def add(self, name: str) -> str:
        """One more machine; its address."""
        self._make(name)
        space, switch, port = self._space(name), self._space("switch"), f"to-{name}"
        address = f"10.77.0.{len(self._made)}"
        run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
        run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        self.addresses[name] = address
        return address

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """How a command is run on a machine. The process that is started becomes the command: it has its pid."""
        return ["nsenter", f"--net={FOLDER / self._space(name)}", *command]

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Moves this thread, and the processes that it starts, to a machine."""
        with Path("/proc/thread-self/ns/net").open() as here, (FOLDER / self._space(name)).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    # -- what goes wrong

    def cut(self, sender: str, receiver: str) -> None:
        """Lose what one machine sends to another."""
        self._cuts.add((sender, receiver))
        run(*self._neighbour("replace", sender, receiver), "lladdr", UNUSED_MAC, "nud", "permanent")

    def join(self, sender: str, receiver: str) -> None:
        """Take a cut back."""
        if (sender, receiver) in self._cuts:
            self._cuts.remove((sender, receiver))
            run(*self._neighbour("del", sender, receiver))

    def _neighbour(self, verb: str, sender: str, receiver: str) -> list[str]:
        return ["ip", "-n", self._space(sender), "neigh", verb, self.addresses[receiver], "dev", "eth0"]

    def slow(self, name: str) -> None:
        """A link that is narrow: what waits to be sent waits up to a second, and more than that is lost."""
        rate = ("rate", f"{SLOW_KBIT}kbit", "burst", "8kb", "latency", "1s")
        run("tc", "-n", self._space(name), "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate)
        self._slow.add(name)

    def quicken(self, name: str) -> None:
        if name in self._slow:
            self._slow.remove(name)
            run("tc", "-n", self._space(name), "qdisc", "del", "dev", "eth0", "root")

    def heal(self) -> None:
        for pair in list(self._cuts):
            self.join(*pair)
        for name in list(self._slow):
            self.quicken(name)

    def close(self) -> None:
        """Remove every namespace; the links go with them."""
        while self._made:
            subprocess.run(["ip", "netns", "del", self._space(self._made.pop())], check=False, capture_output=True)


def _enter(namespace_fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace_fd, _NEW_NET) != 0:
        number = ctypes.get_errno()
        raise CannotDo(f"setns: {os.strerror(number)}")
