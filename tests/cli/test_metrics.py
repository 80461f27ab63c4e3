"""`penstock metrics`."""

from .cli_runner import Cli, table


def test_a_subscription_is_made_listed_replaced_and_removed(cli: Cli, topic: str) -> None:
    match = f"client_id={topic}-.*"
    made = cli.ok(
        "metrics", "subscribe", topic, "--metrics", "a.", "--metrics", "b.", "--every", "10s", "--match", match
    )
    assert made == f"subscription {topic}: a.,b., every 10 s, from {match}\n"
    header, *rows = table(cli.ok("metrics", "list"))
    assert header == ["SUBSCRIPTION", "METRICS", "EVERY", "CLIENTS"]
    assert [topic, "a.,b.", "10 s", match] in rows
    assert cli.json("metrics", "subscribe", topic, "--match", match) == [
        {"subscription": topic, "metrics": "*", "interval.ms": "300000", "match": match}
    ]
    assert [topic, "all metrics", "300 s", match] in table(cli.ok("metrics", "list"))
    assert cli.ok("metrics", "unsubscribe", topic) == f"removed subscription {topic}\n"
    assert topic not in {each["subscription"] for each in cli.json("metrics", "list")}
    assert f"there is no subscription '{topic}'" in cli.refused("metrics", "unsubscribe", topic, code=1)


def test_wrong_subscriptions_are_refused_with_what_is_right(cli: Cli, topic: str) -> None:
    assert "is not a duration" in cli.refused("metrics", "subscribe", topic, "--every", "soon", code=2)
    assert "expected 100 to 3600000" in cli.refused("metrics", "subscribe", topic, "--every", "2h", code=1)
    refused = cli.refused("metrics", "subscribe", topic, "--match", "colour=blue", code=1)
    assert "the name one of client_instance_id, client_id" in refused
