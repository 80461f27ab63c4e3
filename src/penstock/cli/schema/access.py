"""Shared options of `penstock schema`: the registry's URL, and a client for it."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

import click

from penstock.cli.common import Command, bootstrap_option, client_settings, json_option, run, value_parser
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import SUBJECT_NOT_FOUND, RegistryError
from penstock.client.schema_registry_models import RegisteredSchema
from penstock.client.schema_registry_urls import RegistryUrl, find_registry, parse_urls

T = TypeVar("T")

REGISTRY_VARIABLE: Final = "PENSTOCK_REGISTRY"
REGISTRY_USER_VARIABLE: Final = "PENSTOCK_REGISTRY_USER"
REQUESTS_MAX: Final = 8
"""Maximum number of requests that a command sends at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """Where the schema registry is."""

    bootstrap: str
    urls: tuple[RegistryUrl, ...]
    """Empty if the registry is the one of the brokers at `bootstrap`."""
    login: "Login"

    async def find(self) -> list[RegistryUrl]:
        return list(self.urls) or await find_registry(self.bootstrap, client_settings())


@dataclass(frozen=True, slots=True)
class Login:
    """User and password of the registry; empty if there are none, or the URLs have them."""

    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> "Login":
        """Parses USER:PASSWORD. Raises ValueError, which does not show the password."""
        user, colon, password = text.partition(":")
        if not user or not colon:
            raise ValueError("expected USER:PASSWORD, such as an access key and its secret")
        return cls(user, password)


def registry_options(command: Command) -> Command:
    """Decorator that adds --registry, --registry-user, --bootstrap and --json; the command receives all but the last
    as `access`."""

    @functools.wraps(command)
    def with_access(
        *, bootstrap: str, registry: tuple[RegistryUrl, ...] | None, registry_user: Login | None, **options: Any
    ) -> Any:
        access = RegistryAccess(bootstrap=bootstrap, urls=registry or (), login=registry_user or Login())
        return command(access=access, **options)

    registry_option = click.option(
        "--registry",
        metavar="URL[,…]",
        envvar=REGISTRY_VARIABLE,
        show_envvar=True,
        callback=value_parser(parse_urls),
        help="URL of the schema registry: http://USER:PASSWORD@HOST:PORT/PATH.  [found with --bootstrap]",
    )
    with_options = registry_option(registry_user_option(bootstrap_option(json_option(cast(Any, with_access)))))
    return cast(Command, with_options)


registry_user_option = click.option(
    "--registry-user",
    metavar="USER:PASSWORD",
    envvar=REGISTRY_USER_VARIABLE,
    show_envvar=True,
    callback=value_parser(Login.parse),
    help="User of the registry: an access key of the brokers' --credentials, and its secret.",
)


def run_registry(access: RegistryAccess, work: Callable[[SchemaRegistryClient], Awaitable[T]]) -> T:
    """Runs `work` with a client of the registry; returns its result."""

    async def inside() -> T:
        urls, login = await access.find(), access.login
        async with SchemaRegistryClient(
            urls, user=login.user, password=login.password, retry_unreached=False
        ) as client:
            return await work(client)

    return run(inside())


async def fetch_versions(
    client: SchemaRegistryClient, subject: str, *, deleted: bool = False
) -> list[RegisteredSchema]:
    """Returns all versions of a subject, fetched several at a time; none if there is no such subject. `deleted`: also
    soft-deleted ones."""
    visible = set(await optional(client.versions(subject), SUBJECT_NOT_FOUND) or ())
    numbers = sorted(visible)
    if deleted:
        numbers = await optional(client.versions(subject, deleted=True), SUBJECT_NOT_FOUND) or []
    slots = asyncio.Semaphore(REQUESTS_MAX)

    async def fetch(version: int) -> RegisteredSchema:
        async with slots:
            found = await client.version(subject, version, deleted=True)
            return replace(found, is_deleted=version not in visible)  # older registries do not tell

    tasks = [asyncio.ensure_future(fetch(version)) for version in numbers]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def optional(asked: Awaitable[T], *codes: int) -> T | None:
    """Returns what the registry has; None if it answers with one of the error codes."""
    try:
        return await asked
    except RegistryError as error:
        if error.error_code not in codes:
            raise
        return None
