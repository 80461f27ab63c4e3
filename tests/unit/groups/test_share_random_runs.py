"""Random runs of a share group: in the end its members fetch from all partitions that they subscribe to."""

import random
import sys

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import DeleteDeliveryState, DeliveryStateDeleted
from penstock.groups.share.group import ShareGroup
from tests.simulation.group_machines import targets_in_pieces

from .coordinator_harness import GROUP
from .share_harness import ShareHarness

NAMES = ("a", "b", "c")
STEPS = 250
LIVES = 30


class Life:
    """Members that join, stay, leave and die, topics that come, grow and go, and a coordinator that is replaced."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = ShareHarness({"a": 3, "b": 1})
        self.epochs: dict[str, int] = {}
        """The epochs of clients that believe to be members."""

    def step(self) -> None:
        getattr(self, self.rng.choice(self._CHOICES))()
        group = self.world.machine.groups.get(GROUP)
        if isinstance(group, ShareGroup):
            assert group.state.target_epoch <= group.state.epoch
            for member in group.state.members.values():
                assert member.epoch <= group.state.target_epoch

    def _join(self) -> None:
        name = f"m{self.rng.randrange(8)}"
        topics = self.rng.sample(NAMES, self.rng.randint(1, len(NAMES)))
        answer = self.world.answer(name, 0, *topics)
        if not isinstance(answer, PenstockError):
            self.epochs[name] = answer.member_epoch
        else:
            assert answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE, answer

    def _beat(self) -> None:
        for name in self.rng.sample(sorted(self.epochs), len(self.epochs) // 2 + 1 if self.epochs else 0):
            self._hear(name)

    def _hear(self, name: str, *topics: str) -> None:
        answer = self.world.answer(name, self.epochs[name], *topics)
        if not isinstance(answer, PenstockError):
            self.epochs[name] = answer.member_epoch
        elif answer.code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # It was silent for too long, or what it heard last was never persisted.
            assert answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND), answer
            del self.epochs[name]

    def _subscribe(self) -> None:
        if self.epochs:
            name = self.rng.choice(sorted(self.epochs))
            self._hear(name, *self.rng.sample(NAMES, self.rng.randint(1, len(NAMES))))

    def _leave(self) -> None:
        if self.epochs:
            name = self.rng.choice(sorted(self.epochs))
            self.world.answer(name, -1)
            del self.epochs[name]

    def _die(self) -> None:
        if self.epochs:
            del self.epochs[self.rng.choice(sorted(self.epochs))]

    def _wait(self) -> None:
        self.world.advance(self.rng.choice((1000, 10_000, 46_000)))

    def _topics(self) -> None:
        name = self.rng.choice(NAMES)
        known = self.world.topics.get(name, 0)
        if self.rng.random() < 0.3 and name in self.world.topics:
            self.world.set_topics(**{name: None})
        else:
            self.world.set_topics(**{name: known + self.rng.randint(1, 3)})

    def _companions(self) -> None:
        self.world.bare = set(self.rng.sample(NAMES, self.rng.randint(0, 2)))
        self.world.look()

    def _drop(self) -> None:
        topics = frozenset(self.world.image.topics)
        self.world.command(DeleteDeliveryState(group_id=GROUP, topic_ids=topics))
        if self.rng.random() < 0.7:
            self._dropped()

    def _dropped(self) -> None:
        group = self.world.machine.groups.get(GROUP)
        if isinstance(group, ShareGroup):
            self.world.tell(
                DeliveryStateDeleted(group_id=GROUP, topic_ids=frozenset(group.state.delivery_topics.deleting))
            )

    def _restart(self) -> None:
        if self.rng.random() < 0.5:
            self.world.compact()
        self.world.restart()

    def _conditions(self) -> None:
        self.world.can_persist = not self.world.can_persist

    _CHOICES = (
        *("_join",) * 3,
        *("_beat",) * 8,
        *("_subscribe", "_leave", "_die", "_wait", "_topics", "_companions", "_drop", "_dropped", "_restart"),
        "_conditions",
    )

    def settle(self) -> None:
        """Without faults, all members send heartbeats until nothing changes any more."""
        world = self.world
        world.can_persist = True
        if world.bare:  # not else: what was overlooked before must be found without another image
            world.bare = set()
            world.look()
        self._dropped()
        for _ in range(60):
            world.advance(1000)
            for name in sorted(self.epochs):
                self._hear(name)
            if not self.epochs:  # not else: a join computes the target again
                self._join()

    def check(self) -> None:
        state = self.world.shared.state
        assert state.members.keys() == self.epochs.keys(), "those who are heard of, and no others"
        assert {member.epoch for member in state.members.values()} == {state.target_epoch} == {state.epoch}
        for name in NAMES:
            readers = {one for one, member in state.members.items() if name in member.topic_names}
            for number in range(self.world.topics.get(name, 0)):
                has = {one for one in state.members if number in self.world.assigned(one).get(name, ())}
                assert has <= readers
                assert bool(has) == bool(readers), f"{name}-{number} is fetched from by {has} of {readers}"
        delivering = {name for name, _ in state.delivery_topics.topics.values()}
        assert {name for one in state.members for name in self.world.assigned(one)} <= delivering
        assert not state.delivery_topics.deleting


@pytest.mark.parametrize("number", range(LIVES))
def test_a_group_becomes_stable_after_random_faults(number: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    sys.stdout.write(f"seed {seed}\n")
    with targets_in_pieces(number % 2 == 1):
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        life.settle()
        life.check()
        before = life.world.shared.describe()
        life.world.compact()
        life.world.restart()
        assert life.world.shared.describe() == before
