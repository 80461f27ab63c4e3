"""The image that follows the store, and changes that are decided again after a conflict."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster import keys
from penstock.cluster.image import SLICE_KEYS, ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.topic_changes import NewTopic, Step
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.store import ABSENT, Check, Op, Put, Store, Versioned, Watcher
from penstock.foundation.errors import TopicExists
from tests.unit.cluster.topic_plans import plan_create

from .images import DEFAULTS, Table


@asynccontextmanager
async def store_at(folder: Path) -> AsyncIterator[Store]:
    store = EmbeddedStore(folder / "metadata.db")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def followed(store: Store) -> Metadata:
    metadata = Metadata(store)
    await metadata.start()
    return metadata


def register(node_id: int) -> Op:
    return Put(keys.broker(node_id), keys.encode({"host": "h", "port": 1}), ABSENT)


def count_up(image: ClusterImage) -> list[Op]:
    """Adds one to a number in the cluster's settings."""
    key = keys.broker_config("")
    number = int(image.broker_configs.get("", {}).get("n", "0"))
    return [Put(key, keys.encode({"n": str(number + 1)}), image.versions.get(key, ABSENT))]


async def test_the_image_shows_what_was_there_and_what_is_changed(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.transact([register(1)])
        metadata = await followed(store)
        assert list(metadata.image.brokers) == [1]
        await metadata.change(lambda image: [register(2)])
        assert list(metadata.image.brokers) == [1, 2]


async def test_an_image_is_replaced_and_never_changed(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        before = metadata.image
        await metadata.change(lambda image: [register(1)])
        assert metadata.image is not before
        assert not before.brokers


async def test_listeners_get_every_image(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        images: list[ClusterImage] = []
        metadata.listeners.append(images.append)
        for node_id in (1, 2):
            await metadata.change(lambda image, node_id=node_id: [register(node_id)])
        assert [len(image.brokers) for image in images] == [1, 2]
        assert images[-1] is metadata.image


async def test_a_plan_without_writes_writes_nothing(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        before = metadata.image
        await metadata.change(lambda image: [])
        assert metadata.image is before


async def test_a_plan_that_only_checks_ends(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        async with asyncio.timeout(10):
            await metadata.change(lambda image: [Check(keys.broker(1), ABSENT)])
        assert not metadata.image.brokers


async def test_a_conflicting_change_is_decided_again_on_the_newer_image(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        one, other = await followed(store), await followed(store)
        async with asyncio.timeout(30):
            await asyncio.gather(*(metadata.change(count_up) for _ in range(15) for metadata in (one, other)))
        for metadata in (one, other):
            assert metadata.image.broker_configs[""] == {"n": "30"}
        assert one.image == other.image


async def test_an_outdated_plan_is_abandoned(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        one, other = await followed(store), await followed(store)
        await one.change(lambda image: [register(1)])

        def create(topic_id: bytes) -> object:
            return lambda image: plan_create(image, NewTopic(name="orders"), topic_id, DEFAULTS)

        outcomes = await asyncio.gather(
            *(
                metadata.change(create(bytes([number]) * 16))  # type: ignore[arg-type]
                for number, metadata in enumerate((one, other, one, other), start=1)
            ),
            return_exceptions=True,
        )
        assert sum(outcome is None for outcome in outcomes) == 1
        assert sum(isinstance(outcome, TopicExists) for outcome in outcomes) == 3
        assert list(one.image.topics) == list(other.image.topics)
        assert len(one.image.topics) == 1


async def test_a_change_has_reached_the_image_when_it_is_done(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)

        async def register_and_look(node_id: int) -> None:
            await metadata.change(lambda image: [register(node_id)])
            assert node_id in metadata.image.brokers

        await asyncio.gather(*(register_and_look(node_id) for node_id in range(20)))
        assert len(metadata.image.brokers) == 20


async def test_a_cancelled_change_leaves_a_correct_image(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        for number in range(20):
            changing = asyncio.create_task(metadata.change(count_up))
            for _ in range(number % 5):
                await store.get("k")
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
        async with asyncio.timeout(10):
            await metadata.change(count_up)
        found = await store.get(keys.broker_config(""))
        assert found is not None
        assert keys.decode(found.value) == metadata.image.broker_configs[""]


async def test_a_task_that_waits_for_an_image_is_woken_by_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        waiting = asyncio.create_task(metadata.until(lambda image: len(image.brokers) == 2))
        await metadata.change(lambda image: [register(1)])
        assert not waiting.done()
        await metadata.change(lambda image: [register(2)])
        async with asyncio.timeout(10):
            await waiting
            await metadata.until(lambda image: bool(image.brokers))


async def test_a_failing_listener_does_not_block_waiting_tasks(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        failures: list[Exception] = []
        metadata.on_failed = failures.append
        metadata.listeners.append(lambda image: image.brokers[99])  # type: ignore[arg-type, return-value]
        async with asyncio.timeout(10):
            await metadata.change(lambda image: [register(1)])
        assert list(metadata.image.brokers) == [1]
        assert [type(error) for error in failures] == [KeyError], "the failure is reported"


async def test_a_change_of_several_steps_goes_on_from_what_is_there(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)

        def next_step(image: ClusterImage) -> Step:
            missing = [node_id for node_id in range(5) if node_id not in image.brokers]
            return Step(ops=(register(missing[0]),), is_last=len(missing) == 1)

        async with asyncio.timeout(10):
            await metadata.execute_steps(next_step)
        assert list(metadata.image.brokers) == [0, 1, 2, 3, 4]


async def test_background_changes_end_with_the_broker(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        metadata = await followed(store)
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        metadata.spawn(work())
        await asyncio.sleep(0)
        await metadata.close()
        assert ended.is_set()


async def test_numbers_are_reserved_for_one_alone(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        one, other = await followed(store), await followed(store)
        firsts = await asyncio.gather(
            *(metadata.reserve(keys.PRODUCER_IDS, 100) for _ in range(10) for metadata in (one, other))
        )
        assert sorted(firsts) == list(range(0, 2000, 100))
    async with store_at(tmp_path) as store:
        assert await (await followed(store)).reserve(keys.PRODUCER_IDS, 1) == 2000


# -- a store that tells its watchers later, as those of several machines do


class LateStore:
    """Changes are made at once; watchers get all of them together when the test delivers them."""

    def __init__(self) -> None:
        self._table = Table()
        self._watchers: list[Watcher] = []

    async def get(self, key: str) -> Versioned | None:
        return self._table.states.get(key)

    async def transact(self, ops: Sequence[Op]) -> int:
        return self._table.transact(ops).revision

    def add(self, op: Op) -> None:
        self._table.transact([op])

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        watcher(self._table.snapshot())
        self._watchers.append(watcher)

    async def close(self) -> None:
        self._watchers.clear()

    def tell(self) -> None:
        for watcher in self._watchers:
            watcher(self._table.snapshot())


async def test_a_change_is_done_when_the_image_shows_it_and_not_before() -> None:
    store = LateStore()
    metadata = await followed(store)
    changing = asyncio.create_task(metadata.change(lambda image: [register(1)]))
    await asyncio.sleep(0)
    assert await store.get(keys.broker(1)) is not None
    assert not changing.done()
    store.tell()
    await changing
    assert list(metadata.image.brokers) == [1]


async def test_a_late_change_waits_for_the_image_that_it_conflicted_with() -> None:
    store = LateStore()
    metadata = await followed(store)
    await store.transact(count_up(ClusterImage()))
    changing = asyncio.create_task(metadata.change(count_up))
    await asyncio.sleep(0)
    assert not changing.done()
    store.tell()
    await asyncio.sleep(0)
    store.tell()
    await changing
    assert metadata.image.broker_configs[""] == {"n": "2"}


async def test_waiting_tasks_are_woken_when_their_revision_is_published() -> None:
    store = LateStore()
    metadata = await followed(store)
    first = asyncio.create_task(metadata.change(lambda image: [register(1)]))
    gone = asyncio.create_task(metadata.change(lambda image: [register(2)]))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    store.tell()
    await first
    assert list(metadata.image.brokers) == [1, 2]


async def test_changes_that_come_together_have_an_iteration_of_the_loop_each() -> None:
    """Each has listeners do milliseconds of work: together they would hold the loop."""
    store = LateStore()
    metadata = await followed(store)
    shown: list[tuple[int, int]] = []
    iterations = 0

    def count() -> None:
        nonlocal iterations
        iterations += 1
        if len(shown) < 20:
            asyncio.get_running_loop().call_soon(count)

    metadata.listeners.append(lambda image: shown.append((iterations, len(image.brokers))))
    for node_id in range(20):
        await store.transact([register(node_id)])
        store.tell()
    count()
    async with asyncio.timeout(30):
        await metadata.until(lambda image: len(image.brokers) == 20)
    at, brokers = zip(*shown, strict=True)
    assert brokers == tuple(range(1, 21)), "in their order"
    assert len(set(at)) == 20, "one in each iteration"


@pytest.mark.parametrize("delay", range(6))
async def test_a_change_that_comes_when_a_large_one_is_done_is_not_lost(delay: int) -> None:
    """At any iteration of the loop after the large one was published."""
    store = LateStore()
    metadata = await followed(store)
    came: list[ClusterImage] = []

    def come(left: int) -> None:
        if left:
            asyncio.get_running_loop().call_soon(come, left - 1)
            return
        store.tell()

    def on_shown(image: ClusterImage) -> None:
        came.append(image)
        if len(came) == 1:
            store.add(register(0))
            come(delay)

    for node_id in range(1, SLICE_KEYS + 2):
        await store.transact([register(node_id)])
    metadata.listeners.append(on_shown)
    store.tell()
    async with asyncio.timeout(30):
        await metadata.until(lambda image: 0 in image.brokers)


@pytest.mark.parametrize("topic_id", [bytes(16), bytes(range(16)), b"\xff" * 16])
def test_keys_name_topics_by_ids_that_are_read_back(topic_id: bytes) -> None:
    room, _, rest = keys.topic(topic_id).partition("/")
    assert room == keys.TOPICS
    assert keys.topic_id_of(rest) == topic_id
    room, name, number = keys.partition(topic_id, 12).split("/")
    assert (room, keys.topic_id_of(name), number) == (keys.PARTITIONS, topic_id, "12")
