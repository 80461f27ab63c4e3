"""Leadership of a partition: high watermark, in-sync replicas, and ISR changes with an unknown outcome."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.image import PartitionState
from penstock.replication.leadership import Leadership, LedLog, ProposedIsr

LEADER, A, B = 1, 2, 3
LAG_MS = 1000
EPOCHS = {A: 20, B: 30}


def state(*isr: int, version: int = 7, replicas: tuple[int, ...] = (LEADER, A, B)) -> PartitionState:
    return PartitionState(replicas=replicas, leader=LEADER, leader_epoch=4, isr=isr or replicas, version=version)


def leading(*isr: int, end: int = 10, mark: int = 0, logs: int = 1) -> Leadership:
    return Leadership(
        node_id=LEADER,
        state=state(*isr),
        logs=[LedLog(end=end, epoch_start=end, high_watermark=mark) for _ in range(logs)],
        lag_max_ms=LAG_MS,
        now_ms=0,
    )


def fetch(lead: Leadership, node: int, offset: int, now_ms: int = 0, log: int = 0) -> bool:
    return lead.fetched(node, EPOCHS[node], log, offset, now_ms)


def mark(lead: Leadership, log: int = 0) -> int:
    return lead.logs[log].high_watermark


# -- what is committed


def test_a_leader_alone_in_the_isr_commits_its_log_end() -> None:
    lead = leading(LEADER)
    assert mark(lead) == 10
    assert lead.appended(0, 12)
    assert mark(lead) == 12


def test_committed_is_what_all_in_the_isr_have() -> None:
    lead = leading()
    assert not fetch(lead, A, 10)
    assert mark(lead) == 0, "the other one has not been heard of"
    assert fetch(lead, B, 8)
    assert mark(lead) == 8
    assert fetch(lead, B, 10)
    assert not lead.appended(0, 15)
    assert mark(lead) == 10


def test_a_sync_that_ends_after_an_append_takes_nothing_back() -> None:
    lead = leading()
    lead.appended(0, 15)
    assert not lead.appended(0, 12)
    fetch(lead, A, 15)
    assert fetch(lead, B, 15)
    assert mark(lead) == 15


def test_replicas_outside_the_isr_do_not_delay_commits() -> None:
    lead = leading(LEADER, A)
    fetch(lead, B, 2)
    assert fetch(lead, A, 9)
    assert mark(lead) == 9


def test_it_never_goes_back() -> None:
    lead = leading()
    fetch(lead, A, 10)
    fetch(lead, B, 10)
    assert not fetch(lead, A, 3)
    assert mark(lead) == 10


def test_a_new_leader_knows_how_much_is_committed_only_when_its_own_epoch_is() -> None:
    lead = leading(mark=6)
    assert not lead.logs[0].is_settled
    fetch(lead, A, 10)
    fetch(lead, B, 9)
    assert not lead.logs[0].is_settled
    fetch(lead, B, 10)
    assert lead.logs[0].is_settled


def test_a_follower_of_an_older_life_is_not_believed() -> None:
    lead = leading(LEADER, A)
    lead.fetched(A, 21, 0, 5, 0)
    assert not lead.fetched(A, 20, 0, 10, 0)
    assert mark(lead) == 5


def test_a_follower_that_was_restarted_counts_by_what_it_shows_again() -> None:
    lead = leading(LEADER, A)
    lead.fetched(A, 20, 0, 10, 0)
    lead.appended(0, 20)
    lead.fetched(A, 21, 0, 4, 0)
    assert mark(lead) == 10
    lead.fetched(A, 21, 0, 20, 0)
    assert mark(lead) == 20


def test_strangers_do_not_count() -> None:
    lead = leading(LEADER, A)
    assert not lead.fetched(9, 90, 0, 10, 0)
    assert mark(lead) == 0


# -- the ISR shrinks


def test_a_replica_that_lags_for_too_long_leaves_the_isr() -> None:
    lead = leading()
    fetch(lead, A, 10, now_ms=1500)
    fetch(lead, B, 9, now_ms=1500)
    assert lead.propose_isr(1000, EPOCHS) is None
    proposed = lead.propose_isr(1001, EPOCHS)
    assert proposed == ProposedIsr(isr=(LEADER, A), version=7, joining={})


def test_a_replica_at_the_log_end_stays_in_sync_without_fetching() -> None:
    lead = leading()
    for node in (A, B):
        fetch(lead, node, 10)
    assert lead.propose_isr(10 * LAG_MS, EPOCHS) is None
    lead.appended(0, 11)
    proposed = lead.propose_isr(10 * LAG_MS, EPOCHS)
    assert proposed is not None
    assert proposed.isr == (LEADER,)


def test_an_offline_follower_leaves_the_isr_of_an_idle_partition() -> None:
    """It has everything, and nothing is written that it could lack; but it is not there to take over."""
    lead = leading()
    for node in (A, B):
        fetch(lead, node, 10, now_ms=0)
    online = {A: EPOCHS[A]}
    assert lead.propose_isr(LAG_MS, online) is None, "it has as long as one that lags"
    assert lead.propose_isr(LAG_MS + 1, online) == ProposedIsr(isr=(LEADER, A), version=7, joining={})
    assert lead.propose_isr(100 * LAG_MS, EPOCHS) is None, "one that is registered and silent lacks nothing"


def test_a_replica_that_reaches_the_log_end_of_its_last_fetch_keeps_up() -> None:
    """A follower under load never has everything; that it had what the leader had when it last asked will do."""
    lead = leading(LEADER, A, end=0)
    for moment in range(1, 100):
        lead.appended(0, moment * 10)
        fetch(lead, A, (moment - 1) * 10, now_ms=moment * 100)
        assert lead.propose_isr(moment * 100, EPOCHS) is None


def test_a_replica_that_is_slower_than_the_producers_leaves_the_isr() -> None:
    lead = leading(LEADER, A, end=0)
    gone_ms = None
    for moment in range(1, 100):
        lead.appended(0, moment * 10)
        fetch(lead, A, moment * 5, now_ms=moment * 100)
        if lead.propose_isr(moment * 100, EPOCHS) is not None:
            gone_ms = moment * 100
            break
    assert gone_ms is not None
    assert gone_ms > LAG_MS


def test_until_it_is_known_that_one_has_gone_it_counts() -> None:
    lead = leading()
    fetch(lead, A, 10)
    proposed = lead.propose_isr(LAG_MS + 1, EPOCHS)
    assert proposed is not None
    lead.isr_proposed(proposed)
    assert mark(lead) == 0
    lead.isr_decided(proposed, is_outdated=False)
    assert mark(lead) == 0
    lead.follow(state(LEADER, A, version=8), LAG_MS + 1)
    assert mark(lead) == 10


# -- the ISR grows


def test_a_replica_at_the_high_watermark_may_join_the_isr_with_its_current_broker_epoch() -> None:
    lead = leading(LEADER, A)
    fetch(lead, A, 10)
    fetch(lead, B, 9)
    assert lead.propose_isr(1, EPOCHS) is None
    fetch(lead, B, 10)
    assert lead.propose_isr(1, EPOCHS) == ProposedIsr(isr=(LEADER, A, B), version=7, joining={B: EPOCHS[B]})
    assert lead.propose_isr(1, {A: 20, B: 31}) is None, "it is registered anew since"
    assert lead.propose_isr(1, {A: 20}) is None, "it is gone"


def test_a_replica_may_not_join_the_isr_below_the_start_of_the_leader_epoch() -> None:
    """What was there before this epoch may be committed already, though this leader does not know it."""
    lead = leading(LEADER, A, mark=3)
    fetch(lead, B, 9)
    assert lead.propose_isr(1, EPOCHS) is None


def test_a_replica_that_is_joining_the_isr_counts_at_once() -> None:
    lead = leading(LEADER, A)
    fetch(lead, A, 10)
    fetch(lead, B, 10)
    proposed = lead.propose_isr(1, EPOCHS)
    assert proposed is not None
    lead.isr_proposed(proposed)
    lead.appended(0, 20)
    fetch(lead, A, 20)
    assert mark(lead) == 10, "it may be in the ISR, and elected, any moment"
    fetch(lead, B, 20)
    assert mark(lead) == 20


def test_an_isr_change_with_an_unknown_outcome_counts_until_the_next_write() -> None:
    lead = leading(LEADER, A)
    fetch(lead, A, 10)
    fetch(lead, B, 10)
    proposed = lead.propose_isr(1, EPOCHS)
    assert proposed is not None
    lead.isr_proposed(proposed)
    lead.isr_decided(proposed, is_outdated=False)
    lead.appended(0, 20)
    fetch(lead, A, 20)
    assert mark(lead) == 10
    lead.follow(state(LEADER, A, version=9), 2)
    assert mark(lead) == 20


def test_one_change_at_a_time_and_none_on_what_is_known_to_be_old() -> None:
    lead = leading()
    fetch(lead, A, 10)
    proposed = lead.propose_isr(LAG_MS + 1, EPOCHS)
    assert proposed is not None
    lead.isr_proposed(proposed)
    assert lead.propose_isr(LAG_MS + 2, EPOCHS) is None
    lead.isr_decided(proposed, is_outdated=True)
    assert lead.propose_isr(LAG_MS + 3, EPOCHS) is None
    lead.follow(state(version=8), LAG_MS + 4)
    again = lead.propose_isr(LAG_MS + 4, EPOCHS)
    assert again is not None
    assert again.version == 8


def test_if_only_the_one_that_was_to_join_is_gone_it_is_tried_again() -> None:
    lead = leading(LEADER, A)
    fetch(lead, B, 10)
    proposed = lead.propose_isr(1, EPOCHS)
    assert proposed is not None
    lead.isr_proposed(proposed)
    lead.isr_decided(proposed, is_outdated=False)
    lead.fetched(B, 31, 0, 10, 2)
    again = lead.propose_isr(3, {**EPOCHS, B: 31})
    assert again is not None
    assert again.joining == {B: 31}


# -- replicas come and go


def test_replicas_that_are_added_and_taken_away_are_followed() -> None:
    lead = leading(LEADER, A)
    lead.follow(replace(state(LEADER, A, version=8), replicas=(LEADER, A, B, 4)), 5)
    lead.fetched(4, 40, 0, 10, 5)
    fetch(lead, A, 10)
    proposed = lead.propose_isr(6, {**EPOCHS, 4: 40})
    assert proposed is not None
    assert proposed.isr == (LEADER, A, 4)
    lead.follow(replace(state(LEADER, A, version=9), replicas=(LEADER, A)), 7)
    assert lead.propose_isr(8, {**EPOCHS, 4: 40}) is None
    assert not lead.fetched(4, 40, 0, 10, 9)


# -- companions


def test_in_sync_means_in_all_logs() -> None:
    lead = leading(LEADER, A, logs=2)
    fetch(lead, A, 10)
    assert mark(lead) == 10
    assert mark(lead, 1) == 0
    fetch(lead, A, 10, log=1)
    fetch(lead, B, 10)
    assert lead.propose_isr(1, EPOCHS) is None
    fetch(lead, B, 10, log=1)
    proposed = lead.propose_isr(1, EPOCHS)
    assert proposed is not None
    lead.follow(state(version=8), 1)
    lead.appended(1, 11)
    fetch(lead, A, 11, LAG_MS * 5, log=1)
    gone = lead.propose_isr(LAG_MS * 5, EPOCHS)
    assert gone is not None
    assert gone.isr == (LEADER, A)


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "fetch", "state"]), st.sampled_from([A, B]), st.integers(0, 30)),
        max_size=60,
    )
)
def test_the_high_watermark_is_never_beyond_a_replica_of_the_isr(steps: list[tuple[str, int, int]]) -> None:
    lead, shown, end, last = leading(end=0), {A: -1, B: -1}, 0, 0
    isr, version = {LEADER, A, B}, 7
    for moment, (step, node, number) in enumerate(steps):
        before = mark(lead)
        if step == "append":
            end += number
            lead.appended(0, end)
        elif step == "fetch":
            shown[node] = min(number, end)
            fetch(lead, node, shown[node], moment)
        else:
            version += 1
            isr = isr ^ {node}
            lead.follow(state(*sorted(isr), version=version), moment)
        last = mark(lead)
        assert last >= before
        if last > before:
            assert last <= min([end, *(shown[member] for member in isr if member != LEADER)])
