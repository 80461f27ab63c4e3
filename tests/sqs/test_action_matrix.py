"""Every action of the SQS API without a login, with a wrong one, without and with the right to it: what each gets."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore import UNSIGNED

from penstock.sqs.registry import ACTIONS, load_actions
from tests.brokers import BrokerProcess
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import code_of, receive, refused
from .test_accounts import BY_ARN, PARAMS
from .test_credentials import with_credentials

load_actions()
OWNER = "111122223333"
EVERY_ACTION = sorted(ACTIONS)
SINGLE = {action: action.removesuffix("Batch") for action in EVERY_ACTION}
"""The right that each action needs."""


def key_of(action: str, *, has: bool) -> str:
    return f"AK{'HAS' if has else 'LACKS'}{action.upper()}"


def keys() -> str:
    """A file with a key that has everything, and for each right one with only it and one with all others."""
    rights = sorted(set(SINGLE.values()))
    entries: list[dict[str, Any]] = [{"access_key": "AKROOT", "actions": ["*"]}]
    for right in rights:
        entries.append({"access_key": key_of(right, has=True), "actions": [right]})
        entries.append(
            {"access_key": key_of(right, has=False), "actions": [each for each in rights if each != right]}
        )
    return json.dumps({"keys": [{"secret": "the-right-secret", "owner": OWNER, **entry} for entry in entries]})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = with_credentials(tmp_path_factory.mktemp("matrix"), keys()).start()
    yield broker
    broker.finish()


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, guarded: BrokerProcess, models: Path) -> Callable[..., Any]:
    def make(key: str, secret: str = "the-right-secret", **options: Any) -> Any:
        return sqs_client(guarded.http, request.param, models, key=key, secret=secret, **options)

    return make


def ask(sqs: Any, action: str, root: Any, name: str) -> Any:
    """Calls an action about a new queue, which is prepared as the action needs it."""
    dead = root.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = f"arn:aws:sqs:eu-west-1:{OWNER}:{name}-dead"
    policy = {"deadLetterTargetArn": arn, "maxReceiveCount": 1}
    if action == "CreateQueue":
        return sqs.create_queue(QueueName=name)
    url = root.create_queue(QueueName=name, Attributes={"RedrivePolicy": json.dumps(policy)})["QueueUrl"]
    if action == "GetQueueUrl":
        return sqs.get_queue_url(QueueName=name)
    if action == "ListQueues":
        return sqs.list_queues()
    if action in BY_ARN:
        params = {"SourceArn": arn}
        if action == "CancelMessageMoveTask":
            root.send_message(QueueUrl=dead, MessageBody="x")
            params = {
                "TaskHandle": root.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)[
                    "TaskHandle"
                ]
            }
        return sqs._make_api_call(action, params)
    handle = "none"
    if "HANDLE" in json.dumps(PARAMS[action]):
        root.send_message(QueueUrl=url, MessageBody="x")
        (held,) = receive(root, url, 1, 20)
        handle = held["ReceiptHandle"]
    if action == "RemovePermission":
        root.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["444455556666"], Actions=["SendMessage"])
    params = json.loads(json.dumps(PARAMS[action]).replace("HANDLE", handle))
    return sqs._make_api_call(action, {"QueueUrl": url, **params})


@pytest.mark.parametrize("action", EVERY_ACTION)
def test_who_may_call_an_action(action: str, client: Callable[..., Any], name: str) -> None:
    root = client("AKROOT")
    right = SINGLE[action]
    wrong = (
        (client("AKROOT", signature_version=UNSIGNED), "MissingAuthenticationToken"),
        (client("AKNONE"), "InvalidClientTokenId"),
        (client(key_of(right, has=True), "a-wrong-secret"), "SignatureDoesNotMatch"),
        (client(key_of(right, has=False)), "AccessDenied"),
    )
    for number, (sqs, code) in enumerate(wrong):
        with refused() as raised:
            ask(sqs, action, root, f"{name}-{number}")
        assert code_of(raised) == code
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        if action != "CreateQueue":
            root.get_queue_url(QueueName=f"{name}-{number}")  # nothing was deleted
    found = ask(client(key_of(right, has=True)), action, root, name)
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert not found.get("Failed")
