"""Folders that only this user can write to."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.foundation.private_folder import private_folder

SOURCE = Path(penstock.__file__).parent


def test_no_file_has_a_fixed_name_in_a_folder_that_all_users_share() -> None:
    """mkdtemp, TemporaryDirectory and mkstemp choose random names, with mode 0700 or 0600."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for word in ("gettempdir", "tempfile.tempdir", "mktemp(", '"/tmp', "'/tmp", "/var/tmp", "/dev/shm"):
            assert word not in text, f"{path} uses {word}; see private_folder"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    return folder


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_folder_is_made_once_and_is_ours_alone(cache: Path) -> None:
    found = private_folder("java")
    assert found == cache / "penstock" / "java"
    assert (mode_of(found), mode_of(found.parent)) == (0o700, 0o700)
    (found / "file").touch()
    assert private_folder("java") == found
    assert (found / "file").exists()


def test_without_a_setting_it_lies_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private_folder("ports") == tmp_path / ".cache" / "penstock" / "ports"


def plant_link(cache: Path) -> None:
    (cache.parent / "theirs" / "java").mkdir(parents=True)
    (cache / "penstock").symlink_to(cache.parent / "theirs")


def plant_link_below(cache: Path) -> None:
    (cache.parent / "theirs").mkdir()
    (cache / "penstock").mkdir()
    (cache / "penstock" / "java").symlink_to(cache.parent / "theirs")


def plant_open_folder(cache: Path) -> None:
    (cache / "penstock").mkdir()
    (cache / "penstock" / "java").mkdir()
    (cache / "penstock" / "java").chmod(0o777)


def plant_file(cache: Path) -> None:
    (cache / "penstock").touch()


def plant_folder_of_another(cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder that is another user's")
    (cache / "penstock").mkdir()
    os.chown(cache / "penstock", 65534, 65534)


@pytest.mark.parametrize(
    "plant", [plant_link, plant_link_below, plant_open_folder, plant_file, plant_folder_of_another]
)
def test_a_planted_folder_is_not_used(cache: Path, plant: Callable[[Path], None]) -> None:
    cache.mkdir()
    plant(cache)
    found = private_folder("java")
    assert found.parent == cache.parent / "shared"
    assert found.name.startswith("penstock-java-")
    assert mode_of(found) == 0o700
    assert private_folder("java") != found, "its name cannot be known beforehand"


def test_a_temporary_folder_goes_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "home").touch()  # nothing can be made in it
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    code = "from penstock.foundation.private_folder import private_folder as f; p = f('x'); print(p, p.is_dir())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    path, was_there = done.stdout.split()
    assert was_there == "True"
    assert Path(path).parent == tmp_path
    assert not Path(path).exists()
