"""The Python examples of docs/queues.md, run in order."""

import ast
import asyncio
import inspect
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
from .waiting import PATIENCE_S, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "queues.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
ENDLESS = re.compile(r"\.work\((?!.*(idle_timeout_s|limit)=)", re.DOTALL)


@pytest.fixture(scope="module")
def mq(broker: BrokerProcess) -> Iterator[Connection]:
    """Where the queues are that the page takes for granted."""
    with connect(broker.kafka) as connection:
        connection.create_queue("jobs")
        yield connection


def run(code: str, names: dict[str, Any]) -> None:
    compiled = compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    given = eval(compiled, names)
    if inspect.iscoroutine(given):
        asyncio.run(given)


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.strip().splitlines()[-1].strip()[:40])
def test_an_example_of_the_page_does_what_it_says(broker: BrokerProcess, mq: Connection, code: str) -> None:
    done: list[object] = []
    names: dict[str, Any] = {"mq": mq, "penstock": penstock}
    names |= dict.fromkeys(("handle", "send_mail", "charge", "print"), done.append)
    code = code.replace("localhost:9092", broker.kafka)
    if ENDLESS.search(code):  # ended when it has done something
        is_async = "async for" in code
        code += "        break\n" if is_async else "    break\n"
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run(code, names)
        except Exception as error:  # noqa: BLE001  # the test shows any of them
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join(2 * PATIENCE_S)
    assert not worker.is_alive(), code
    assert not failures, code
    if "work(" in code or "receive(" in code or "print(" in code:
        assert done, code
    if names["mq"] is not mq and isinstance(names["mq"], Connection):
        names["mq"].close()
    wait_until(lambda: mq.queue("jobs").counts().in_flight == 0, "nothing is in flight any more")
