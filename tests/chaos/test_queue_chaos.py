"""Queues on three brokers, fifty workers, ten minutes of kills: every message is deleted once or a dead letter.

`RUN_S=60` makes a short run, `SEED=…` one that was seen before: its faults are the same, their moments nearly.
"""

import asyncio
import json
import os
import random
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from tests.clients.waiting import wait_until
from tests.sqs.queue_calls import attributes_of, counts, receive
from tests.sqs.test_cluster import retried
from tests.sqs_clients import JSON, sqs_client

from .cluster_broker import HTTP_PORT
from .cluster_faults import DRAWS, Faults, Nemesis
from .cluster_lab import Lab, lab, noting
from .queue_calls import Caller, NoAnswer, Refused, now_s
from .queue_checker import DeadLetter, Move, check, count
from .queue_clients import DEAD, LINE, MAX_RECEIVES, ONCE, STANDARD, QueueClients

RUN_S = float(os.environ.get("RUN_S", "600"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(2**32))))
CALM_EVERY = 10
"""Faults between two moments in which all must be well again."""
PATIENCE_S = 180.0
MOVES_S = 40.0
"""Between two tasks that move dead letters back, at most."""
OF_BROKERS = ("kill", "kill-controller", "restart", "pause")
QUEUES = (STANDARD, LINE, ONCE)
ATTRIBUTES = ["ApproximateReceiveCount", "DeadLetterQueueSourceArn"]
SETTINGS = {
    "group.share.session.timeout.ms": 10_000,
    "group.share.min.session.timeout.ms": 5_000,
    "group.share.heartbeat.interval.ms": 1_000,
    "group.share.min.heartbeat.interval.ms": 500,
}


class Front:
    """The queues as an operator sees them, when all is well."""

    def __init__(self, cluster: Lab) -> None:
        http = f"{cluster.brokers[1].address}:{HTTP_PORT}"
        self._sqs = sqs_client(http, JSON, cluster.folder, read_timeout=30)
        self._base = f"http://{http}/000000000000/"

    def create(self) -> str:
        """All queues; the ARN of the dead letters."""
        create = self._sqs.create_queue
        create(QueueName=DEAD)
        arn = attributes_of(self._sqs, self._base + DEAD, "QueueArn")["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES})
        create(QueueName=STANDARD, Attributes={"RedrivePolicy": policy, "PenstockPartitions": "6"})
        many = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        create(QueueName=LINE, Attributes={"FifoQueue": "true", "PenstockPartitions": "6", **many})
        create(QueueName=ONCE, Attributes={"FifoQueue": "true"})
        return arn

    def counts(self, queue: str) -> tuple[int, int, int]:
        """Available, in flight, delayed."""
        found: tuple[int, int, int] = retried(lambda: counts(self._sqs, self._base + queue))
        return found

    def left(self) -> dict[str, tuple[int, int, int]]:
        found = {queue: self.counts(queue) for queue in QUEUES}
        return {queue: left for queue, left in found.items() if left != (0, 0, 0)}

    def bury(self) -> list[DeadLetter]:
        """All dead letters, each in flight until the test is over. What is lost on its way, as when a partition's
        leader changes just then, comes back at once."""
        found: list[DeadLetter] = []
        seen: list[object] = [None]

        def are_all_in_flight() -> bool:
            found.extend(map(_dead_letter, self._receive()))
            seen[0] = len(found), self.counts(DEAD)
            return seen[0] == (len(found), (0, len(found), 0))

        wait_until(are_all_in_flight, "each of the dead letters is in flight, once", PATIENCE_S, seen=seen)
        return found

    def _receive(self) -> list[dict[str, Any]]:
        return receive(
            self._sqs, self._base + DEAD, 10, 2, VisibilityTimeout=43_200, MessageSystemAttributeNames=ATTRIBUTES
        )


def _dead_letter(message: dict[str, Any]) -> DeadLetter:
    attributes = message["Attributes"]
    return DeadLetter(
        queue=STANDARD,
        value=message["Body"],
        message_id=message["MessageId"],
        count=int(attributes["ApproximateReceiveCount"]) - 1,  # this delivery is one more
        source=attributes.get("DeadLetterQueueSourceArn", "").rpartition(":")[2],
    )


class Mover(threading.Thread):
    """Moves dead letters back, now and then, through whichever broker answers."""

    def __init__(self, cluster: Lab, arn: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._addresses = [f"{broker.address}:{HTTP_PORT}" for broker in cluster.brokers.values()]
        self._arn = arn
        self._rng = rng
        self._is_over = threading.Event()
        self.moves: list[Move] = []
        self.moved = 0

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        caller = Caller(self._addresses, self._rng)
        while not self._is_over.is_set():
            began_s = now_s()
            try:
                await caller.call("StartMessageMoveTask", DEAD, SourceArn=self._arn)
            except (NoAnswer, Refused):  # it may have begun even so
                await asyncio.sleep(0.5)
            self.moved += await self._outlast(caller)
            self.moves.append(Move(began_s=began_s, ended_s=now_s()))
            await asyncio.to_thread(self._is_over.wait, self._rng.uniform(5, MOVES_S))
        caller.hang_up()

    async def _outlast(self, caller: Caller) -> int:
        """Until no task runs; how many messages the last one has moved."""
        while True:
            try:
                tasks = (await caller.call("ListMessageMoveTasks", DEAD, SourceArn=self._arn))["Results"]
            except (NoAnswer, Refused):
                tasks = [{"Status": "RUNNING"}]  # as far as is known
            if not tasks or tasks[0]["Status"] != "RUNNING":
                return tasks[0].get("ApproximateNumberOfMessagesMoved", 0) if tasks else 0
            await asyncio.sleep(0.5)

    def close(self) -> None:
        self._is_over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a task that moves dead letters does not end"


def be_well(cluster: Lab, nemesis: Nemesis, clients: QueueClients) -> None:
    """With nothing wrong any more, everything is in sync, and messages are sent and delivered in every queue."""
    nemesis.rest_out()
    for broker in cluster.brokers.values():
        broker.wait_ready(PATIENCE_S)
    cluster.wait_whole(PATIENCE_S)
    clients.check()
    before = clients.counts()

    def flows() -> bool:
        cluster.tend()
        now = clients.counts()
        return all(now[key] > before[key] for name in QUEUES for key in (f"sent {name}", f"got {name}"))

    wait_until(flows, "messages are sent and delivered in every queue", PATIENCE_S, 0.5, seen=before)


def misfortune(cluster: Lab, clients: QueueClients, rng: random.Random) -> Nemesis:
    """One fault after another for so long, with moments of calm."""
    note = noting(cluster.folder / "faults.log")
    draws = {name: DRAWS[name] for name in OF_BROKERS} | clients.faults()
    nemesis = Nemesis(Faults(cluster, rng), note, draws=draws)
    be_well(cluster, nemesis, clients)
    until_s, number = time.monotonic() + RUN_S, 0
    while time.monotonic() < until_s:
        number += 1
        if number % CALM_EVERY == 0:
            note("calm")
            be_well(cluster, nemesis, clients)
        nemesis.step()
        nemesis.rest(rng.uniform(0.5, 4))
    note("the last calm")
    be_well(cluster, nemesis, clients)
    return nemesis


def finish(cluster: Lab, clients: QueueClients, front: Front) -> None:
    """Have all that was sent be worked off, and everybody end."""
    clients.sender.stop()
    left: list[object] = [None]

    def is_done() -> bool:
        cluster.tend()
        clients.check()
        left[0] = front.left()
        return not left[0]

    wait_until(is_done, "all is worked off", PATIENCE_S * 2, 1.0, seen=left)
    clients.stop_workers()


@pytest.mark.slow
@pytest.mark.timeout(max(3600, 3 * RUN_S))
def test_every_message_is_finished_once_or_a_dead_letter() -> None:
    print(f"SEED={SEED} RUN_S={RUN_S:g}")  # noqa: T201
    rng = random.Random(SEED)
    with lab("etcd", settings=SETTINGS) as cluster:
        (cluster.folder / "seed").write_text(f"SEED={SEED} RUN_S={RUN_S:g}\n")
        front = Front(cluster)
        arn = front.create()
        clients = QueueClients(cluster, str(SEED))
        try:
            mover = Mover(cluster, arn, random.Random(rng.random()))
            mover.start()
            with closing(mover):
                nemesis = misfortune(cluster, clients, rng)
            finish(cluster, clients, front)
            dead = front.bury()
            (cluster.folder / "end").write_text("\n".join(map(str, (*dead, *mover.moves))))
            history = clients.history(dead, mover.moves)
        finally:
            clients.clear()
        anomalies = check(history)
        assert not anomalies, f"{count(anomalies)}, for example {[str(found) for found in anomalies[:10]]}"
        assert front.left() == {}
        cluster.stop()
        cluster.check_logs()
        assert history.dead, "some have died"
        assert mover.moved > 0, "some were moved back"
        assert any(delivery.count > 1 for delivery in history.deliveries), "some were delivered again"
        print(f"{sum(nemesis.done.values())} faults: {dict(sorted(nemesis.done.items()))}")  # noqa: T201
        sums = f"{len(history.dead)} dead letters, {mover.moved} moved back, {clients.kills} processes killed"
        print(f"{dict(clients.counts())}, {sums}")  # noqa: T201
