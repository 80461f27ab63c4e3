"""Access keys in the store of a cluster: every broker accepts them, unless its secret key differs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from penstock.client.access_keys import AccessKeys
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

from .key_lab import (
    INVALID,
    SETTING,
    ask,
    client_of,
    create,
    is_accepted,
    new_secret_key,
    refusal,
    wait_accepted,
    wait_refused,
)
from .queue_calls import bodies, receive

VARIABLE = "SQS_SECRET_KEY"


@pytest.fixture(params=["etcd", pytest.param("zookeeper", marks=pytest.mark.slow)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(
        tmp_path, 2, {SETTING: f"${{env:{VARIABLE}}}"}, environment={VARIABLE: new_secret_key()}, kind=request.param
    )
    yield made
    made.finish()


def test_all_brokers_follow_the_keys(cluster: ClusterProcesses, models: Path, name: str) -> None:
    first, second = cluster.brokers.values()
    key, other = create(first.kafka), create(second.kafka, "billing")
    wait_accepted(second.http, models, key)
    wait_accepted(first.http, models, other)
    with client_of(second.http, models, key) as sqs:
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="x")
        assert bodies(receive(sqs, url, 1, 20)) == ["x"]
    ask(first.kafka, lambda keys: keys.set_enabled(key.access_key, False))
    wait_refused(second.http, models, key)
    ask(second.kafka, lambda keys: keys.set_enabled(key.access_key, True))
    wait_accepted(first.http, models, key)
    ask(second.kafka, lambda keys: keys.delete(key.access_key))
    wait_refused(first.http, models, key)
    for broker in (first, second):
        assert is_accepted(broker.http, models, other)
        assert key.secret not in broker.log


def test_a_broker_with_another_secret_key_refuses_keys(cluster: ClusterProcesses, models: Path) -> None:
    first, second = cluster.brokers.values()
    key = create(first.kafka)
    third: BrokerProcess = cluster.add(3, {VARIABLE: new_secret_key()})
    assert f"access_keys_are_unusable keys={key.access_key} count=1" in third.log
    assert "sqs.secret.key differs; set the one with which they were made" in third.log
    code, said = refusal(third.http, models, key)
    assert code == INVALID
    assert "sqs.secret.key differs from the one with which it was encrypted" in said
    with pytest.raises(
        ServerError, match=r"encrypted with another sqs\.secret\.key than that of this broker"
    ) as raised:
        create(third.kafka)
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    (seen,) = ask(third.kafka, AccessKeys.all)
    assert (seen.access_key, seen.is_usable) == (key.access_key, False)
    later = create(second.kafka)
    wait_until(lambda: f"access_keys_are_unusable keys={later.access_key}" in third.log, "it warns of new keys")
    for broker in (first, second):
        wait_accepted(broker.http, models, later)
        assert "access_keys_are_unusable" not in broker.log
    ask(third.kafka, lambda keys: keys.delete_all("orders"))  # for this, the secret key is not needed
    for broker in (first, second):
        wait_refused(broker.http, models, key)


def test_keys_created_at_the_same_time_at_two_brokers_are_all_kept(cluster: ClusterProcesses) -> None:

    first, second = cluster.brokers.values()

    async def create_many() -> list[str]:
        async with KafkaClient(first.kafka) as one, KafkaClient(second.kafka) as two:
            made = await asyncio.gather(*(AccessKeys(client).create("orders") for client in (one, two) * 5))
            return sorted(key.access_key for key in made)

    made = uvloop.run(create_many())

    def listed() -> list[str]:
        return sorted(key.access_key for key in ask(first.kafka, AccessKeys.all))

    wait_until(lambda: listed() == made, "the broker knows all keys")
