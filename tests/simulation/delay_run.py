"""One seeded run of a partition with delayed messages on three brokers that die, lose power, and change leaders.

What is real: partitions and their companions on a disk that tears writes, replication by Fetch, truncation, ISR, the
machine and everything that runs it, admission, what consumers are shown, compaction and retention. Each run has one
way to flush. With flush=group all brokers may lose power, also at once. With flush=os a broker that has lost power
leaves the ISR before it counts, unless it is the last one with all committed records.
After every step:
- NeverEarly: nothing is in the topic, committed, before its time by the clock on the wall;
- CancelledNeverDelivered: a message whose cancellation was acknowledged is not delivered;
- DeliveredOnceWhenDue: nothing is shown twice, nor what was aborted; a delayed record itself is never shown;
  deliveries are in the order of their ranks. Once nothing goes wrong any more, all that was acknowledged is shown;
- AllInSync: and all brokers are in the ISR again.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import inf as INFINITY  # noqa: N812
from random import Random

from penstock.broker.delays.partition import DelayPartition
from penstock.cluster.elections import without_data
from penstock.cluster.partition_state import PartitionState
from penstock.delays.entries import BEFORE_ALL, Rank
from penstock.foundation.delays import DELAY_HEADERS, DELAYED_FROM, DUE_AT
from penstock.foundation.errors import PenstockError
from penstock.log.log import Log
from penstock.records.batch import batches
from penstock.records.build import Record, read_records
from penstock.replication.partition import Partition
from tests.simulation.clock import FakeClock
from tests.simulation.delay_bugs import FLUSHES, HastyPartition, plant_bug
from tests.simulation.delay_clients import Canceller, Client, Sent
from tests.simulation.delay_node import LAG_MS, DelayNode
from tests.simulation.disk import Killed

NODES = (1, 2, 3)
FETCH_MS = 15
CALM_MS = 45_000
FAULTS_MIN = 12
FAULTS = {"kill": 3, "torn": 4, "power": 3, "cut": 4, "election": 5, "jump": 2, "compact": 5, "trim": 3}
"""With how often each happens, compared with the others."""


class DelayRun:
    def __init__(self, seed: int, steps: int, bug: str = "") -> None:
        self.rng = Random(seed)
        self._steps = steps
        self._bug = bug
        self.clock = FakeClock()
        self.counts: Counter[str] = Counter()
        self.sent: dict[int, Sent] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.loss = self.rng.choice((0.0, 0.05, 0.2))
        self._pace_ms = self.rng.choice((100, 250, 600))
        self._is_calm = False
        self.flush = FLUSHES.get(bug) or self.rng.choice(("group", "os"))
        self.new_partition = HastyPartition if bug == "acknowledges before the sync" else Partition
        self.nodes = {number: DelayNode(number, self, Random(self.rng.random())) for number in NODES}
        self._clients = [
            Client(number, self, Random(self.rng.random()), transactional=number == 0) for number in range(3)
        ]
        self._canceller = Canceller(self, Random(self.rng.random()))
        self._shown: dict[int, int] = {}
        """At which offset each message was shown."""
        self._set_by: list[tuple[float, int]] = []
        """Until when the clock on the wall was ahead by how much."""
        self._read_to = 0
        self._last_rank = BEFORE_ALL
        for node in self.nodes.values():
            node.start()
        self.state = PartitionState(
            replicas=NODES,
            leader=1,
            leader_epoch=0,
            isr=NODES,
            leader_broker_epoch=self.nodes[1].epoch,
            version=1,
        )
        for node in self.nodes.values():
            self._tell(node, 0)
            self._at(self.rng.random() * FETCH_MS, lambda node=node: self._fetch(node))
        for client in self._clients:
            self._repeat(40, client.step)
        self._repeat(150, self._canceller.step)
        self._repeat(50, self._keep_isr)
        self._repeat(30, self._read)

    @property
    def faults(self) -> int:
        return sum(self.counts[name] for name in FAULTS)

    # -- the world

    def _at(self, ms: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.steady_ms() + ms, next(self._numbers), action))

    def _repeat(self, ms: int, action: Callable[[], None]) -> None:
        def run() -> None:
            self._at(self.rng.randint(1, 2 * ms), run)
            action()

        self._at(self.rng.randint(1, ms), run)

    def later(self, node: DelayNode, ms: float, action: Callable[[], None]) -> Callable[[], None]:
        epoch, is_set = node.epoch, True

        def run() -> None:
            if is_set and node.epoch == epoch:
                self.on(node, action)

        def cancel() -> None:
            nonlocal is_set
            is_set = False

        self._at(max(0.0, ms), run)
        return cancel

    def on(self, node: DelayNode, action: Callable[[], None]) -> None:
        if node.is_up:
            try:
                action()
            except Killed:
                self.counts["torn_writes"] += 1
                self._die(node)

    def is_lost(self) -> bool:
        return not self._is_calm and self.rng.random() < self.loss

    def leader(self) -> DelayNode | None:
        """Mostly the leader; sometimes a broker that believes to be the leader."""
        if not self._is_calm and self.rng.random() < 0.2:
            believing = [node for node in self.nodes.values() if node.is_up and node.partition.is_leader]
            return self.rng.choice(believing) if believing else None
        node = self.nodes.get(self.state.leader)
        return node if node is not None and node.is_up and not node.is_cut else None

    # -- leading and following

    def _tell(self, node: DelayNode, ms: float) -> None:
        def tell() -> None:
            if node.is_up and not node.is_cut:
                self.on(node, lambda: node.hear(self.state))

        self._at(ms, tell)

    def _change(self, state: PartitionState) -> None:
        self.state = replace(state, version=self.state.version + 1)
        for node in self.nodes.values():
            self._tell(node, 0 if node.node_id == state.leader else self.rng.choice((1, 30, 400)))

    def _elect(self, *, other: bool) -> bool:
        able = [
            number
            for number in self.state.isr
            if self.nodes[number].is_up
            and not self.nodes[number].is_cut
            and not (other and number == self.state.leader)
        ]
        if not able:
            return False
        leader = self.rng.choice(able)
        self._change(
            replace(
                self.state,
                leader=leader,
                leader_epoch=self.state.leader_epoch + 1,
                leader_broker_epoch=self.nodes[leader].epoch,
            )
        )
        self.counts["elections"] += 1
        return True

    def _keep_isr(self) -> None:
        """Maintains ISRs as every leader does, and elects leaders for partitions without one."""
        leader = self.nodes.get(self.state.leader)
        if leader is None or not leader.is_up or leader.is_cut or leader.epoch != self.state.leader_broker_epoch:
            self._elect(other=False)
        brokers = {number: node.epoch for number, node in self.nodes.items() if node.is_up and not node.is_cut}
        for node in self.nodes.values():
            lead = node.partition.leadership if node.is_up and not node.is_cut else None
            proposed = lead.propose_isr(self.clock.steady_ms(), brokers) if lead is not None else None
            if lead is None or proposed is None:
                continue
            lead.isr_proposed(proposed)
            is_current = proposed.version == self.state.version and self.state.leader == node.node_id
            joins = all(brokers.get(number) == epoch for number, epoch in proposed.joining.items())
            if is_current and joins:
                self.counts["isr_changes"] += 1
                self._change(replace(self.state, isr=proposed.isr))
            lead.isr_decided(proposed, is_outdated=not is_current)

    def _fetch(self, node: DelayNode) -> None:
        self._at(self.rng.randint(1, 2 * FETCH_MS), lambda: self._fetch(node))
        leader = self.nodes.get(node.leader)
        if not node.is_up or node.is_cut or leader is None or leader is node or node.is_asking:
            return
        request = node.request()
        if request is None or not leader.is_up or leader.is_cut or self.is_lost():
            return
        epoch = node.epoch
        node.is_asking = True

        def serve() -> None:
            response = leader.serve(request)
            is_lost = self.is_lost()
            self._at(self.rng.choice((0, 1, 10)), lambda: take(None if is_lost else response))

        def take(response: object) -> None:
            node.is_asking = False
            if (
                response is not None
                and node.is_up
                and not node.is_cut
                and node.epoch == epoch
                and node.leader == leader.node_id
            ):
                self.on(node, lambda: node.link.apply(response, self.clock.steady_ms()))  # type: ignore[arg-type]

        self.on(leader, serve)
        if not leader.is_up:
            node.is_asking = False

    # -- faults

    def _die(self, node: DelayNode) -> None:
        node.stop()
        self._at(self.rng.choice((50, 500, 2500)), lambda: self._revive(node))

    def _revive(self, node: DelayNode) -> None:
        if not node.is_up:
            node.disk.restart()
            node.start()
            if node.may_lack and self._bug != "counts on a node that lost power":
                state = without_data(self.state, node.node_id)
                if state is not self.state:
                    self.counts["isrs_left"] += 1
                    self._change(state)
            node.report_loss()
            if self.state.leader == node.node_id:
                self._elect(other=False)
            self._tell(node, 1)

    def _lose_power(self, node: DelayNode) -> None:
        """One machine stops, or all at once, if what is committed survives that."""
        nodes = [node]
        if self.flush == "group" and self.rng.random() < 0.4:
            nodes = list(self.nodes.values())
        doubtful = {one.node_id for one in self.nodes.values() if one.is_doubtful} | {node.node_id}
        if self.flush == "os" and doubtful.issuperset(self.state.isr):
            return
        self.counts["power_losses"] += len(nodes)
        for one in nodes:
            one.lose_power()
            self._at(self.rng.choice((50, 500, 2500)), lambda one=one: self._revive(one))

    def _fault(self) -> None:
        (name,) = self.rng.choices(list(FAULTS), list(FAULTS.values()))
        up = [node for node in self.nodes.values() if node.is_up and not node.is_cut]
        node = self.rng.choice(up) if up else None
        if self.rng.random() < 0.6 and self.nodes.get(self.state.leader) in up:
            node = self.nodes[self.state.leader]
        if node is None:
            return
        self.counts[name] += 1
        if name == "kill":
            self._die(node)
        elif name == "power":
            self._lose_power(node)
        elif name == "torn":
            node.disk.die_after(self.rng.randint(1, 30))
        elif name == "cut":
            node.is_cut = True
            self._at(self.rng.choice((300, LAG_MS * 2, 4000)), lambda: self._heal(node))
        elif name == "election":
            self._elect(other=True)
        elif name == "jump":
            self._set_clock(self.rng.choice((-20_000, -500, 0, 0, 500, 20_000)))
        elif name == "compact":
            self.on(node, lambda: node.compact(lambda gone: self._count("compacted", gone)))
        else:
            # Retention is longer than producers try: what was trimmed is not sent again (docs/delivery.md).
            free_to = min(self._read_to, *(client.needs_from for client in self._clients))
            self.on(node, lambda: self._count("trimmed", node.trim(int(free_to))))

    def _set_clock(self, by_ms: int) -> None:
        self._set_by.append((self.clock.steady_ms(), self.clock.now_ms() - self.clock.steady_ms()))
        self.clock.set_by(by_ms)

    def _heal(self, node: DelayNode) -> None:
        if node.is_cut:
            node.is_cut = False
            self._tell(node, self.rng.choice((0, 100)))

    def _count(self, name: str, number: int) -> None:
        self.counts[name] += number

    # -- running

    def run(self) -> None:
        self._at(self._pace_ms, self._next_fault)
        while self.counts["steps"] < self._steps or self.faults < FAULTS_MIN:
            self._step()
        self._calm_down()
        end_ms = self.clock.steady_ms() + CALM_MS
        while self.clock.steady_ms() < end_ms and not self._is_done():
            self._step()
        missing = [one.uid for one in self.sent.values() if self._is_missing(one)]
        assert not missing, f"DeliveredOnceWhenDue: {missing} are not there, {self._about(missing[0])}"
        assert len(self.state.isr) == len(NODES), f"AllInSync: {self.state} with {dict(self.counts)}"

    def _next_fault(self) -> None:
        if not self._is_calm:
            self._at(self.rng.randint(1, 2 * self._pace_ms), self._next_fault)
            self._fault()

    def _step(self) -> None:
        self.counts["steps"] += 1
        at_ms, _, action = heapq.heappop(self._events)
        self.clock.advance(max(0, int(at_ms) - self.clock.steady_ms()))
        action()

    def _calm_down(self) -> None:
        self._is_calm = True
        self._set_clock(0)
        for client in self._clients:
            client.is_resting = True
        for node in self.nodes.values():
            node.disk.disarm()
            node.is_cut = False
            self._tell(node, 0)

    def _is_missing(self, sent: Sent) -> bool:
        return sent.is_acked and not sent.cancel_unknown and sent.uid not in self._shown

    def _is_done(self) -> bool:
        return (
            all(client.is_idle for client in self._clients)
            and not any(self._is_missing(sent) for sent in self.sent.values())
            and all(node.is_up for node in self.nodes.values())
            and (leader := self.nodes.get(self.state.leader)) is not None
            and (hosted := leader.hosted) is not None
            and not hosted.machine.pending_count
            and len(self.state.isr) == len(NODES)
        )

    def _about(self, uid: int) -> str:
        return f"{self.sent[uid]} with {dict(self.counts)}"

    # -- what consumers see

    def _read(self) -> None:
        """As a consumer of committed records does: at the leader, or at a follower that has as much."""
        node = self.rng.choice(list(self.nodes.values()))
        if not node.is_online or node.partition.leader_epoch < 0 or node.is_cut:
            return
        if node.partition.is_leader and node.node_id != self.state.leader:
            return  # clients learn from others that this is not the leader
        log = node.partition.log
        self._read_to = max(self._read_to, log.start_offset if node.node_id == self.state.leader else 0)
        if not log.start_offset <= self._read_to < node.partition.high_watermark:
            return
        with node.disk.looked_at():
            try:
                seen = node.visibility.read(self._read_to, 1 << 20, blocking=True, force=True, stable=True)
            except PenstockError:
                return
            aborted = [] if seen.is_changed else self._aborted(log, seen.records)
        for at, header in batches(seen.records):
            batch = memoryview(seen.records)[at : at + header.size_bytes]
            is_aborted = header.is_transactional and any(
                producer == header.producer_id and first <= header.base_offset <= last
                for producer, first, last in aborted
            )
            if not header.is_control and not is_aborted:
                for record in read_records(batch):
                    if record.offset >= self._read_to:
                        self._on_shown(record)
            self._read_to = max(self._read_to, header.next_offset)

    def _aborted(self, log: Log, records: object) -> list[tuple[int, int, int]]:
        end = self._read_to
        for _, header in batches(records):  # type: ignore[arg-type]
            end = header.next_offset
        return [
            (one.producer_id, one.first_offset, one.last_offset) for one in log.aborted_between(self._read_to, end)
        ]

    def _on_shown(self, record: Record) -> None:
        uid = int(record.value or b"-1")
        sent, headers = self.sent[uid], dict(record.headers)
        self.counts["shown"] += 1
        assert uid not in self._shown, f"DeliveredOnceWhenDue: twice, {self._about(uid)}"
        assert not sent.is_aborted, f"DeliveredOnceWhenDue: aborted, {self._about(uid)}"
        assert not set(headers) & set(DELAY_HEADERS), f"DeliveredOnceWhenDue: shown itself, {self._about(uid)}"
        self._shown[uid] = record.offset
        if not sent.is_delayed:
            return
        self.counts["delivered"] += 1
        assert not sent.is_cancelled, f"CancelledNeverDelivered: {self._about(uid)}"
        came_from = (headers[DELAYED_FROM] or b"").rpartition(b"/")[2]
        rank = Rank(int(headers[DUE_AT] or b""), int(came_from))
        is_behind = rank > self._last_rank or self.counts["jump"]  # setting the clock back starts again
        assert is_behind, f"DeliveredOnceWhenDue: {rank} after {self._last_rank}, {self._about(uid)}"
        self._last_rank = rank
        self._check_time(sent, record.timestamp_ms)

    def _check_time(self, sent: Sent, delivered_ms: int) -> None:
        """`delivered_ms`: by the clock on the wall, when it was appended."""
        if sent.deliver_at_ms is not None:
            assert delivered_ms >= sent.deliver_at_ms, f"NeverEarly: at {delivered_ms}, {self._about(sent.uid)}"
        else:
            assert sent.taken_in is not None
            assert sent.delay_ms is not None
            # The clock may have been set between when it was taken in and when its time was noted.
            taken_in_ms = sent.taken_in + min(
                by_ms
                for until_ms, by_ms in (*self._set_by, (INFINITY, self.clock.now_ms() - self.clock.steady_ms()))
                if until_ms >= sent.taken_in
            )
            assert delivered_ms >= taken_in_ms + sent.delay_ms, (
                f"NeverEarly: at {delivered_ms}, {self._about(sent.uid)}"
            )

    def plant(self, hosted: DelayPartition) -> None:
        plant_bug(self._bug, hosted)
