import pytest

from .cli_runner import Cli, Direct, table

NOON_MS = 1769860800000  # 2026-01-31T12:00:00Z


def test_create_says_what_it_made(cli: Cli, fresh: str) -> None:
    assert cli.ok("topic", "create", fresh, "--partitions", "3") == (
        f"created topic {fresh}: 3 partitions, 1 replica each\n"
    )
    assert cli.json("topic", "create", f"{fresh}-2", "--replication-factor", "1") == [
        {"topic": f"{fresh}-2", "partitions": 1, "replication_factor": 1, "created": True}
    ]


def test_create_refuses_a_name_that_is_taken_unless_that_is_fine(cli: Cli, topic: str) -> None:
    assert cli.refused("topic", "create", topic, code=1) == f"topic '{topic}' exists already"
    assert cli.ok("topic", "create", topic, "--if-not-exists") == (
        f"topic {topic} already exists: 1 partition, 1 replica each\n"
    )
    (answer,) = cli.json("topic", "create", topic, "--if-not-exists", "--partitions", "9")
    assert (answer["created"], answer["partitions"]) == (False, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bad/name"], 1, "only letters, digits"),
        (["t", "--config", "colour=red"], 1, "unknown setting 'colour'; known are cleanup.policy"),
        (["t", "--config", "flush=never"], 1, "flush='never' is not allowed; expected os or group"),
        (["t", "--config", "flush"], 2, "'flush' is not name=value; see `penstock topic create --help`"),
        (["t", "--replication-factor", "3"], 1, "3 replicas need 3 brokers, but 1 are available"),
        (["t", "--partitions", "0"], 2, "'--partitions'"),
        ([], 2, "Missing argument 'NAME'; see `penstock topic create --help`"),
    ],
)
def test_create_refuses_what_cannot_be(cli: Cli, arguments: list[str], code: int, words: str) -> None:
    assert words in cli.refused("topic", "create", *arguments, code=code)


def test_list_shows_topics_by_name(cli: Cli, topic: str) -> None:
    header, *rows = table(cli.ok("topic", "list"))
    assert header == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [topic, "1", "1"] in rows
    assert {"topic": topic, "partitions": 1, "replication_factor": 1, "internal": False} in cli.json("topic", "list")
    header, *rows = table(cli.ok("topic", "list", "--internal"))
    assert [topic, "1", "1", "no"] in rows


def test_describe_shows_partitions_and_the_settings_that_are_not_defaults(
    cli: Cli, direct: Direct, fresh: str
) -> None:
    direct.create(fresh, 2, retention_ms="86400000")
    direct.publish(fresh, b"hello", partition=1)
    heading, partitions, settings = cli.ok("topic", "describe", fresh).split("\n\n")
    assert heading.startswith(f"{fresh}: 2 partitions, 1 replica each, id ")
    assert table(partitions) == [
        ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "START", "END", "SIZE"],
        ["0", "1", "0", "1", "1", "0", "0", "0 B"],
        ["1", "1", "0", "1", "1", "0", "1", "73 B"],
    ]
    assert table(settings) == [["SETTING", "VALUE", "SOURCE"], ["retention.ms", "86400000", "topic"]]
    assert ["flush", "os", "default"] in table(cli.ok("topic", "describe", fresh, "--all-configs").split("\n\n")[2])


def test_describe_for_scripts_has_numbers(cli: Cli, direct: Direct, topic: str) -> None:
    direct.publish(topic, b"hello")
    (found,) = cli.json("topic", "describe", topic)
    assert found["topic"] == topic
    assert len(found["id"]) == 22
    (partition,) = found["partitions"]
    assert partition == {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "start_offset": 0,
        "end_offset": 1,
        "size_bytes": 73,
        "problem": None,
    }
    assert found["configs"] == []
    assert "All settings have their defaults" in cli.ok("topic", "describe", topic)


def test_alter_changes_settings_and_adds_partitions(cli: Cli, direct: Direct, fresh: str) -> None:
    direct.create(fresh, retention_ms="1000", segment_ms="500")
    said = cli.ok(
        "topic", "alter", fresh, "--config", "flush=group", "--delete-config", "segment.ms", "--partitions", "3"
    )
    assert said == f"changed topic {fresh}: flush=group, segment.ms reset to its default, 3 partitions\n"
    (found,) = cli.json("topic", "describe", fresh)
    assert {entry["name"]: entry["value"] for entry in found["configs"]} == {
        "flush": "group",
        "retention.ms": "1000",
    }
    assert len(found["partitions"]) == 3
    assert cli.json("topic", "alter", fresh, "--config", "flush=os") == [
        {"topic": fresh, "set": {"flush": "os"}, "deleted": [], "partitions": None}
    ]


def test_alter_refuses_what_cannot_be_and_says_what_was_done(cli: Cli, topic: str) -> None:
    assert "nothing to change" in cli.refused("topic", "alter", topic, code=2)
    assert "there is no topic 'nowhere'" in cli.refused("topic", "alter", "nowhere", "--partitions", "2", code=1)
    assert "expected os or group" in cli.refused("topic", "alter", topic, "--config", "flush=x", code=1)
    said = cli.refused("topic", "alter", topic, "--config", "flush=group", "--partitions", "1", code=1)
    assert said.startswith("settings changed, but no partitions added: ")


def test_delete_needs_yes_without_a_terminal(cli: Cli, topic: str) -> None:
    assert "no terminal to ask for confirmation: give --yes" in cli.refused("topic", "delete", topic, code=2)
    assert cli.ok("topic", "delete", topic, "--yes") == f"deleted topic {topic}\n"
    assert topic not in cli.ok("topic", "list")


def test_delete_goes_on_after_a_topic_that_is_not_there(cli: Cli, topic: str) -> None:
    done = cli("topic", "delete", "nowhere", topic, "--yes")
    assert done.returncode == 1
    assert done.stdout.decode() == f"deleted topic {topic}\n"
    assert done.stderr.decode().startswith("Error: there is no topic 'nowhere'")
    done = cli("topic", "delete", "nowhere", "--yes", "--json")
    assert done.returncode == 1
    assert done.stdout.startswith(b'{"topic": "nowhere", "deleted": false, "error": "there is no topic')


def test_delete_asks_on_a_terminal(cli: Cli, topic: str) -> None:
    code, screen = cli.on_terminal("topic", "delete", topic, typed=b"n\n", until=b"[y/N]")
    assert code == 1
    assert "nothing was deleted" in screen
    assert f"Delete {topic} and all messages?" in screen
    assert topic in cli.ok("topic", "list")
    code, screen = cli.on_terminal("topic", "delete", topic, typed=b"y\n", until=b"[y/N]")
    assert code == 0
    assert f"deleted topic {topic}" in screen


def test_trim_drops_what_lies_before_an_offset_a_time_or_the_end(cli: Cli, direct: Direct, lasting: str) -> None:
    for number in range(5):
        direct.publish(lasting, b"m%d" % number, timestamp_ms=NOON_MS + 1000 * number)
    assert table(cli.ok("topic", "trim", lasting, "--before", "2", "--yes")) == [
        ["TOPIC", "PARTITION", "STARTS AT"],
        [lasting, "0", "2"],
    ]
    assert direct.values(lasting) == [b"m2", b"m3", b"m4"]
    assert cli.json("topic", "trim", lasting, "--before", "2026-01-31T12:00:03Z", "--yes") == [
        {"topic": lasting, "partition": 0, "start_offset": 3}
    ]
    assert cli.json("topic", "trim", lasting, "--before", f"@{NOON_MS + 4000}", "--yes") == [
        {"topic": lasting, "partition": 0, "start_offset": 4}
    ]
    assert cli.json("topic", "trim", lasting, "--before", "end", "--yes")[0]["start_offset"] == 5
    assert direct.values(lasting) == []


def test_trim_asks_first(cli: Cli, direct: Direct, lasting: str) -> None:
    direct.publish(lasting, b"a", b"b", b"c")
    trim = ["topic", "trim", lasting, "--before", "2"]
    assert "no terminal to ask for confirmation: give --yes" in cli.refused(*trim, code=2)
    code, screen = cli.on_terminal(*trim, typed=b"n\n", until=b"[y/N]")
    assert code == 1
    assert f"Delete 2 messages of topic {lasting} permanently?" in screen
    assert direct.values(lasting) == [b"a", b"b", b"c"]
    code, screen = cli.on_terminal(*trim, typed=b"y\n", until=b"[y/N]")
    assert code == 0
    assert direct.values(lasting) == [b"c"]


def test_trim_by_time_drops_everything_where_all_of_it_is_older(cli: Cli, direct: Direct, lasting: str) -> None:
    direct.publish(lasting, b"old", timestamp_ms=0)
    assert cli.json("topic", "trim", lasting, "--before", "2026-01-31T12:00:00Z", "--yes")[0]["start_offset"] == 1


def test_trim_refuses_an_offset_that_is_not_there_or_belongs_to_no_one_partition(
    cli: Cli, direct: Direct, fresh: str
) -> None:
    direct.create(fresh, 2)
    direct.publish(fresh, b"a", b"b", partition=1)
    said = cli.refused("topic", "trim", fresh, "--before", "1", code=2)
    assert "has 2 partitions; an offset needs --partition" in said
    assert "does not hold that offset" in cli.refused(
        "topic", "trim", fresh, "--before", "7", "--partition", "1", "--yes", code=1
    )
    assert "has 2 partitions, asked for partition 5" in cli.refused(
        "topic", "trim", fresh, "--before", "1", "--partition", "5", code=1
    )
    assert "'yesterday' is not an offset" in cli.refused("topic", "trim", fresh, "--before", "yesterday", code=2)
    assert cli.json("topic", "trim", fresh, "--before", "1", "--partition", "1", "--yes") == [
        {"topic": fresh, "partition": 1, "start_offset": 1}
    ]
