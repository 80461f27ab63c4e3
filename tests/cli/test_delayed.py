"""`penstock publish --delay` and `penstock delayed`."""

from .cli_runner import Cli, Direct, table


def test_a_delayed_message_is_listed_and_cancelled(cli: Cli, direct: Direct, fresh: str) -> None:
    cli.ok("topic", "create", fresh, "--config", "delayed.messages=true")
    cli.ok("publish", fresh, "later", "--key", "k", "--delay", "2h")
    cli.ok("publish", fresh, "sooner", "--deliver-at", "2027-01-01T00:00:00Z")
    cli.ok("publish", fresh, "now")
    found = {row["offset"]: row for row in cli.json("delayed", "list", fresh)}
    assert sorted(found) == [0, 1]
    assert (found[0]["key"], found[0]["bytes"], found[0]["partition"]) == ("k", 5, 0)
    header, *rows = table(cli.ok("delayed", "list", fresh))
    assert header == ["PARTITION", "OFFSET", "DUE", "KEY", "BYTES"]
    assert len(rows) == 2
    assert cli.json("delayed", "cancel", fresh, "--key", "k") == [{"partition": 0, "offset": 0, "cancelled": True}]
    done = cli.json("delayed", "cancel", fresh, "--partition", "0", "--offset", "0", "--offset", "1")
    assert [row["cancelled"] for row in done] == [False, True]
    assert cli.json("delayed", "list", fresh) == []
    assert direct.values(fresh) == [b"now"]


def test_invalid_options_are_reported_before_anything_is_sent(cli: Cli, topic: str) -> None:
    assert "is not a duration" in cli.refused("publish", topic, "x", "--delay", "soon", code=2)
    assert "give one of them" in cli.refused("publish", topic, "x", "--delay", "1s", "--deliver-at", "@5", code=2)
    for options in (("--delay", "1s"), ("--deliver-at", "@5"), ("--header", "penstock-delay=1s")):
        said = cli.refused("publish", topic, "x", *options, code=1)
        assert f"`penstock topic alter {topic} --config delayed.messages=true`" in said
    assert "--key" in cli.refused("delayed", "cancel", topic, code=2)
    assert "must be given together" in cli.refused("delayed", "cancel", topic, "--offset", "1", code=2)


def test_a_topic_without_delayed_messages_is_reported_as_such(cli: Cli, topic: str) -> None:
    assert "delayed.messages=true" in cli.refused("delayed", "list", topic, code=1)
