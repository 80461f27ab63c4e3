"""Client of a schema registry with Confluent's REST API: that of Penstock's brokers, or any other."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Self, TypeVar

from penstock.client.schema_registry_errors import TOO_LARGE, URL_ADVICE, RegistryError
from penstock.client.schema_registry_http import RETRY_FOR_S, TIMEOUT_S, RegistryHttp
from penstock.client.schema_registry_models import (
    LATEST,
    Compatibility,
    Json,
    RegisteredSchema,
    RegistryConfig,
    ResolvedReference,
    Schema,
    SchemaReference,
    resolve_subject,
)
from penstock.client.schema_registry_urls import RegistryUrl, parse_urls

T = TypeVar("T")

PAGE_MAX: Final = 5000
"""Maximum number of subjects or versions in one response."""
SCHEMAS_PAGE_MAX: Final = 1000
REFERENCES_MAX: Final = 1000
"""Maximum number of schemas that one schema may need, directly and indirectly; as in Penstock's registry."""
REFERENCED_CHARS_MAX: Final = 8 << 20
CACHED_CHARS_MAX: Final = 16 << 20
"""Maximum length of all texts in the cache of schemas by id."""
CACHED_MAX: Final = 10_000
_ANY_CONTEXT: Final = ":*:"
_CONTEXT_PATH: Final = "/contexts/"
_TRUE: Final = "true"


class SchemaRegistryClient:
    """Registers and finds schemas. May be shared by the tasks of one event loop.

    >>> async with SchemaRegistryClient("http://127.0.0.1:9324/registry") as registry:
    ...     added = await registry.register("orders-value", Schema(text='"string"'))
    ...     print(added.id)
    """

    def __init__(
        self,
        urls: str | Sequence[RegistryUrl],
        *,
        user: str = "",
        password: str = "",
        timeout_s: float = TIMEOUT_S,
        retry_for_s: float = RETRY_FOR_S,
        retry_unreached: bool = True,
        rng: Random | None = None,
    ) -> None:
        """`urls`: those of one registry, tried in turn; as text they are separated by commas. `user`, `password`: for
        URLs that have none. `retry_unreached`: whether requests are also retried while no URL has ever answered.
        Raises ValueError if a URL is invalid."""
        self._http = RegistryHttp(
            parse_urls(urls) if isinstance(urls, str) else urls,
            user=user,
            password=password,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            retry_unreached=retry_unreached,
            rng=rng,
        )
        self._by_id = _SchemaCache()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def url(self) -> RegistryUrl:
        """The URL that is asked next; another one if it does not answer."""
        return self._http.url

    # -- schemas

    async def register(
        self, subject: str, schema: Schema, *, normalize: bool = False, version: int = 0, schema_id: int | None = None
    ) -> RegisteredSchema:
        """Registers a schema; returns the version that it has now, or had already. `version`, `schema_id`: for mode
        IMPORT. Raises RegistryError."""
        body = schema.json()
        if version:
            body["version"] = version
        if schema_id is not None:
            body["id"] = schema_id
        found = await self._call(
            "POST", "subjects", subject, "versions", query=_flags(normalize=normalize), body=body
        )
        if version and schema_id is not None:
            return RegisteredSchema(id=schema_id, schema=schema, subject=subject, version=version)
        if "version" not in found:  # registries before version 8 of Confluent's return the id alone
            return await self.look_up(subject, schema, normalize=normalize)
        return self._decoded(lambda: RegisteredSchema.parse({**body, **found, "subject": subject}))

    async def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Returns the version of a subject that has this schema. Raises RegistryError with 40401 or 40403 if there is
        none. `deleted`: also if it is soft-deleted."""
        query = _flags(normalize=normalize, deleted=deleted)
        found = await self._call("POST", "subjects", subject, query=query, body=schema.json())
        return self._decoded(lambda: RegisteredSchema.parse(found))

    async def check(
        self, subject: str, schema: Schema, version: int | None = None, *, normalize: bool = False
    ) -> Compatibility:
        """Returns whether a schema is compatible with a version (LATEST: the latest one), or with those that its
        level asks for if `version` is None."""
        path = ["compatibility", "subjects", subject, "versions"]
        if version is not None:
            path.append(_version_text(version))
        query = _flags(verbose=True, normalize=normalize)
        found = await self._call("POST", *path, query=query, body=schema.json())
        return self._decoded(
            lambda: Compatibility(
                is_compatible=bool(found["is_compatible"]), messages=tuple(map(str, found.get("messages") or ()))
            )
        )

    async def by_id(self, schema_id: int, *, subject: str = "", format: str = "") -> RegisteredSchema:
        """Returns the schema with an id, which never changes and is therefore cached. `subject`: a subject that has
        it, or one in its context; ids of the default context need none. `format`: a layout such as `resolved` (Avro)
        or `serialized` (Protobuf)."""
        key = (schema_id, subject, format)
        known = self._by_id.get(key)
        if known is not None:
            return known
        query = {name: text for name, text in (("subject", subject), ("format", format)) if text}
        found = await self._call("GET", "schemas", "ids", schema_id, query=query)
        schema = self._decoded(lambda: RegisteredSchema.parse(found, schema_id=schema_id))
        self._by_id.add(key, schema)
        return schema

    async def version(
        self, subject: str, version: int, *, deleted: bool = False, format: str = ""
    ) -> RegisteredSchema:
        """Returns a version of a subject. `deleted`: also if it is soft-deleted."""
        query = _flags(deleted=deleted) | ({"format": format} if format else {})
        found = await self._call("GET", "subjects", subject, "versions", _version_text(version), query=query)
        return self._decoded(lambda: RegisteredSchema.parse(found))

    async def latest(self, subject: str, *, format: str = "") -> RegisteredSchema:
        """Returns the latest version of a subject that is not deleted."""
        return await self.version(subject, LATEST, format=format)

    async def references(self, found: RegisteredSchema | Schema, *, subject: str = "") -> list[ResolvedReference]:
        """Returns all schemas that a schema refers to, directly or through others; each comes after those it needs.
        A name counts once. `subject`: that of the schema, if it is not registered. Raises RegistryError if one is
        missing or there are too many."""
        schema, parent = (found, subject) if isinstance(found, Schema) else (found.schema, found.subject or subject)
        resolved: list[ResolvedReference] = []
        seen: set[str] = set()
        chars = 0
        stack: list[tuple[str, Iterator[SchemaReference], ResolvedReference | None]]
        stack = [(parent, iter(schema.references), None)]
        while stack:  # depth first, without recursion: a chain may be as long as REFERENCES_MAX
            parent, pending, each = stack[-1]
            reference = next((one for one in pending if one.name not in seen), None)
            if reference is None:
                stack.pop()
                if each is not None:
                    resolved.append(each)
                continue
            seen.add(reference.name)
            target = resolve_subject(parent, reference.subject)
            needed = await self.version(target, reference.version, deleted=reference.version != LATEST)
            chars += len(needed.schema.text)
            if len(seen) > REFERENCES_MAX or chars > REFERENCED_CHARS_MAX:
                raise RegistryError(
                    TOO_LARGE,
                    TOO_LARGE,
                    f"The references lead to more than {REFERENCES_MAX} schemas or {REFERENCED_CHARS_MAX} characters",
                )
            stack.append((target, iter(needed.schema.references), ResolvedReference(reference.name, needed)))
        return resolved

    async def uses(self, schema_id: int, *, subject: str = "") -> list[tuple[str, int]]:
        """Returns the subjects and versions that have an id, also soft-deleted ones. `subject`: as in `by_id`."""
        query = _flags(deleted=True) | ({"subject": subject} if subject else {})
        found = await self._call("GET", "schemas", "ids", schema_id, "versions", query=query)
        return self._decoded(lambda: [(str(each["subject"]), int(each["version"])) for each in found])

    async def referenced_by(self, subject: str, version: int) -> list[int]:
        """Returns the ids of the schemas that refer to a version."""
        found = await self._call("GET", "subjects", subject, "versions", _version_text(version), "referencedby")
        return self._decoded(lambda: [int(each) for each in found])

    # -- lists

    async def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """Returns the subjects, of all contexts if `prefix` is None. A prefix without a context means subjects of the
        default context; `:*:orders` means those of all contexts that start with `orders`."""
        query = self._prefix(prefix) | _flags(deleted=deleted)
        return list(map(str, await self._pages(["subjects"], query)))

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Returns the versions of a subject in ascending order."""
        return sorted(map(int, await self._pages(["subjects", subject, "versions"], _flags(deleted=deleted))))

    async def schemas(
        self, prefix: str | None = None, *, latest_only: bool = False, deleted: bool = False
    ) -> list[RegisteredSchema]:
        """Returns all versions of the subjects with a prefix (see `subjects`), or the latest of each."""
        query = self._prefix(prefix) | _flags(latestOnly=latest_only, deleted=deleted)
        found = await self._pages(["schemas"], query, SCHEMAS_PAGE_MAX)
        return self._decoded(lambda: [RegisteredSchema.parse(each) for each in found])

    async def contexts(self) -> list[str]:
        """Returns the contexts; `.` is the default one."""
        found = await self._call("GET", "contexts")
        return self._decoded(lambda: list(map(str, found)))

    async def types(self) -> list[str]:
        """Returns the schema types that the registry supports."""
        found = await self._call("GET", "schemas", "types")
        return self._decoded(lambda: list(map(str, found)))

    def _prefix(self, prefix: str | None) -> dict[str, str]:
        """Returns the parameter that selects subjects. A URL with a context selects those of the context."""
        if prefix is None and _CONTEXT_PATH in self.url.path:
            return {}
        return {"subjectPrefix": _ANY_CONTEXT if prefix is None else prefix}

    async def _pages(self, path: Sequence[str], query: Mapping[str, str], page_max: int = PAGE_MAX) -> list[Any]:
        """Returns a list that may need several requests. Asks for less at a time if the registry says that a result
        would be too large."""
        found: list[Any] = []
        limit = page_max
        while True:
            try:
                page = await self._call("GET", *path, query={**query, "offset": str(len(found)), "limit": str(limit)})
            except RegistryError as error:
                if error.error_code != TOO_LARGE or limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            if not isinstance(page, list):
                raise self._unexpected()
            if found and page and page[0] == found[0]:  # the registry ignores offset and limit, and has sent all
                return found
            found += page
            if len(page) != limit:
                return found

    # -- deletion

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Soft-deletes a version, or with `permanent` removes one that is soft-deleted. Returns its number."""
        path = ("subjects", subject, "versions", _version_text(version))
        found = await self._call("DELETE", *path, query=_flags(permanent=permanent), is_idempotent=False)
        return self._decoded(lambda: int(found))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Soft-deletes a subject, or with `permanent` removes one that is soft-deleted. Returns its versions."""
        found = await self._call(
            "DELETE", "subjects", subject, query=_flags(permanent=permanent), is_idempotent=False
        )
        return self._decoded(lambda: [int(each) for each in found])

    # -- settings

    async def config(self, subject: str = "", *, inherited: bool = False) -> RegistryConfig:
        """Returns the settings of a subject, of a context such as `:.staging:`, or of the whole registry for "".
        Raises RegistryError with 40408 if there are none; with `inherited`, returns those that apply."""
        found = await self._call("GET", *_scope("config", subject), query=_flags(defaultToGlobal=inherited))
        return self._decoded(lambda: RegistryConfig.parse(found))

    async def set_config(self, settings: Json, subject: str = "") -> RegistryConfig:
        """Changes settings, and keeps those that are not given; None removes one. `compatibility` is the level."""
        found = await self._call("PUT", *_scope("config", subject), body=dict(settings))
        return self._decoded(lambda: RegistryConfig.parse(found))

    async def delete_config(self, subject: str = "") -> RegistryConfig:
        """Removes the settings of a subject; returns what they were."""
        found = await self._call("DELETE", *_scope("config", subject), is_idempotent=False)
        return self._decoded(lambda: RegistryConfig.parse(found))

    async def mode(self, subject: str = "", *, inherited: bool = False) -> str:
        """Returns the mode of a subject, a context or the whole registry. Raises RegistryError with 40409 if it has
        none; with `inherited`, returns the one that applies."""
        found = await self._call("GET", *_scope("mode", subject), query=_flags(defaultToGlobal=inherited))
        return self._decoded(lambda: str(found["mode"]))

    async def set_mode(self, mode: str, subject: str = "", *, force: bool = False) -> str:
        """Sets the mode. `force`: allows IMPORT although there are schemas. Returns the mode."""
        found = await self._call("PUT", *_scope("mode", subject), query=_flags(force=force), body={"mode": mode})
        return self._decoded(lambda: str(found["mode"]))

    async def delete_mode(self, subject: str = "") -> None:
        """Removes the mode of a subject or a context, so that the inherited one applies."""
        await self._call("DELETE", *_scope("mode", subject), is_idempotent=False)

    # -- requests

    async def _call(
        self,
        method: str,
        *path: str | int,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        is_idempotent: bool = True,
    ) -> Any:
        return await self._http.call(method, *path, query=query, body=body, is_idempotent=is_idempotent)

    def _decoded(self, decode: Callable[[], T]) -> T:
        """Returns what `decode` reads from a response. Raises RegistryError if it cannot be read."""
        try:
            return decode()
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._unexpected() from None

    def _unexpected(self) -> RegistryError:
        return RegistryError(200, 200, f"{self.url} did not answer as a schema registry does", URL_ADVICE)


class _SchemaCache:
    """Schemas by id. Drops those not used for longest."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[int, str, str], RegisteredSchema] = OrderedDict()
        self._chars = 0

    def get(self, key: tuple[int, str, str]) -> RegisteredSchema | None:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def add(self, key: tuple[int, str, str], found: RegisteredSchema) -> None:
        if key in self._found:
            return
        self._found[key] = found
        self._chars += len(found.schema.text)
        while self._chars > CACHED_CHARS_MAX or len(self._found) > CACHED_MAX:
            _, old = self._found.popitem(last=False)
            self._chars -= len(old.schema.text)


def _flags(**flags: bool) -> dict[str, str]:
    """Returns the query parameters of flags that are set."""
    return {name: _TRUE for name, is_set in flags.items() if is_set}


def _version_text(version: int) -> str:
    return "latest" if version == LATEST else str(version)


def _scope(resource: str, subject: str) -> tuple[str, ...]:
    return (resource, subject) if subject else (resource,)
