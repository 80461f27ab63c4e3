"""`penstock view`."""

import pytest

from .cli_runner import Cli, Direct, table


@pytest.fixture
def view(cli: Cli, topic: str) -> str:
    name = f"{topic}-eu"
    assert cli.ok("view", "create", name, "--of", topic, "--where", "tag = 'eu'") == (
        f"created view {name} of topic {topic}: 1 partition\n"
    )
    return name


def test_a_view_is_listed_and_described(cli: Cli, direct: Direct, topic: str, view: str) -> None:
    direct.publish(topic, b"hello")
    header, *rows = table(cli.ok("view", "list", "--of", topic))
    assert header == ["VIEW", "OF", "PARTITIONS", "WHERE"]
    assert rows == [[view, topic, "1", "tag = 'eu'"]]
    expected = {"view": view, "of": topic, "where": "tag = 'eu'", "partitions": 1, "idle_ms": 0}
    assert expected in cli.json("view", "list")
    text = cli.ok("view", "describe", view)
    assert f"view {view} of topic {topic}\nwhere tag = 'eu'\n" in text
    (described,) = cli.json("view", "describe", view)
    assert described == expected | {"offsets": [{"partition": 0, "leader": 1, "isr": "1", "first": 0, "end": 1}]}


def test_a_view_is_read_and_dropped(cli: Cli, topic: str, view: str) -> None:
    cli.ok("publish", topic, "one", "--header", "tag=eu")
    cli.ok("publish", topic, "two", "--header", "tag=us")
    assert [each["value"] for each in cli.json("subscribe", view)] == ["one"]
    assert "no terminal to ask for confirmation: give --yes" in cli.refused("view", "drop", view, code=2)
    assert cli.ok("view", "drop", view, "--yes") == f"deleted view {view}\n"
    assert cli.json("view", "list", "--of", topic) == []
    assert f"'{topic}' is a topic, not a view" in cli.refused("view", "drop", topic, "--yes", code=1)


def test_the_same_view_may_be_asked_for_again(cli: Cli, topic: str, view: str) -> None:
    again = ["view", "create", view, "--of", topic, "--where"]
    assert "drop it, or use another name" in cli.refused(*again, "tag = 'eu'", code=1)
    assert cli.ok(*again, "tag = 'eu'", "--if-not-exists").startswith(f"view {view} already exists")
    assert "a different view" in cli.refused(*again, "tag = 'us'", "--if-not-exists", code=1)


def test_the_error_position_in_a_condition_is_marked(cli: Cli, topic: str) -> None:
    done = cli("view", "create", f"{topic}-2", "--of", topic, "--where", "tag = 'eu' AND lower(x) = 'y'")
    assert done.returncode == 1
    *_, line, arrows = done.stderr.decode().rstrip().splitlines()
    assert line[arrows.index("^") : arrows.rindex("^") + 1] == "lower"


def test_a_cluster_is_surveyed_without_its_views(cli: Cli, topic: str, view: str) -> None:
    assert view in cli.ok("topic", "list")
    found = cli.json("cluster", "status")
    assert view not in str(found)
    assert view not in cli.ok("cluster", "rebalance")
