"""Behaviour of the embedded store only: its file."""

import sqlite3
from pathlib import Path

import pytest

from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.store import ABSENT, Put, StoreDamaged, StoreUnavailable, Versioned
from penstock.foundation.codes import ErrorCode


async def test_a_file_that_is_no_database_is_a_damaged_store(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"not a database at all" * 100)
    store = EmbeddedStore(path)
    with pytest.raises(StoreDamaged, match=r"metadata.db failed: file is not a database") as refused:
        await store.open()
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not store.is_connected
    await store.close()


async def test_a_store_that_was_never_opened_can_be_closed(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "metadata.db")
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.get("k")


async def test_the_folder_of_the_file_is_made(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "a" / "b" / "metadata.db")
    await store.open()
    await store.transact([Put("k", b"v", ABSENT)])
    await store.close()
    assert (tmp_path / "a" / "b" / "metadata.db").is_file()


async def test_a_file_from_before_there_were_leases_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL);
            CREATE TABLE revision (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value INTEGER NOT NULL);
            INSERT INTO revision VALUES (1, 7);
            INSERT INTO entries VALUES ('k', x'76', 7);
        """)
    database.close()
    store = EmbeddedStore(path)
    await store.open()
    assert await store.get("k") == Versioned(value=b"v", version=7)
    assert await store.transact([Put("leased", b"1", ABSENT, leased=True)]) == 8
    await store.close()
    store = EmbeddedStore(path)
    await store.open()
    assert await store.get("leased") is None
    assert await store.get("k") is not None
    await store.close()
