"""The registry of a cluster: any broker answers, and ids keep their meaning when the leader is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clients.raw import RawClient
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

from .rest_client import Answer, RestClient, record

PATIENCE_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path)
    yield made
    made.finish()


def leader(cluster: ClusterProcesses) -> int:
    """The broker that leads the registry."""

    def find() -> int | None:
        running = next(process for process in cluster.brokers.values() if process.is_running)
        with RawClient(running.address) as raw:
            (found,) = raw.describe("_schemas").partitions
        is_there = found.leader_id in cluster.brokers and cluster.brokers[found.leader_id].is_running
        return int(found.leader_id) if is_there else None

    return int(wait_until(find, "the registry has a leader", timeout_s=PATIENCE_S) or 0)


def register_when_possible(rest: RestClient, subject: str, schema: str) -> Answer:
    """Registers a schema as soon as the registry has a leader again."""

    def register() -> Answer | None:
        answer = rest.register(subject, schema)
        return answer if answer.status == 200 else None

    found = wait_until(register, "the registry has another leader", timeout_s=PATIENCE_S)
    assert found is not None
    return found


def clients(cluster: ClusterProcesses) -> list[RestClient]:
    return [RestClient(process.http) for process in cluster.brokers.values() if process.is_running]


def test_every_broker_answers_and_knows_what_another_was_told(cluster: ClusterProcesses) -> None:
    first, second, third = clients(cluster)
    number = first.register("orders", record("id:long")).body["id"]
    for rest in (second, third, first):
        assert rest.get(f"/schemas/ids/{number}").status == 200
        assert rest.get("/subjects").body == ["orders"]
    assert second.put("/config/orders", {"compatibility": "NONE"}).status == 200
    assert third.register("orders", record("id:string")).body["version"] == 2
    assert third.register("orders", "nonsense").code == 42201


def test_one_schema_registered_everywhere_at_once_gets_one_id(cluster: ClusterProcesses) -> None:
    with ThreadPoolExecutor(12) as pool:
        jobs = [
            pool.submit(rest.register, f"subject-{number % 4}", record("id:long"))
            for number, rest in enumerate(4 * clients(cluster))
        ]
        answers = [job.result() for job in jobs]
    assert {answer.status for answer in answers} == {200}
    assert {(answer.body["id"], answer.body["version"]) for answer in answers} == {(1, 1)}


def test_ids_keep_their_meaning_when_the_leader_is_lost(cluster: ClusterProcesses) -> None:
    rest = clients(cluster)[0]
    known = {rest.register("orders-0", record("f0:long", name="R0")).body["id"]: "R0"}
    for round_ in range(1, 4):
        node = leader(cluster)
        cluster.lose(node)
        rest = clients(cluster)[0]
        answer = register_when_possible(rest, f"orders-{round_}", record(f"f{round_}:long", name=f"R{round_}"))
        assert answer.body["id"] not in known
        known[answer.body["id"]] = f"R{round_}"
        for number, name in known.items():
            assert f'"name":"{name}"' in rest.get(f"/schemas/ids/{number}").body["schema"]
        cluster.brokers[node].start()
