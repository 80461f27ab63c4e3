"""Data contracts: metadata and rules that are stored with a schema. The registry stores them, clients apply them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from penstock.schemas.registry.errors import InvalidRuleSet, SchemaRejected

VERSION_PROPERTY: Final = "confluent:version"
"""The metadata property that holds the version of a schema, for clients that look schemas up by metadata."""
_NAME_CHARS_MAX: Final = 64
_KINDS: Final = ("TRANSFORM", "CONDITION")
_MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
_DOUBLE_MODES: Final = ("WRITEREAD", "UPDOWN")
_PLACES: Final = ("CLIENT", "SERVER")

Json = dict[str, Any]
Pairs = tuple[tuple[str, str], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Tags, properties and names of sensitive properties of a schema; all sorted by name."""

    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    properties: Pairs = ()
    sensitive: tuple[str, ...] = ()

    @classmethod
    def parse(cls, found: Any) -> "Metadata | None":
        """Reads metadata of a request or a record; None if there is none. Raises SchemaRejected."""
        if found is None:
            return None
        fields = _mapping(found, "metadata")
        tags = _mapping({} if fields.get("tags") is None else fields["tags"], "metadata.tags")
        return cls(
            tags=tuple(sorted((name, _strings(each, "metadata.tags")) for name, each in tags.items())),
            properties=_pairs(fields.get("properties"), "metadata.properties"),
            sensitive=_strings(fields.get("sensitive"), "metadata.sensitive"),
        )

    def json(self) -> Json:
        found: Json = {
            "tags": {name: list(tags) for name, tags in self.tags},
            "properties": dict(self.properties),
            "sensitive": list(self.sensitive),
        }
        return {name: value for name, value in found.items() if value}

    def hashed(self) -> Iterator[str]:
        """Yields the texts that are part of a schema's GUID, in order."""
        for name, tags in self.tags:
            yield name
            yield from tags
        for name, value in self.properties:
            yield name
            yield value
        yield from self.sensitive

    @property
    def version(self) -> str | None:
        """The property `confluent:version`."""
        return dict(self.properties).get(VERSION_PROPERTY)

    def without_version(self) -> "Metadata":
        return replace(self, properties=tuple(each for each in self.properties if each[0] != VERSION_PROPERTY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of a data contract. Clients apply it; the registry only checks its form."""

    name: str
    doc: str | None = None
    kind: str = "TRANSFORM"
    mode: str = "WRITEREAD"
    type: str | None = None
    tags: tuple[str, ...] = ()
    params: Pairs = ()
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = False

    @classmethod
    def parse(cls, found: Any) -> "Rule":
        fields = _mapping(found, "a rule")
        return cls(
            name=_text(fields, "name") or "",
            doc=_text(fields, "doc"),
            kind=_choice(fields, "kind", _KINDS) or "TRANSFORM",
            mode=_choice(fields, "mode", _MIGRATION_MODES + _DOMAIN_MODES) or "WRITEREAD",
            type=_text(fields, "type"),
            tags=_strings(fields.get("tags"), "tags of a rule"),
            params=_pairs(fields.get("params"), "params of a rule"),
            expr=_text(fields, "expr"),
            on_success=_text(fields, "onSuccess"),
            on_failure=_text(fields, "onFailure"),
            disabled=fields.get("disabled") is True,
        )

    def json(self) -> Json:
        found: Json = {
            "name": self.name,
            "doc": self.doc,
            "kind": self.kind,
            "mode": self.mode,
            "type": self.type,
            "tags": list(self.tags),
            "params": dict(self.params),
            "expr": self.expr,
            "onSuccess": self.on_success,
            "onFailure": self.on_failure,
        }
        return {name: value for name, value in found.items() if value} | {"disabled": self.disabled}

    def hashed(self) -> Iterator[str]:
        yield from (text for text in (self.name, self.doc, self.kind, self.mode, self.type) if text is not None)
        yield from self.tags
        for name, value in self.params:
            yield name
            yield value
        yield from (text for text in (self.expr, self.on_success, self.on_failure) if text is not None)
        if self.disabled:
            yield "\x01"

    def validate(self) -> None:
        """Raises InvalidRuleSet if the name, the type or the actions are not allowed."""
        name = self.name
        if not name:
            raise InvalidRuleSet("Empty rule name")
        if len(name) > _NAME_CHARS_MAX:
            raise InvalidRuleSet(f"Rule name too long: it has {len(name)} characters, {_NAME_CHARS_MAX} are allowed")
        if not (name[0].isalpha() or name[0] == "_"):
            raise InvalidRuleSet(f"Illegal initial character in rule name: {name}")
        if not all(char.isalnum() or char in "_-" for char in name):
            raise InvalidRuleSet(f"Illegal character in rule name: {name}")
        if self.type is None:
            raise InvalidRuleSet(f"Missing type of rule '{name}'")
        actions = (self.on_success or "", self.on_failure or "")
        if self.mode not in _DOUBLE_MODES and any("," in action for action in actions):
            raise InvalidRuleSet(f"Multiple actions of rule '{name}' are only valid with WRITEREAD and UPDOWN")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """The rules of a data contract: for migration between versions, for the domain, and for encoding."""

    migration: tuple[Rule, ...] = ()
    domain: tuple[Rule, ...] = ()
    encoding: tuple[Rule, ...] = ()
    enable_at: str | None = None

    @classmethod
    def parse(cls, found: Any) -> "RuleSet | None":
        """Reads the rules of a request or a record; None if there are none. Raises InvalidRuleSet."""
        if found is None:
            return None
        fields = _mapping(found, "ruleSet")
        return cls(
            migration=_rules(fields.get("migrationRules")),
            domain=_rules(fields.get("domainRules")),
            encoding=_rules(fields.get("encodingRules")),
            enable_at=_choice(fields, "enableAt", _PLACES),
        )

    def json(self) -> Json:
        found: Json = {
            "migrationRules": [rule.json() for rule in self.migration],
            "domainRules": [rule.json() for rule in self.domain],
            "encodingRules": [rule.json() for rule in self.encoding],
            "enableAt": self.enable_at,
        }
        return {name: value for name, value in found.items() if value}

    def hashed(self) -> Iterator[str]:
        for rule in self.rules:
            yield from rule.hashed()
        if self.enable_at is not None:
            yield self.enable_at

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.migration + self.domain + self.encoding

    def validate(self) -> None:
        """Raises InvalidRuleSet if a rule is not allowed, two have the same name, or a mode does not fit its list."""
        names: set[str] = set()
        for rule in self.rules:
            rule.validate()
            if rule.name in names:
                raise InvalidRuleSet(f"Found rule with duplicate name '{rule.name}'")
            names.add(rule.name)
        for kind, rules, modes in (
            ("Migration", self.migration, _MIGRATION_MODES),
            ("Domain", self.domain, _DOMAIN_MODES),
            ("Encoding", self.encoding, _DOMAIN_MODES),
        ):
            if any(rule.mode not in modes for rule in rules):
                raise InvalidRuleSet(f"{kind} rules can only be {', '.join(modes)}")


def merge_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """Returns the metadata of both; where both have a tag or property, that of `new`."""
    if old is None or new is None:
        return new if old is None else old
    return Metadata(
        tags=tuple(sorted((dict(old.tags) | dict(new.tags)).items())),
        properties=tuple(sorted((dict(old.properties) | dict(new.properties)).items())),
        sensitive=tuple(sorted({*old.sensitive, *new.sensitive})),
    )


def merge_rule_sets(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """Returns the rules of both; where both have a rule of the same name in one list, that of `new`."""
    if old is None or new is None:
        return new if old is None else old
    return RuleSet(
        migration=_merge_rules(old.migration, new.migration),
        domain=_merge_rules(old.domain, new.domain),
        encoding=_merge_rules(old.encoding, new.encoding),
        enable_at=new.enable_at or old.enable_at,
    )


def with_version(metadata: Metadata | None, version: int) -> Metadata:
    """Returns the metadata with the property `confluent:version`."""
    found = metadata or Metadata()
    properties = dict(found.properties) | {VERSION_PROPERTY: str(version)}
    return replace(found, properties=tuple(sorted(properties.items())))


def _merge_rules(old: tuple[Rule, ...], new: tuple[Rule, ...]) -> tuple[Rule, ...]:
    names = {rule.name for rule in new}
    return (*(rule for rule in old if rule.name not in names), *new)


def _rules(found: Any) -> tuple[Rule, ...]:
    return tuple(Rule.parse(each) for each in _sequence(found, "a list of rules"))


def _mapping(found: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise SchemaRejected(f"{what} must be a JSON object")
    return found


def _sequence(found: Any, what: str) -> Sequence[Any]:
    if found is None:
        return ()
    if not isinstance(found, list):
        raise SchemaRejected(f"{what} must be a JSON array")
    return found


def _strings(found: Any, what: str) -> tuple[str, ...]:
    texts = _sequence(found, what)
    if not all(isinstance(text, str) for text in texts):
        raise SchemaRejected(f"{what} must be strings")
    return tuple(sorted(set(texts)))


def _pairs(found: Any, what: str) -> Pairs:
    pairs = _mapping({} if found is None else found, what)
    if not all(isinstance(value, str) for value in pairs.values()):
        raise SchemaRejected(f"{what} must be strings")
    return tuple(sorted(pairs.items()))


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise SchemaRejected(f"{name} of a rule must be a string")
    return value


def _choice(fields: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str | None:
    value = _text(fields, name)
    if value is not None and value not in choices:
        raise SchemaRejected(f"{name} of a rule is {value!r}; it must be one of {', '.join(choices)}")
    return value
