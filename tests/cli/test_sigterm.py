"""SIGTERM ends every waiting or endless command as Ctrl-C does, with exit code 143."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.common import Terminated
from penstock.cli.main import LazyGroup
from tests.clients.waiting import wait_until

from .cli_runner import COMMAND, Cli, Direct
from .clusters import at_work_in

PATIENCE_S = 60.0
TERMINATED = 143


def catches_sigterm(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has come so far that it handles SIGTERM itself."""
    assert process.poll() is None, "it ended before the signal"
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = re.search(r"SigCgt:\s+(\w+)", status)
    assert caught is not None
    return bool(int(caught[1], 16) & 1 << signal.SIGTERM - 1)


def terminate(process: subprocess.Popen[bytes], times: int = 1) -> tuple[int, bytes, bytes]:
    """SIGTERM; then the exit code and what was written after the last read."""
    for _ in range(times):
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def test_a_follower_ends(cli: Cli, direct: Direct, topic: str) -> None:
    direct.publish(topic, b"before")
    follower = cli.start("subscribe", topic, "--follow", "--from", "earliest")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"before\n"
    assert terminate(follower) == (TERMINATED, b"", b"")


@pytest.mark.parametrize("times", [1, 2])
def test_a_member_of_a_group_commits_and_leaves(cli: Cli, direct: Direct, topic: str, times: int) -> None:
    """A second SIGTERM, as `timeout` sends it, does not keep it from that."""
    direct.publish(topic, b"one", b"two")
    group = f"g-{topic}"
    follower = cli.start("subscribe", topic, "--group", group, "--follow")
    assert follower.stdout is not None
    assert [follower.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
    (before,) = cli.json("group", "describe", group)
    assert len(before["members"]) == 1
    assert terminate(follower, times) == (TERMINATED, b"", b"")
    (after,) = cli.json("group", "describe", group)
    assert after["members"] == []
    (place,) = after["partitions"]
    assert (place["offset"], place["lag"]) == (2, 0)


@pytest.mark.parametrize(
    "arguments", [("publish", "TOPIC"), ("queue", "send", "QUEUE"), ("queue", "receive", "QUEUE", "--wait", "20s")]
)
def test_a_command_that_waits_ends(cli: Cli, topic: str, arguments: tuple[str, ...]) -> None:
    cli.ok("queue", "create", f"q-{topic}")
    names = {"TOPIC": topic, "QUEUE": f"q-{topic}"}
    process = cli.start(*(names.get(each, each) for each in arguments), stdin=subprocess.PIPE)
    wait_until(lambda: catches_sigterm(process), "it handles SIGTERM", timeout_s=PATIENCE_S)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == TERMINATED  # though its standard input is still open
    assert process.communicate() == (b"", b"")


@pytest.mark.parametrize("kind", ["zookeeper", "etcd"])
def test_a_broker_that_waits_for_its_store_ends(tmp_path: Path, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        port = silent.getsockname()[1]
        command = [COMMAND, "serve", "--data-dir", str(tmp_path / "data"), "--store", f"{kind}://127.0.0.1:{port}/x"]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()  # it asks its store
        with connection:
            assert terminate(process)[:2] == (0, b"penstock is stopping\n")


def test_the_tour_ends_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([COMMAND, "demo"], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        while b"ready after" not in process.stdout.readline():
            assert process.poll() is None
        assert at_work_in(tmp_path)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(PATIENCE_S) == TERMINATED
    assert not at_work_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_whose_exception_is_lost_ends_the_command() -> None:
    """Python drops what is raised in a destructor: a command that got the signal during an import did not end."""
    code = (
        "import asyncio, os, signal\n"
        "from penstock.cli.common import Terminated, run, sigterm_raises\n"
        "class Dropped:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)\n"
        "with sigterm_raises():\n"
        "    Dropped()\n"
        "    try: run(asyncio.Event().wait())\n"
        "    except Terminated: print('terminated')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (0, "terminated\n"), done.stderr
    assert "Exception ignored in" in done.stderr


def test_a_signal_before_the_first_await_prints_no_warning() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from penstock.cli.common import Terminated, run, sigterm_raises\n"
        "async def work(): pass\n"
        "with sigterm_raises():\n"
        "    try:\n"
        "        coroutine = work()\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        run(coroutine)\n"
        "    except Terminated: print('terminated')\n"
        "del coroutine\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "terminated\n", "")


def test_a_command_that_ends_by_another_error_because_of_the_signal_is_terminated() -> None:
    class Group(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return command

    @click.command()
    def command() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Terminated as terminated:
            raise RuntimeError("as a library may do") from terminated

    assert CliRunner().invoke(Group("penstock"), ["command"]).exit_code == TERMINATED
