"""`penstock group`: with groups of real consumers, of both protocols."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.client.cluster import KafkaClient
from penstock.client.groups import Groups
from tests.brokers import BrokerProcess
from tests.clients.conftest import QUICK_GROUPS
from tests.clients.group_members import crew, places_of
from tests.clients.waiting import wait_until

from .cli_runner import Cli, Direct, table

NOON_MS = 1769860800000  # 2026-01-31T12:00:00Z
KINDS = {"confluent-classic": "classic", "confluent-consumer": "consumer"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups begin at once."""
    process = BrokerProcess(tmp_path_factory.mktemp("group-broker"), QUICK_GROUPS).start()
    yield process.kafka
    process.finish()


@pytest.fixture(scope="module")
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture(scope="module")
def direct(bootstrap: str) -> Direct:
    return Direct(bootstrap)


@pytest.fixture
def orders(direct: Direct, fresh: str) -> str:
    """A topic of two partitions: five messages in the first, a second apart, and three in the other."""
    direct.create(fresh, 2, retention_ms="-1")
    for number in range(5):
        direct.publish(fresh, b"%d" % number, timestamp_ms=NOON_MS + 1000 * number)
    direct.publish(fresh, b"5", b"6", b"7", partition=1, timestamp_ms=NOON_MS + 2000)
    return fresh


@pytest.fixture
def group(orders: str) -> str:
    """A name that no group has yet."""
    return f"{orders}-group"


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    """Commit offsets of the first partitions, as no member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
        assert all(one.error is None for one in consumer.commit(offsets=places, asynchronous=False))
    finally:
        consumer.close()


def offsets_of(bootstrap: str, group: str) -> dict[int, int]:
    """What a group has committed, by partition."""

    async def work() -> dict[int, int]:
        async with KafkaClient(bootstrap) as client:
            return {place.partition: found.offset for place, found in (await Groups(client).offsets(group)).items()}

    return asyncio.run(work())


# -- list


def test_list_shows_groups_with_state_and_type(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, f"{group}-empty", orders, 1)
    with crew(bootstrap, group, topics=(orders,)) as members:
        members.join("confluent-consumer")
        members.wait_for_balance(places_of(orders, 2))
        header, *rows = table(cli.ok("group", "list"))
        assert header == ["GROUP", "STATE", "TYPE"]
        assert [group, "Stable", "consumer"] in rows
        assert [f"{group}-empty", "Empty", "classic"] in rows
        assert rows == sorted(rows)
        assert {"group": group, "state": "Stable", "type": "consumer"} in cli.json("group", "list")


def test_list_can_be_narrowed(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, f"{group}-empty", orders, 1)
    with crew(bootstrap, group, topics=(orders,)) as members:
        members.join("confluent-consumer")
        members.wait_for_balance(places_of(orders, 2))

        def named(*options: str) -> set[str]:
            return {found["group"] for found in cli.json("group", "list", *options)} & {group, f"{group}-empty"}

        assert named("--state", "Stable") == {group}
        assert named("--state", "empty") == {f"{group}-empty"}
        assert named("--type", "classic") == {f"{group}-empty"}
        assert named("--type", "consumer", "--state", "Stable") == {group}
        assert named("--state", "Stable", "--state", "Empty") == {group, f"{group}-empty"}


def test_list_without_groups_prints_that_there_are_none(cli: Cli) -> None:
    done = cli("group", "list", "--state", "Dead")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"No groups found")
    assert cli.json("group", "list", "--state", "Dead") == []
    assert "'other' is not one of" in cli.refused("group", "list", "--type", "other", code=2)


# -- describe


@pytest.mark.parametrize("kind", KINDS)
def test_describe_shows_owners_and_lag(
    cli: Cli, direct: Direct, bootstrap: str, orders: str, group: str, kind: str
) -> None:
    with crew(bootstrap, group, topics=(orders,)) as members:
        members.join(kind, client_id="reader")
        members.wait_for(8)
    direct.publish(orders, b"8", b"9", partition=1)
    watched = direct.create(f"{orders}-watched", 2)
    with crew(bootstrap, f"{group}-watch", topics=(watched,)) as members:
        one = members.join(kind, client_id="one", instance_id="static-one")
        members.join(kind, client_id="other")
        members.join(kind, client_id="idle")
        members.wait_for_balance(places_of(watched, 2))
        # Not earlier: the first member has all partitions for a moment, and commits what it has read of them.
        for number in range(2):
            direct.publish(watched, *[b"x"] * 5, partition=number)
        wait_until(lambda: cli.json("group", "describe", f"{group}-watch")[0]["state"] == "Stable", "a stable group")
        heading, partitions, *idle = cli.ok("group", "describe", f"{group}-watch").split("\n\n")
        assert heading.startswith(f"{group}-watch: Stable, {KINDS[kind]} group, 3 members, assignor ")
        assert heading.endswith(", coordinator 1")
        header, *rows = table(partitions)
        assert header == ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "CLIENT", "HOST"]
        assert [row[:5] for row in rows] == [[watched, "0", "-", "5", "-"], [watched, "1", "-", "5", "-"]]
        clients = {member.options.client_id: member for member in members.present}
        for row in rows:
            assert (watched, int(row[1])) in clients[row[6]].owned
            assert (row[5] == "static-one") == (row[6] == "one")
        (found,) = cli.json("group", "describe", f"{group}-watch")
        assert {entry["client_id"]: entry["partitions"] for entry in found["members"]} == {
            name: [f"{topic}-{number}" for topic, number in member.owned] for name, member in clients.items()
        }
        assert [entry["instance_id"] for entry in found["members"] if entry["client_id"] == "one"] == ["static-one"]
        (unused,) = [name for name, member in clients.items() if not member.owned]
        ((header, *rows),) = [table(each) for each in idle]
        assert header == ["IDLE MEMBER", "CLIENT", "HOST"]
        assert [row[1] for row in rows] == [unused]
        assert one.is_alive()
    heading, partitions = cli.ok("group", "describe", group).split("\n\n")
    assert heading.startswith(f"{group}: Empty, {KINDS[kind]} group, 0 members")
    assert table(partitions)[1:] == [
        [orders, "0", "5", "5", "0", "-", "-", "-"],
        [orders, "1", "3", "5", "2", "-", "-", "-"],
    ]


def test_describe_for_scripts_has_numbers(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, 4)
    assert cli.json("group", "describe", group) == [
        {
            "group": group,
            "state": "Empty",
            "type": "classic",
            "assignor": "",
            "coordinator": 1,
            "members": [],
            "partitions": [
                {"topic": orders, "partition": 0, "offset": 4, "end_offset": 5, "lag": 1, "member_id": None}
            ],
        }
    ]


def test_describe_refuses_a_group_that_is_not_there(cli: Cli) -> None:
    said = cli.refused("group", "describe", "missing", code=1)
    assert said == "there is no group 'missing'; `penstock group list` lists the groups"
    assert cli("group", "describe", "missing", "--json").stdout == b""


# -- reset


@pytest.mark.parametrize(
    ("where", "after"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [5, 3]),
        (["--to", "2"], [2, 2]),
        (["--to", "4"], [4, 3]),
        (["--to", "-2"], [3, 1]),
        (["--to", "-100"], [0, 0]),
        (["--to", "2026-01-31T12:00:01Z"], [1, 0]),
        (["--to", f"@{NOON_MS + 3000}"], [3, 3]),
        (["--shift", "1"], [4, 3]),
        (["--shift", "-2"], [1, 0]),
        (["--shift", "100"], [5, 3]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) and isinstance(value[0], str) else None,
)
def test_reset_shows_what_it_would_do_and_then_does_it(
    cli: Cli, bootstrap: str, orders: str, group: str, where: list[str], after: list[int]
) -> None:
    commit(bootstrap, group, orders, 3, 2)
    plan = [
        {"topic": orders, "partition": number, "before": before, "after": after[number], "executed": False}
        for number, before in enumerate((3, 2))
    ]
    assert cli.json("group", "reset", group, *where) == plan
    assert offsets_of(bootstrap, group) == {0: 3, 1: 2}
    assert cli.json("group", "reset", group, *where, "--execute") == [entry | {"executed": True} for entry in plan]
    assert offsets_of(bootstrap, group) == dict(enumerate(after))


def test_reset_shows_a_plan_that_people_can_read(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, 3)
    plan, done = cli.ok("group", "reset", group, "--topic", orders, "--to", "1").split("\n\n")
    assert table(plan) == [
        ["TOPIC", "PARTITION", "BEFORE", "AFTER", "LAG"],
        [orders, "0", "3", "1", "4"],
        [orders, "1", "-", "1", "2"],
    ]
    assert done == f"would reset (run with --execute): 2 partitions of group {group}\n"
    assert offsets_of(bootstrap, group) == {0: 3}
    _, done = cli.ok("group", "reset", group, "--topic", f"{orders}:1", "--to", "1", "--execute").split("\n\n")
    assert done == f"reset: 1 partition of group {group}\n"
    assert offsets_of(bootstrap, group) == {0: 3, 1: 1}


def test_reset_takes_several_topics_and_some_of_their_partitions(
    cli: Cli, direct: Direct, bootstrap: str, orders: str, group: str
) -> None:
    other = direct.create(f"{orders}-other", 3)
    commit(bootstrap, group, orders, 3, 2)
    moves = cli.json("group", "reset", group, "--topic", f"{orders}:0", "--topic", f"{other}:0,2", "--to", "latest")
    assert [(move["topic"], move["partition"], move["before"], move["after"]) for move in moves] == [
        (orders, 0, 3, 5),
        (other, 0, None, 0),
        (other, 2, None, 0),
    ]


def test_offsets_of_a_group_can_be_set_before_it_exists(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    cli.ok("group", "reset", group, "--topic", orders, "--to", "-1", "--execute")
    with crew(bootstrap, group, topics=(orders,)) as members:
        members.join("confluent-classic")
        members.wait_for(2)
    assert set(members.got()) == {b"4", b"7"}


@pytest.mark.parametrize("kind", KINDS)
def test_reset_and_delete_refuse_a_group_with_members(
    cli: Cli, bootstrap: str, orders: str, group: str, kind: str
) -> None:
    with crew(bootstrap, group, topics=(orders,)) as members:
        members.join(kind)
        members.wait_for_balance(places_of(orders, 2))
        words = (
            f"group '{group}' has members; stop its consumers first (`penstock group describe {group}` names them)"
        )
        assert cli.refused("group", "reset", group, "--topic", orders, "--to", "earliest", code=1) == words
        assert cli.refused("group", "delete", group, "--yes", code=1) == words
        assert members.present[0].owned == set(places_of(orders, 2))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "give either --to or --shift; see `penstock group reset --help`"),
        (["--to", "earliest", "--shift", "1"], 2, "give either --to or --shift"),
        (["--to", "yesterday"], 2, "'yesterday' is not a valid time"),
        (["--shift", "some"], 2, "'some' is not a valid integer"),
        (["--to", "earliest", "--topic", "nowhere"], 1, "there is no topic 'nowhere'"),
        (["--to", "earliest", "--topic", "TOPIC:7"], 2, "has partitions 0 to 1, not '7'"),
        (["--to", "earliest", "--topic", "TOPIC:x"], 2, "has partitions 0 to 1, not 'x'"),
        (["--to", "7", "--topic", "TOPIC"], 1, "offset 7 is not there"),
        (["--to", "earliest"], 1, "has no committed offsets; name a topic with --topic"),
        (["--to", "earliest", "--json"], 1, "has no committed offsets; name a topic with --topic"),
    ],
)
def test_reset_refuses_what_cannot_be(
    cli: Cli, orders: str, group: str, arguments: list[str], code: int, words: str
) -> None:
    named = [argument.replace("TOPIC", orders) for argument in arguments]
    assert words in cli.refused("group", "reset", group, *named, code=code)
    assert group not in {found["group"] for found in cli.json("group", "list")}


# -- delete


def test_delete_forgets_a_group_and_what_it_has_committed(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, 3, 2)
    assert "no terminal to ask for confirmation: give --yes" in cli.refused("group", "delete", group, code=2)
    assert offsets_of(bootstrap, group) == {0: 3, 1: 2}
    assert cli.ok("group", "delete", group, "--yes") == f"deleted group {group}\n"
    assert "there is no group" in cli.refused("group", "describe", group, code=1)


def test_delete_goes_on_after_a_group_that_is_not_there(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    for name in (group, f"{group}-2"):
        commit(bootstrap, name, orders, 1)
    done = cli("group", "delete", "missing", group, "--yes")
    assert (done.returncode, done.stdout.decode()) == (1, f"deleted group {group}\n")
    assert done.stderr.decode().startswith("Error: there is no group 'missing'")
    assert cli.json("group", "delete", f"{group}-2", "--yes") == [
        {"group": f"{group}-2", "deleted": True, "error": None}
    ]
    done = cli("group", "delete", "missing", "--yes", "--json")
    assert done.returncode == 1
    assert done.stdout.startswith(b'{"group": "missing", "deleted": false, "error": "there is no group')


def test_delete_asks_on_a_terminal(cli: Cli, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, 1)
    code, screen = cli.on_terminal("group", "delete", group, typed=b"n\n", until=b"[y/N]")
    assert code == 1
    assert "nothing was deleted" in screen
    assert f"Delete {group} and the committed offsets?" in screen
    assert offsets_of(bootstrap, group) == {0: 1}
    code, screen = cli.on_terminal("group", "delete", group, typed=b"y\n", until=b"[y/N]")
    assert code == 0
    assert f"deleted group {group}" in screen


def test_a_broker_that_is_not_there_is_named(group: str) -> None:
    assert "127.0.0.1:1" in Cli("127.0.0.1:1").refused("group", "list", code=1)
