"""Builds and runs the load generator, load.c."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import frames
from bench.cache import BENCH, NotRun, cache_folder
from bench.frames import Frame

CLIENT_BUSY_MAX: Final = 0.7
"""A busier generator is what was measured, not the server."""


class LoadFailed(Exception):
    """The generator met an answer that it did not expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one run saw in its measured window. `bytes_each`: payload of one request or its answer."""

    answered: int
    answered_total: int
    seconds: float
    client_cpu_s: float
    broker_cpu_s: float
    machine_cpu_s: float
    bytes_each: int
    p50_us: float = 0
    p99_us: float = 0
    p999_us: float = 0
    max_us: float = 0
    late_p99_us: float = 0

    @property
    def per_s(self) -> float:
        return self.answered / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.per_s * self.bytes_each / 1e6

    @property
    def client_busy(self) -> float:
        return self.client_cpu_s / self.seconds

    @property
    def broker_busy(self) -> float:
        return self.broker_cpu_s / self.seconds

    @property
    def other_busy(self) -> float:
        """Cores taken by everything else on the machine: other people's work, and the kernel's own threads."""
        return max(0.0, self.machine_cpu_s - self.client_cpu_s - self.broker_cpu_s) / self.seconds

    @property
    def broker_cpu_us_each(self) -> float:
        return self.broker_cpu_s * 1e6 / self.answered

    @property
    def broker_cpu_s_per_gb(self) -> float:
        return self.broker_cpu_s / (self.answered * self.bytes_each / 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How a file of frames is replayed; see load.c."""

    port: int
    frames: Sequence[Frame]
    connections: int
    depth: int = 1
    seconds: float = 60.0
    ramp_s: float = 0.0
    rate_per_s: float = 0.0
    bytes_max: int = 1 << 62
    requests_max: int = 1 << 62
    walk: bool = True
    shares: bool = False
    """Every frame is sent once, by whichever connection is next."""
    is_http: bool = False
    keep: Path | None = None
    """Where the bodies of HTTP answers go; `read_kept` reads them."""
    hellos: Sequence[Frame] = ()
    replies: int = 1

    def run(self, folder: Path, watch_pid: int, bytes_each: int) -> Sample:
        """Run it to its end. LoadFailed says what was wrong with an answer."""
        options: dict[str, Any] = {
            "port": self.port,
            "frames": frames.save(self.frames, folder / "frames"),
            "connections": self.connections,
            "depth": self.depth,
            "seconds": self.seconds,
            "ramp": self.ramp_s,
            "rate": self.rate_per_s,
            "bytes-max": self.bytes_max,
            "requests-max": self.requests_max,
            "walk": 2 if self.shares else int(self.walk),
            "watch": watch_pid,
            "replies": self.replies,
        }
        if self.hellos:
            options |= {"protocol": "nats", "hello": frames.save(self.hellos, folder / "hellos")}
        if self.is_http:
            options["protocol"] = "http"
        if self.keep is not None:
            options["keep"] = self.keep
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        limit_s = self.ramp_s + self.seconds + 60
        done = subprocess.run([generator(), *words], capture_output=True, text=True, timeout=limit_s, check=False)
        if done.returncode:
            raise LoadFailed(f"the load failed: {done.stderr.strip() or done.returncode}")
        seen = json.loads(done.stdout)
        if not seen["answered"]:
            raise LoadFailed(f"nothing was answered in {self.seconds:g} s")
        return Sample(
            answered=seen["answered"] * self.replies,
            answered_total=seen["answered_total"] * self.replies,
            seconds=seen["seconds"],
            client_cpu_s=seen["own_cpu_s"],
            broker_cpu_s=seen["server_cpu_s"],
            machine_cpu_s=seen["machine_cpu_s"],
            bytes_each=bytes_each,
            p50_us=seen["p50_us"],
            p99_us=seen["p99_us"],
            p999_us=seen["p999_us"],
            max_us=seen["max_us"],
            late_p99_us=seen["late_p99_us"],
        )


def read_kept(path: Path) -> Iterator[bytes]:
    """The bodies of answers, in the order in which they came."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        yield data[at + 4 : end]
        at = end


def generator() -> Path:
    """The compiled generator; compiled now if its sources have changed."""
    source = BENCH / "load.c"
    parts = [source, BENCH / "load_stats.h", BENCH / "load_http.h"]
    digest = hashlib.sha256(b"".join([part.read_bytes() for part in parts])).hexdigest()[:16]
    program = cache_folder("bin") / f"load-{digest}"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise NotRun("there is no C compiler (cc, gcc or clang) for the load generator")
        fresh = program.with_suffix(".new")
        command = [compiler, "-O2", "-std=gnu11", str(source), "-o", str(fresh)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise NotRun(f"the load generator does not compile: {done.stderr[:500]}")
        fresh.rename(program)
    return program
