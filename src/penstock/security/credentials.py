"""Access keys for SQS and the schema registry: secret, owner account, allowed actions, queues and subjects. Pure.

    keys:
      - access_key: AKIAPAYMENTS
        secret: 4f0c9d8e7b6a
        owner: "111122223333"
        actions: [SendMessage, Receive*, DeleteMessage]
        queues: [payments-*]
      - access_key: ORDERS
        secret: 0c6a5e4d1f2b
        actions: ["schema:Read", "schema:Write"]
        subjects: [orders-*]

The owner is the account whose queues the key uses; an owner that is not a 12-digit account id means the default
account. Without `actions`, `queues` or `subjects`, all actions, all queues of the account or all subjects are
allowed. Patterns are those of a shell: `*` and `?`. A pattern of actions that starts with `sqs:` is for SQS only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from types import MappingProxyType
from typing import Any, Final, Protocol

import yaml

from penstock.security.errors import InvalidCredentials

KEYS_MAX: Final = 10_000
DEFAULT_OWNER: Final = "000000000000"
_ACCESS_KEY: Final = re.compile(r"[A-Za-z0-9_]{3,128}")
_OWNER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
SECRET_CHARS_MIN: Final = 8
"""Recommended minimum number of characters of a secret. Shorter secrets, such as `test`, cause a warning."""
_FIELDS: Final = {"access_key", "secret", "owner", "actions", "queues", "subjects"}
_ALL: Final = ("*",)
_SQS: Final = "sqs:"
_SCHEMA: Final = "schema:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """One access key with its secret, account, and the actions, queues and subjects that it may use."""

    access_key: str
    secret: str = field(repr=False)
    owner: str = DEFAULT_OWNER
    actions: tuple[str, ...] = _ALL
    queues: tuple[str, ...] = _ALL
    subjects: tuple[str, ...] = _ALL
    user: str = ""
    """The user to whom the key belongs, if it is one of the store."""
    _is_action: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _is_schema_action: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _is_queue: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _is_subject: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema_actions = tuple(each for each in self.actions if not each.startswith(_SQS))
        object.__setattr__(self, "_is_action", _pattern(tuple(each.removeprefix(_SQS) for each in self.actions)))
        object.__setattr__(self, "_is_schema_action", _pattern(schema_actions))
        object.__setattr__(self, "_is_queue", _pattern(self.queues))
        object.__setattr__(self, "_is_subject", _pattern(self.subjects))

    @property
    def principal(self) -> str:
        """Returns whose quotas apply: those of the user; without one, those of a user named like the key."""
        return f"User:{self.user or self.access_key}"

    def may(self, action: str) -> bool:
        """Returns whether the key allows an action of SQS, or one of the registry, such as `schema:Read`."""
        pattern = self._is_schema_action if action.startswith(_SCHEMA) else self._is_action
        return pattern.fullmatch(action) is not None

    def may_use(self, queue: str) -> bool:
        return self._is_queue.fullmatch(queue) is not None

    def may_use_subject(self, subject: str) -> bool:
        return self._is_subject.fullmatch(subject) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """All access keys, by access key id."""

    keys: Mapping[str, AccessKey] = field(default_factory=lambda: MappingProxyType({}))

    def find(self, access_key: str) -> AccessKey | None:
        return self.keys.get(access_key)

    def refusal(self, access_key: str) -> str:
        """Returns why a key cannot be used though it exists; empty if it does not."""
        return ""


class Keys(Protocol):
    """Access keys by id: those of a file, of the store, or both."""

    def find(self, access_key: str) -> AccessKey | None:
        """Returns an access key that can be used; None if there is none."""

    def refusal(self, access_key: str) -> str:
        """Returns why a key cannot be used though it exists; empty if it does not."""


def parse_credentials(text: str) -> Credentials:
    """Parses access keys in YAML or JSON. Raises InvalidCredentials, whose message never contains a secret."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else "it"
        raise InvalidCredentials(f"{where} is neither YAML nor JSON") from None
    except RecursionError:
        raise InvalidCredentials("it is nested too deeply") from None
    if not isinstance(found, dict) or set(found) != {"keys"} or not isinstance(found["keys"], list):
        raise InvalidCredentials("expected one list named 'keys', with an access_key and a secret in each entry")
    if len(found["keys"]) > KEYS_MAX:
        raise InvalidCredentials(f"{len(found['keys'])} keys are too many; at most {KEYS_MAX} are allowed")
    keys: dict[str, AccessKey] = {}
    for number, entry in enumerate(found["keys"], 1):
        key = _read_key(f"key {number}", entry)
        if key.access_key in keys:
            raise InvalidCredentials(f"key {number}: access_key {key.access_key!r} is given twice")
        keys[key.access_key] = key
    return Credentials(keys=MappingProxyType(keys))


def _read_key(where: str, entry: Any) -> AccessKey:
    if not isinstance(entry, dict):
        raise InvalidCredentials(f"{where}: expected access_key and secret, got {type(entry).__name__}")
    unknown = sorted(str(name) for name in entry if name not in _FIELDS)
    if unknown:
        raise InvalidCredentials(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    name = _text(where, entry, "access_key")
    if not _ACCESS_KEY.fullmatch(name):
        raise InvalidCredentials(f"{where}: access_key {name!r} is not 3 to 128 letters, digits or '_'")
    secret = _text(where, entry, "secret")
    owner = _text(where, entry, "owner") if "owner" in entry else DEFAULT_OWNER
    if not _OWNER.fullmatch(owner):
        raise InvalidCredentials(f"{where} ({name}): owner {owner!r} is not 1 to 64 letters, digits, '_' or '-'")
    return AccessKey(
        access_key=name,
        secret=secret,
        owner=owner,
        actions=_patterns(f"{where} ({name})", entry, "actions"),
        queues=_patterns(f"{where} ({name})", entry, "queues"),
        subjects=_patterns(f"{where} ({name})", entry, "subjects"),
    )


def _text(where: str, entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if isinstance(value, bool | int | float):  # YAML parses an account id as a number
        raise InvalidCredentials(f"{where}: {name} is a number or a boolean in YAML; put it in quotes")
    if not isinstance(value, str) or not value:
        raise InvalidCredentials(f"{where}: {name} is missing")
    return value


def _patterns(where: str, entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    if name not in entry:
        return _ALL
    value = entry[name]
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise InvalidCredentials(f"{where}: {name} must be a list of patterns in quotes, such as ['payments-*']")
    return tuple(value)


def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")
