"""The schema registry client against a real broker: settings, lists and errors, which need no schemas."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_blocking import BlockingSchemaRegistry
from penstock.client.schema_registry_errors import RegistryError
from penstock.client.schema_registry_models import (
    LATEST,
    Schema,
    SchemaReference,
    context_of,
    resolve_subject,
)
from penstock.client.schema_registry_urls import find_registry

_numbers = itertools.count()
Question = Callable[[SchemaRegistryClient], Awaitable[Any]]


@pytest.fixture
def subject() -> str:
    """A name that no other test has."""
    return f"subject-{next(_numbers)}"


@asynccontextmanager
async def registry(bootstrap: str) -> AsyncIterator[SchemaRegistryClient]:
    async with SchemaRegistryClient(await find_registry(bootstrap)) as client:
        yield client


async def test_the_registry_of_brokers_is_found_and_described(bootstrap: str) -> None:
    async with registry(bootstrap) as client:
        assert str(client.url).endswith("/registry")
        assert set(await client.types()) == {"AVRO", "JSON", "PROTOBUF"}
        assert (await client.contexts())[0] == "."


async def test_a_subject_has_the_level_of_the_registry_until_it_has_its_own(bootstrap: str, subject: str) -> None:
    async with registry(bootstrap) as client:
        assert (await client.config(subject, inherited=True)).level == "BACKWARD"
        with pytest.raises(RegistryError, match="40408"):
            await client.config(subject)
        changed = await client.set_config({"compatibility": "FULL", "normalize": True}, subject)
        assert (changed.level, changed.settings) == ("FULL", {"compatibility": "FULL", "normalize": True})
        await client.set_config({"compatibility": "NONE"}, subject)
        assert (await client.config(subject)).settings == {"compatibility": "NONE", "normalize": True}
        assert (await client.delete_config(subject)).level == "NONE"
        assert (await client.config(subject, inherited=True)).level == "BACKWARD"


async def test_the_level_of_the_registry_can_be_changed(bootstrap: str) -> None:
    async with registry(bootstrap) as client:
        assert (await client.set_config({"compatibility": "FULL_TRANSITIVE"})).level == "FULL_TRANSITIVE"
        assert (await client.config()).level == "FULL_TRANSITIVE"
        await client.delete_config()
        assert (await client.config()).level == "BACKWARD"


async def test_a_subject_has_the_mode_of_the_registry_until_it_has_its_own(bootstrap: str, subject: str) -> None:
    async with registry(bootstrap) as client:
        assert await client.mode() == "READWRITE"
        with pytest.raises(RegistryError, match="40409"):
            await client.mode(subject)
        assert await client.set_mode("READONLY", subject) == "READONLY"
        assert await client.mode(subject) == "READONLY"
        await client.delete_mode(subject)
        assert await client.mode(subject, inherited=True) == "READWRITE"


async def test_settings_of_a_context_apply_to_its_subjects(bootstrap: str) -> None:
    async with registry(bootstrap) as client:
        await client.set_config({"compatibility": "FORWARD"}, ":.settings:")
        assert (await client.config(":.settings:any", inherited=True)).level == "FORWARD"
        assert (await client.config("any", inherited=True)).level == "BACKWARD"


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (lambda client: client.versions("nowhere"), 40401),
        (lambda client: client.latest("nowhere"), 40401),
        (lambda client: client.version("nowhere", 1), 40401),
        (lambda client: client.by_id(2**31 - 1), 40403),
        (lambda client: client.delete_subject("nowhere"), 40401),
        (lambda client: client.delete_version("nowhere", 1, permanent=True), 40401),
        (lambda client: client.referenced_by("nowhere", 1), 40401),
        (lambda client: client.delete_config("nowhere"), 40401),
        (lambda client: client.set_config({"compatibility": "SOMETIMES"}, "nowhere"), 42203),
        (lambda client: client.set_mode("SOMETIMES", "nowhere"), 42204),
        (lambda client: client.set_mode("FORWARD", "nowhere"), 42205),
        (lambda client: client.register("nowhere", Schema(text="")), 42201),
        (lambda client: client.register("nowhere", Schema(text='"string"', type="XML")), 42201),
        (lambda client: client.register("__EMPTY", Schema(text='"string"')), 42208),
        (
            lambda client: client.register(
                "nowhere", Schema(text='"a"', references=(SchemaReference("a", "nowhere", 1),))
            ),
            42201,
        ),
    ],
)
async def test_what_does_not_exist_or_is_not_valid_is_refused(bootstrap: str, question: Question, code: int) -> None:
    async with registry(bootstrap) as client:
        with pytest.raises(RegistryError) as refused:
            await question(client)
    assert (refused.value.error_code, refused.value.status) == (code, code // 100)


async def test_a_missing_reference_of_a_draft_is_reported(bootstrap: str) -> None:
    draft = Schema(text='"a"', references=(SchemaReference("a", "nowhere", LATEST),))
    async with registry(bootstrap) as client:
        with pytest.raises(RegistryError, match="40401"):
            await client.references(draft, subject="here")
        assert await client.references(Schema(text='"string"')) == []


def test_errors_reach_threads(bootstrap: str) -> None:
    (url,) = asyncio.run(find_registry(bootstrap))
    blocking = BlockingSchemaRegistry(str(url))
    try:
        with pytest.raises(RegistryError, match="40401"):
            blocking.latest("nowhere")
    finally:
        blocking.close()


@pytest.mark.parametrize(
    ("parent", "reference", "meant"),
    [
        ("orders", "customer", "customer"),
        (":.staging:orders", "customer", ":.staging:customer"),
        (":.staging:orders", ":.other:customer", ":.other:customer"),
        (":.staging:orders", ":.:customer", ":.staging:customer"),
        ("orders", ":.:customer", "customer"),
        (":.:orders", "customer", "customer"),
    ],
)
def test_a_reference_without_a_context_is_in_that_of_its_schema(parent: str, reference: str, meant: str) -> None:
    assert resolve_subject(parent, reference) == meant


def test_the_context_is_a_prefix_of_the_subject() -> None:
    assert [context_of(each) for each in ("a", ":.b:a", ":.:a", ":a")] == ["", ":.b:", "", ""]
