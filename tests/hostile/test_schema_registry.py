"""Requests to the schema registry that try to stall the broker, to fill it, or to make it ask others."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.raw import RawClient, batch_of
from tests.registry.rest_client import Answer, RestClient

from .probe import Probe
from .raw_http import MIB, exchange, get

INVALID = 42201
INCOMPATIBLE = 409
TOO_LARGE = 42209
NO_SUBJECT, NO_SCHEMA = 40401, 40403
GROWTH_KIB_MAX = 256 << 10
"""More memory than the broker may keep after all cases of one test; a schema of 1 MB is stored once."""
CONNECTIONS = 16
BY_EXEC = True
"""The broker imports the library of Protobuf with the first schema."""


@pytest.fixture(scope="module")
def rest(target: BrokerProcess) -> RestClient:
    return RestClient(target.http)


@pytest.fixture
def bounded(target: BrokerProcess) -> Iterator[None]:
    """Asserts that the broker's memory has not grown much at the end of a test."""
    before = target.rss_anon_kib()
    yield
    assert target.rss_anon_kib() - before < GROWTH_KIB_MAX


def fields_of(count: int, kind: object = "long") -> str:
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": kind} for n in range(count)]}
    )


def doubling(levels: int) -> str:
    """A record whose fields refer to records that refer to records …: 2 ** levels paths."""
    kind: object = "long"
    for level in range(levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{level - 1}" if level else "long"}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    return json.dumps(kind)


def doubling_json(levels: int) -> str:
    """A JSON Schema with 2 ** levels paths."""
    definitions: dict[str, object] = {"d0": {"type": "integer"}}
    for level in range(1, levels):
        reference = {"$ref": f"#/definitions/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"a": reference, "b": reference}}
    return json.dumps({"$ref": f"#/definitions/d{levels - 1}", "definitions": definitions})


def union_of(count: int, name: str = "U") -> str:
    return json.dumps([{"type": "record", "name": f"{name}{n}", "fields": []} for n in range(count)])


def one_ofs(count: int) -> str:
    each = [{"type": "object", "properties": {f"p{n}": {"type": "string"}}} for n in range(count)]
    return json.dumps({"oneOf": each})


AVRO_ARRAY, CLOSE = '{"type": "array", "items": ', "}"
CASES: dict[str, tuple[str, str, set[int]]] = {
    # name: (type, schema, codes that are allowed; 0 is success)
    "a record of 1 MB": ("AVRO", fields_of(24_000), {0}),
    "a record above 1 MB": ("AVRO", fields_of(60_000), {TOO_LARGE}),
    "a text of 3 MB": ("AVRO", '{"type": "string", "doc": "%s"}' % ("x" * 3 * MIB), {0}),
    "arrays 20,000 deep": ("AVRO", AVRO_ARRAY * 20_000 + '"int"' + CLOSE * 20_000, {INVALID}),
    "brackets 500,000 deep": ("AVRO", "[" * 500_000, {INVALID}),
    "a record in itself": (
        "AVRO",
        '{"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}',
        {0},
    ),
    "records with 2^200 paths": ("AVRO", doubling(200), {0, INVALID}),
    "a union of 10,000": ("AVRO", union_of(10_000), {0, INVALID}),
    "an enum of 50,000": (
        "AVRO",
        json.dumps({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(50_000)]}),
        {0, INVALID},
    ),
    "a fixed of 2^62 bytes": ("AVRO", '{"type": "fixed", "name": "F", "size": 4611686018427387904}', {0, INVALID}),
    "a number of 500,000 digits": (
        "AVRO",
        '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "long", "default": 1%s}]}'
        % ("0" * 500_000),
        {INVALID},
    ),
    "JSON brackets 500,000 deep": ("JSON", '{"items":' * 100_000 + "{}" + "}" * 100_000, {INVALID}),
    "a JSON Schema in itself": ("JSON", '{"properties": {"next": {"$ref": "#"}}}', {0}),
    "a JSON reference to itself": ("JSON", '{"$ref": "#"}', {0, INVALID}),
    "JSON Schema with 2^60 paths": ("JSON", doubling_json(60), {0, INVALID}),
    "oneOf of 3,000": ("JSON", one_ofs(3000), {0, INVALID}),
    "a slow regular expression": ("JSON", '{"type": "string", "pattern": "(a+)+(b+)+$"}', {0, INVALID}),
    "a huge regular expression": ("JSON", json.dumps({"pattern": "(a{1000}){1000}"}), {0, INVALID}),
    "Protobuf messages 5,000 deep": (
        "PROTOBUF",
        'syntax = "proto3";' + "".join(f"message M{n} {{" for n in range(5000)) + "}" * 5000,
        {0, INVALID},
    ),
    "a message with 20,000 fields": (
        "PROTOBUF",
        'syntax = "proto3"; message M {' + "".join(f"int32 f{n} = {n};" for n in range(1, 18_000)) + "}",
        {0, INVALID},
    ),
    "Protobuf comments of 900 KB": ("PROTOBUF", 'syntax = "proto3"; message M {}' + "/*" * 450_000, {INVALID}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_expensive_schema_delays_no_one_else(probe: Probe, rest: RestClient, bounded: None, case: str) -> None:
    kind, text, codes = CASES[case]
    subject = quote(f"case-{case}", safe="")
    with probe.watch(case):
        answer = rest.register(subject, text, kind)
        assert answer.code in codes, answer
        for path in (f"/subjects/{subject}", f"/compatibility/subjects/{subject}/versions?verbose=true"):
            again = rest.post(path, {"schema": text, "schemaType": kind})
            assert again.code in (0, INVALID, NO_SUBJECT, NO_SCHEMA), again


def test_large_unions_are_compared_within_limits(probe: Probe, rest: RestClient, bounded: None) -> None:
    with probe.watch("comparing unions of thousands"):
        assert rest.register("unions", union_of(2000)).code == 0
        assert rest.register("unions", union_of(2000, "V")).code in (INCOMPATIBLE, INVALID)
        assert rest.register("one-ofs", one_ofs(300), "JSON").code == 0
        assert rest.register("one-ofs", one_ofs(299), "JSON").code in (0, INCOMPATIBLE, INVALID)


@pytest.fixture
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP server that notes what it is asked for."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    asked.append(connection.recv(1000))

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked
        with socket.create_connection(server.getsockname()) as last:
            last.sendall(b"the test itself")
        # The server takes connections in order: requests sent before are noted by now.
        assert asked in ([], [b"the test itself"])
        server.shutdown(socket.SHUT_RDWR)


def test_a_remote_reference_is_refused_and_never_followed(
    probe: Probe, rest: RestClient, listener: tuple[str, list[bytes]]
) -> None:
    address, asked = listener
    url = f"http://{address}/schema.json"
    schemas = {
        "JSON": (
            json.dumps({"$ref": url}),
            json.dumps({"$schema": url, "type": "object"}),
            json.dumps({"$id": url, "properties": {"a": {"$ref": "other.json"}}}),
            json.dumps({"properties": {"a": {"$dynamicRef": url}}}),
            json.dumps({"$ref": "file:///etc/passwd"}),
        ),
        "PROTOBUF": (f'syntax = "proto3"; import "{url}"; message M {{}}',),
        "AVRO": (json.dumps({"type": url}),),
    }
    with probe.watch("remote references"):
        for kind, texts in schemas.items():
            for number, text in enumerate(texts):
                answer = rest.register(f"remote-{kind}-{number}", text, kind)
                assert answer.code in (0, INVALID), answer
                assert answer.code == INVALID or '"$ref": "' not in text or "other.json" in text, answer
                named = rest.register(
                    f"named-{kind}-{number}", text, kind, references=[{"name": url, "subject": url, "version": 1}]
                )
                assert named.code == INVALID, named
    assert asked == []


def test_bodies_that_are_no_requests_are_refused(probe: Probe, rest: RestClient) -> None:
    deep = b'{"schema": "x", "metadata": ' + b"[" * 200_000
    with probe.watch("malformed bodies"):
        for body, codes in (
            (deep, {400}),
            (b'{"schema": 1}', {422}),
            (b"[]", {422}),
            (b"\xff\xfe", {400}),
            (b'{"schema": "\\ud800"}', {400, INVALID}),
            (json.dumps({"schema": '"int"', "references": [{}] * 2000}).encode(), {422}),
            (json.dumps({"schema": '"int"', "references": [{"name": 1}]}).encode(), {400, 422, INVALID}),
            (
                json.dumps(
                    {"schema": '"int"', "metadata": {"properties": {f"p{n}": "v" for n in range(50_000)}}}
                ).encode(),
                {422},
            ),
            (json.dumps({"schema": '"int"', "id": 2**63}).encode(), {422}),
            (json.dumps({"schema": '"int"', "version": -7}).encode(), {422}),
        ):
            answer = rest.post("/subjects/bodies/versions", body)
            assert answer.code in codes, (body[:60], answer)


def test_a_huge_body_is_refused_before_it_is_read(probe: Probe, target: BrokerProcess, bounded: None) -> None:
    with probe.watch("huge bodies"):
        for size in (5 * MIB, 1 << 40):
            head = f"POST /registry/subjects/a/versions HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
            (answer,) = exchange(target.http, head.encode() + b"x" * MIB)
            assert answer.status in (400, 413), answer


def test_bodies_that_never_end_take_nothing_from_others(
    probe: Probe, target: BrokerProcess, rest: RestClient
) -> None:
    host, _, port = target.http.rpartition(":")
    head = b"POST /registry/subjects/slow/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n{"
    connections = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        with probe.watch("slow bodies"):
            for connection in connections:
                connection.sendall(head + b" " * 10_000)
            assert rest.register("beside", '"int"').code == 0
    finally:
        for connection in connections:
            connection.close()


PATHS = (
    "/subjects/%zz/versions",
    "/subjects/%/versions",
    "/subjects/%00/versions",
    "/subjects/%ff%fe/versions",
    "/subjects/%2e%2e%2f%2e%2e/versions",
    "/subjects/" + "x" * 8000 + "/versions",
    "/subjects/a%0d%0aSet-Cookie:%20a=b/versions",
    "/subjects/a/versions/99999999999999999999",
    "/subjects/a/versions/1e3",
    "/schemas/ids/-1",
    "/schemas/ids/99999999999999999999",
    "/schemas/ids/%D9%A1",
    "/schemas/guids/%ff",
    "/subjects?subjectPrefix=%ff&offset=-9&limit=99999999999999999999",
    "/subjects?" + "a=1&" * 2000,
    "/contexts/%3A%3A/subjects",
    "/contexts/" + "c" * 5000 + "/subjects/a/versions",
    "/contexts/.a/contexts/.b/subjects",
    "/" + "/".join("x" * 2000),
    "//////////",
    "/config/:.:",
    "/mode/:*:",
)


def test_odd_paths_are_answered_with_an_error_of_the_client(probe: Probe, target: BrokerProcess) -> None:
    with probe.watch("odd paths"):
        for path in PATHS:
            for answer in exchange(target.http, get(f"/registry{path}")):
                assert answer.status < 500, (path[:80], answer)
                assert b"\nSet-Cookie" not in answer.body


def many(work: Callable[[int], Answer], count: int) -> list[Answer]:
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(work, range(count)))


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_many_registrations_from_many_connections(probe: Probe, rest: RestClient, bounded: None, count: int) -> None:
    """Thousands of subjects, each with a schema; then they are listed, also with their schemas."""
    with probe.watch(f"{count} registrations"):
        answers = many(lambda number: rest.register(f"many-{number:05}", '"long"'), count)
    assert {answer.code for answer in answers} == {0}
    assert len({answer.body["id"] for answer in answers}) == 1
    number = answers[0].body["id"]
    with probe.watch(f"{count} subjects listed"):
        listed = many(lambda _: rest.get("/subjects?subjectPrefix=many-"), 20)
        assert {len(answer.body) for answer in listed} == {count}
        assert len(rest.get(f"/schemas/ids/{number}/subjects").body) >= count
        assert len(rest.get(f"/schemas/ids/{number}/versions").body) >= count
        assert len(rest.get("/schemas?subjectPrefix=many-").body) == 1000
        assert len(rest.get(f"/schemas?subjectPrefix=many-&offset={count - 10}").body) == 10


def test_settings_that_change_all_the_time(probe: Probe, rest: RestClient, bounded: None) -> None:
    levels = ("NONE", "FULL", "BACKWARD", "FORWARD_TRANSITIVE")
    with probe.watch("settings"):
        changed = many(lambda n: rest.put(f"/config/spam-{n % 50}", {"compatibility": levels[n % 4]}), 500)
        modes = many(lambda n: rest.put(f"/mode/spam-{n % 50}", {"mode": ("READWRITE", "READONLY")[n % 2]}), 300)
        registered = many(lambda n: rest.register(f"beside-spam-{n}", '"long"'), 20)
    assert {answer.code for answer in (*changed, *modes, *registered)} == {0}


def test_many_contexts(probe: Probe, rest: RestClient, bounded: None) -> None:
    with probe.watch("500 contexts"):
        made = many(lambda number: rest.register(f":.c{number}:a", '"long"'), 500)
        assert {answer.code for answer in made} == {0}
        assert len(rest.get("/contexts").body) > 500
        assert len(rest.get("/subjects?subjectPrefix=:*:a").body) >= 500


def test_invented_schema_ids_do_not_flood_the_registry(probe: Probe, target: BrokerProcess, rest: RestClient) -> None:
    ConfluentDriver(target.kafka).create_topic("validated", configs={"schema.validation": "true"})
    known = int(rest.register("validated-value", '"long"').body["id"])

    def value(number: int) -> bytes:
        return struct.pack(">bi", 0, number) + b"x"

    batch = batch_of([value(2**30 + number) for number in range(50_000)])

    def flood(_: int) -> Answer:
        with RawClient(target.address) as raw:
            found = [raw.produce("validated", batch) for _ in range(5)]
        assert {each.error_code for each in found} == {ErrorCode.INVALID_RECORD}
        return Answer(200, None)

    with probe.watch("invented schema ids"), ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(many, flood, CONNECTIONS)
        with RawClient(target.address) as raw:
            while not flooding.done():
                assert raw.produce("validated", batch_of([value(known)])).error_code == 0
        flooding.result()
