"""A view of a topic with delayed messages shows each when it is due, and not before."""

import pytest

from penstock.foundation.delays import DELAY, DUE_AT

from .driver_confluent import ConfluentDriver
from .drivers import AdminDriver, Outgoing

EU = ("tag", b"eu")
US = ("tag", b"us")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_view_shows_delayed_messages_when_they_are_due(
    admin_client: AdminDriver, confluent: ConfluentDriver, topic: str, compression: str
) -> None:
    confluent.create_topic(topic, configs={"delayed.messages": "true"})
    view = f"{topic}-view"
    confluent.create_topic(view, configs={"view.of": topic, "view.where": "tag = 'eu'"})
    sent = [
        Outgoing(value=b"now", headers=(EU,)),
        Outgoing(value=b"late", headers=(EU, (DELAY, b"800ms"))),
        Outgoing(value=b"elsewhere", headers=(US, (DELAY, b"100ms"))),
        Outgoing(value=b"also now", headers=(EU,)),
        Outgoing(value=b"soon", headers=(EU, (DELAY, b"300ms"))),
    ]
    admin_client.produce(topic, sent, compression=compression)
    found = admin_client.consume_from_start(view, 4)
    assert [each.value for each in found] == [b"now", b"also now", b"soon", b"late"]
    assert [each.offset for each in found[:2]] == [0, 3]
    for each in found[2:]:
        assert each.offset >= len(sent)
        assert int(dict(each.headers)[DUE_AT]) <= each.timestamp_ms


def test_a_view_ends_where_its_topic_is_held_back(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"delivery.delay.ms": "3600000"})
    view = f"{topic}-view"
    confluent.create_topic(view, configs={"view.of": topic, "view.where": "tag = 'eu'"})
    confluent.produce(topic, [Outgoing(value=b"in an hour", headers=(EU,))])
    assert confluent.range(topic) == confluent.range(view) == (0, 0)
    confluent.alter_configs(topic, {"delivery.delay.ms": "0"})
    assert [each.value for each in confluent.consume_from_start(view, 1)] == [b"in an hour"]
