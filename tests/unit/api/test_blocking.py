"""Blocking calls without a timeout of their own: waited for with a limit, one at a time."""

import threading

import pytest

from penstock.api.core.blocking import BlockingCalls, CallTimedOut

SOON_S = 0.01
PATIENCE_S = 60.0


def test_a_call_returns_or_raises_what_its_work_does() -> None:
    calls = BlockingCalls()
    assert calls.run(lambda: 7, PATIENCE_S) == 7

    def fail() -> None:
        raise RuntimeError("the consumer is closed")

    with pytest.raises(RuntimeError, match="is closed"):
        calls.run(fail, PATIENCE_S)


def test_while_a_call_goes_on_no_other_is_begun_but_the_last() -> None:
    calls, go_on, done = BlockingCalls(), threading.Event(), threading.Event()
    with pytest.raises(CallTimedOut):
        calls.run(lambda: go_on.wait(PATIENCE_S), SOON_S)
    begun: list[str] = []
    with pytest.raises(CallTimedOut):
        calls.run(lambda: begun.append("second"), SOON_S)

    def close() -> None:
        begun.append("last")
        done.set()

    with pytest.raises(CallTimedOut):
        calls.run_last(close, SOON_S)
    assert begun == []
    go_on.set()
    assert done.wait(PATIENCE_S)
    assert begun == ["last"]


def test_where_no_thread_can_be_started_the_work_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of a process, from Python 3.12 on."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert BlockingCalls().run_last(lambda: 7, SOON_S) == 7
