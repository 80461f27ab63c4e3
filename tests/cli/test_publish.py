import os
import pty
import subprocess
from pathlib import Path

import pytest

from .cli_runner import COMMAND, RUN_S, Cli, Direct, interrupt, table


def test_arguments_are_messages_and_the_offset_of_each_is_printed(cli: Cli, direct: Direct, topic: str) -> None:
    assert table(cli.ok("publish", topic, "one", "two words")) == [
        ["TOPIC", "PARTITION", "OFFSET"],
        [topic, "0", "0"],
        [topic, "0", "1"],
    ]
    assert cli.json("publish", topic, "three") == [{"topic": topic, "partition": 0, "offset": 2}]
    assert direct.values(topic) == [b"one", b"two words", b"three"]


def test_lines_of_standard_input_are_messages(cli: Cli, direct: Direct, topic: str) -> None:
    cli.ok("publish", topic, stdin=b"one\n\nthree\nlast")
    cli.ok("publish", topic, "before", "-", "after", stdin=b"from stdin\n")
    assert direct.values(topic) == [b"one", b"", b"three", b"last", b"before", b"from stdin", b"after"]


def test_many_messages_are_summed_up_by_partition(cli: Cli, direct: Direct, fresh: str) -> None:
    direct.create(fresh, 2)
    lines = b"".join(b"key-%d:value-%d\n" % (number, number) for number in range(5000))
    header, *rows = table(cli.ok("publish", fresh, "--key-separator", ":", stdin=lines))
    assert header == ["TOPIC", "PARTITION", "MESSAGES", "FIRST OFFSET", "LAST OFFSET"]
    assert [row[1] for row in rows] == ["0", "1"]
    assert sum(int(row[2]) for row in rows) == 5000
    assert all(row[3] == "0" and int(row[4]) == int(row[2]) - 1 for row in rows)
    found = {record.key: record.value for record in direct.read(fresh)}
    assert found == {b"key-%d" % number: b"value-%d" % number for number in range(5000)}


def test_a_file_is_one_message_or_one_a_line(cli: Cli, direct: Direct, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.txt"
    file.write_bytes(b"one\ntwo\n")
    cli.ok("publish", topic, "--file", str(file))
    cli.ok("publish", topic, "--file", str(file), "--file", str(file), "--lines")
    assert direct.values(topic) == [b"one\ntwo\n", b"one", b"two", b"one", b"two"]


def test_bytes_that_are_no_text_arrive_as_they_were(cli: Cli, direct: Direct, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "photo"
    data = bytes(range(256))
    file.write_bytes(data)
    cli.ok("publish", topic, "--file", str(file))
    assert direct.values(topic) == [data]


@pytest.mark.parametrize(("options", "partition"), [([], 1), (["--partitioner", "consistent"], 2)])
def test_a_key_goes_where_java_or_librdkafka_puts_it(
    cli: Cli, direct: Direct, fresh: str, options: list[str], partition: int
) -> None:
    direct.create(fresh, 3)
    (found,) = cli.json("publish", fresh, "hi", "--key", "42", *options)
    assert found["partition"] == partition


def test_keys_headers_tags_times_and_partitions_go_with_the_message(cli: Cli, direct: Direct, fresh: str) -> None:
    direct.create(fresh, 3, retention_ms="-1")
    options = ["--key", "42", "--tag", "eu", "--header", "trace=a=b", "--header", "empty="]
    cli.ok("publish", fresh, "hi", *options, "--partition", "2", "--timestamp", "2026-01-31T12:00:00.5Z")
    (found,) = direct.read(fresh)
    assert (found.key, found.value, found.timestamp_ms) == (b"42", b"hi", 1769860800500)
    assert found.headers == (("tag", b"eu"), ("trace", b"a=b"), ("empty", b""))
    assert cli.json("publish", fresh, "hi", *options, "--partition", "2")[0] == {
        "topic": fresh,
        "partition": 2,
        "offset": 1,
    }


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_can_be_read_back(cli: Cli, direct: Direct, topic: str, compression: str) -> None:
    cli.ok("publish", topic, "--compression", compression, stdin=b"the same line\n" * 50)
    assert direct.values(topic) == [b"the same line"] * 50


def test_fewer_acknowledgements_can_be_asked_for(cli: Cli, topic: str) -> None:
    assert cli.json("publish", topic, "leader", "--acks", "1") == [{"topic": topic, "partition": 0, "offset": 0}]
    assert cli.json("publish", topic, "none", "--acks", "0") == [{"topic": topic, "partition": 0, "offset": None}]
    # Another connection: the broker has read the last message once it is there.
    assert cli.ok("subscribe", topic, "--follow", "--from", "earliest", "--max", "2") == "leader\nnone\n"
    assert table(cli.ok("publish", topic, "none", "--acks", "0"))[1] == [topic, "0", "-"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere", "hi"], 1, "there is no topic 'nowhere'; create it with `penstock topic create nowhere`"),
        (["TOPIC", "hi", "--partition", "9"], 1, "has 1 partitions, asked for partition 9"),
        (["TOPIC", "hi", "--key", "a", "--key-separator", ":"], 2, "both set the key"),
        (["TOPIC", "hi", "--key-separator", ""], 2, "needs at least one character"),
        (["TOPIC", "--lines"], 2, "--lines needs --file"),
        (["TOPIC", "hi", "--header", "novalue"], 2, "'novalue' is not name=value"),
        (["TOPIC", "hi", "--timestamp", "2026-01-31T12:00:00"], 2, "has no time zone"),
        (["TOPIC", "hi", "--timestamp", "soon"], 2, "'soon' is not a valid time; expected 2026-01-31T12:00:00Z or @"),
        (["TOPIC", "--file", "/nowhere"], 2, "does not exist"),
        (["TOPIC", "hi", "--compression", "rar"], 2, "'rar' is not one of"),
    ],
)
def test_invalid_messages_are_refused(cli: Cli, empty: str, arguments: list[str], code: int, words: str) -> None:
    assert words in cli.refused("publish", *(empty if part == "TOPIC" else part for part in arguments), code=code)


def test_a_line_without_the_separator_is_reported_with_the_messages_before_it(cli: Cli, topic: str) -> None:
    done = cli("publish", topic, "--key-separator", ":", stdin=b"a:1\nb:2\nno key\n")
    assert done.returncode == 1
    assert done.stderr == b"Error: message 3 has no ':' between key and value: 'no key'\n"


def test_a_message_that_the_broker_refuses_is_reported_with_the_others(cli: Cli, direct: Direct, fresh: str) -> None:
    direct.create(fresh, max_message_bytes="1000")
    done = cli("publish", fresh, "fits", "x" * 2000, "--json")
    assert done.returncode == 1
    assert done.stdout == b'{"topic": "%s", "partition": 0, "offset": 0}\n' % fresh.encode()
    assert b"Error: message 2 was not published (1 before it were): " in done.stderr
    assert b"max.message.bytes is 1000" in done.stderr


def test_a_line_is_published_while_the_next_is_still_being_typed(cli: Cli, topic: str) -> None:
    publisher = cli.start("publish", topic, "--json", stdin=subprocess.PIPE)
    reader = cli.start("subscribe", topic, "--follow", "--from", "earliest")
    assert publisher.stdin is not None
    assert reader.stdout is not None
    for line in (b"first\n", b"second\n"):
        publisher.stdin.write(line)
        publisher.stdin.flush()
        assert reader.stdout.readline() == line
    out, err = publisher.communicate(timeout=RUN_S)
    assert (publisher.returncode, err) == (0, b"")
    assert [line.split(b'"offset": ')[1] for line in out.splitlines()] == [b"0}", b"1}"]
    assert interrupt(reader) == (130, b"", b"")


def test_an_interrupt_ends_a_publisher_that_waits_for_input(cli: Cli, topic: str) -> None:
    publisher = cli.start("publish", topic, stdin=subprocess.PIPE)
    reader = cli.start("subscribe", topic, "--follow", "--from", "earliest")
    assert publisher.stdin is not None
    assert reader.stdout is not None
    publisher.stdin.write(b"one\n")
    publisher.stdin.flush()
    assert reader.stdout.readline() == b"one\n"  # so it runs, and waits for the second line
    publisher.send_signal(2)
    assert publisher.wait(RUN_S) == 130
    _, err = publisher.communicate()
    assert err == b""
    assert interrupt(reader)[0] == 130


def test_a_long_input_shows_its_progress_on_a_terminal_and_not_in_the_output(cli: Cli, topic: str) -> None:
    ours, theirs = pty.openpty()
    publisher = subprocess.Popen(
        [COMMAND, "publish", topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=cli.environment | {"TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    out, _ = publisher.communicate(b"a line\n" * 1000, timeout=RUN_S)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert publisher.returncode == 0
    assert "messages" in shown
    assert table(out.decode())[1] == [topic, "0", "1000", "0", "999"]


def test_a_terminal_shows_how_to_end_the_input(cli: Cli, direct: Direct, topic: str) -> None:
    code, screen = cli.on_terminal("publish", topic, typed=b"typed\n\x04", until=b"Ctrl-D ends.")
    assert code == 0
    assert "Type messages, one per line" in screen
    assert direct.values(topic) == [b"typed"]
