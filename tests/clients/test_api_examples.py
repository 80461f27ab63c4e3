"""The examples of docs/delivery.md."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Connection
from tests.brokers import BrokerProcess

from .api_lab import connect
from .conftest import QUICK_GROUPS
from .waiting import PATIENCE_S, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
ENDLESS = re.compile(r"mq\.(subscribe|process|exactly_once)\((?!.*(idle_timeout_s|limit)=)", re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Where `orders` are what the examples take them for."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), QUICK_GROUPS).start()
    with connect(process.kafka) as mq:
        mq.publish("orders", {"id": 1}, key="42", tag="eu")
        mq.publish("orders", {"id": 2}, key="43")
    yield process
    process.finish()


class MessageSource:
    """What the examples do with their messages: `done` has it."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def names(self) -> dict[str, Any]:
        return dict.fromkeys(("charge", "send_mail", "invoice", "handle", "print"), self._do)

    def _do(self, *what: object) -> object:
        self.done.append(what)
        return {"done": len(self.done)}


def run(code: str, mq: Connection, servers: str) -> MessageSource:
    """Run an example; one without an end is ended when it has done something, as closing the connection does."""
    source = MessageSource()
    failures: list[Exception] = []
    names = {**source.names(), "mq": mq, "penstock": penstock}

    def work() -> None:
        try:
            exec(compile(code.replace("localhost:9092", servers), "example", "exec"), names)
        except penstock.Closed:
            pass  # what a loop publishes when its connection has just been closed
        except Exception as error:  # noqa: BLE001  # the test shows any of them
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    if ENDLESS.search(code):
        wait_until(lambda: source.done or failures, f"something is done by:\n{code}")
        names["mq"].close()
    worker.join(PATIENCE_S)
    assert not worker.is_alive(), code
    assert not failures, code
    return source


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.strip().splitlines()[-1].strip()[:40])
def test_an_example_of_the_page_does_what_it_says(
    broker: BrokerProcess, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with connect(broker.kafka) as mq:
        source = run(code.replace("loop.publish(", "print(1); loop.publish("), mq, broker.kafka)
    assert source.done or "transaction" in code
