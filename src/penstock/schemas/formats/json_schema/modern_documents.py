"""Documents of drafts 2019-09 and 2020-12: what `$ref` refers to, by the rules of json-sKema.

Every `$id`, `$anchor` and `$dynamicAnchor` of a document is registered under its absolute URI when the document is
loaded. A reference is one of these URIs, or a JSON pointer into one. Nothing is fetched.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema.dialects import Dialect, dialect_of_address
from penstock.schemas.formats.json_schema.documents import Json, read_document
from penstock.schemas.formats.json_schema.loading import Pending, bridge_definitions, fail
from penstock.schemas.formats.json_schema.metaschemas import metaschema
from penstock.schemas.formats.json_schema.uris import InvalidUri, Uri, parse_uri, resolve_uri

ROOT_BASE: Final = parse_uri("UNKNOWN")
"""The base URI of the main document, as in Confluent's registry."""
_NAMED_BASE: Final = parse_uri("mem://input")
_KEYWORD_NAMES: Final = (
    "$id $anchor $dynamicRef $dynamicAnchor $ref $defs $schema $vocabulary minLength maxLength allOf anyOf oneOf "
    "additionalProperties properties patternProperties title description readOnly writeOnly deprecated default enum "
    "const false true type not required maximum minimum exclusiveMaximum exclusiveMinimum multipleOf uniqueItems "
    "items prefixItems contains minContains maxContains if then else dependentSchemas dependentRequired "
    "unevaluatedItems unevaluatedProperties minItems maxItems minProperties maxProperties propertyNames pattern "
    "format"
)
KEYWORDS: Final = frozenset(_KEYWORD_NAMES.split())
"""The keywords that json-sKema knows. All others are kept as they are."""
_WITH_NAMES: Final = frozenset(("$defs", "allOf", "anyOf", "oneOf", "properties", "patternProperties"))
"""Keywords whose members are schemas by name or position: anchors are looked for in them."""
_ANY_SCHEMA: Final = {"type": ["object", "boolean"]}
"""Stands for the metaschemas of drafts 2019-09 and 2020-12, whose parts are spread over many documents."""


class Scope:
    """Where a subschema stands: its base URI, and whether its document is the main one."""

    __slots__ = ("base", "is_main", "key")

    def __init__(self, base: Uri, *, is_main: bool) -> None:
        self.base = base
        self.is_main = is_main
        self.key = base.without_fragment()

    def enter(self, raw: Json) -> "Scope":
        """Returns the scope inside of a JSON value."""
        if raw.__class__ is dict:
            name = raw.get("$id")
            if name.__class__ is str and not self.base.text.endswith(name):
                return Scope(resolve(self.base, name), is_main=self.is_main)
        return self


class Library:
    """The documents that a schema of draft 2019-09 or 2020-12 may refer to, and all their anchors, by URI."""

    def __init__(self, root: dict[str, Json], references: Mapping[str, str]) -> None:
        self._texts: dict[str, str] = {}
        for name, text in references.items():
            uri = _parse(name)
            self._texts[name] = self._texts[resolve(_NAMED_BASE, name).text] = text
            if not uri.is_absolute and not name.startswith("."):
                self._texts[f"./{name}"] = text
        self.anchors: dict[str, Pending] = {}
        """The registered subschemas by URI. All are loaded, even if no reference leads to them."""
        self._register_anchors(root, Scope(ROOT_BASE, is_main=True))
        self.root = Pending(root, Scope(ROOT_BASE, is_main=True).enter(root), ())
        self.anchors.setdefault(_key(self.root.scope.base.text), self.root)

    def knows(self, address: str) -> bool:
        """Whether a document may name this address as its `$schema`."""
        return dialect_of_address(address) is not None or address in self._texts

    def find(self, reference: str, scope: Scope, where: Any) -> Pending:
        """Returns the schema that `$ref` refers to. Raises InvalidSchema."""
        uri = _parse(reference)
        if not uri.is_absolute and uri.without_fragment() not in self._texts:
            uri = resolve(scope.base, reference)
        name, _, fragment = uri.text.partition("#")
        found = self.anchors.get(_key(uri.text))
        if found is None:
            document = self.anchors.get(_key(name)) or self._read(name, uri, reference, where)
            found = document if not fragment else self.anchors.get(_key(uri.text))
            if found is None:
                found = _find_by_pointer(document, fragment, name, where)
                self.anchors[_key(uri.text)] = found
        return found

    def _read(self, name: str, uri: Uri, reference: str, where: Any) -> Pending:
        text = self._texts.get(name)
        if text is not None:
            raw = bridge_definitions(read_document(text))
        else:
            dialect = dialect_of_address(name)
            if dialect is None:
                fail(
                    where, f"{reference[:200]!r} is not among the schema's references; other schemas are not fetched"
                )
            raw = _ANY_SCHEMA if dialect is Dialect.MODERN else metaschema(dialect)
        document = Pending(raw, Scope(_parse(name), is_main=False), ())
        self._register(name, document)
        self._register_anchors(raw, Scope(uri, is_main=False).enter(raw))
        return document

    def _register(self, address: str, pending: Pending) -> None:
        known = self.anchors.setdefault(_key(address), pending)
        if known.raw is not pending.raw:
            raise InvalidSchema(f"Two schemas have the identifier {address[:200]!r}.")

    def _register_anchors(self, root: Json, scope: Scope) -> None:
        stack: list[tuple[Json, Scope, str | None, str | None, Any]] = [(root, scope, None, None, ())]
        while stack:
            raw, scope, name, parent, where = stack.pop()
            if not scope.is_main and name is not None and name not in KEYWORDS and parent not in _WITH_NAMES:
                continue  # the value of an unknown keyword
            if isinstance(raw, dict):
                scope = scope.enter(raw)
                self._register_names(raw, scope, where)
                members: Any = ((key, item) for key, item in reversed(raw.items()) if key not in ("enum", "const"))
            elif isinstance(raw, list):
                members = ((str(index), raw[index]) for index in range(len(raw) - 1, -1, -1))
            else:
                continue
            stack.extend(
                (item, scope, key, name, (where, key)) for key, item in members if isinstance(item, dict | list)
            )

    def _register_names(self, raw: dict[str, Json], scope: Scope, where: Any) -> None:
        if isinstance(raw.get("$id"), str):
            self._register(scope.base.text, Pending(raw, scope, where))
        if isinstance(raw.get("$anchor"), str):
            uri = resolve(scope.base, f"#{raw['$anchor']}")
            self._register(uri.text, Pending(raw, Scope(uri, is_main=scope.is_main), where))
        if isinstance(raw.get("$dynamicAnchor"), str):
            uri = resolve(scope.base, f"#{raw['$dynamicAnchor']}")
            self.anchors[_key(uri.text)] = Pending(raw, scope, where)


def resolve(base: Uri, reference: str) -> Uri:
    """Resolves a reference. Raises InvalidSchema if it is no URI."""
    if base.scheme in ("urn", "tag"):
        return _parse(base.text + reference)
    try:
        return resolve_uri(base, reference)
    except InvalidUri as error:
        raise InvalidSchema(f"An identifier or reference is no URI: {error}.") from None


def _parse(text: str) -> Uri:
    try:
        return parse_uri(text)
    except InvalidUri as error:
        raise InvalidSchema(f"An identifier or reference is no URI: {error}.") from None


def _key(address: str) -> str:
    if address.startswith("file:/") and not address.startswith("file:///"):
        address = f"file:///{address.removeprefix('file:/')}"
    return address.removesuffix("#")


def _find_by_pointer(document: Pending, pointer: str, address: str, where: Any) -> Pending:
    if not pointer.startswith("/"):
        fail(where, f"there is no anchor {pointer[:200]!r}")
    raw = document.raw
    name = raw.get("$id") if isinstance(raw, dict) else None
    if name is not None and not isinstance(name, str):
        fail(where, "'$id' must be a string")
    base = _parse(name) if name is not None else ROOT_BASE if document.scope.is_main else _parse(address)
    scope = Scope(base, is_main=document.scope.is_main)
    path: Any = ()
    for token in pointer.split("/")[1:]:
        scope = scope.enter(raw)
        try:
            key = unquote_plus(token, errors="replace").replace("~1", "/").replace("~0", "~")
        except ValueError:
            fail(where, f"{token[:200]!r} is not a valid part of a JSON pointer")
        if isinstance(raw, dict) and key in raw:
            raw = raw[key]
        elif isinstance(raw, list) and key.isdecimal() and len(key) < 10 and int(key) < len(raw):
            raw = raw[int(key)]
        else:
            fail(where, f"the reference '#{pointer[:200]}' leads nowhere: {key[:200]!r} does not exist")
        path = (path, key)
    return Pending(raw, scope, path)
