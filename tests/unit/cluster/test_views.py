"""Views in the store and in the image: visible to readers only."""

import pytest

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_changes import plan_delete
from penstock.cluster.view_changes import (
    VIEWS_PER_TOPIC_MAX,
    TooManyViews,
    plan_drop,
    plan_touch,
    plan_view,
    views_on,
)
from penstock.cluster.views import View
from penstock.coordination.store import Conflict
from penstock.foundation.errors import InvalidTopic, TopicExists, UnknownTopicOrPartition

from .images import Table, table_with_brokers

VIEW_ID = b"\7" * 16


def view(name: str = "orders-eu", of: str = "orders", view_id: bytes = VIEW_ID, idle_ms: int = 0) -> View:
    return View(view_id=view_id, name=name, topic_id=b"", of=of, where="tag = 'eu'", created_ms=5, idle_ms=idle_ms)


@pytest.fixture
def table() -> Table:
    made = table_with_brokers(1, 2)
    made.create("orders", partitions=3)
    return made


def test_a_view_has_the_partitions_of_its_topic(table: Table) -> None:
    table.transact(plan_view(table.image, view()))
    image = table.image
    shown = image.shown_by_name["orders-eu"]
    assert shown is image.shown[VIEW_ID]
    assert shown.partitions == image.by_name["orders"].partitions
    assert shown.configs == {"view.of": "orders", "view.where": "tag = 'eu'"}
    assert views_on(image, image.by_name["orders"].topic_id) == [shown.view]


def test_replication_never_sees_a_view(table: Table) -> None:
    before = list(table.image.find_partitions())
    table.transact(plan_view(table.image, view()))
    assert list(table.image.find_partitions()) == before
    assert VIEW_ID not in table.image.topics
    assert "orders-eu" not in table.image.by_name


def test_without_views_the_tables_are_the_same_ones(table: Table) -> None:
    image = table.image
    assert (image.shown, image.shown_by_name) == (image.topics, image.by_name)
    assert image.shown is image.topics
    assert image.listed_by_name() is image.by_name


def test_a_view_for_one_reader_is_shown_and_not_listed(table: Table) -> None:
    table.transact(plan_view(table.image, view(idle_ms=60_000)))
    assert "orders-eu" in table.image.shown_by_name
    assert "orders-eu" not in table.image.listed_by_name()
    table.transact(plan_touch(table.image, VIEW_ID))
    assert table.image.views[VIEW_ID].touched == 1


def test_an_image_that_is_built_at_once_is_the_same(table: Table) -> None:
    table.transact(plan_view(table.image, view(idle_ms=5000)))
    assert ClusterImage().with_change(table.snapshot()) == table.image


def test_a_name_is_given_once_whichever_is_made_first(table: Table) -> None:
    table.transact(plan_view(table.image, view()))
    with pytest.raises(TopicExists):
        table.create("orders-eu")
    with pytest.raises(TopicExists):
        plan_view(table.image, view(view_id=b"\10" * 16))
    with pytest.raises(TopicExists):
        plan_view(table.image, view("orders"))
    table.transact(plan_view(table.image, view("orders.eu", view_id=b"\11" * 16)))
    for name in ("orders_eu", "orders.eu"):
        with pytest.raises((InvalidTopic, TopicExists)):
            table.create(name)
    table.create("orders.us")
    with pytest.raises(InvalidTopic):
        plan_view(table.image, view("orders_us", view_id=b"\12" * 16))


def test_two_that_take_a_name_at_once_meet_in_the_store(table: Table) -> None:
    seen = table.image
    table.create("orders-eu")
    with pytest.raises(Conflict):
        table.transact(plan_view(seen, view()))


@pytest.mark.parametrize(
    ("of", "error"),
    [("missing", UnknownTopicOrPartition), ("orders-eu", InvalidTopic), ("__consumer_offsets", InvalidTopic)],
)
def test_topics_that_cannot_have_views_are_refused(table: Table, of: str, error: type[Exception]) -> None:
    table.create("__consumer_offsets")
    table.transact(plan_view(table.image, view()))
    with pytest.raises(error):
        plan_view(table.image, view("another", of, b"\10" * 16))


def test_a_topic_that_is_deleted_meanwhile_gets_no_view(table: Table) -> None:
    ops = plan_view(table.image, view())
    topic = table.image.by_name["orders"]
    table.transact(plan_delete(topic, table.version(keys.topic_name("orders"))))
    with pytest.raises(Conflict):
        table.transact(ops)


def test_a_view_whose_topic_is_gone_is_not_shown_and_keeps_its_name_until_it_is_dropped(table: Table) -> None:
    table.transact(plan_view(table.image, view()))
    topic = table.image.by_name["orders"]
    table.transact(plan_delete(topic, table.version(keys.topic_name("orders"))))
    assert "orders-eu" not in table.image.shown_by_name
    with pytest.raises(TopicExists):
        table.create("orders-eu")
    table.create("orders")  # another topic of that name: the view is not of it
    assert "orders-eu" not in table.image.shown_by_name
    table.transact(plan_drop(table.image, VIEW_ID))
    assert plan_drop(table.image, VIEW_ID) == []
    table.create("orders-eu")


def test_a_topic_has_only_so_many_views(table: Table) -> None:
    views = [view(f"view-{number}", view_id=number.to_bytes(16, "big")) for number in range(1, VIEWS_PER_TOPIC_MAX)]
    table.transact(op for wanted in views for op in plan_view(table.image, wanted))
    table.transact(plan_view(table.image, view("last", view_id=bytes(16))))
    with pytest.raises(TooManyViews):
        plan_view(table.image, view())
