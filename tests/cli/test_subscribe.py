import subprocess

import pytest

from .cli_runner import COMMAND, RUN_S, Cli, Direct, interrupt

NOON_MS = 1769860800000  # 2026-01-31T12:00:00Z


@pytest.fixture(scope="module")
def ten(direct: Direct) -> str:
    """A topic with m0 to m4 of noon and m5 to m9 of five seconds later; tests leave it as it is."""
    name = direct.create("ten", retention_ms="-1")
    direct.publish(name, *(b"m%d" % number for number in range(5)), timestamp_ms=NOON_MS)
    direct.publish(name, *(b"m%d" % number for number in range(5, 10)), timestamp_ms=NOON_MS + 5000)
    return name


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (None, 0),
        ("earliest", 0),
        ("latest", 10),
        ("7", 7),
        ("-3", 7),
        ("10", 10),
        ("2026-01-31T12:00:03Z", 5),
        ("2026-01-31T13:00:05+01:00", 5),
        ("@1769860800000", 0),
        ("2027-01-31T12:00:00Z", 10),
    ],
)
def test_reading_starts_at_the_given_position_and_stops_at_the_end(
    cli: Cli, ten: str, start: str | None, first: int
) -> None:
    place = [] if start is None else ["--from", start]
    assert cli.ok("subscribe", ten, *place) == "".join(f"m{n}\n" for n in range(first, 10))


def test_no_more_messages_are_shown_than_asked_for(cli: Cli, ten: str) -> None:
    assert cli.ok("subscribe", ten, "--max", "3", "--from", "4") == "m4\nm5\nm6\n"


def test_one_partition_can_be_read_alone(cli: Cli, direct: Direct, fresh: str) -> None:
    direct.create(fresh, 3)
    for number in range(3):
        direct.publish(fresh, b"to %d" % number, partition=number)
    assert cli.ok("subscribe", fresh, "--partition", "1") == "to 1\n"
    assert sorted(cli.ok("subscribe", fresh).splitlines()) == ["to 0", "to 1", "to 2"]


def test_json_has_text_as_text_and_other_bytes_in_base64(cli: Cli, direct: Direct, lasting: str) -> None:
    headers = [("a", b"\xff"), ("b", b"b"), ("c", None)]
    direct.publish(lasting, b"\x00\xfe", key=b"\xff", timestamp_ms=1000, headers=headers)
    direct.publish(lasting, None, key="café".encode())
    binary, text = cli.json("subscribe", lasting)
    assert binary == {
        "topic": lasting,
        "partition": 0,
        "offset": 0,
        "timestamp": 1000,
        "key": "/w==",
        "value": "AP4=",
        "headers": [
            {"name": "a", "value": "/w==", "encoding": "base64"},
            {"name": "b", "value": "b"},
            {"name": "c", "value": None},
        ],
        "encoding": {"key": "base64", "value": "base64"},
    }
    assert (text["key"], text["value"]) == ("café", None)
    assert "encoding" not in text


def test_a_line_for_people_has_place_key_and_headers_and_cannot_drive_the_terminal(
    cli: Cli, direct: Direct, lasting: str
) -> None:
    direct.publish(lasting, b"a\x1b[2Jb\xff", key=b"k", headers=[("tag", b"eu")], timestamp_ms=NOON_MS)
    assert cli.ok("subscribe", lasting, "--format", "line") == (
        "2026-01-31T12:00:00.000Z 0:0 k: a\\x1b[2Jb\\xff [tag=eu]\n"
    )


def test_a_terminal_gets_lines_and_a_pipe_gets_values(cli: Cli, direct: Direct, lasting: str) -> None:
    direct.publish(lasting, b"hello", key=b"k", timestamp_ms=0)
    code, screen = cli.on_terminal("subscribe", lasting)
    assert code == 0
    assert "1970-01-01T00:00:00.000Z 0:0" in screen
    assert "hello" in screen
    assert cli.ok("subscribe", lasting) == "hello\n"


def test_a_template_puts_the_parts_where_they_are_wanted(cli: Cli, direct: Direct, lasting: str) -> None:
    direct.publish(lasting, b"hello", key=b"k", headers=[("a", b"b")], timestamp_ms=1500)
    template = r"{topic}/{partition}/{offset}\t{key}={value} {headers} {timestamp} {time}"
    assert cli.ok("subscribe", lasting, "--format", template) == (
        f"{lasting}/0/0\tk=hello a=b 1500 1970-01-01T00:00:01.500Z\n"
    )


def test_a_follower_shows_what_comes_until_it_is_interrupted(cli: Cli, direct: Direct, topic: str) -> None:
    direct.publish(topic, b"before")
    follower = cli.start("subscribe", topic, "--follow", "--from", "earliest")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"before\n"
    direct.publish(topic, b"after")
    assert follower.stdout.readline() == b"after\n"
    assert interrupt(follower) == (130, b"", b"")


def test_a_follower_with_a_limit_ends_by_itself(cli: Cli, direct: Direct, topic: str) -> None:
    follower = cli.start("subscribe", topic, "--follow", "--from", "earliest", "--max", "2")
    direct.publish(topic, b"one", b"two", b"three")
    out, err = follower.communicate(timeout=RUN_S)
    assert (follower.returncode, out, err) == (0, b"one\ntwo\n", b"")


def test_a_reader_that_has_had_enough_ends_the_command_quietly(cli: Cli, direct: Direct, topic: str) -> None:
    direct.publish(topic, *[b"a line that fills the pipe in time"] * 20_000)
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" subscribe "$1" | head -n 1', COMMAND, topic],
        capture_output=True,
        env=cli.environment,
        timeout=RUN_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a line that fills the pipe in time\n", b"")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 1, "there is no topic 'nowhere'; create it with"),
        (["TOPIC", "--partition", "4"], 1, "has 1 partitions, asked for partition 4"),
        (["TOPIC", "--from", "99"], 1, "offset 99 is not there; TOPIC-0 holds 0 to 0"),
        (["TOPIC", "--from", "noon"], 2, "'noon' is not a valid time; expected 2026-01-31T12:00:00Z or @176722"),
        (["TOPIC", "--from", "@noon"], 2, "'@noon' is not a valid time"),
        (["TOPIC", "--max", "0"], 2, "'--max'"),
        (["TOPIC", "--format", "{colour}"], 2, "unknown {colour}; known are {topic}, {partition}"),
        (["TOPIC", "--format", "yaml"], 2, "'yaml' is not value, line, json, or a template"),
        (["TOPIC", "--format", "line", "--json"], 2, "--json and --format both set the output format"),
    ],
)
def test_invalid_arguments_are_refused(cli: Cli, empty: str, arguments: list[str], code: int, words: str) -> None:
    said = cli.refused("subscribe", *(empty if part == "TOPIC" else part for part in arguments), code=code)
    assert words.replace("TOPIC", empty) in said
