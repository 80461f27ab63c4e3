"""`penstock serve` whose coordination service does not answer yet."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.brokers import START_S, BrokerProcess
from tests.clients.waiting import wait_until
from tests.coordination.servers import EtcdEnsemble


def test_a_broker_waits_for_a_store_that_starts_later(tmp_path: Path) -> None:
    """Containers of a cluster start in any order, and busy machines answer late."""
    reason = EtcdEnsemble.why_not()
    if reason is not None:
        pytest.skip(reason)
    for name in ("etcd", "broker"):
        (tmp_path / name).mkdir()
    etcd = EtcdEnsemble(tmp_path / "etcd")
    broker = BrokerProcess(tmp_path / "broker")
    config = tmp_path / "broker" / "penstock.toml"
    config.write_text(f"store = {json.dumps(etcd.url())}\n{config.read_text()}")
    try:
        with ThreadPoolExecutor(1) as thread:
            started = thread.submit(broker.start)
            wait_until(lambda: "store_unavailable" in broker.log, "the broker has tried once", START_S)
            etcd.start()
            started.result()
        broker.finish()
    finally:
        if broker.is_running:
            broker.kill()
        etcd.stop()
