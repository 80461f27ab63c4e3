"""Access keys in the store: brokers with a secret key, and requests of Penstock's own APIs about access keys."""

import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from penstock.client.access_keys import AccessKeys, NewAccessKey
from penstock.client.cluster import KafkaClient
from tests.clients.waiting import wait_until
from tests.sqs_clients import sqs_client

from .queue_calls import code_of, refused

T = TypeVar("T")
SETTING = "sqs.secret.key"
INVALID = "InvalidClientTokenId"
UNSIGNED = "MissingAuthenticationToken"
MISMATCH = "SignatureDoesNotMatch"


def new_secret_key() -> str:
    return b64encode(secrets.token_bytes(32)).decode()


def ask(kafka: str, work: Callable[[AccessKeys], Awaitable[T]]) -> T:
    """Runs requests about access keys at one broker."""

    async def run() -> T:
        async with KafkaClient(kafka) as client:
            return await work(AccessKeys(client))

    return uvloop.run(run())


def create(kafka: str, user: str = "orders", **more: Any) -> NewAccessKey:
    return ask(kafka, lambda keys: keys.create(user, **more))


@contextmanager
def client_of(http: str, models: Path, key: NewAccessKey, **more: Any) -> Iterator[Any]:
    """A boto3 client that signs with a key."""
    client = sqs_client(
        http, more.pop("protocol", "json"), models, key=key.access_key, **{"secret": key.secret, **more}
    )
    try:
        yield client
    finally:
        client.close()


def refusal(http: str, models: Path, key: NewAccessKey, **more: Any) -> tuple[str, str]:
    """Returns the code and the message with which a request with this key is refused."""
    with client_of(http, models, key, **more) as client, refused() as raised:
        client.list_queues()
    return code_of(raised), str(raised.value)


def is_accepted(http: str, models: Path, key: NewAccessKey) -> bool:
    """Whether a broker accepts a key; otherwise it must say that there is none."""
    with client_of(http, models, key) as client:
        try:
            client.list_queues()
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != INVALID:
                raise
            return False
    return True


def wait_accepted(http: str, models: Path, key: NewAccessKey) -> None:
    wait_until(lambda: is_accepted(http, models, key), "the broker accepts the key")


def wait_refused(http: str, models: Path, key: NewAccessKey) -> None:
    wait_until(lambda: not is_accepted(http, models, key), "the broker refuses the key")
