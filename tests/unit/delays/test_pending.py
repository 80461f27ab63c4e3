"""Pending messages: the table with its sorted runs behaves as a plain list."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.delays.entries import Entry, Rank, hash_of
from penstock.delays.pending import Pending
from penstock.delays.run_storage import MemoryRunStorage
from tests.examples import examples

LAST = Rank(2**62, 2**62)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 40), min_size=1, max_size=6)),
        st.tuples(st.just("pop"), st.integers(0, 50), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 60)),
        st.tuples(st.just("page"), st.integers(-1, 40), st.integers(1, 8)),
        st.tuples(st.just("key"), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 50)),
        st.tuples(st.just("drop"), st.integers(0, 60)),
    ),
    max_size=40,
)


def _key(offset: int) -> bytes:
    return b"key-%d" % (offset % 4)


class _Model:
    """The same by sorting a list again and again."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def pop(self, due_ms: int, count: int) -> list[Entry]:
        due = [entry for entry in sorted(self.entries) if entry.due_ms <= due_ms][:count]
        self.entries = [entry for entry in self.entries if entry not in due]
        return due

    def live(self) -> list[Entry]:
        return [entry for entry in sorted(self.entries) if entry.is_live]


@given(steps=steps, run_entries=st.sampled_from([1, 3, 1000]))
@examples(200, deadline=None)
def test_messages_come_out_in_order_with_any_number_of_runs(steps: list, run_entries: int) -> None:
    pending, model = Pending(MemoryRunStorage(), run_entries), _Model()
    offset = 0
    for step in steps:
        match step:
            case ("add", dues):
                added = []
                for due_ms in dues:
                    added.append(Entry(due_ms, offset, 0, hash_of(_key(offset)), 1000 + offset))
                    offset += 1
                pending.add(b"".join(entry.pack() for entry in added))
                model.entries += added
            case ("pop", due_ms, count):
                assert pending.pop_to(Rank(due_ms, 2**62), count) == model.pop(due_ms, count)
            case ("release", due_ms):
                taken = pending.pop_to(Rank(due_ms, 2**62))
                pending.put_back(taken)
            case ("cancel", wanted):
                entry = next((one for one in model.entries if one.offset == wanted and one.is_live), None)
                assert pending.find(wanted) == entry
                assert pending.cancel(wanted) == (entry is not None)
                if entry is not None:
                    model.entries[model.entries.index(entry)] = entry.cancelled()
            case ("page", due_ms, count):
                expected = [one for one in model.live() if one.rank > Rank(due_ms, 20)][:count]
                assert pending.page(Rank(due_ms, 20), count) == expected
            case ("key", number):
                found = [entry for part in pending.with_hash(hash_of(b"key-%d" % number)) for entry in part]
                assert sorted(found) == [one for one in model.live() if one.offset % 4 == number]
            case ("drop", end):
                pending.drop_from(end)
                model.entries = [one for one in model.entries if one.offset < end]
        assert (pending.count, len(pending)) == (len(model.live()), len(model.entries))
        first = min(model.entries, default=None)
        assert pending.next_due_ms == (None if first is None else first.due_ms)
    assert pending.pop_to(LAST) == sorted(model.entries)


def test_a_shelf_is_as_empty_as_what_waits() -> None:
    storage = MemoryRunStorage()
    pending = Pending(storage, 10)
    pending.add(b"".join(Entry(due_ms, due_ms, 0, bytes(7), 0).pack() for due_ms in range(100)))
    assert len(storage._blocks) == 10
    pending.pop_to(Rank(54, 54))
    assert len(storage._blocks) == 5
    pending.pop_to(LAST)
    assert not storage._blocks
