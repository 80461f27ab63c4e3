"""How the schema registry client sends requests: URLs, authentication, retries, errors; against scripted servers."""

import asyncio
import pickle
from base64 import b64encode
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from penstock.client.errors import ConnectionFailed, ConnectionLost
from penstock.client.http import Endpoint
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import RegistryError
from penstock.client.schema_registry_models import Schema
from penstock.client.schema_registry_urls import NoRegistryUrl, RegistryUrl, parse_urls, urls_of
from tests.ports import free_port

from .http_servers import read_request, serving

HANG_UP = b""
NOWHERE = RegistryUrl(Endpoint("127.0.0.1", 1))
Ask = Callable[[SchemaRegistryClient], Awaitable[Any]]


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def error(code: int, status: str = "404 Not Found", message: str = "no") -> bytes:
    return answer(b'{"error_code":%d,"message":"%s"}' % (code, message.encode()), status)


class Server:
    """Sends one response after the other, the last one again and again; remembers the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.left = list(answers)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader)
            self.heads.append(head.decode())
            self.bodies.append(body)
            said = self.left.pop(0) if len(self.left) > 1 else self.left[0]
            if said == HANG_UP:
                return
            writer.write(said)

    @property
    def lines(self) -> list[str]:
        """The first line of each request."""
        return [head.partition(" HTTP/1.1")[0] for head in self.heads]


async def ask(server: Server, question: Ask, *, others: tuple[RegistryUrl, ...] = (), **options: Any) -> Any:
    async with serving(server) as here:
        path = options.pop("path", "")
        urls = [*others, RegistryUrl(here, path)]
        async with SchemaRegistryClient(urls, rng=Random(7), **options) as client:
            return await question(client)


# -- URLs


@pytest.mark.parametrize(
    ("text", "shown", "user", "password"),
    [
        ("http://host:8081", "http://host:8081", "", ""),
        ("host:9324/registry/", "http://host:9324/registry", "", ""),
        ("https://ada:s%40crt@schemas.example.org/registry", "https://schemas.example.org/registry", "ada", "s@crt"),
        ("http://[::1]:8081", "http://[::1]:8081", "", ""),
        ("http://h/a b", "http://h/a%20b", "", ""),
    ],
)
def test_a_url_may_have_a_path_and_a_password(text: str, shown: str, user: str, password: str) -> None:
    url = RegistryUrl.parse(text)
    assert (str(url), url.user, url.password) == (shown, user, password)
    assert "s@crt" not in repr(url)


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://x:port", "http://x?y=1", "http://x#y"])
def test_an_invalid_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give http://HOST:PORT/registry"):
        parse_urls(text)


def test_the_password_of_an_invalid_url_is_not_shown() -> None:
    with pytest.raises(ValueError, match="not the URL") as refused:
        parse_urls("ftp://ada:secret@x")
    assert "secret" not in str(refused.value)


def test_an_empty_list_of_urls_is_refused() -> None:
    with pytest.raises(ValueError, match="list of registry URLs is empty"):
        parse_urls(" , ")


def test_the_registry_is_below_the_http_addresses_of_brokers() -> None:
    shown = [str(each) for each in urls_of(["a:9324", "http://b:80", "a:9324"], "b:1")]
    assert shown == ["http://a:9324/registry", "http://b/registry"]
    with pytest.raises(NoRegistryUrl, match="brokers at b:1 do not advertise an HTTP address"):
        urls_of([], "b:1")
    with pytest.raises(NoRegistryUrl, match=r"invalid advertised\.http: 'ftp://x'"):
        urls_of(["ftp://x"], "b:1")


# -- requests


async def test_subjects_are_encoded_in_the_path() -> None:
    server = Server(answer(b"[1]"))
    assert await ask(server, lambda client: client.versions(":.ctx:a/b c?d"), path="/registry") == [1]
    assert server.lines[0].startswith("GET /registry/subjects/%3A.ctx%3Aa%2Fb%20c%3Fd/versions?")


async def test_user_and_password_are_sent() -> None:
    server = Server(answer(b"[]"))
    await ask(server, lambda client: client.types(), user="ada", password="pässword")
    expected = b64encode("ada:pässword".encode()).decode()
    assert f"\r\nauthorization: Basic {expected}\r\n" in server.heads[0]


async def test_the_password_of_the_url_has_precedence() -> None:
    server = Server(answer(b"[]"))
    async with serving(server) as here:
        url = f"http://bob:other@127.0.0.1:{here.port}/registry"
        async with SchemaRegistryClient(url, user="ada", password="x") as client:
            await client.types()
    assert b64encode(b"bob:other").decode() in server.heads[0]


async def test_a_page_that_is_too_large_is_asked_for_in_parts() -> None:
    too_large = error(422, "422 Unprocessable Entity")
    schema = b'{"subject":"s","version":1,"id":1,"schema":"x"}'
    server = Server(too_large, answer(b"[%s]" % b",".join([schema] * 249)))
    assert len(await ask(server, lambda client: client.schemas())) == 249
    assert [line.rpartition("limit=")[2] for line in server.lines] == ["1000", "250"]


async def test_a_registry_without_pages_is_asked_once_more_at_most() -> None:
    everything = answer(b"[%s]" % b",".join(b'"s%d"' % number for number in range(5000)))
    server = Server(everything)
    assert len(await ask(server, lambda client: client.subjects())) == 5000
    assert len(server.heads) == 2


async def test_an_older_registry_returns_the_id_alone_and_the_version_is_looked_up() -> None:

    found = b'{"subject":"s","version":3,"id":7,"schema":"\\"string\\""}'
    server = Server(answer(b'{"id":7}'), answer(found))
    added = await ask(server, lambda client: client.register("s", Schema(text='"string"')))
    assert (added.id, added.version) == (7, 3)
    assert server.lines == ["POST /subjects/s/versions", "POST /subjects/s"]


async def test_a_schema_is_fetched_by_its_id_once() -> None:
    server = Server(answer(b'{"schema":"\\"string\\""}'))

    async def question(client: SchemaRegistryClient) -> list[int]:
        return [(await client.by_id(5)).id, (await client.by_id(5)).id, (await client.by_id(5, subject="s")).id]

    assert await ask(server, question) == [5, 5, 5]
    assert server.lines == ["GET /schemas/ids/5", "GET /schemas/ids/5?subject=s"]


# -- errors and retries


async def test_an_error_has_the_code_the_text_and_advice() -> None:
    server = Server(error(40401, message="Subject 's' not found."))
    with pytest.raises(RegistryError, match=r"^Subject 's' not found; `penstock schema list") as refused:
        await ask(server, lambda client: client.versions("s"))
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (copy.status, copy.error_code, copy.reason) == (404, 40401, "Subject 's' not found.")
    assert str(copy) == str(refused.value)
    assert len(server.heads) == 1, "a request that cannot succeed is not repeated"


@pytest.mark.parametrize(
    "said",
    [answer(b"not found", "404 Not Found"), answer(b"<html>"), answer(b'"text"'), answer(b'{"id":"x","schema":1}')],
)
async def test_a_server_that_is_no_registry_is_recognised(said: bytes) -> None:
    with pytest.raises(RegistryError, match=r"a schema registry.* check the registry's URL"):
        await ask(Server(said), lambda client: client.latest("s"))


async def test_a_request_that_is_too_large_is_reported_as_such() -> None:
    said = answer(b"a body has at most 4194304 bytes\n", "413 Request Entity Too Large")
    with pytest.raises(RegistryError, match=r"^The schema is too large: a body has at most 4194304 bytes \("):
        await ask(Server(said), lambda client: client.register("s", Schema(text="x")))


async def test_an_error_without_a_body_has_the_status_as_its_code() -> None:
    with pytest.raises(RegistryError, match="give user and password") as refused:
        await ask(Server(answer(b"", "401 Unauthorized")), lambda client: client.types())
    assert refused.value.error_code == 401


async def test_the_next_url_is_asked_if_one_cannot_be_reached() -> None:
    others = (NOWHERE, RegistryUrl(Endpoint("127.0.0.1", 2)))
    assert await ask(Server(answer(b'["AVRO"]')), lambda client: client.types(), others=others) == ["AVRO"]


async def test_lost_and_retriable_requests_are_retried() -> None:
    busy = error(50002, "500 Internal Server Error")
    starting = answer(b"<html>starting</html>", "503 Service Unavailable")
    server = Server(busy, starting, HANG_UP, answer(b'["AVRO"]'))
    assert await ask(server, lambda client: client.types()) == ["AVRO"]
    assert len(server.heads) == 4


async def test_a_deletion_is_not_repeated_if_it_may_have_been_made() -> None:
    server = Server(HANG_UP)
    with pytest.raises(ConnectionLost, match="the change may have been made"):
        await ask(server, lambda client: client.delete_subject("s"))
    unknown = Server(error(50003, "500 Internal Server Error"))
    with pytest.raises(RegistryError, match="50003"):
        await ask(unknown, lambda client: client.delete_subject("s"))
    assert (len(server.heads), len(unknown.heads)) == (1, 1)


async def test_a_deletion_is_repeated_if_it_cannot_have_been_made() -> None:
    starting = answer(b"<html>starting</html>", "503 Service Unavailable")
    deleted = await ask(
        Server(starting, answer(b"[1]")), lambda client: client.delete_subject("s"), others=(NOWHERE,)
    )
    assert deleted == [1]


async def test_a_failure_of_the_store_is_reported_after_a_few_retries() -> None:
    server = Server(error(50001, "500 Internal Server Error", "the topic is written by clients"))
    with pytest.raises(RegistryError, match="the topic is written by clients"):
        await ask(server, lambda client: client.types(), retry_for_s=3600)
    assert len(server.heads) == 4


async def test_retries_end_at_the_deadline_with_the_latest_error() -> None:
    server = Server(error(50004, "500 Internal Server Error", "no leader"))
    with pytest.raises(RegistryError, match="no leader; start the brokers"):
        await ask(server, lambda client: client.types(), retry_for_s=0.3)


async def test_a_wrong_url_can_be_reported_at_once() -> None:
    async with SchemaRegistryClient([NOWHERE], retry_for_s=3600, retry_unreached=False) as client:
        with pytest.raises(ConnectionFailed, match="connection refused; is the schema registry running there"):
            await client.types()


async def test_a_url_that_comes_back_is_found_again() -> None:
    port = free_port()
    async with SchemaRegistryClient(f"http://127.0.0.1:{port}", retry_for_s=60) as client:
        waiting = asyncio.create_task(client.types())
        await asyncio.sleep(0.1)
        async with serving(Server(answer(b'["AVRO"]')), port):
            assert await waiting == ["AVRO"]
