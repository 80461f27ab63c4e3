"""A forked command behaves like one that was started by exec."""

import json
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import PENSTOCK, ForkedProcess, can_fork, run

TIMEOUT_S = 60


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("topic", "list", "--bootstrap", "127.0.0.1:1"), ("topic", "create"), ("nothing",)],
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_the_command(arguments: tuple[str, ...]) -> None:
    command = [PENSTOCK, *arguments]
    wanted = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    found = run(command, input=b"", environment=os.environ, timeout=TIMEOUT_S)
    assert (found.returncode, found.stdout, found.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)


def test_the_environment_and_the_folder_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": "127.0.0.1:2"}
    said = run([PENSTOCK, "topic", "list"], input=b"", environment=environment, timeout=TIMEOUT_S).stderr
    assert b"127.0.0.1:2" in said
    (tmp_path / "here.toml").write_text("node_id = -1")
    said = run([PENSTOCK, "serve", "--config", "here.toml"], input=b"", environment=environment, timeout=60).stderr
    assert b"node_id = -1 is not allowed" in said


def test_input_larger_than_a_pipe_is_read(tmp_path: Path) -> None:
    serve = ["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    broker = ForkedProcess([PENSTOCK, *serve], environment=os.environ, stderr=2)
    with broker:
        assert select.select([broker.stdout], [], [], TIMEOUT_S)[0]
        address = broker.stdout.readline().split()[4].rstrip(",")
        assert sorted(map(int, os.listdir(f"/proc/{broker.pid}/fd")))[:3] == [0, 1, 2]
        assert broker.poll() is None
        environment = {**os.environ, "PENSTOCK_BOOTSTRAP": address}
        lines = b"".join(b"%06d%s\n" % (number, b"x" * 90) for number in range(5000))
        for arguments, data in ((["topic", "create", "t"], b""), (["publish", "t"], lines)):
            done = run([PENSTOCK, *arguments], input=data, environment=environment, timeout=TIMEOUT_S)
            assert done.returncode == 0, done
        reading = [PENSTOCK, "subscribe", "t", "--from", "earliest", "--max", "5000", "--json"]
        found = run(reading, input=b"", environment=environment, timeout=TIMEOUT_S).stdout.splitlines()
        assert [json.loads(line)["value"][:6] for line in found] == [f"{number:06d}" for number in range(5000)]
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(TIMEOUT_S) == 0


def test_a_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    serve = ["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with ForkedProcess([PENSTOCK, *serve], environment=os.environ, stderr=2) as broker:
        broker.kill()
        assert broker.wait(TIMEOUT_S) == -signal.SIGKILL
        assert broker.poll() == -signal.SIGKILL
        broker.kill()  # no process has this pid any more


def test_environment_variables_of_the_interpreter_need_exec() -> None:
    assert can_fork({**os.environ, "PENSTOCK_BOOTSTRAP": "127.0.0.1:2"})
    assert not can_fork({**os.environ, "PYTHONPATH": "/elsewhere"})
    assert not can_fork({**os.environ, "LD_PRELOAD": "/elsewhere"})
