"""`penstock serve` that cannot start: one line says what is wrong, what was expected and what to do."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.serve.settings import read_settings, read_values
from tests.fork_server import run

from .cli_runner import COMMAND, ServeProcess

END_S = 60.0
ADDRESSES = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
MISUSED, REFUSED = 2, 1


def as_unprivileged_user() -> list[str]:
    """What runs a command so that it must heed the modes of files, which root need not."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root heeds no modes of files, and there is no setpriv to change that")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]


def refused(*options: str, code: int, prefix: list[str] | None = None) -> str:
    """The one line on standard error of a broker that does not start."""
    command = [*(prefix or []), COMMAND, "serve", "--log-level", "error", *options]
    if prefix:
        done = subprocess.run(command, capture_output=True, timeout=END_S, check=False)
    else:
        done = run(command, input=b"", environment=os.environ, timeout=END_S)
    assert done.returncode == code, done
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ").removesuffix("; see `penstock serve --help`")


# -- the data folder


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize("below", ["", "data", "a/b"])
def test_a_folder_that_cannot_be_written_is_named(read_only: Path, below: str) -> None:
    folder = read_only / below if below else read_only
    said = refused("--data-dir", str(folder), *ADDRESSES, code=REFUSED, prefix=as_unprivileged_user())
    assert said == (
        f"the data folder {folder} cannot be written (permission denied); expected a folder that user id "
        f"{os.geteuid()} may write to: change its owner or mode, or give another --data-dir"
    )


@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_is_no_data_folder(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    folder = file / below if below else file
    said = refused("--data-dir", str(folder), *ADDRESSES, code=REFUSED)
    assert said == (
        f"the data folder {folder} cannot be created: {file} is a file, expected a folder; give another --data-dir"
    )


def test_a_file_in_the_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    ServeProcess(tmp_path).stop()
    file = tmp_path / "data" / "identity"
    file.chmod(0)
    said = refused("--data-dir", str(tmp_path / "data"), *ADDRESSES, code=REFUSED, prefix=as_unprivileged_user())
    assert said == (
        f"the broker cannot start: {tmp_path / 'data'}: identity cannot be read: Permission denied; user id "
        f"{os.geteuid()} must be able to read and write everything in the data folder"
    )


def test_the_folder_of_a_broker_that_runs_is_refused(tmp_path: Path) -> None:
    running = ServeProcess(tmp_path)
    said = refused("--data-dir", str(running.data_dir), *ADDRESSES, code=REFUSED)
    assert said == f"{running.data_dir} is used by another penstock process; stop it, or give another --data-dir"
    running.stop()


@pytest.mark.parametrize("free_bytes", [0, 4096, 65536])
def test_a_full_disk_is_reported(tmp_path: Path, free_bytes: int) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small file system can only be mounted by root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        found = os.statvfs(folder)
        (folder / "filler").write_bytes(bytes(found.f_bavail * found.f_bsize - free_bytes))
        said = refused("--data-dir", str(folder / "data"), *ADDRESSES, code=REFUSED)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert str(folder / "data") in said
    assert "free some space" in said


def test_the_folder_has_a_format_version_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    ServeProcess(tmp_path).stop()
    file = tmp_path / "data" / "identity"
    values = json.loads(file.read_text())
    assert values["version"] == 1
    file.write_text(json.dumps({name: value for name, value in values.items() if name != "version"}))
    ServeProcess(tmp_path).stop()
    assert json.loads(file.read_text()) == values, "a folder without a version gets it"
    file.write_text(json.dumps(values | {"version": 2, "more": "of it"}))
    said = refused("--data-dir", str(tmp_path / "data"), *ADDRESSES, code=REFUSED)
    assert said == (
        "the data folder has format version 2, this release supports versions up to 1; start it with the release "
        "that wrote it or a newer one, or give another --data-dir"
    )


# -- addresses


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_that_is_in_use_is_reported(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = "--http" if option == "--listen" else "--listen"
        said = refused("--data-dir", str(tmp_path), option, address, other, "127.0.0.1:0", code=REFUSED)
    assert said == (
        f"cannot listen on {address}: address already in use; stop the process that listens there, or give another "
        f"{option}"
    )


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    said = refused("--data-dir", str(tmp_path), "--listen", "192.0.2.1:9092", "--http", "127.0.0.1:0", code=REFUSED)
    assert said.startswith(
        "cannot listen on 192.0.2.1:9092: cannot assign requested address; give --listen an address"
    )


@pytest.mark.parametrize("option", ["--listen", "--http", "--advertise"])
@pytest.mark.parametrize("address", ["127.0.0.1:65536", "nowhere"])
def test_an_address_that_makes_no_sense_is_misuse(tmp_path: Path, option: str, address: str) -> None:
    said = refused("--data-dir", str(tmp_path), option, address, code=MISUSED)
    expected = 'HOST:PORT with a port from 0 to 65535, such as "127.0.0.1:9092"'
    assert said == f'{option} "{address}" is not allowed; expected {expected}'


# -- files


FILES = [
    ("listen = 5", "listen = 5 is not allowed; expected HOST:PORT"),
    ('node_id = "x"', 'node_id = "x" is not allowed; expected a whole number from 0 to 2147483647'),
    ('broker = "y"', 'broker = "y" is not allowed; expected a table, [broker]'),
    ('processes = "two"', 'processes = "two" is not allowed; expected a whole number from 1 to 64'),
    ("data_dir = 5", "data_dir = 5 is not allowed; expected the path of a folder"),
    ("[broker.log]\nretention = 5", "[broker] has a table 'log', expected settings; a name with dots is written in"),
    ('[broker]\n"log.retention.ms" = [1]', '[broker] "log.retention.ms" = [1] is not allowed; expected a string'),
    ("listen", "is not a TOML file: "),
    pytest.param("listen = " + "[" * 100_000, "is nested too deeply", id="deep"),
]
MORE = [
    (
        'listen = "127.0.0.1:65536"',
        'listen = "127.0.0.1:65536" is not allowed; expected HOST:PORT with a port from 0',
    ),
    ("listen = 2026-01-31", 'listen = "2026-01-31" is not allowed'),
    ("http = false", "http = false is not allowed; expected HOST:PORT"),
    ("advertise = []", "advertise = [] is not allowed; expected HOST:PORT"),
    ("node_id = 1.5", "node_id = 1.5 is not allowed"),
    ("node_id = true", "node_id = true is not allowed"),
    ("node_id = -1", "node_id = -1 is not allowed"),
    ("node_id = 2147483648", "node_id = 2147483648 is not allowed"),
    ("processes = 0", "processes = 0 is not allowed; expected a whole number from 1 to 64"),
    ("processes = 65", "processes = 65 is not allowed"),
    ("processes = true", "processes = true is not allowed"),
    ('data_dir = ""', 'data_dir = "" is not allowed'),
    ("credentials = {}", "credentials = {} is not allowed; expected the path of a file"),
    ("store = 7", "store = 7 is not allowed; expected a URL"),
    ("session_s = 0", "session_s = 0 is not allowed; expected a number of seconds above 0"),
    ("session_s = inf", "session_s = Infinity is not allowed"),
    ("session_s = nan", "session_s = NaN is not allowed"),
    ("session_s = true", "session_s = true is not allowed"),
    ("broker = 5", "broker = 5 is not allowed; expected a table"),
    ("broker = []", "broker = [] is not allowed; expected a table"),
    ("[broker]\nlog.retention.ms = 5", "[broker] has a table 'log', expected settings"),
    ('[broker]\n"a" = 2026-01-31', '[broker] "a" = "2026-01-31" is not allowed; expected a string, a number'),
    (
        "lisen = 5",
        "unknown key 'lisen'; known are advertise, credentials, data_dir, http, listen, node_id, processes",
    ),
]


@pytest.mark.parametrize(("text", "expected"), FILES)
def test_a_file_that_is_wrong_is_misuse(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    said = refused("--config", str(file), code=MISUSED)
    assert said.startswith(str(file))
    assert expected in said


@pytest.mark.parametrize(("text", "expected"), [*FILES, *MORE])
def test_every_value_of_a_file_is_checked(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"penstock\.toml") as caught:
        read_values(file, {})
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        'listen = "0.0.0.0:1"\nnode_id = 0\nsession_s = 3\ndata_dir = "d"\n'
        '[broker]\n"auto.create.topics.enable" = false\n"log.retention.ms" = 5\n"num.partitions" = 3\n'
    )
    values = read_values(file, {"listen": "127.0.0.1:2", "data_dir": Path("e")})
    found, warnings = read_settings(values, {"num.partitions": "2"})
    assert (str(found.listen), found.node_id, found.session_s, found.data_dir) == ("127.0.0.1:2", 0, 3.0, Path("e"))
    assert found.settings == {"auto.create.topics.enable": "false", "log.retention.ms": "5", "num.partitions": "2"}
    assert warnings == []


def test_a_file_that_is_no_text_is_misuse(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_bytes(b"\xff\xfe")
    assert refused("--config", str(file), code=MISUSED) == f"{file} is not a TOML file: it is not UTF-8 text"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.write_text("")
    file.chmod(0)
    data = ("--data-dir", str(tmp_path / "data"), *ADDRESSES)
    assert f"'{file}' is not readable" in refused("--config", str(file), code=MISUSED, prefix=as_unprivileged_user())
    said = refused("--credentials", str(file), *data, code=MISUSED, prefix=as_unprivileged_user())
    assert f"'{file}' is not readable" in said
    config = tmp_path / "penstock.toml"
    config.write_text(f'credentials = "{file}"')
    said = refused("--config", str(config), *data, code=REFUSED, prefix=as_unprivileged_user())
    assert said == f"cannot read {file}: Permission denied"
    said = refused("--credentials", str(tmp_path / "missing"), *data, code=REFUSED)
    assert said == f"cannot read {tmp_path / 'missing'}: No such file or directory"
