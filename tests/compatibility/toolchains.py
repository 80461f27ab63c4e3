"""Compilers and package managers of other languages, and the programs that they make. What is missing is skipped."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import pytest

HERE: Final = Path(__file__).parent
CACHE: Final = Path(sys.prefix) / "compatibility"
"""Where other people's packages are kept between runs: beside the environment, and gone with it."""
KAFKA: Final = "4.3.1"
"""The newest release of Kafka of which every artifact can be had."""
STEP_S: Final = 0.05
PATIENCE_S: Final = 180.0
STOP_S: Final = 60.0
FIRST_BUILD_S: Final = 1200.0
"""For downloading and compiling packages on a busy machine; later runs use the cache."""


def require(program: str) -> str:
    """Returns where a program is; skips the test, and says what is missing, if it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def run(
    command: Sequence[str], folder: Path, timeout_s: float = 600.0, environment: Mapping[str, str] | None = None
) -> str:
    """Runs a command to its end and returns what it says. AssertionError, with all of it, if it fails.

    `environment`: variables on top of this process's own.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} in {folder}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


# -- Java


def java_classpath(*artifacts: str) -> str:
    """Returns the classpath of Maven artifacts (`group:name:version`) with all that they need."""
    require("java")
    maven = require("mvn")
    digest = hashlib.sha256(" ".join(artifacts).encode()).hexdigest()[:12]
    jars = CACHE / f"java-{digest}"
    if not (jars / "complete").exists():
        jars.mkdir(parents=True, exist_ok=True)
        (jars / "pom.xml").write_text(_pom(artifacts))
        run([maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], jars)
        (jars / "complete").touch()
    return f"{jars}/*"


def _pom(artifacts: Sequence[str]) -> str:
    entries = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>tests</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{entries}</dependencies></project>"
    )


def compile_java(name: str, classpath: str, folder: Path) -> str:
    """Compiles `java/<name>.java`; returns the classpath with it."""
    run([require("javac"), "-d", str(folder), "-cp", classpath, str(HERE / "java" / f"{name}.java")], folder)
    return f"{classpath}{os.pathsep}{folder}"


def java(classpath: str, main: str, *arguments: str) -> list[str]:
    """The command that runs a class."""
    return [require("java"), "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", classpath, main, *arguments]


# -- Go


def go_binary(name: str) -> str:
    """Compiles `go/<name>.go` with the modules that go.mod pins; returns the path of the program."""
    go = require("go")
    binary = CACHE / "go-programs" / name
    # By default Go makes its downloads read-only, so that the environment could not be deleted with them.
    caches = {"GOMODCACHE": str(CACHE / "go-modules"), "GOCACHE": str(CACHE / "go-build"), "GOFLAGS": "-modcacherw"}
    # The compiler compares the sources with its own cache: an unchanged program is not compiled again.
    command = [go, "build", "-mod=readonly", "-o", str(binary), f"{name}.go"]
    run(command, HERE / "go", FIRST_BUILD_S, caches)
    return str(binary)


# -- JavaScript


def node_modules() -> dict[str, str]:
    """Installs the packages that js/package.json pins; returns the environment in which programs find them."""
    npm = require("npm")
    pinned = (HERE / "js" / "package.json").read_bytes()
    folder = CACHE / f"js-{hashlib.sha256(pinned).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_bytes(pinned)
        run([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder, FIRST_BUILD_S)
        (folder / "complete").touch()
    return {"NODE_PATH": str(folder / "node_modules")}


def node(name: str, *arguments: str) -> list[str]:
    """The command that runs `js/<name>.js`."""
    return [require("node"), str(HERE / "js" / f"{name}.js"), *arguments]


# -- programs


def values(name: str, text: str) -> list[Any]:
    """The JSON values of all lines `<name> <value>`. The last line counts only if it is complete."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [json.loads(line.removeprefix(f"{name} ")) for line in lines if line.startswith(f"{name} ")]


class Program:
    """One process of an application. What it prints is kept in a file, and can be waited for."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self.log = log
        self._out: TextIO | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> "Program":
        self._out = self.log.open("a")
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        return self

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def values(self, name: str) -> list[Any]:
        """The JSON values of the lines `<name> <value>` printed until now."""
        return values(name, self.log.read_text(errors="replace"))

    def wait_line(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """The last line that contains a text, once there is one."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = [line for line in self.lines if text in line]
            if found:
                return found[-1]
            assert self.is_running, f"it ended before it said {text!r}:\n{self._tail}"
            assert time.monotonic() < deadline_s, f"it did not say {text!r} in {timeout_s:g} s:\n{self._tail}"
            time.sleep(STEP_S)

    @property
    def _tail(self) -> str:
        return "\n".join(self.lines[-60:])

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        """Until it has ended by itself. AssertionError if it failed."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        self._close()
        assert code == 0, f"it ended with {code}:\n{self._tail}"

    def stop(self) -> None:
        """Sends SIGTERM and waits until it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            finally:
                self.kill()

    def kill(self) -> None:
        """Ends it without a warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def _close(self) -> None:
        self._process = None
        if self._out is not None:
            self._out.close()
            self._out = None


class Application:
    """A program with commands, pointed at one address: `<program> <command> <address> <arguments>`."""

    def __init__(
        self, program: Sequence[str], address: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._program, self._address, self._folder = program, address, folder
        self._environment = environment
        self._started: list[Program] = []

    def run(self, command: str, *arguments: object) -> str:
        """Runs a command to its end and returns what it prints."""
        return run(self._command(command, arguments), self._folder, environment=self._environment)

    def start(self, command: str, *arguments: object) -> Program:
        """Starts a command that runs until it is stopped or killed."""
        log = self._folder / f"{command}-{len(self._started)}.log"
        program = Program(self._command(command, arguments), log, environment=self._environment)
        self._started.append(program)
        return program.start()

    def _command(self, command: str, arguments: Sequence[object]) -> list[str]:
        return [*self._program, command, self._address, *map(str, arguments)]

    def end(self) -> None:
        """Kills every program that still runs."""
        for program in self._started:
            program.kill()
