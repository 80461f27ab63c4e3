"""Accounts: what keys of one owner do is not seen by those of another, unless a policy of the queue allows it."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import confluent_kafka.admin
import pytest
from botocore.exceptions import ClientError

from penstock.sqs.registry import ACTIONS, load_actions
from tests.brokers import BrokerProcess
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import attributes_of, bodies, code_of, counts, message_of, receive, refused
from .test_credentials import with_credentials

A, B, DEFAULT = "111122223333", "444455556666", "000000000000"
KEYS = f"""
keys:
  - {{access_key: AKA, secret: secret-of-a, owner: "{A}"}}
  - {{access_key: AKB, secret: secret-of-b, owner: "{B}"}}
  - {{access_key: AKDEFAULT, secret: secret-of-default}}
  - {{access_key: AKNAMED, secret: secret-of-named, owner: payments}}
  - access_key: AKREADER
    secret: secret-of-reader
    owner: "{B}"
    actions: [Receive*, GetQueueUrl]
"""
SECRETS = {
    "AKA": "secret-of-a",
    "AKB": "secret-of-b",
    "AKDEFAULT": "secret-of-default",
    "AKNAMED": "secret-of-named",
    "AKREADER": "secret-of-reader",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = with_credentials(tmp_path_factory.mktemp("accounts"), KEYS).start()
    yield broker
    broker.finish()


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, guarded: BrokerProcess, models: Path) -> Callable[..., Any]:
    def make(key: str, **options: Any) -> Any:
        return sqs_client(guarded.http, request.param, models, key=key, secret=SECRETS[key], **options)

    return make


@pytest.fixture
def a(client: Callable[..., Any]) -> Any:
    return client("AKA")


@pytest.fixture
def b(client: Callable[..., Any]) -> Any:
    return client("AKB")


@pytest.fixture
def default(client: Callable[..., Any]) -> Any:
    return client("AKDEFAULT")


def path_of(url: str) -> str:
    return "/".join(url.split("/")[3:])


def test_three_accounts_have_queues_of_one_name(
    a: Any, b: Any, default: Any, guarded: BrokerProcess, name: str
) -> None:
    urls = {
        owner: sqs.create_queue(QueueName=name)["QueueUrl"] for owner, sqs in ((A, a), (B, b), (DEFAULT, default))
    }
    for owner, sqs in ((A, a), (B, b), (DEFAULT, default)):
        assert path_of(urls[owner]) == f"{owner}/{name}"
        assert sqs.create_queue(QueueName=name)["QueueUrl"] == urls[owner], "it is there already"
        assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == urls[owner]
        assert attributes_of(sqs, urls[owner], "QueueArn") == {"QueueArn": f"arn:aws:sqs:eu-west-1:{owner}:{name}"}
        assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [urls[owner]]
        sqs.send_message(QueueUrl=urls[owner], MessageBody=f"of {owner}")
    for owner, sqs in ((A, a), (B, b), (DEFAULT, default)):
        (found,) = receive(sqs, urls[owner], 10, 20, AttributeNames=["SenderId"])
        assert (found["Body"], found["Attributes"]) == (f"of {owner}", {"SenderId": owner})
        assert receive(sqs, name, 10) == [], "a bare name is of one's own account"
    topics = set(
        confluent_kafka.admin.AdminClient({"bootstrap.servers": guarded.kafka}).list_topics(timeout=60).topics
    )
    assert {name, f"{A}.{name}", f"{B}.{name}"} <= topics
    a.delete_queue(QueueUrl=urls[A])
    assert "QueueUrls" not in a.list_queues(QueueNamePrefix=name)
    assert counts(b, urls[B]) == (0, 1, 0), "others have theirs"


def test_a_fifo_queue_is_of_its_account_as_well(a: Any, b: Any, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    urls = [sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"] for sqs in (a, b)]
    assert [path_of(url) for url in urls] == [f"{A}/{name}.fifo", f"{B}/{name}.fifo"]
    for sqs, url in zip((a, b), urls, strict=True):
        sqs.send_message(QueueUrl=url, MessageBody="the same", MessageGroupId="g")
        assert bodies(receive(sqs, url, 10, 20)) == ["the same"], "duplicates are detected within a queue"


def test_a_queue_whose_name_is_an_account_is_not_taken_for_anothers(a: Any, default: Any) -> None:
    url = default.create_queue(QueueName=f"{A}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    assert path_of(url) == f"{DEFAULT}/{A}.fifo"
    with refused() as raised:
        a.get_queue_url(QueueName="fifo")
    assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"
    with refused() as raised:
        a.create_queue(QueueName="fifo")
    assert code_of(raised) == "QueueAlreadyExists", "both would have one topic"
    default.delete_queue(QueueUrl=url)


PARAMS: dict[str, dict[str, Any]] = {
    "AddPermission": {"Label": "l", "AWSAccountIds": [B], "Actions": ["*"]},
    "ChangeMessageVisibility": {"ReceiptHandle": "HANDLE", "VisibilityTimeout": 0},
    "ChangeMessageVisibilityBatch": {"Entries": [{"Id": "a", "ReceiptHandle": "HANDLE", "VisibilityTimeout": 0}]},
    "DeleteMessage": {"ReceiptHandle": "HANDLE"},
    "DeleteMessageBatch": {"Entries": [{"Id": "a", "ReceiptHandle": "HANDLE"}]},
    "DeleteQueue": {},
    "GetQueueAttributes": {"AttributeNames": ["All"]},
    "ListDeadLetterSourceQueues": {},
    "ListQueueTags": {},
    "PurgeQueue": {},
    "ReceiveMessage": {},
    "RemovePermission": {"Label": "l"},
    "SendMessage": {"MessageBody": "x"},
    "SendMessageBatch": {"Entries": [{"Id": "a", "MessageBody": "x"}]},
    "SetQueueAttributes": {"Attributes": {"Policy": ""}},
    "TagQueue": {"Tags": {"a": "b"}},
    "UntagQueue": {"TagKeys": ["a"]},
}
BY_ARN = {"CancelMessageMoveTask", "ListMessageMoveTasks", "StartMessageMoveTask"}
SHARED = {
    "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch",
    "DeleteMessage",
    "DeleteMessageBatch",
    "GetQueueAttributes",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
    "SendMessageBatch",
}


def call(sqs: Any, action: str, url: str, handle: str) -> Any:
    text = json.dumps(PARAMS[action]).replace("HANDLE", handle)
    return sqs._make_api_call(action, {"QueueUrl": url, **json.loads(text)})


def test_every_action_is_tried_here() -> None:
    load_actions()
    assert set(PARAMS) | BY_ARN | {"CreateQueue", "GetQueueUrl", "ListQueues"} == set(ACTIONS)


def test_nothing_can_be_done_with_a_queue_of_another_account(a: Any, b: Any, name: str) -> None:
    url = a.create_queue(QueueName=name, tags={"a": "1"})["QueueUrl"]
    a.send_message(QueueUrl=url, MessageBody="theirs")
    (held,) = receive(a, url, 1, 20)
    before = attributes_of(a, url)
    for where in (url, url.replace(name, f"{name}-none")):
        for action in PARAMS:
            with refused() as raised:
                call(b, action, where, held["ReceiptHandle"])
            assert code_of(raised) == "AccessDenied", "whether it exists is not revealed"
            assert "because no resource-based policy allows the sqs:" in message_of(raised)
            assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    for full in (f"{A}.{name}", f"{DEFAULT}/{A}.{name}"):
        with refused() as raised:
            b.send_message(QueueUrl=full, MessageBody="x")
        assert code_of(raised) in ("AWS.SimpleQueueService.NonExistentQueue", "AccessDenied")
    with refused() as raised:
        b.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=A)
    assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"
    assert message_of(raised) == "The specified queue does not exist or you do not have access to it."
    assert "QueueUrls" not in b.list_queues(QueueNamePrefix=name)
    mine = b.create_queue(QueueName=name)["QueueUrl"]
    with refused() as raised:
        b.delete_message(QueueUrl=mine, ReceiptHandle=held["ReceiptHandle"])
    assert code_of(raised) == "ReceiptHandleIsInvalid"
    assert attributes_of(a, url) == before
    assert a.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "1"}


def test_a_policy_shares_what_can_be_shared(a: Any, b: Any, client: Callable[..., Any], name: str) -> None:
    url = a.create_queue(QueueName=name)["QueueUrl"]
    a.add_permission(QueueUrl=url, Label="all", AWSAccountIds=[B], Actions=["*"])
    assert b.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=A)["QueueUrl"] == url
    assert b.send_message(QueueUrl=url, MessageBody="by b")["MessageId"]
    (held,) = receive(b, url, 1, 20, AttributeNames=["SenderId"])
    assert held["Attributes"] == {"SenderId": B}
    done = set()
    for action in PARAMS:
        try:
            call(b, action, url, held["ReceiptHandle"])
            done.add(action)
        except ClientError as error:
            if error.response["Error"]["Code"] != "AccessDenied":
                done.add(action)
    assert done == SHARED
    assert attributes_of(b, url, "QueueArn") == {"QueueArn": f"arn:aws:sqs:eu-west-1:{A}:{name}"}
    assert "QueueUrls" not in b.list_queues(QueueNamePrefix=name), "one lists one's own"
    reader = client("AKREADER")
    receive(reader, url)
    with refused() as raised:
        reader.send_message(QueueUrl=url, MessageBody="x")
    assert "no identity-based policy allows" in message_of(raised), "the key's own rights count, too"
    a.remove_permission(QueueUrl=url, Label="all")
    with refused() as raised:
        b.send_message(QueueUrl=url, MessageBody="x")
    assert code_of(raised) == "AccessDenied"


@pytest.mark.parametrize(
    ("statements", "is_allowed", "own_is_allowed"),
    [
        ([{}], True, True),
        ([{"Principal": "*"}], True, True),
        ([{"Principal": {"AWS": f"arn:aws:iam::{B}:root"}, "Action": "sqs:Send*", "Resource": "*"}], True, True),
        ([{"Resource": "arn:aws:sqs:*:111122223333:NAME"}], True, True),
        ([{"Action": "sqs:ReceiveMessage"}], False, True),
        ([{"Principal": {"AWS": DEFAULT}}], False, True),
        ([{"Resource": "arn:aws:sqs:*:111122223333:NAME-2"}], False, True),
        ([{"Condition": {"Bool": {"aws:SecureTransport": "true"}}}], False, True),
        ([{}, {"Effect": "Deny", "Principal": "*", "Action": "*"}], False, False),
        (
            [{}, {"Effect": "Deny", "Principal": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}],
            False,
            False,
        ),
        ([{}, {"Effect": "Deny", "Action": "sqs:DeleteMessage"}], True, True),
    ],
)
def test_a_policy_is_evaluated(
    a: Any, b: Any, name: str, statements: list[dict[str, Any]], is_allowed: bool, own_is_allowed: bool
) -> None:
    arn = f"arn:aws:sqs:eu-west-1:{A}:{name}"
    grant = {"Effect": "Allow", "Principal": {"AWS": B}, "Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [{**grant, **each} for each in statements]})
    url = a.create_queue(QueueName=name, Attributes={"Policy": policy.replace("NAME", name)})["QueueUrl"]
    for client, may_send in ((b, is_allowed), (a, own_is_allowed)):
        if may_send:
            client.send_message(QueueUrl=url, MessageBody="x")
        else:
            with refused() as raised:
                client.send_message(QueueUrl=url, MessageBody="x")
            assert code_of(raised) == "AccessDenied"
    if not own_is_allowed:
        assert message_of(raised).endswith("with an explicit deny in a resource-based policy")
        a.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
        a.send_message(QueueUrl=url, MessageBody="x")


def test_dead_letters_stay_in_their_account(a: Any, b: Any, name: str) -> None:
    def policy(owner: str) -> dict[str, str]:
        arn = f"arn:aws:sqs:eu-west-1:{owner}:{name}-dead"
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})}

    for sqs in (a, b):
        sqs.create_queue(QueueName=f"{name}-dead")
    with refused() as raised:
        a.create_queue(QueueName=name, Attributes=policy(B))
    assert message_of(raised).endswith("Reason: Dead-letter target owner should be same as the source.")
    url = a.create_queue(QueueName=name, Attributes=policy(A))["QueueUrl"]
    shown = json.loads(attributes_of(a, url, "RedrivePolicy")["RedrivePolicy"])
    assert shown["deadLetterTargetArn"] == f"arn:aws:sqs:eu-west-1:{A}:{name}-dead"
    dead = a.get_queue_url(QueueName=f"{name}-dead")["QueueUrl"]
    assert a.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    a.send_message(QueueUrl=url, MessageBody="poison")
    receive(a, url, 1, 20, VisibilityTimeout=0)
    receive(a, url)
    (found,) = receive(a, dead, 1, 20, AttributeNames=["DeadLetterQueueSourceArn"], VisibilityTimeout=0)
    assert found["Attributes"] == {"DeadLetterQueueSourceArn": f"arn:aws:sqs:eu-west-1:{A}:{name}"}
    dead_arn = f"arn:aws:sqs:eu-west-1:{A}:{name}-dead"
    for ask in (
        lambda: b.start_message_move_task(SourceArn=dead_arn),
        lambda: b.list_message_move_tasks(SourceArn=dead_arn),
    ):
        with refused() as raised:
            ask()
        assert code_of(raised) == "ResourceNotFoundException"
    handle = a.start_message_move_task(SourceArn=dead_arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    task = json.loads(base64.urlsafe_b64decode(handle))
    forged = {**task, "sourceArn": f"arn:aws:sqs:eu-west-1:{B}:{name}-dead"}
    for each in (handle, base64.urlsafe_b64encode(json.dumps(forged).encode()).decode()):
        with refused() as raised:
            b.cancel_message_move_task(TaskHandle=each)
        assert code_of(raised) == "ResourceNotFoundException"
    assert bodies(receive(a, url, 1, 20)) == ["poison"], "it came back to where it was"
    (task,) = a.list_message_move_tasks(SourceArn=dead_arn)["Results"]
    assert task["SourceArn"] == dead_arn


def test_a_queue_is_attached_to_topics_of_its_account(
    a: Any, default: Any, guarded: BrokerProcess, name: str
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": guarded.kafka})
    for topic in (f"{name}-topic", f"{A}.{name}-topic", f"{B}.{name}-topic"):
        producer.produce(topic, value="published")
    assert producer.flush(60) == 0
    for sqs, topic in ((a, f"{name}-topic"), (a, f"{B}.{name}-topic"), (default, f"{A}.{name}-topic")):
        with refused() as raised:
            sqs.create_queue(QueueName=name, Attributes={"PenstockTopic": topic})
        assert code_of(raised) == "AccessDenied"
    for sqs, topic in ((a, f"{A}.{name}-topic"), (default, f"{name}-topic")):
        url = sqs.create_queue(QueueName=name, Attributes={"PenstockTopic": topic})["QueueUrl"]
        assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url


def test_owners_that_are_no_accounts_share_the_default_one(
    default: Any, client: Callable[..., Any], guarded: BrokerProcess, name: str
) -> None:
    named = client("AKNAMED")
    url = named.create_queue(QueueName=name)["QueueUrl"]
    assert path_of(url) == f"{DEFAULT}/{name}"
    default.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(named, url, 1, 20)) == ["x"]
    assert named.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="payments")["QueueUrl"] == url
    assert "owners_are_no_accounts keys=AKNAMED count=1" in guarded.log


def test_queues_of_before_are_where_they_were(tmp_path: Path, models: Path) -> None:
    """Made by a broker that knew no accounts: their names had none in front, for any owner."""
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = BrokerProcess(folder).start()
    unsigned: Any = sqs_client(broker.http, "json", models)
    urls = {each: unsigned.create_queue(QueueName=each)["QueueUrl"] for each in ("of-a", "of-default", "dead")}
    for each, url in urls.items():
        unsigned.send_message(QueueUrl=url, MessageBody=each)
    broker.stop()
    give_away(folder, {"of-a": A, "dead": A})
    broker = with_credentials(folder, KEYS).start()
    a: Any = sqs_client(broker.http, "json", models, key="AKA", secret=SECRETS["AKA"])
    default: Any = sqs_client(broker.http, "json", models, key="AKDEFAULT", secret=SECRETS["AKDEFAULT"])
    assert [path_of(url) for url in a.list_queues()["QueueUrls"]] == [f"{A}/dead", f"{A}/of-a"]
    assert [path_of(url) for url in default.list_queues()["QueueUrls"]] == [f"{DEFAULT}/of-default"]
    assert path_of(a.create_queue(QueueName="of-a")["QueueUrl"]) == f"{A}/of-a", "it is there already"
    url = a.get_queue_url(QueueName="of-a")["QueueUrl"]
    assert bodies(receive(a, url, 1, 20)) == ["of-a"]
    arn = f"arn:aws:sqs:us-east-1:{A}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    a.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    dead = a.get_queue_url(QueueName="dead")["QueueUrl"]
    assert a.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    for sqs, name in ((default, "of-a"), (a, "of-default")):
        with refused() as raised:
            sqs.get_queue_url(QueueName=name)
        assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"
    with refused() as raised:
        default.create_queue(QueueName="of-a")
    assert code_of(raised) == "QueueAlreadyExists", "its topic has this name"
    broker.stop()


def give_away(folder: Path, owners: dict[str, str]) -> None:
    """Changes the owners of queues, as if keys of other accounts had created them."""
    import asyncio

    from penstock.cluster import keys
    from penstock.cluster.metadata import Metadata
    from penstock.coordination.stores import EMBEDDED, open_store

    async def change() -> None:
        store = await open_store(EMBEDDED, folder / "data", 6.0)
        metadata = Metadata(store)
        for name, owner in owners.items():
            await metadata.edit(keys.queue(name), lambda value, owner=owner: {**value, "owner": owner})
        await store.close()

    asyncio.run(change())


def test_without_signatures_an_account_in_a_url_is_found_and_need_not_be(
    own_broker: Callable[..., BrokerProcess], models: Path
) -> None:
    """Without keys every client may do everything; templates written for AWS name accounts that do not exist here."""
    broker = own_broker()
    sqs: Any = sqs_client(broker.http, "json", models)
    url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    sqs.send_message(QueueUrl=url.replace(DEFAULT, B), MessageBody="x")
    dead_arn = f"arn:aws:sqs:eu-west-1:{B}:dead"
    sqs.create_queue(QueueName="dead")
    policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 3})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert bodies(receive(sqs, url, 1, 20)) == ["x"]
    broker.stop()
    (broker.folder / "keys.yaml").write_text(KEYS)
    guarded = with_credentials(broker.folder, KEYS).start()
    a: Any = sqs_client(guarded.http, "json", models, key="AKA", secret=SECRETS["AKA"])
    theirs = a.create_queue(QueueName="jobs")["QueueUrl"]
    a.send_message(QueueUrl=theirs, MessageBody="of a")
    guarded.stop()
    again = BrokerProcess(broker.folder).start()
    sqs = sqs_client(again.http, "json", models)
    assert bodies(receive(sqs, theirs.replace(guarded.http, again.http), 1, 20)) == ["of a"]
    assert [path_of(each) for each in sqs.list_queues()["QueueUrls"]] == [f"{DEFAULT}/dead", f"{DEFAULT}/jobs"]
    again.stop()


def test_regions_can_be_kept_apart(own_broker: Callable[..., BrokerProcess], models: Path) -> None:
    broker = own_broker(settings={"sqs.regions": "separate"})

    def client(region: str) -> Any:
        return boto3.client(
            "sqs",
            endpoint_url=f"http://{broker.http}",
            region_name=region,
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )

    east, west = client("us-east-1"), client("eu-west-1")
    for region, sqs in (("east", east), ("west", west)):
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        sqs.create_queue(QueueName=f"only-{region}")
        sqs.send_message(QueueUrl=url, MessageBody=region)
    for region, sqs in (("east", east), ("west", west)):
        assert [path_of(each) for each in sqs.list_queues()["QueueUrls"]] == [
            f"{DEFAULT}/jobs",
            f"{DEFAULT}/only-{region}",
        ]
        assert bodies(receive(sqs, url, 10, 20)) == [region]
    with refused() as raised:
        west.get_queue_url(QueueName="only-east")
    assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"
    policy = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{DEFAULT}:jobs", "maxReceiveCount": 1}
    west.create_queue(QueueName="source")
    with refused() as raised:
        west.set_queue_attributes(QueueUrl="source", Attributes={"RedrivePolicy": json.dumps(policy)})
    assert message_of(raised).endswith("Reason: Dead-letter target must be in same region as the source.")
    policy["deadLetterTargetArn"] = f"arn:aws:sqs:eu-west-1:{DEFAULT}:jobs"
    west.set_queue_attributes(QueueUrl="source", Attributes={"RedrivePolicy": json.dumps(policy)})
    assert json.loads(attributes_of(west, "source", "RedrivePolicy")["RedrivePolicy"]) == policy
    topics = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.kafka}).list_topics(timeout=60).topics
    assert {"jobs", "eu-west-1.jobs", "eu-west-1.source"} <= set(topics)
