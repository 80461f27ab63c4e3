"""boto3 as a client of the SQS API in both of its protocols.

Botocore's own model of SQS speaks JSON. What it lost of the Query protocol (the names of list entries, the elements
around results) is put back here, so that its serializers and parsers of that protocol can be used as well.
"""

import copy
import functools
import json
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore.client import BaseClient
from botocore.config import Config
from botocore.loaders import Loader
from botocore.model import ServiceModel

JSON = "json"
QUERY = "query"
PROTOCOLS = (JSON, QUERY)

_LIST_NAMES = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BinaryList": "BinaryListValue",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
_MAP_NAMES = {
    "MessageBodyAttributeMap": ("MessageAttribute", "Name"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name"),
    "MessageSystemAttributeMap": ("Attribute", "Name"),
    "QueueAttributeMap": ("Attribute", "Name"),
    "TagMap": ("Tag", "Key"),
}


@functools.cache
def json_model() -> dict[str, Any]:
    return dict(Loader().load_service_model("sqs", "service-2"))


@functools.cache
def query_model() -> dict[str, Any]:
    """The same service in the Query protocol."""
    model = copy.deepcopy(json_model())
    metadata = model["metadata"]
    for name in ("awsQueryCompatible", "jsonVersion", "targetPrefix"):
        metadata.pop(name, None)
    metadata |= {
        "protocol": QUERY,
        "protocols": [QUERY],
        "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
    }
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = operation["output"]["shape"]
    shapes = model["shapes"]
    shapes["QueueDoesNotExist"]["error"] = {"code": "AWS.SimpleQueueService.NonExistentQueue", "httpStatusCode": 400}
    for name, shape in shapes.items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = _LIST_NAMES.get(name, shape["member"]["shape"])
        elif shape["type"] == "map":
            shape["locationName"], key = _MAP_NAMES[name]
            shape["key"]["locationName"], shape["value"]["locationName"] = key, "Value"
    for shape in shapes.values():  # maps and lists go by their own names
        for member in shape.get("members", {}).values():
            target = shapes[member["shape"]]
            if target.get("flattened") and target["type"] == "map":
                member["locationName"] = target["locationName"]
            elif target.get("flattened") and target["type"] == "list":
                member["locationName"] = target["member"]["locationName"]
    return model


@functools.cache
def service_model(protocol: str) -> ServiceModel:
    return ServiceModel(json_model() if protocol == JSON else query_model(), "sqs")


@functools.cache
def _session(folder: Path | None) -> boto3.session.Session:
    """Shared by clients: most of the time that a client takes to make is its session's, which loads the models.

    `folder`: where a model of the Query protocol is written; None for JSON.
    """
    session = botocore.session.Session()
    if folder is not None:
        file = folder / "sqs" / "2012-11-05" / "service-2.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(query_model()))
        session.set_config_variable("data_path", str(folder))
    return boto3.session.Session(botocore_session=session)


def sqs_client(
    http: str,
    protocol: str,
    folder: Path,
    *,
    key: str = "AKIATEST",
    secret: str = "test-secret",
    region: str = "eu-west-1",
    token: str | None = None,
    **config: Any,
) -> BaseClient:
    """A client of the broker at an HTTP address. `folder`: where a model may be written."""
    settings = Config(retries={"total_max_attempts": 1}, read_timeout=60, parameter_validation=False).merge(
        Config(**config)
    )
    return _session(folder if protocol == QUERY else None).client(
        "sqs",
        endpoint_url=f"http://{http}",
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=settings,
    )
