"""`penstock log inspect`, on the logs of a broker that runs and on damaged copies of them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .cli_runner import Cli, Direct, ServeProcess, table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of three segments, of a broker that was stopped: 30 records in 6 batches."""
    process = ServeProcess(tmp_path_factory.mktemp("stopped"))
    direct = Direct(process.bootstrap)
    direct.create("orders", segment_bytes="1400", retention_ms="-1")
    for number in range(6):
        values = [b"%d" % number * 100] * 5
        direct.publish("orders", *values, key=b"k%d" % number, timestamp_ms=1_700_000_000_000 + 1000 * number)
    process.stop()
    (found,) = (process.data_dir / "logs" / "orders").iterdir()
    return found


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same log, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "orders" / folder.name))


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def inspect(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    return Cli(None)("log", "inspect", *map(str, arguments))


def found_in(path: Path, kind: str, *options: str) -> list[dict[str, Any]]:
    lines = inspect(path, *options, "--json").stdout.splitlines()
    return [found for found in map(json.loads, lines) if found["kind"] == kind]


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 0xFF
    file.write_bytes(data)


def test_a_sound_log_is_summed_up_by_segment(folder: Path) -> None:
    done = inspect(folder)
    assert (done.returncode, done.stderr) == (0, b"")
    heading, *rest = done.stdout.decode().splitlines()
    assert heading == f"orders-0 in {folder}: starts at offset 0, checkpoint covers offsets below 30"
    header, *rows = table("\n".join(rest[:4]))
    assert header == [
        "BASE OFFSET",
        "NEXT OFFSET",
        "BATCHES",
        "RECORDS",
        "SIZE",
        "FIRST TIME",
        "LAST TIME",
        "CODECS",
    ]
    assert [row[:4] for row in rows] == [["0", "10", "2", "10"], ["10", "20", "2", "10"], ["20", "30", "2", "10"]]
    assert rows[0][5:] == ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.000Z", "none 2"]
    assert rest[-1] == "No damage: 3 segments of 1 log checked."


def test_a_segment_a_topic_and_a_data_folder_can_be_inspected_too(folder: Path) -> None:
    for path, expected in ((segments(folder)[1], 1), (folder.parent, 3), (folder.parent.parent.parent, 3)):
        found = found_in(path, "segment")
        assert len(found) == expected
        assert all(entry["topic"] == "orders" and entry["records"] == 10 for entry in found)
        assert (
            sum(entry["bytes"] for entry in found)
            == sum(file.stat().st_size for file in segments(folder)) * expected // 3
        )


def test_batches_and_records_are_listed_when_asked_for(folder: Path) -> None:
    header, *rows = table(inspect(folder, "--batches").stdout.decode())
    assert header[:5] == ["PARTITION", "OFFSETS", "POSITION", "BYTES", "RECORDS"]
    assert [row[1] for row in rows[:6]] == ["0-4", "5-9", "10-14", "15-19", "20-24", "25-29"]
    lines = inspect(folder, "--records").stdout.decode().splitlines()
    assert lines[0] == f"2023-11-14T22:13:20.000Z 0:0 k0: {'0' * 100}"
    assert len([line for line in lines if line.startswith("2023-11-14T22:13:2")]) == 30


def test_for_scripts_every_line_says_what_it_is(folder: Path) -> None:
    batches = found_in(folder, "batch", "--batches")
    assert [entry["base_offset"] for entry in batches] == [0, 5, 10, 15, 20, 25]
    assert {entry["codec"] for entry in batches} == {"none"}
    records = found_in(folder, "record", "--records")
    assert [entry["offset"] for entry in records] == list(range(30))
    assert {(entry["topic"], entry["key"], entry["control"]) for entry in records[:5]} == {("orders", "k0", False)}
    (partition,) = found_in(folder, "partition")
    assert (partition["has_checkpoint"], partition["vouched_to"], partition["start_offset"]) == (True, 30, 0)


def test_a_flipped_bit_is_found_with_its_place_and_both_checksums(copy: Path) -> None:
    file = segments(copy)[1]
    second = found_in(copy, "batch", "--batches")[3]
    flip(file, second["position"] + 100)
    done = inspect(copy)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.decode().splitlines() if line.startswith("DAMAGED")]
    assert line.startswith(f"DAMAGED {file} at byte {second['position']}, offset 15: expected CRC 0x")
    assert ", found CRC 0x" in line
    assert "the checkpoint covers it, so no broker truncates it" in line
    assert done.stderr.decode() == f"Error: found damage at 1 position below {copy}\n"
    (damage,) = found_in(copy, "damage")
    assert (damage["file"], damage["position"], damage["offset"]) == (str(file), second["position"], 15)
    assert damage["vouched"] is True


def test_damage_in_one_batch_does_not_hide_the_next(copy: Path) -> None:
    flip(segments(copy)[0], 100)
    flip(segments(copy)[2], 100)
    assert [damage["offset"] for damage in found_in(copy, "damage")] == [0, 20]
    assert [segment["records"] for segment in found_in(copy, "segment")] == [5, 10, 5]


def test_inspect_reports_that_a_torn_end_after_the_checkpoint_is_cut_off(copy: Path) -> None:
    last = segments(copy)[-1]
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(last.read_bytes()[:200])  # a batch that begins, and ends too soon
    done = inspect(copy)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.decode().splitlines() if line.startswith("DAMAGED")]
    assert f"at byte {size}, offset 30: expected a batch of " in line
    assert "found 200 bytes before the end of the file; 200 bytes from here on not readable" in line
    assert line.endswith("no checkpoint covers it: a broker truncates the log here when it next opens it")


def test_zeroes_that_a_power_loss_left_are_no_batch(copy: Path) -> None:
    with segments(copy)[-1].open("ab") as file:
        file.write(bytes(4096))
    (damage,) = found_in(copy, "damage")
    assert (damage["expected"], damage["found"], damage["vouched"]) == ("a batch of format 2", "format 0", False)


def test_an_end_that_the_checkpoint_vouches_for_and_that_is_gone_is_damage(copy: Path) -> None:
    segments(copy)[-1].unlink()
    (damage,) = found_in(copy, "damage")
    assert damage["expected"] == "offsets 0 to 30, which the checkpoint covers"
    assert (damage["found"], damage["vouched"]) == ("a log that ends at 20", True)


def test_a_segment_that_is_missing_at_the_start_or_in_the_middle_is_damage(copy: Path) -> None:
    segments(copy)[1].unlink()
    (damage,) = found_in(copy, "damage")
    assert (damage["expected"], damage["found"]) == ("offset 10", "offset 20: the offsets between are missing")
    segments(copy)[0].unlink()
    (damage,) = found_in(copy, "damage")
    assert damage["found"] == "a log that starts at 20"


def test_a_log_without_a_checkpoint_is_checked_and_nothing_vouches_for_it(copy: Path) -> None:
    (copy / "checkpoint").unlink()
    flip(segments(copy)[0], 100)
    done = inspect(copy)
    assert b"no valid checkpoint" in done.stdout
    (damage,) = found_in(copy, "damage")
    assert damage["vouched"] is False


def test_a_log_that_a_broker_writes_to_meanwhile_is_not_taken_for_damaged(
    cli: Cli, broker: ServeProcess, direct: Direct, tmp_path: Path
) -> None:
    direct.create("live", segment_bytes="2000")
    lines = tmp_path / "lines"
    lines.write_bytes(b"a line\n" * 60_000)
    publisher = cli.start("publish", "live", "--file", str(lines), "--lines")
    looks = 0
    while publisher.poll() is None:
        done = inspect(broker.data_dir / "logs" / "live")
        assert (done.returncode, done.stderr) == (0, b""), done.stdout
        looks += 1
    _, err = publisher.communicate()
    assert (publisher.returncode, err) == (0, b"")
    assert looks > 1
    assert sum(found["records"] for found in found_in(broker.data_dir / "logs" / "live", "segment")) == 60_000


def test_inspecting_leaves_every_file_as_it_was(copy: Path) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in sorted(copy.iterdir())}

    before = state()
    copy.chmod(0o555)
    assert inspect(copy, "--records").returncode == 0
    copy.chmod(0o755)
    assert state() == before


def test_a_path_without_segments_is_a_misuse(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    cli = Cli(None)
    assert "no segments below" in cli.refused("log", "inspect", str(tmp_path), code=2)
    assert "no segments below" in cli.refused("log", "inspect", str(tmp_path / "notes.txt"), code=2)
    assert "does not exist" in cli.refused("log", "inspect", str(tmp_path / "nowhere"), code=2)
