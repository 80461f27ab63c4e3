"""Addresses of stores, and errors of invalid ones."""

from pathlib import Path

import pytest

from penstock.coordination import stores
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.stores import Address, open_store, parse
from penstock.foundation.errors import InvalidConfig


@pytest.mark.parametrize(
    ("url", "servers", "root"),
    [
        ("zookeeper://a:1,b:2/penstock/eu", ("a:1", "b:2"), "/penstock/eu"),
        ("zookeeper://zk-0.local", ("zk-0.local:2181",), "/penstock"),
        ("zookeeper://a:1/", ("a:1",), "/penstock"),
        ("etcd://a,b:2/x/", ("a:2379", "b:2"), "/x"),
        ("etcd://[::1]:2379,[::2]", ("[::1]:2379", "[::2]:2379"), "/penstock"),
    ],
)
def test_an_address_names_servers_and_a_root(url: str, servers: tuple[str, ...], root: str) -> None:
    assert parse(url) == Address(kind=url.partition(":")[0], servers=servers, root=root)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "embeded",
        "zookeeper",
        "zookeeper:a:1",
        "consul://a:1",
        "etcd://",
        "etcd://a:1,",
        "etcd://a:port",
        "etcd://a:0",
        "etcd://a:65536",
        "etcd://::1:2379",
        "etcd://user@a:1",
        "etcd://a:1/x?y",
        "etcd://a:1/x//y",
        "zookeeper://a:1/../x",
        "zookeeper://a: 1",
    ],
)
async def test_an_address_that_makes_no_sense_is_answered_with_what_is_expected(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="expected 'embedded', 'zookeeper://host:port"):
        await open_store(url, tmp_path, 10)


@pytest.mark.parametrize(("kind", "library"), [("zookeeper", "kazoo"), ("etcd", "aetcd")])
async def test_a_library_that_is_not_there_is_named_with_how_to_install_it(
    kind: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_there(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)

    monkeypatch.setattr(stores, "import_module", not_there)
    with pytest.raises(InvalidConfig, match=rf"needs {library}: pip install 'penstock\[{kind}\]'"):
        await open_store(f"{kind}://127.0.0.1:1", tmp_path, 10)


async def test_a_session_must_live_for_a_while(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="more than 0 seconds, got 0"):
        await open_store("embedded", tmp_path, 0)


async def test_the_embedded_store_lies_in_the_data_folder(tmp_path: Path) -> None:
    store = await open_store("embedded", tmp_path, 10)
    assert isinstance(store, EmbeddedStore)
    assert store.is_connected
    await store.close()
    assert (tmp_path / "metadata.db").is_file()
