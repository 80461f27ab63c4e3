"""A client of the registry's REST API that hides nothing: status and body of every answer."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 120.0


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> int:
        """The error code; 0 for success."""
        return int(self.body["error_code"]) if self.status >= 400 else 0


class RestClient:
    """Sends requests to one broker."""

    def __init__(self, http: str) -> None:
        self.url = f"http://{http}/registry"
        self.headers = {"content-type": CONTENT_TYPE}
        self.received: Mapping[str, str] = {}
        """The headers of the last response."""

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                status, text, self.received = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            status, text, self.received = error.code, error.read(), error.headers
        return Answer(status, json.loads(text) if text else None)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, body: object) -> Answer:
        return self.ask("POST", path, body)

    def put(self, path: str, body: object) -> Answer:
        return self.ask("PUT", path, body)

    def delete(self, path: str) -> Answer:
        return self.ask("DELETE", path)

    def register(self, subject: str, schema: str, kind: str = "AVRO", **more: object) -> Answer:
        return self.post(f"/subjects/{subject}/versions", {"schema": schema, "schemaType": kind} | more)


def record(*fields: str, name: str = "Order") -> str:
    """An Avro record with fields such as `id:long` or `tag:string=""`, which has a default."""
    found = []
    for text in fields:
        left, _, default = text.partition("=")
        field, _, kind = left.partition(":")
        found.append({"name": field, "type": kind} | ({"default": json.loads(default)} if default else {}))
    return json.dumps({"type": "record", "name": name, "fields": found}, separators=(",", ":"))
