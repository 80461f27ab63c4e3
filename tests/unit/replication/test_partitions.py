"""All partitions of a broker follow the image: created, grown, changed, deleted, lost and found."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster import keys
from penstock.cluster.elections import RESERVED_OFFSETS, with_new_offsets
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import ABSENT, Put
from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.disk import OsDisk
from penstock.log.folder import LogFolder

from ..log.builders import NOW_MS, FullDisk, SyncedDisk, batch, sent, values_in
from .broker_state import world_at


def folder_of(tmp_path: Path, topic_id: bytes, name: str = "orders", number: int = 0) -> Path:
    return tmp_path / LogFolder.path(TopicPartition(name, number), topic_id)


def new_epochs(image: ClusterImage) -> list[Put]:
    """What a broker that was restarted is elected with: new epochs, and new offsets in memory."""
    return [
        Put(
            keys.partition(*place),
            with_new_offsets(replace(state, leader_epoch=state.leader_epoch + 1)).dump(),
            state.version,
        )
        for place, state in image.find_partitions()
    ]


async def test_a_topic_that_is_made_is_opened(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", partitions=3)
        assert [partition.name.partition for partition in world.partitions] == [0, 1, 2]
        one = world.partition("orders", 2)
        assert world.partitions.by_id[topic_id][2] is one
        assert world.partitions.find("orders", 3) is None
        assert world.partitions.find("others", 0) is None
        assert one.append(batch(b"x"), NOW_MS).base_offset == 0
        assert folder_of(tmp_path, topic_id, number=2).is_dir()


async def test_records_survive_a_restart(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        world.partition("orders").append(sent(7, 0, b"kept"), NOW_MS)
    async with world_at(tmp_path) as world:
        one = world.partition("orders")
        assert values_in(one.log) == [b"kept"]
        assert one.high_watermark == 1
        assert one.append(sent(7, 0, b"kept"), NOW_MS).repeated


async def test_partitions_that_others_lead_are_not_opened(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("mine")
        state = replace(world.metadata.image.topics[topic_id].partitions[0], leader=2, replicas=(2,), isr=(2,))
        elsewhere = b"\x77" * 16
        await world.metadata.change(
            lambda image: [
                Put(keys.topic(elsewhere), keys.encode({"name": "elsewhere", "configs": {}}), ABSENT),
                Put(keys.partition(elsewhere, 0), state.dump(), ABSENT),
            ]
        )
        assert {partition.name.topic for partition in world.partitions} == {"mine"}


async def test_a_topic_that_is_deleted_is_closed_and_its_files_are_gone(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", partitions=2)
        one = world.partition("orders")
        one.append(batch(b"x"), NOW_MS)
        called: list[str] = []
        one.watch(lambda: called.append("watcher"))
        one.when_committed(99, lambda: called.append("waiter"))
        await world.delete("orders")
        assert sorted(called) == ["waiter", "watcher"]
        assert one.offline_reason == "the topic was deleted"
        assert world.partitions.find("orders", 0) is None
        assert topic_id not in world.partitions.by_id
        assert not (tmp_path / "logs" / "orders").exists()


async def test_a_topic_that_is_made_again_begins_at_zero(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        world.partition("orders").append(batch(b"old"), NOW_MS)
        await world.delete("orders")
        await world.create("orders")
        assert world.partition("orders").append(batch(b"new"), NOW_MS).base_offset == 0
        assert values_in(world.partition("orders").log) == [b"new"]


async def test_a_topic_that_was_made_again_in_one_step_is_another(tmp_path: Path) -> None:
    """Changes may be applied together: the old topic and the new one of its name then pass each other."""
    async with world_at(tmp_path) as world:
        await world.create("orders")
        old, image = world.partition("orders"), world.metadata.image
        world.metadata.listeners.clear()
        await world.delete("orders")
        new_id = await world.create("orders")
        assert world.metadata.image is not image
        world.partitions.apply(world.metadata.image)
        assert not old.is_online
        await world.rest()
        assert world.partition("orders").topic_id == new_id
        assert list(world.partitions.by_id) == [new_id]


async def test_a_topic_that_grows_keeps_its_partitions(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        first = world.partition("orders")
        await world.grow("orders", 3)
        assert world.partition("orders", 0) is first
        assert world.partition("orders", 2).append(batch(), NOW_MS).base_offset == 0


async def test_new_settings_reach_every_log_of_a_topic(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", partitions=2)
        assert not world.partitions.decompresses_batches
        await world.configure("orders", cleanup_policy="compact", retention_ms=77)
        for number in (0, 1):
            settings = world.partition("orders", number).log.settings
            assert (settings.retention_ms, settings.compacted) == (77, True)
        assert world.partitions.decompresses_batches
        await world.configure("orders")
        assert not world.partitions.decompresses_batches


async def test_a_leader_that_starts_notes_its_epoch(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        world.partition("orders").append(batch(b"a"), NOW_MS)
    for epoch in (1, 2):
        async with world_at(tmp_path) as world:
            await world.metadata.change(new_epochs)
            one = world.partition("orders")
            assert one.leader_epoch == epoch
            one.append(batch(b"b"), NOW_MS)
            assert one.log.epochs.entries[-1] == (epoch, epoch)


# -- lost and damaged


async def test_a_folder_that_is_lost_takes_its_partition_offline_and_no_other(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", partitions=2)
        for number in (0, 1):
            world.partition("orders", number).append(batch(b"x"), NOW_MS)
    shutil.rmtree(folder_of(tmp_path, topic_id, number=1))
    async with world_at(tmp_path) as world:
        lost = world.partition("orders", 1)
        assert not lost.is_online
        assert "its folder is missing" in lost.offline_reason
        with pytest.raises(StorageError, match="orders-1 is offline"):
            lost.append(batch(), NOW_MS)
        assert world.partition("orders", 0).append(batch(b"y"), NOW_MS).base_offset == 1
    async with world_at(tmp_path) as world:
        assert not world.partition("orders", 1).is_online, "it must not begin again at 0"
        await world.delete("orders")
        await world.create("orders")
        assert world.partition("orders").is_online


async def test_a_log_that_is_damaged_takes_its_partition_offline_and_no_other(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", partitions=2)
        for number in (0, 1):
            world.partition("orders", number).append(batch(b"x"), NOW_MS)
    (path,) = folder_of(tmp_path, topic_id, number=0).glob("*.log")
    path.write_bytes(path.read_bytes()[:-1])
    async with world_at(tmp_path) as world:
        assert not world.partition("orders", 0).is_online
        assert "checkpoint covers" in world.partition("orders", 0).offline_reason
        assert world.partition("orders", 1).is_online
    assert path.stat().st_size == len(batch(b"x")) - 1


async def test_a_torn_tail_is_truncated_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders")
        world.partition("orders").append(batch(b"x"), NOW_MS)
    (path,) = folder_of(tmp_path, topic_id).glob("*.log")
    with path.open("ab") as file:
        file.write(bytes(batch(b"torn"))[:-1])
    async with world_at(tmp_path) as world:
        assert values_in(world.partition("orders").log) == [b"x"]
    assert any("log_tail_truncated partition=orders-0" in entry.getMessage() for entry in caplog.records)


def led_by_another(image: ClusterImage) -> list[Put]:
    return [
        Put(keys.partition(*place), replace(state, replicas=(1, 2), isr=(2,), leader=2).dump(), state.version)
        for place, state in image.find_partitions()
    ]


async def test_a_lost_folder_of_which_others_have_everything_begins_anew_and_follows_them(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders")
        world.partition("orders").append(batch(b"x"), NOW_MS)
        await world.metadata.change(led_by_another)
    shutil.rmtree(folder_of(tmp_path, topic_id))
    for _ in range(2):  # and it is there the next time
        async with world_at(tmp_path) as world:
            (replica,) = world.partitions
            assert replica.is_online
            assert replica.following is not None
            assert replica.following.position.offset == 0
            assert folder_of(tmp_path, topic_id).is_dir()


async def _half_removed(tmp_path: Path, *, isr: tuple[int, ...]) -> Path:
    """A log that was being removed when the power went, and is wanted again. Its folder."""
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", segment_bytes=1024)
        one = world.partition("orders")
        for _ in range(3):
            one.append(batch(b"x" * 1000), NOW_MS)
        if 1 not in isr:
            await world.metadata.change(led_by_another)
    folder = folder_of(tmp_path, topic_id)
    assert len(list(folder.glob("*.log"))) == 3
    (tmp_path / "replicas").write_bytes(b"")
    if 1 not in isr:
        for path in (*folder.glob("0" * 20 + ".*"), folder / "checkpoint"):
            path.unlink()
    return folder


async def test_leftovers_of_a_removed_log_after_power_loss_are_not_opened(tmp_path: Path) -> None:
    folder = await _half_removed(tmp_path, isr=(2,))
    async with world_at(tmp_path) as world:
        (replica,) = world.partitions
        assert (replica.log.start_offset, replica.log.end_offset) == (0, 0)
        assert [path.name for path in folder.glob("*.log")] == ["0" * 20 + ".log"]


async def test_a_log_that_others_may_lack_is_kept_though_it_is_not_noted_that_it_was_made(tmp_path: Path) -> None:
    await _half_removed(tmp_path, isr=(1,))
    async with world_at(tmp_path) as world:
        assert values_in(world.partition("orders").log) == [b"x" * 1000] * 3


async def test_a_partition_is_not_lost_because_the_process_ended_while_it_was_made(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        world.metadata.listeners.clear()
        topic_id = await world.create("orders")
        path = LogFolder.path(TopicPartition("orders", 0), topic_id)
        LogFolder(OsDisk(tmp_path)).make([path])
    async with world_at(tmp_path) as world:
        assert world.partition("orders").is_online


async def test_logs_of_topics_that_were_deleted_meanwhile_are_removed(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        await world.create("others")
        world.metadata.listeners.clear()
        await world.delete("orders")
    assert (tmp_path / "logs" / "orders").is_dir()
    async with world_at(tmp_path) as world:
        assert [path.name for path in (tmp_path / "logs").iterdir()] == ["others"]
        assert world.partition("others").is_online


# -- memory


async def test_a_topic_in_memory_has_no_folder_and_begins_above_its_offsets(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", storage="memory")
        one = world.partition("orders")
        one.append(batch(b"x"), NOW_MS)
        assert one.log.offset_limit == RESERVED_OFFSETS
        assert not (tmp_path / "logs").exists()
        await world.metadata.change(new_epochs)
    async with world_at(tmp_path) as world:
        one = world.partition("orders")
        assert (one.log.start_offset, one.high_watermark) == (RESERVED_OFFSETS, RESERVED_OFFSETS)
        assert one.append(batch(b"x"), NOW_MS).base_offset == RESERVED_OFFSETS
        assert one.log.offset_limit == 2 * RESERVED_OFFSETS


# -- full and failing disks


async def test_a_full_disk_puts_a_new_topic_off_until_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk(OsDisk(tmp_path))
    async with world_at(tmp_path, disk) as world:
        await world.create("before")
        for free_bytes in (0, 2000):
            disk.free_bytes = free_bytes
            name = f"after-{free_bytes}"
            await world.create(name, partitions=2)
            assert world.partitions.is_incomplete
            assert world.partition("before").is_online
        disk.free_bytes = 1 << 30
        await world.maintenance.tick()
        await world.rest()
        assert not world.partitions.is_incomplete
        for name in ("after-0", "after-2000"):
            for number in (0, 1):
                assert world.partition(name, number).append(batch(), NOW_MS).base_offset == 0


async def test_a_topic_is_deleted_from_a_full_disk(tmp_path: Path) -> None:
    disk = FullDisk(OsDisk(tmp_path))
    async with world_at(tmp_path, disk) as world:
        topic_id = await world.create("orders")
        await world.create("others")
        disk.free_bytes = 0
        await world.delete("orders")
        assert not folder_of(tmp_path, topic_id).exists()
        assert world.partition("others").is_online
        disk.free_bytes = 1 << 30


async def test_a_log_that_cannot_be_closed_keeps_no_other_from_it(tmp_path: Path) -> None:
    refused: list[str] = []

    def on_sync(path: str) -> None:
        if "/bad/" in path:
            refused.append(path)
            raise StorageError("the disk is gone")

    async with world_at(tmp_path, SyncedDisk(OsDisk(tmp_path), on_sync)) as world:
        for name in ("bad", "good", "better"):
            await world.create(name)
            world.partition(name).append(batch(b"x"), NOW_MS)
    assert refused
    async with world_at(tmp_path, boot_id="boot-2") as world:
        for name in ("good", "better"):
            assert world.partition(name).log.checkpoint.synced_to == 1
