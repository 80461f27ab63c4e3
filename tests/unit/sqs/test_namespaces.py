"""The internal names of queues of accounts and regions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.queues import Queue, QueueSettings
from penstock.sqs.namespaces import Namespace, is_region, owner_of
from penstock.sqs.queue_names import ACCOUNT

A, DEFAULT = "111122223333", "123456789012"


def queue(name: str, owner: str = ACCOUNT, *, is_fifo: bool = False) -> Queue:
    return Queue(name=name, topic_id=bytes(16), owner=owner, settings=QueueSettings(is_fifo=is_fifo))


@pytest.mark.parametrize(
    ("text", "owner"),
    [(A, A), (ACCOUNT, ACCOUNT), (DEFAULT, ACCOUNT), ("payments", ACCOUNT), ("", ACCOUNT), ("1" * 13, ACCOUNT)],
)
def test_an_owner_is_an_account_or_a_name_within_the_default_one(text: str, owner: str) -> None:
    assert owner_of(text, DEFAULT) == owner


@pytest.mark.parametrize(
    ("space", "full"),
    [
        (Namespace(ACCOUNT), "jobs"),
        (Namespace(A), "111122223333.jobs"),
        (Namespace(ACCOUNT, "eu-west-1"), "eu-west-1.jobs"),
        (Namespace(A, "eu-west-1"), "eu-west-1.111122223333.jobs"),
    ],
)
def test_a_full_name_has_region_and_account_in_front(space: Namespace, full: str) -> None:
    assert space.full("jobs") == full
    assert space.local(full) == "jobs"
    assert space.own_name(queue(full)) == "jobs"
    assert space.has(queue(full, space.owner), DEFAULT)
    for other in (Namespace(ACCOUNT), Namespace(A), Namespace(ACCOUNT, "eu-west-1"), Namespace(A, "eu-west-1")):
        assert other.has(queue(full, space.owner), DEFAULT) == (other == space)


def test_queues_of_before_have_no_account_in_front() -> None:
    before = queue("jobs", A)
    assert Namespace(A).has(before, DEFAULT)
    assert Namespace(A).own_name(before) == "jobs"
    assert not Namespace(ACCOUNT).has(before, DEFAULT)
    assert not Namespace(A, "eu-west-1").has(before, DEFAULT), "there was one region"


def test_a_fifo_queue_whose_name_is_an_account_is_one_of_the_default_account() -> None:
    fifo = queue(f"{A}.fifo", is_fifo=True)
    assert Namespace(ACCOUNT).own_name(fifo) == f"{A}.fifo"
    assert not Namespace(A).has(fifo, DEFAULT)
    plain = queue(f"{A}.fifo", A)
    assert Namespace(A).own_name(plain) == "fifo"
    assert Namespace(ACCOUNT).own_name(plain) == ""


NAMES = st.builds(
    lambda name, is_fifo: (name + ".fifo" if is_fifo else name, is_fifo),
    st.text("abcZ019_-", min_size=1, max_size=20) | st.just(A) | st.just("fifo"),
    st.booleans(),
)
SPACES = st.builds(Namespace, st.sampled_from([ACCOUNT, A, "444455556666"]), st.sampled_from(["", "eu-west-1"]))


@given(SPACES, SPACES, NAMES)
def test_no_queue_is_of_two_accounts(space: Namespace, other: Namespace, named: tuple[str, bool]) -> None:
    name, is_fifo = named
    made = queue(space.full(name), space.owner, is_fifo=is_fifo)
    assert space.has(made, DEFAULT)
    assert space.own_name(made) == name
    if other.owner != space.owner:
        assert not other.has(made, DEFAULT)


@pytest.mark.parametrize("text", ["", "EU", "1eu", "a.b", "a/b", "a" * 33, "123456789012"])
def test_an_invalid_region_is_not_accepted(text: str) -> None:
    assert not is_region(text)
