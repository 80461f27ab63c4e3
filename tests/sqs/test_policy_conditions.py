"""Conditions in policies: TLS, addresses of clients, also behind load balancers; with boto3 over HTTP and HTTPS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.brokers import BrokerProcess
from tests.certificates import Certificates

from .queue_calls import code_of, receive, refused

OWNER = "111122223333"
KEY, SECRET = "AKA", "secret-of-a"
BALANCERS = "127.0.0.0/8"


class Lab:
    """A broker with access keys, and load balancers on this machine if it trusts them."""

    def __init__(self, folder: Path, **settings: str) -> None:
        keys = folder / "keys.yaml"
        keys.write_text(f'keys:\n  - {{access_key: {KEY}, secret: {SECRET}, owner: "{OWNER}"}}\n')
        self.trust = ""
        if settings.get("http.security.protocol") == "SSL":
            made = Certificates(folder / "certificates")
            settings["ssl.keystore.location"] = str(made.server())
            self.trust = str(made.trust)
        self.broker = BrokerProcess(folder, settings)
        config = folder / "penstock.toml"
        config.write_text(f"credentials = {json.dumps(str(keys))}\n{config.read_text()}")
        self.broker.start()

    def client(self, **headers: str) -> Any:
        """A client whose requests have some headers more, as if they came through a load balancer."""
        scheme = "https" if self.trust else "http"
        client = boto3.client(
            "sqs",
            endpoint_url=f"{scheme}://{self.broker.http}",
            region_name="eu-west-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            verify=self.trust or None,
            config=Config(retries={"max_attempts": 0}),
        )

        def add(request: Any, **_: Any) -> None:
            for name, text in headers.items():
                request.headers[name.replace("_", "-")] = text

        client.meta.events.register("before-send.sqs", add)
        return client


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("plain"))
    yield lab
    lab.broker.finish()


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("balanced"), **{"http.trusted.proxies": BALANCERS})
    yield lab
    lab.broker.finish()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("secure"), **{"http.security.protocol": "SSL"})
    yield lab
    lab.broker.finish()


def queue(client: Any, name: str, condition: dict[str, Any]) -> str:
    """A queue whose policy denies requests to which the condition applies."""
    deny = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*", "Condition": condition}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    url: str = client.create_queue(QueueName=name, Attributes={"Policy": policy})["QueueUrl"]
    return url


def is_denied(client: Any, url: str) -> bool:
    try:
        client.send_message(QueueUrl=url, MessageBody="x")
    except client.exceptions.ClientError as error:
        return bool(error.response["Error"]["Code"] == "AccessDenied")
    return False


ONLY_TLS = {"Bool": {"aws:SecureTransport": "false"}}


def test_queues_are_used_over_https(secure: Lab) -> None:
    client = secure.client()
    url = queue(client, "secure", ONLY_TLS)
    assert url == f"https://{secure.broker.http}/{OWNER}/secure"
    assert not is_denied(client, url)
    assert [message["Body"] for message in receive(client, url)] == ["x"]


def test_a_queue_may_demand_tls(plain: Lab) -> None:
    client = plain.client()
    url = queue(client, "demanding", ONLY_TLS)
    assert is_denied(client, url)
    assert is_denied(plain.client(X_Forwarded_Proto="https"), url), "a header that any client can send"
    for action in (client.receive_message, client.purge_queue, client.get_queue_attributes, client.delete_queue):
        with refused() as raised:
            action(QueueUrl=url)
        assert code_of(raised) == "AccessDenied"
    client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert not is_denied(client, url)


def test_headers_of_load_balancers_count_if_they_are_trusted(balanced: Lab) -> None:
    url = queue(balanced.client(), "behind", ONLY_TLS)
    assert not is_denied(balanced.client(X_Forwarded_Proto="https"), url)
    assert is_denied(balanced.client(X_Forwarded_Proto="http"), url)


@pytest.mark.parametrize(
    ("forwarded", "denied"),
    [
        ("192.0.2.7", False),
        ("198.51.100.1", True),
        ("192.0.2.7, 198.51.100.1", True),
        ("198.51.100.1, 192.0.2.7, 127.0.0.9", False),
        ("nonsense", True),
    ],
)
def test_the_address_of_a_client_behind_load_balancers_is_found(balanced: Lab, forwarded: str, denied: bool) -> None:
    """The last address that is not of a load balancer: clients can put any in front."""
    url = queue(balanced.client(), "from-office", {"NotIpAddress": {"aws:SourceIp": "192.0.2.0/24"}})
    assert is_denied(balanced.client(X_Forwarded_For=forwarded), url) is denied


def test_the_header_of_a_client_itself_does_not_count(plain: Lab) -> None:
    url = queue(plain.client(), "local", {"NotIpAddress": {"aws:SourceIp": "127.0.0.1"}})
    assert not is_denied(plain.client(), url)
    assert not is_denied(plain.client(X_Forwarded_For="192.0.2.7"), url)
    elsewhere = queue(plain.client(), "elsewhere", {"NotIpAddress": {"aws:SourceIp": "192.0.2.7"}})
    assert is_denied(plain.client(X_Forwarded_For="192.0.2.7"), elsewhere)


def test_a_dead_letter_queue_that_is_denied_is_not_redriven(plain: Lab) -> None:
    client = plain.client()
    url = queue(client, "dead", ONLY_TLS)
    source = f"arn:aws:sqs:eu-west-1:{OWNER}:{url.rpartition('/')[2]}"
    with refused() as raised:
        client.start_message_move_task(SourceArn=source)
    assert code_of(raised) == "AccessDenied"
