"""Documents of drafts 4 to 7: what `$ref` refers to, by the rules of everit-json-schema.

A reference is resolved against the innermost `$id`. It may name the `$id` of a subschema as it is written, hold
a JSON pointer into its own document, or the address of another document that was passed with the schema. Nothing is
fetched.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema.dialects import Dialect, as_text, classic_dialect, dialect_of_address
from penstock.schemas.formats.json_schema.documents import Json, read_document
from penstock.schemas.formats.json_schema.loading import Pending, bridge_definitions, fail
from penstock.schemas.formats.json_schema.metaschemas import metaschema
from penstock.schemas.formats.json_schema.uris import InvalidUri, Uri, parse_uri, resolve_uri


class Document:
    """One JSON document. `scope` is what its root is loaded in."""

    def __init__(self, root: dict[str, Json], base: Uri | None, dialect: Dialect) -> None:
        self.root = root
        self.dialect = dialect
        self.scope = Scope(self, base)
        self._by_id: dict[str, Pending] | None = None

    def find_by_id(self, name: str) -> Pending | None:
        """Returns the subschema whose `$id` is written like this. Raises InvalidSchema if any `$id` is no URI."""
        if self._by_id is None:
            self._by_id = dict(self._identified())
        return self._by_id.get(name)

    def find_by_pointer(self, pointer: str, where: Any) -> Pending:
        """Returns what a JSON pointer leads to. One without `/`, such as `#name`, leads to the whole document."""
        tokens = pointer.rstrip("/").split("/")[1:] if pointer.rstrip("/") else []
        found = Pending(self.root, self.scope, ())
        for token in tokens:
            key = _unescape(token, where)
            parent = found.raw
            if isinstance(parent, dict) and key in parent:
                child = parent[key]
            elif isinstance(parent, list) and key.isdecimal() and len(key) < 10 and int(key) < len(parent):
                child = parent[int(key)]
            else:
                fail(where, f"the reference {pointer[:200]!r} leads nowhere: {key[:200]!r} does not exist")
            found = Pending(child, found.scope.enter(parent), (found.where, key))
        return found

    def _identified(self) -> Iterator[tuple[str, Pending]]:
        keyword = self.dialect.id_keyword
        stack = [Pending(self.root, self.scope, ())]
        while stack:
            pending = stack.pop()
            raw = pending.raw
            scope = pending.scope.enter(raw)
            if isinstance(raw, dict):
                if isinstance(raw.get(keyword), str):
                    yield raw[keyword], pending
                members: Any = reversed(raw.items())
            else:
                members = ((str(index), raw[index]) for index in range(len(raw) - 1, -1, -1))
            stack.extend(
                Pending(child, scope, (pending.where, key))
                for key, child in members
                if isinstance(child, dict | list)
            )


class Scope:
    """Where a subschema stands: its document, and the base URI that the `$id`s around it make."""

    __slots__ = ("base", "document", "key")

    def __init__(self, document: Document, base: Uri | None) -> None:
        self.document = document
        self.base = base
        self.key = base.text if base else None

    def enter(self, raw: Json) -> "Scope":
        """Returns the scope inside of a JSON value. Raises InvalidSchema if its `$id` is no URI."""
        if raw.__class__ is dict:
            name = raw.get(self.document.dialect.id_keyword)
            if name.__class__ is str:
                return Scope(self.document, resolve(self.base, name))
        return self


class Library:
    """The documents that a schema of drafts 4 to 7 may refer to, by address."""

    def __init__(self, root: dict[str, Json], references: Mapping[str, str]) -> None:
        id_keyword = (dialect_of_address(as_text(root.get("$schema", ""))) or Dialect.DRAFT_7).id_keyword
        base = resolve(None, as_text(root[id_keyword])) if id_keyword in root else None
        self._raw = {resolve(base, name).text: _read_reference(name, text) for name, text in references.items()}
        self._documents: dict[tuple[str, Dialect], Document] = {}

    def find(self, reference: str, scope: Scope, where: Any) -> Pending:
        """Returns the schema that `$ref` refers to. Raises InvalidSchema."""
        address = resolve(scope.base, reference).text
        document = scope.document
        found = document.find_by_id(address)
        if found is not None:
            return found
        pointer = reference if reference.startswith("#") else address
        if pointer.startswith("#"):
            return document.find_by_id(pointer) or document.find_by_pointer(pointer, where)
        name, hashed, fragment = address.partition("#")
        for key, rest in ((address, "#"), (name, hashed + fragment)):
            other = self._document(key, document.dialect, where)
            if other is not None:
                found = other.find_by_id(rest) or other.find_by_pointer(rest, where)
                return Pending(found.raw, Scope(other, parse_uri(name)), found.where)
        return fail(where, f"{reference[:200]!r} is not among the schema's references; other schemas are not fetched")

    def _document(self, address: str, inherited: Dialect, where: Any) -> Document | None:
        raw = self._raw.get(address)
        if raw is None:
            known = dialect_of_address(address)
            if known is None or known is Dialect.MODERN or "draft-0" not in address:
                return None
            raw = metaschema(known)
        document = self._documents.get((address, inherited))
        if document is None:
            dialect = _dialect_of_reference(raw, inherited, where)
            document = self._documents[address, inherited] = Document(raw, parse_uri(address), dialect)
        return document


def resolve(base: Uri | None, reference: str) -> Uri:
    """Resolves a reference. Raises InvalidSchema if it is no URI."""
    try:
        return parse_uri(reference) if base is None else resolve_uri(base, reference)
    except InvalidUri as error:
        raise InvalidSchema(f"An identifier or reference is no URI: {error}.") from None


def _read_reference(name: str, text: str) -> dict[str, Json]:
    raw = bridge_definitions(read_document(text))
    if not isinstance(raw, dict):
        raise InvalidSchema(f"The referenced schema {name[:200]!r} must be a JSON object.")
    return raw


def _dialect_of_reference(raw: dict[str, Json], inherited: Dialect, where: Any) -> Dialect:
    address = raw.get("$schema")
    if address is None:
        return inherited
    if not isinstance(address, str):
        fail(where, "the '$schema' of a referenced schema must be a string")
    dialect = classic_dialect(address)
    if dialect is None and inherited is Dialect.DRAFT_4:
        fail(where, f"a schema of draft 4 refers to one of an unknown draft, {address[:200]!r}")
    return dialect or inherited


def _unescape(token: str, where: Any) -> str:
    try:
        key = unquote_plus(token, errors="replace")
    except ValueError:
        fail(where, f"{token[:200]!r} is not a valid part of a JSON pointer")
    return key.replace("~1", "/").replace("~0", "~").replace('\\"', '"').replace("\\\\", "\\")
