"""Keys as ZooKeeper's nodes, and transactions as its multis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("kazoo", reason="kazoo is not installed: pip install 'penstock[zookeeper]'")

from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, RolledBackError
from kazoo.exceptions import RuntimeInconsistency as NotTried

from penstock.coordination.store import (
    ABSENT,
    Check,
    Conflict,
    Delete,
    Op,
    Put,
    StoreUnavailable,
    TransactionTooLarge,
)
from penstock.coordination.zookeeper_nodes import BUCKETS, TRANSACTION_BYTES_MAX, Nodes

ROOTS = ["", "/penstock", "/a/b"]


@pytest.mark.parametrize("root", ROOTS)
@given(key=st.text(min_size=1).filter(lambda key: key.isprintable() or key.isascii()))
def test_a_key_is_read_back_from_its_node(root: str, key: str) -> None:
    nodes = Nodes(root)
    path = nodes.path(key)
    assert nodes.key_at(path) == key
    assert path.startswith(f"{root}/")
    bucket, name = path[len(root) + 1 :].split("/")
    assert bucket in BUCKETS
    assert name not in (".", "..")
    assert name.isascii()
    assert name.isprintable()
    assert nodes.key(name) == key


@pytest.mark.parametrize("path", ["/", "/penstock", "/penstock/00", "/penstock/zz/a", "/penstocks/00/a", "/x/00/a"])
def test_other_nodes_have_no_key(path: str) -> None:
    assert Nodes("/penstock").key_at(path) is None


def test_a_root_has_parents() -> None:
    assert [Nodes(root).parents() for root in ROOTS] == [[], ["/penstock"], ["/a", "/a/b"]]


OPS: list[Op] = [Check("absent", ABSENT), Put("made", b"", ABSENT), Check("there", 3), Delete("gone", 1)]
"""In ZooKeeper that is five steps: that there is no node is checked by making it and removing it."""


@pytest.mark.parametrize(
    ("at", "error", "key"),
    [
        (0, NodeExistsError, "absent"),
        (2, NodeExistsError, "made"),
        (3, BadVersionError, "there"),
        (3, NoNodeError, "there"),
        (4, BadVersionError, "gone"),
    ],
)
def test_the_step_that_failed_tells_which_key_is_in_conflict(at: int, error: type[Exception], key: str) -> None:
    nodes = Nodes("/r")
    steps = len(nodes.transaction(OPS).operations)
    assert steps == 5
    results = [RolledBackError()] * at + [error()] + [NotTried()] * (steps - at - 1)
    with pytest.raises(Conflict) as conflict:
        nodes.raise_if_refused(OPS, results)
    assert conflict.value.key == key


@pytest.mark.parametrize(("at", "error"), [(2, NoNodeError), (3, NoAuthError)])
def test_other_errors_are_no_conflicts(at: int, error: type[Exception]) -> None:
    results = [RolledBackError()] * at + [error()] + [NotTried()] * (4 - at)
    with pytest.raises(StoreUnavailable):
        Nodes("/r").raise_if_refused(OPS, results)


def test_successful_results_are_no_conflicts() -> None:
    Nodes("/r").raise_if_refused(OPS, ["/r/00/absent", True, "/r/00/made", True, True])
    assert Nodes("/r").transaction(OPS).operations


def test_a_transaction_that_is_too_large_raises() -> None:
    nodes = Nodes("/r")
    nodes.transaction([Put("k", bytes(TRANSACTION_BYTES_MAX - 200), ABSENT)])
    with pytest.raises(TransactionTooLarge, match=r"1000000 bytes in one transaction, these 1 operations have 1\d+"):
        nodes.transaction([Put("k", bytes(TRANSACTION_BYTES_MAX), ABSENT)])


def test_a_version_that_no_node_can_have_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        Nodes("/r").transaction([Check("k", 2**31)])
