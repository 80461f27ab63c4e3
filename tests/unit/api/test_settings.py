import pytest

from penstock.api.core.settings import (
    LINGER_MANY_MS,
    Delivery,
    Settings,
    consumer_config,
    delivery_of,
    is_incremental,
    producer_config,
    transactional_config,
)
from penstock.api.errors import InvalidArgument

SETTINGS = Settings(servers="a:1,b:2", timeout_s=7)


def test_at_most_once_has_no_acks_and_no_retries() -> None:
    config = producer_config(SETTINGS, Delivery.AT_MOST_ONCE, linger_ms=0)
    assert (config["acks"], config["retries"], config["enable.idempotence"]) == (0, 0, False)


def test_at_least_once_asks_all_replicas_and_may_send_twice() -> None:
    config = producer_config(SETTINGS, Delivery.AT_LEAST_ONCE, linger_ms=0)
    assert (config["acks"], config["enable.idempotence"]) == ("all", False)
    assert "retries" not in config  # as often as the time allows


def test_exactly_once_numbers_its_messages() -> None:
    config = producer_config(SETTINGS, Delivery.EXACTLY_ONCE, linger_ms=0)
    assert (config["acks"], config["enable.idempotence"]) == ("all", True)


@pytest.mark.parametrize("delivery", list(Delivery))
def test_keys_are_spread_as_kafkas_own_clients_do_it(delivery: Delivery) -> None:
    assert producer_config(SETTINGS, delivery, linger_ms=0)["partitioner"] == "murmur2_random"


def test_a_message_fails_after_the_timeout_of_the_connection() -> None:
    assert producer_config(SETTINGS, Delivery.EXACTLY_ONCE, linger_ms=0)["message.timeout.ms"] == 7000


def test_messages_of_a_transaction_fail_before_the_transaction_times_out() -> None:
    config = transactional_config(SETTINGS, "billing-1", 5)
    assert config["transactional.id"] == "billing-1"
    assert config["transaction.timeout.ms"] == 5000
    assert config["message.timeout.ms"] == 5000
    assert config["enable.idempotence"] is True
    assert config["linger.ms"] == LINGER_MANY_MS
    assert transactional_config(SETTINGS, "billing-1", 60)["message.timeout.ms"] == 7000


def test_a_consumer_commits_explicitly_and_reads_committed() -> None:
    config = consumer_config(SETTINGS, "billing", 300)
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["isolation.level"] == "read_committed"
    assert config["group.id"] == "billing"
    assert config["max.poll.interval.ms"] == 300_000
    assert is_incremental(config)


def test_a_member_may_not_be_silent_for_longer_than_it_may_process() -> None:
    """librdkafka refuses a session that is longer than the time between two polls."""
    assert consumer_config(SETTINGS, "billing", 300)["session.timeout.ms"] == 45_000
    assert consumer_config(SETTINGS, "billing", 10)["session.timeout.ms"] == 10_000


def test_options_win_over_our_own_choices() -> None:
    settings = Settings(servers="a:1", options={"isolation.level": "read_uncommitted", "heartbeat.interval.ms": 100})
    config = consumer_config(settings, "billing", 300)
    assert config["isolation.level"] == "read_uncommitted"
    assert config["heartbeat.interval.ms"] == 100


def test_members_of_the_new_protocol_leave_their_times_to_the_broker() -> None:
    """KIP-848: librdkafka refuses what only classic members choose."""
    config = consumer_config(Settings(servers="a:1", options={"group.protocol": "consumer"}), "billing", 300)
    assert not config.keys() & {"partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms"}
    assert is_incremental(config)


def test_other_ways_to_assign_partitions_are_known_to_be_all_or_nothing() -> None:
    settings = Settings(servers="a:1", options={"partition.assignment.strategy": "range"})
    assert not is_incremental(consumer_config(settings, "billing", 300))


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("acks", "delivery="),
        ("enable.idempotence", "delivery="),
        ("transactional.id", "mq.transaction"),
        ("group.id", "group="),
        ("enable.auto.commit", "delivery="),
        ("auto.offset.reset", "from_="),
        ("bootstrap.servers", "first argument"),
        ("delivery.timeout.ms", "timeout_s="),
    ],
)
def test_options_that_the_promises_rest_on_are_refused(option: str, instead: str) -> None:
    with pytest.raises(InvalidArgument, match=instead):
        Settings(servers="a:1", options={option: 1})


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:0", "localhost:port"])
def test_servers_that_are_no_addresses_are_refused(servers: str) -> None:
    with pytest.raises(InvalidArgument, match=r"HOST:PORT"):
        Settings(servers=servers)


@pytest.mark.parametrize("name", ["timeout_s", "refresh_s"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_times_must_be_above_zero_and_have_an_end(name: str, value: float) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}={value} is invalid"):
        Settings(servers="a:1", **{name: value})


def test_a_call_s_delivery_wins_over_the_connection_s_which_wins_over_the_usual() -> None:
    plain, at_most_once = Settings(servers="a:1"), Settings(servers="a:1", delivery=Delivery.AT_MOST_ONCE)
    assert delivery_of(None, plain, Delivery.EXACTLY_ONCE) is Delivery.EXACTLY_ONCE
    assert delivery_of(None, at_most_once, Delivery.EXACTLY_ONCE) is Delivery.AT_MOST_ONCE
    assert delivery_of("at-least-once", at_most_once, Delivery.EXACTLY_ONCE) is Delivery.AT_LEAST_ONCE
    with pytest.raises(InvalidArgument, match="'at-most-once', 'at-least-once', 'exactly-once'"):
        delivery_of("twice", at_most_once, Delivery.EXACTLY_ONCE)
