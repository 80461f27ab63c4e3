"""Clients that connect to the wrong port: each gets an error at once that names the right one."""

import socket
import urllib.error
import urllib.request
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

import penstock
from tests.brokers import BrokerProcess
from tests.cli.cli_runner import Cli

LONG_S = 3600.0
"""No test waits for it: an answer that is not given at once would be seen as a test that hangs."""


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_http_at_the_kafka_port_gets_the_http_port(broker: BrokerProcess, method: str) -> None:
    body = b"Action=ListQueues" if method in ("POST", "PUT") else None
    request = urllib.request.Request(f"http://{broker.kafka}/", data=body, method=method)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=LONG_S)
    assert caught.value.code == 400
    if method != "HEAD":
        assert caught.value.read().decode().endswith(f"is at {broker.http}\n")


def test_an_sdk_at_the_kafka_port_fails_without_a_second_try(broker: BrokerProcess) -> None:
    keys: dict[str, Any] = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "eu-west-1"}
    sqs = boto3.client("sqs", endpoint_url=f"http://{broker.kafka}", **keys)
    with pytest.raises(ClientError) as caught:
        sqs.list_queues()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert caught.value.response["ResponseMetadata"]["RetryAttempts"] == 0


def test_kafka_at_the_http_port_gets_the_kafka_port(broker: BrokerProcess) -> None:
    host, port = broker.http.split(":")
    with socket.create_connection((host, int(port)), LONG_S) as raw:
        raw.sendall(bytes.fromhex("0000000a 0012 0000 00000000 ffff"))
        answer = b"".join(iter(lambda: raw.recv(4096), b"")).decode()
    assert answer.startswith("HTTP/1.1 400 ")
    assert answer.endswith(f"the Kafka protocol, which is spoken at {broker.kafka}\n")


def test_tls_at_the_http_port_gets_an_error(broker: BrokerProcess) -> None:
    host, port = broker.http.split(":")
    with socket.create_connection((host, int(port)), LONG_S) as raw:
        raw.sendall(bytes.fromhex("160301 0005 0100000100"))
        assert b"".join(iter(lambda: raw.recv(4096), b"")).endswith(b"use http://\n")


def test_the_python_api_says_that_the_port_is_the_wrong_one(broker: BrokerProcess) -> None:
    with pytest.raises(penstock.NotConnected, match=f"{broker.http} speaks HTTP"):
        penstock.connect(broker.http, timeout_s=LONG_S)


def test_a_command_says_that_the_port_is_the_wrong_one(broker: BrokerProcess) -> None:
    said = Cli(broker.http).refused("topic", "list", code=1)
    assert f"{broker.http} sent HTTP: give the port of Kafka clients" in said
