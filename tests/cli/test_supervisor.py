"""The supervisor of processes, with a shell instead of a broker."""

import asyncio
import signal
from pathlib import Path

import pytest

from penstock.cli import supervisor
from penstock.cli.supervisor import Child, ChildFailed, Program, Supervisor, start_all

from .clusters import is_alive

READY = "echo 'penstock is ready: kafka a, http b, data c'"
SLEEP = "while :; do sleep 0.05; done"
PATIENCE_S = 60.0


def shell(script: str, log: Path | None = None) -> Child:
    return Child(Program(name="it", command=("sh", "-c", script), log=log))


def test_a_program_that_is_not_there_is_named() -> None:
    child = Child(Program(name="broker 1", command=("/nowhere/penstock",)))
    with pytest.raises(ChildFailed, match="broker 1 cannot be run: /nowhere/penstock: No such file or directory"):
        asyncio.run(child.start())
    assert child.pid is None


def test_a_process_that_exits_before_it_is_ready_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "its.log"
    log.write_text("an old line\n" * 20)
    with pytest.raises(ChildFailed) as failed:
        asyncio.run(shell("echo 'what went wrong' >&2; exit 3", log).start())
    said = str(failed.value).splitlines()
    assert said[0] == f"it ended with code 3 before it was ready; the end of {log}:"
    assert said[-1] == "what went wrong"
    assert len(said) == 9


def test_a_process_that_is_not_ready_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "START_S", 0.2)
    child = shell(SLEEP)
    with pytest.raises(ChildFailed, match=r"it was not ready after 0.2 s"):
        asyncio.run(child.start())
    assert child.pid is None


def test_output_of_a_program_is_printed_and_kept(tmp_path: Path) -> None:
    async def work() -> Child:
        child = shell(f"echo before; trap 'echo after; exit 0' TERM; {READY}; {SLEEP}", tmp_path / "its.log")
        await child.start()
        assert await child.stop()
        return child

    child = asyncio.run(work())
    assert child.ready_line == "penstock is ready: kafka a, http b, data c"
    assert (tmp_path / "its.log").read_text().splitlines() == ["before", child.ready_line, "after"]


def test_a_process_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_S", 0.2)
    reports: list[str] = []

    async def work() -> int | None:
        child = shell(f"trap '' TERM; {READY}; {SLEEP}")
        await child.start()
        pid = child.pid
        supervisor = Supervisor(restarts=True, report=reports.append, on_change=lambda: None)
        supervisor.watch(child)
        await supervisor.stop([child])
        return pid

    pid = asyncio.run(work())
    assert pid is not None
    assert not is_alive(pid)
    assert reports == ["it did not stop within 0.2 s and was killed"]


def test_if_one_cannot_start_the_others_are_ended_too() -> None:
    async def work() -> Child:
        good = shell(f"{READY}; {SLEEP}")
        slow = shell(SLEEP)
        with pytest.raises(ChildFailed, match="ended with code 1"):
            await start_all([good, slow, shell("sleep 0.3; exit 1")])
        assert slow.pid is None
        await good.stop()
        return good

    assert asyncio.run(work()).pid is None


def test_a_process_that_exits_is_restarted_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_FIRST_S", 0.01)
    reports: list[str] = []
    changes: list[int | None] = []

    async def work() -> list[int]:
        # The second of its lives ends before it is ready.
        script = f"echo life >> {tmp_path}/lives; test $(wc -l < {tmp_path}/lives) = 2 && exit 7; {READY}; {SLEEP}"
        child = shell(script)
        await child.start()
        runs_again = asyncio.Event()

        def changed() -> None:
            changes.append(child.pid)
            if child.pid is not None:
                runs_again.set()

        supervisor = Supervisor(restarts=True, report=reports.append, on_change=changed)
        supervisor.watch(child)
        pids = []
        for _ in range(2):
            assert child.pid is not None
            pids.append(child.pid)
            runs_again.clear()
            child.signal(signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_S):
                await runs_again.wait()
        await supervisor.stop([child])
        return pids

    pids = asyncio.run(work())
    assert len(set(pids)) == 2
    assert not any(map(is_alive, pids))
    assert (tmp_path / "lives").read_text().split() == ["life"] * 4
    assert sum("ended with signal SIGKILL" in line for line in reports) == 2
    assert sum("ended with code 7 before it was ready" in line for line in reports) == 1
    assert sum("restarted" in line for line in reports) == 2
    assert [pid is None for pid in changes] == [True, False, True, False]
