"""`penstock group` with a group of share consumers."""

from collections.abc import Iterator

import pytest

from tests.brokers import BrokerProcess
from tests.clients.conftest import QUICK_SHARING
from tests.clients.share_raw import ACCEPT, ShareMember, earliest

from .cli_runner import Cli, Direct, table


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    unhurried = {"group.share.session.timeout.ms": 60_000}  # the member says nothing while commands run
    process = BrokerProcess(tmp_path_factory.mktemp("share-broker"), QUICK_SHARING | unhurried).start()
    yield process
    process.finish()


def test_a_share_group_is_listed_described_and_deleted(
    broker: BrokerProcess, fresh: str, request: pytest.FixtureRequest
) -> None:
    cli, direct = Cli(broker.kafka), Direct(broker.kafka)
    direct.create(fresh, 1)
    direct.publish(fresh, b"0", b"1", b"2")
    group = f"g-{fresh}"
    earliest(broker, group)
    member = ShareMember(broker, group, fresh)
    request.addfinalizer(member.close_connection)
    member.join().take(3)
    member.acknowledge((0, 0, [ACCEPT]))
    (listed,) = [row for row in cli.json("group", "list", "--type", "share") if row["group"] == group]
    assert listed == {"group": group, "state": "Stable", "type": "share"}
    (found,) = cli.json("group", "describe", group)
    assert (found["type"], found["assignor"], len(found["members"])) == ("share", "simple", 1)
    assert found["partitions"] == [{"topic": fresh, "partition": 0, "start_offset": 1, "lag": 2}]
    shown = cli.ok("group", "describe", group)
    assert "share group, 1 member" in shown
    header, row = table(shown.partition("\n")[2])
    assert header == ["TOPIC", "PARTITION", "START", "LEFT", "MEMBERS", "CLIENTS"]
    assert row == [fresh, "0", "1", "2", "1", "raw@/127.0.0.1"]
    member.beat(-1)
    cli.ok("group", "delete", group, "--yes")
    assert "there is no group" in cli.refused("group", "describe", group, code=1)
