"""Requests of the REST API: finds the function for a path, reads parameters, and encodes results as JSON."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote

import orjson

from penstock.broker.schemas.service import RegistryService
from penstock.registry.access import ADMIN, READ, Access
from penstock.schemas.registry.errors import InvalidSubject, InvalidVersion, RegistryError
from penstock.schemas.registry.model import LATEST, VERSION_MAX
from penstock.schemas.registry.subjects import SUBJECT_CHARS_MAX, Subject, normalize, normalize_context

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
RESULT_BYTES_MAX: Final = 16 << 20
"""Maximum size of a result, in bytes."""
_QUERY_FIELDS_MAX: Final = 100
_TRUE: Final = ("true", "")


class NotFound(RegistryError):
    error_code = 404

    def __init__(self) -> None:
        super().__init__("HTTP 404 Not Found")


class MethodNotAllowed(RegistryError):
    error_code = 405

    def __init__(self) -> None:
        super().__init__("HTTP 405 Method Not Allowed")


class BadRequest(RegistryError):
    error_code = 400


class Unprocessable(RegistryError):
    error_code = 422


class ResultTooLarge(RegistryError):
    error_code = 422


@dataclass(frozen=True, slots=True)
class RestResponse:
    status: int
    body: bytes
    content_type: str = CONTENT_TYPE


@dataclass(frozen=True)
class RestRequest:
    """A request as the client sent it, before it is known what it means."""

    method: str
    path: str
    """The path below `/registry`."""
    query: str
    body: bytes
    key_name: str = ""
    """The access key that it was sent with; "" if requests need none."""


class RestCall:
    """A request with its parameters, for the function that answers it."""

    def __init__(
        self,
        service: RegistryService,
        request: RestRequest,
        query: Mapping[str, list[str]],
        cluster_id: str,
        access: Access,
        right: str,
    ) -> None:
        """`right`: what the request needs on all subjects that its path and parameters name."""
        self.service: Final = service
        self.cluster_id: Final = cluster_id
        self._access = access
        self._right = right
        self._request = request
        self._query = query

    @cached_property
    def json(self) -> dict[str, Any]:
        """The body. Raises BadRequest if it is not a JSON object."""
        try:
            found = orjson.loads(self._request.body or b"null")
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"The body is not valid JSON: {error}") from None
        if not isinstance(found, dict):
            raise Unprocessable("The body must be a JSON object")
        return found

    def subject(self, text: str) -> str:
        """Returns a subject of the path as it is stored; if its config names an alias, that subject. Raises
        InvalidSubject if it is too long to be one."""
        found = self.scope(text)
        config = self.service.state.configs.get(found)
        if config is None or not config.alias:
            return found
        target = str(Subject.parse(found).resolve(config.alias))
        self._access.check(self._right, target)
        return target

    def scope(self, text: str) -> str:
        """Returns the subject or context of the path that a setting applies to. Raises Forbidden."""
        if len(text) > SUBJECT_CHARS_MAX:
            raise InvalidSubject(text)
        found = normalize(text)
        self._access.check(self._right, found)
        return found

    def may_read(self, subject: str) -> bool:
        """Returns whether the client may see a subject, which its request does not name."""
        return self._access.may(READ, subject)

    def check_readable(self, subject: str) -> None:
        """Raises Forbidden if the client may not see a subject."""
        self._access.check(READ, subject)

    def text(self, name: str, default: str = "") -> str:
        return self._query.get(name, [default])[0]

    def texts(self, name: str) -> list[str]:
        return self._query.get(name, [])

    def flag(self, name: str) -> bool:
        return self.text(name, "false").lower() in _TRUE

    def limits(self, most: int) -> tuple[int, int]:
        """Returns `offset` and `limit` of a list. As in Confluent's registry, a limit out of range means `most`."""
        offset, limit = self._integer("offset", 0), self._integer("limit", -1)
        return max(0, offset), limit if 0 < limit <= most else most

    def _integer(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        try:
            return max(-(2**31), min(int(text), VERSION_MAX))
        except ValueError:
            raise NotFound from None  # as JAX-RS answers a parameter of the wrong type


Answer = Callable[..., Awaitable[Any]]
A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    segments: tuple[str, ...]
    """The parts of the path; `*` stands for a parameter."""
    answer: Answer
    writes: bool
    """Whether the request may change the registry, so that its topic must exist."""
    right: str
    """What the client must be allowed to do."""


_ROUTES: Final[list[Route]] = []


def route(method: str, path: str, *, writes: bool = False, right: str = "") -> Callable[[A], A]:
    """Returns a decorator that registers the function for a path. `*` in the path is an argument of the function.
    `right`: ADMIN by default if it writes, otherwise READ."""

    def register(answer: A) -> A:
        segments = tuple(part for part in path.split("/") if part)
        _ROUTES.append(Route(method, segments, answer, writes, right or (ADMIN if writes else READ)))
        return answer

    return register


def load_routes() -> None:
    """Imports all resources, so that their functions register themselves."""
    resources = importlib.import_module("penstock.registry.resources")
    for module in pkgutil.iter_modules(resources.__path__):
        importlib.import_module(f"{resources.__name__}.{module.name}")


def find_route(method: str, parts: list[str]) -> tuple[Route, list[str]]:
    """Returns the route for a path, and its parameters. Raises NotFound or MethodNotAllowed."""
    is_known = False
    for each in _ROUTES:
        if len(each.segments) != len(parts):
            continue
        if all(wanted in ("*", part) for wanted, part in zip(each.segments, parts, strict=True)):
            is_known = True
            if each.method == method:
                return each, [part for wanted, part in zip(each.segments, parts, strict=True) if wanted == "*"]
    raise MethodNotAllowed if is_known else NotFound


def parse_path(path: str) -> list[str]:
    """Returns the decoded parts of a path; `//` and a slash at the end do not count."""
    return [unquote(part) for part in path.split("/") if part]


def parse_query(query: str) -> dict[str, list[str]]:
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError:
        raise BadRequest(f"The URL has more than {_QUERY_FIELDS_MAX} parameters") from None


def in_context(parts: list[str], query: dict[str, list[str]]) -> list[str]:
    """Returns the path that `/contexts/NAME/…` stands for: subjects in it, and in the query, get the context."""
    if len(parts) < 2 or parts[0] != "contexts":
        return parts
    try:
        prefix = normalize_context(parts[1])
    except ValueError as error:
        raise BadRequest(str(error)) from None
    rest = parts[2:]
    if not rest:
        return ["contexts", prefix]
    if rest[0] in ("config", "mode"):
        return [rest[0], _with_context(prefix, rest[1] if len(rest) > 1 else ""), *rest[2:]]
    if "subjects" in rest[:-1]:
        at = rest.index("subjects") + 1
        rest = [*rest[:at], _with_context(prefix, rest[at]), *rest[at + 1 :]]
    if rest[:2] == ["schemas", "ids"]:
        query["subject"] = [_with_context(prefix, query.get("subject", [""])[0])]
    elif rest in (["schemas"], ["subjects"]):
        query["subjectPrefix"] = [_with_context(prefix, query.get("subjectPrefix", [""])[0])]
    return rest


def _with_context(prefix: str, subject: str) -> str:
    return subject if subject.startswith((":.", ":*:")) else prefix + subject


def version_of(text: str) -> int:
    """Returns the version in a path; LATEST for `latest` and -1. Raises InvalidVersion."""
    if text.strip().lower() == "latest":
        return LATEST
    try:
        found = int(text)
    except ValueError:
        raise InvalidVersion(text[:100]) from None
    if found != LATEST and not 1 <= found <= VERSION_MAX:
        raise InvalidVersion(text[:100])
    return found


def encode(result: Any) -> RestResponse:
    """Returns the response with a result: JSON, or plain text for bytes. Raises ResultTooLarge."""
    if result is None:
        return RestResponse(HTTPStatus.NO_CONTENT, b"")
    body = result if isinstance(result, bytes) else orjson.dumps(result)
    if len(body) > RESULT_BYTES_MAX:
        raise ResultTooLarge(
            f"The result has more than {RESULT_BYTES_MAX} bytes; ask for less with the parameters limit and offset"
        )
    return RestResponse(HTTPStatus.OK, body)


def encode_error(error: RegistryError) -> RestResponse:
    body = orjson.dumps({"error_code": error.error_code, "message": _printable(error.message)})
    return RestResponse(error.status, body)


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
