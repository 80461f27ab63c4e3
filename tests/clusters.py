"""Several broker processes on one real etcd, or ZooKeeper."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock.cluster import keys
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.coordination.servers import KINDS, EtcdEnsemble

SESSION_S = 60.0
"""Longer than any pause of a busy machine: no session expires unless a test ends it with `lose`."""


class ClusterProcesses:
    """A store and the brokers that share it; any of them can be stopped, killed and started again."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        session_s: float = SESSION_S,
        has_racks: bool = False,
        kind: str = EtcdEnsemble.kind,
        environment: Mapping[str, str] | None = None,
        credentials: Path | None = None,
        listeners: Mapping[str, str] | None = None,
        prepare: Callable[[str], None] | None = None,
    ) -> None:
        """`has_racks`: broker N is in rack-N. `kind`: of the store. `environment`: of the brokers. `credentials`: a
        file of access keys. `listeners`: of each broker, see BrokerProcess. `prepare` is called with the URL of the
        store before the brokers start."""
        reason = KINDS[kind].why_not()
        if reason is not None:
            pytest.skip(reason)
        self._folder = folder
        self._settings = dict(settings or {})
        self._session_s = session_s
        self._has_racks = has_racks
        self._environment = environment
        self._listeners = listeners
        self._top = {} if credentials is None else {"credentials": str(credentials)}
        where = folder / "store"
        where.mkdir()
        self._ensemble = KINDS[kind](where)
        self.brokers: dict[int, BrokerProcess] = {}
        try:
            self._ensemble.start()
            if prepare is not None:
                prepare(self.store)
            for node_id in range(1, count + 1):
                self.add(node_id)
            self._wait_acquainted()
        except BaseException:
            self.kill()
            raise

    def _wait_acquainted(self) -> None:
        """Wait until all brokers know of each other: one that is ready is registered, and others hear of it soon."""
        count = len(self.brokers)
        for process in self.brokers.values():
            wait_until(lambda process=process: process.metric("penstock_brokers") == count, "brokers see each other")

    def add(self, node_id: int, environment: Mapping[str, str] | None = None) -> BrokerProcess:
        """Start one more broker. `environment`: its own, instead of that of the cluster."""
        folder = self._folder / f"broker-{node_id}"
        folder.mkdir()
        rack = {"broker.rack": f"rack-{node_id}"} if self._has_racks else {}
        process = BrokerProcess(
            folder,
            self._settings | rack,
            listeners=self._listeners,
            environment=self._environment if environment is None else environment,
        )
        # What is not a setting stands above the table of settings.
        config = folder / "penstock.toml"
        top = {"node_id": node_id, "store": self.store, "session_s": self._session_s} | self._top
        lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
        config.write_text("\n".join([*lines, config.read_text()]))
        self.brokers[node_id] = process.start()
        return process

    def lose(self, *node_ids: int) -> None:
        """Kills brokers, and ends their sessions at once instead of after `session_s`. Only with etcd."""
        assert isinstance(self._ensemble, EtcdEnsemble)
        for node_id in node_ids:
            self.brokers[node_id].kill()
        for node_id in node_ids:
            self._ensemble.revoke_lease_of(f"/penstock/{keys.BROKERS}/{node_id}")

    @property
    def store(self) -> str:
        """The address of the store that brokers share."""
        return self._ensemble.url("/penstock")

    @property
    def bootstrap(self) -> str:
        """Those that run."""
        return ",".join(process.kafka for process in self.brokers.values() if process.is_running)

    def fetched_bytes(self) -> dict[int, float]:
        """What each broker has sent so far in answer to fetches, those of followers too."""
        name = r'penstock_response_bytes_total\{api="fetch"\}'
        return {node_id: process.metric(name) for node_id, process in self.brokers.items()}

    def finish(self) -> None:
        """Stops all brokers properly; no log may show an unexpected error."""
        try:
            for process in self.brokers.values():
                process.finish()
        finally:
            self.kill()

    def kill(self) -> None:
        for process in self.brokers.values():
            if process.is_running:
                process.kill()
        self._ensemble.stop()
