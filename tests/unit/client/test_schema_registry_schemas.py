"""Schemas are registered and found by the schema registry client, against a real broker."""

import asyncio
import itertools
import json
import multiprocessing
import pickle
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_blocking import BlockingSchemaRegistry
from penstock.client.schema_registry_errors import RegistryError
from penstock.client.schema_registry_models import JSON_SCHEMA, LATEST, PROTOBUF, Schema, SchemaReference
from penstock.client.schema_registry_urls import find_registry

_numbers = itertools.count()


def record(name: str, **fields: object) -> str:
    """Returns an Avro schema in its canonical form: a record with fields of these types."""
    listed = [{"name": each, "type": type_} for each, type_ in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed}, separators=(",", ":"))


@pytest.fixture
def subject() -> str:
    """A name that no other test has."""
    return f"schemas-{next(_numbers)}"


@asynccontextmanager
async def registry(bootstrap: str) -> AsyncIterator[SchemaRegistryClient]:
    async with SchemaRegistryClient(await find_registry(bootstrap)) as client:
        yield client


@pytest.fixture
def blocking(bootstrap: str) -> Iterator[BlockingSchemaRegistry]:
    (url,) = asyncio.run(find_registry(bootstrap))
    found = BlockingSchemaRegistry(str(url))
    yield found
    found.close()


async def test_a_schema_that_is_registered_is_found(bootstrap: str, subject: str) -> None:
    schema = Schema(text=record("Order", id="long"))
    async with registry(bootstrap) as client:
        added = await client.register(subject, schema)
        assert (added.subject, added.version, added.schema.text) == (subject, 1, schema.text)
        assert await client.register(subject, schema) == added
        assert await client.look_up(subject, schema) == await client.latest(subject) == added
        found = await client.by_id(added.id)
        assert (found.id, found.schema, found.guid) == (added.id, schema, added.guid)
        assert (await client.by_id(added.id, subject=subject)).version == 1
        with pytest.raises(RegistryError, match="40403"):
            await client.look_up(subject, Schema(text=record("Other", id="long")))


@pytest.mark.parametrize(
    "schema",
    [
        Schema(text='"string"'),
        Schema(text='{"type":"object"}', type=JSON_SCHEMA),
        Schema(text='syntax = "proto3";\n\nmessage A {\n  string a = 1;\n}\n', type=PROTOBUF),
    ],
    ids=lambda schema: schema.type,
)
async def test_each_type_of_schema_is_registered(bootstrap: str, subject: str, schema: Schema) -> None:
    async with registry(bootstrap) as client:
        added = await client.register(subject, schema)
        assert (await client.by_id(added.id)).schema == schema


async def test_an_incompatible_schema_is_refused_with_the_reasons(bootstrap: str, subject: str) -> None:
    old, new = (Schema(text=record("Order", id=type_)) for type_ in ("long", "string"))
    async with registry(bootstrap) as client:
        assert (await client.check(subject, old)).is_compatible, "a subject without versions accepts any schema"
        await client.register(subject, old)
        assert (await client.check(subject, old, LATEST)).is_compatible
        for version in (None, LATEST, 1):
            found = await client.check(subject, new, version)
            assert not found.is_compatible
            (reason,) = found.reasons
            assert "TYPE_MISMATCH" in reason
            assert found.old_version == 1
        with pytest.raises(RegistryError, match="TYPE_MISMATCH") as refused:
            await client.register(subject, new)
        assert refused.value.error_code == 409
        await client.set_config({"compatibility": "NONE"}, subject)
        assert (await client.register(subject, new)).version == 2
        with pytest.raises(RegistryError, match="40402"):
            await client.check(subject, new, 9)


async def test_references_are_resolved_in_the_order_in_which_they_are_needed(bootstrap: str, subject: str) -> None:
    async with registry(bootstrap) as client:
        for name, needed in (("A", None), ("B", "A"), ("C", "B")):
            fields = {"one": needed} if needed else {"one": "long"}
            references = (SchemaReference(needed, f"{subject}-{needed}", 1),) if needed else ()
            await client.register(f"{subject}-{name}", Schema(text=record(name, **fields), references=references))
        top = Schema(
            text=record("Top", c="C", a="A"),
            references=(SchemaReference("C", f"{subject}-C", LATEST), SchemaReference("A", f"{subject}-A", 1)),
        )
        before = await client.references(top)
        added = await client.register(subject, top)
        assert [(each.name, each.found.subject) for each in before] == [
            (name, f"{subject}-{name}") for name in ("A", "B", "C")
        ]
        assert await client.references(added) == before
        assert added.schema.references[0].version == 1, "the registry stores the version that LATEST means"
        assert await client.referenced_by(f"{subject}-C", 1) == [added.id]
        with pytest.raises(RegistryError, match="delete the schemas that refer to it first"):
            await client.delete_subject(f"{subject}-C")


async def test_references_of_a_schema_in_a_context_are_in_that_context(bootstrap: str, subject: str) -> None:
    needed, top = f":.team-{subject}:needed", f":.team-{subject}:top"
    async with registry(bootstrap) as client:
        await client.register(needed, Schema(text=record("A", one="long")))
        schema = Schema(text=record("Top", a="A"), references=(SchemaReference("A", "needed", 1),))
        added = await client.register(top, schema)
        (reference,) = await client.references(added)
        assert (reference.name, reference.found.subject) == ("A", needed)
        assert f".team-{subject}" in await client.contexts()
        assert (await client.by_id(added.id, subject=top)).subject == top
        assert await client.subjects(f":.team-{subject}:") == [needed, top]
        inside = f"{client.url}/contexts/.team-{subject}"
    async with SchemaRegistryClient(inside) as client:
        assert await client.subjects() == [each.subject for each in await client.schemas()] == [needed, top]
        assert (await client.latest("top")).id == added.id
        assert (await client.by_id(added.id)).schema == added.schema


async def test_a_soft_deleted_version_is_found_by_its_id_until_it_is_deleted_for_good(
    bootstrap: str, subject: str
) -> None:
    async with registry(bootstrap) as client:
        # An id that no other subject has.
        name = subject.replace("-", "_")
        first = await client.register(subject, Schema(text=record(name, id="long")))
        second = await client.register(subject, Schema(text=record(name, id="double")))
        assert await client.delete_version(subject, 1) == 1
        assert (await client.versions(subject), await client.versions(subject, deleted=True)) == ([2], [1, 2])
        assert (await client.version(subject, 1, deleted=True)).is_deleted
        assert (await client.by_id(first.id)).schema == first.schema
        with pytest.raises(RegistryError, match="--permanent"):
            await client.delete_version(subject, 1)
        assert await client.delete_version(subject, 1, permanent=True) == 1
        assert await client.delete_subject(subject) == [2]
        assert subject in await client.subjects(deleted=True)
        assert subject not in await client.subjects()
        assert await client.delete_subject(subject, permanent=True) == [2]
        assert subject not in await client.subjects(deleted=True)
    async with registry(bootstrap) as client:  # without the cache
        for each in (first, second):
            with pytest.raises(RegistryError, match="40403"):
                await client.by_id(each.id)


async def test_subjects_and_schemas_are_listed_by_prefix(bootstrap: str, subject: str) -> None:
    async with registry(bootstrap) as client:
        for number in range(3):
            await client.register(f"{subject}-list-{number}", Schema(text=record("Order", id="long")))
        names = [f"{subject}-list-{number}" for number in range(3)]
        assert await client.subjects(f"{subject}-list-") == names
        assert [each.subject for each in await client.schemas(f"{subject}-list-", latest_only=True)] == names
        assert set(names) <= {each.subject for each in await client.schemas()}


async def test_a_schema_gets_the_id_that_the_client_wants_in_mode_import(bootstrap: str, subject: str) -> None:
    name, schema = f":.import-{subject}:orders", Schema(text=record("Order", id="long"))
    async with registry(bootstrap) as client:
        with pytest.raises(RegistryError, match=r"not in import mode; `penstock schema mode`"):
            await client.register(name, schema, version=4, schema_id=77)
        await client.set_mode("IMPORT", f":.import-{subject}:")
        added = await client.register(name, schema, version=4, schema_id=77)
        assert (added.id, added.version) == (77, 4)
        assert (await client.by_id(77, subject=name)).schema == schema
        assert await client.versions(name) == [4]


async def test_a_normalized_schema_is_found_in_any_layout(bootstrap: str, subject: str) -> None:
    text = record("Order", id={"type": "long", "logicalType": "timestamp-millis"})
    other = json.dumps(json.loads(text), indent=2)
    async with registry(bootstrap) as client:
        added = await client.register(subject, Schema(text=text), normalize=True)
        again = await client.register(subject, Schema(text=other), normalize=True)
        assert (again.id, again.version) == (added.id, added.version)


def test_threads_share_a_client_and_its_cache(blocking: BlockingSchemaRegistry, subject: str) -> None:
    added = blocking.register(subject, Schema(text=record("Order", id="long")))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(blocking.by_id, [added.id] * 20))
    assert {each.schema for each in found} == {added.schema}
    assert blocking.look_up(subject, added.schema) == blocking.version(subject, 1) == blocking.latest(subject)
    assert blocking.references(added) == []


def test_a_client_is_sent_to_another_process(blocking: BlockingSchemaRegistry, subject: str) -> None:
    added = blocking.register(subject, Schema(text=record("Order", id="long")))
    copy = pickle.loads(pickle.dumps(blocking))
    assert copy.by_id(added.id).schema == added.schema
    copy.close()
    assert copy.by_id(added.id).schema == added.schema, "the next request starts anew"
    copy.close()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        assert processes.submit(blocking.by_id, added.id).result().schema == added.schema
