"""The identity of a data folder: its cluster and its broker."""

import json
from pathlib import Path

import pytest

from penstock.cluster.identity import FolderIdentity, NewerDataFolder, WrongBroker
from penstock.foundation.errors import StorageError
from penstock.log.disk import OsDisk


def test_a_new_folder_has_no_identity_until_its_cluster_is_known(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    found = FolderIdentity.of(disk, 1)
    assert (found.node_id, found.cluster_id) == (1, "")
    assert found.folder != FolderIdentity.of(disk, 1).folder, "nothing was noted"
    assert FolderIdentity.of(disk, 2).node_id == 2


def test_a_folder_knows_its_broker_its_cluster_and_itself(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    found = FolderIdentity.of(disk, 1)
    found.save(disk, "the-cluster")
    again = FolderIdentity.of(OsDisk(tmp_path), 1)
    assert (again.folder, again.node_id, again.cluster_id) == (found.folder, 1, "the-cluster")


def test_a_folder_is_noted_once(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    FolderIdentity.of(disk, 1).save(disk, "the-cluster")
    (path,) = tmp_path.glob("identity")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    FolderIdentity.of(disk, 1).save(disk, "the-cluster")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_a_folder_of_another_broker_is_refused(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    FolderIdentity.of(disk, 1).save(disk, "the-cluster")
    with pytest.raises(WrongBroker, match="belongs to broker 1; start it with --node-id 1"):
        FolderIdentity.of(disk, 2)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"folder": "x"}', b'{"unknown": 1}', b'{"version": "1"}'])
def test_a_damaged_note_is_not_taken_for_a_new_folder(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "identity").write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        FolderIdentity.of(OsDisk(tmp_path), 1)


def test_a_folder_without_a_format_version_is_version_1_and_gets_it(tmp_path: Path) -> None:
    file = tmp_path / "identity"
    file.write_text('{"folder": "f", "node_id": 1, "cluster_id": "c"}')
    assert FolderIdentity.of(OsDisk(tmp_path), 1).version == 1
    assert json.loads(file.read_text()) == {"folder": "f", "node_id": 1, "cluster_id": "c", "version": 1}


def test_a_folder_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "identity"
    text = '{"folder": "f", "node_id": 2, "cluster_id": "c", "version": 2, "more": 1}'
    file.write_text(text)
    with pytest.raises(NewerDataFolder, match="format version 2, this release supports versions up to 1"):
        FolderIdentity.of(OsDisk(tmp_path), 1)
    assert file.read_text() == text
