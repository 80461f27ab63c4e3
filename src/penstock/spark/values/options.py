"""The options for typed keys and values: formats, schema registry, schemas and bad records."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.client.schema_registry_urls import parse_urls
from penstock.spark.errors import BadOption
from penstock.spark.options import INT_MAX, Options

KEY: Final = "key"
VALUE: Final = "value"
PARTS: Final = (KEY, VALUE)
"""The parts of a message that can have a format."""
REGISTRY: Final = "schemaRegistry"
_USER: Final = "schemaRegistryUser"
_PASSWORD: Final = "schemaRegistryPassword"
REGISTER: Final = "registerSchemas"
USE_LATEST: Final = "useLatestSchema"
ON_BAD_RECORD: Final = "onBadRecord"
DEAD_LETTER_TOPIC: Final = "deadLetterTopic"
_LATEST: Final = "latest"

TYPED_OPTIONS: Final = frozenset(
    {REGISTRY, _USER, _PASSWORD}
    | {f"{part}{name}" for part in PARTS for name in ("Format", "Subject", "SchemaVersion", "Message", "Schema")}
)
"""Names of the options for typed keys and values that are allowed for both reading and writing."""
BAD_RECORD_OPTIONS: Final = frozenset({ON_BAD_RECORD, DEAD_LETTER_TOPIC})
REGISTRATION_OPTIONS: Final = frozenset({REGISTER, USE_LATEST})


class ValueFormat(Enum):
    BINARY = "binary"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"

    @property
    def has_schema(self) -> bool:
        """Whether messages of this format have a schema, which is in a registry as a rule."""
        return self in (ValueFormat.AVRO, ValueFormat.PROTOBUF, ValueFormat.JSON_SCHEMA)


class OnBadRecord(Enum):
    FAIL = "fail"
    NULL = "null"
    DEAD_LETTER = "deadletter"


_FORMATS: Final = {
    "binary": "bytes; the default",
    "text": "a string",
    "json": "JSON, with the types of the option valueSchema or keySchema",
    "avro": "Avro",
    "protobuf": "Protobuf",
    "json-schema": "JSON with a schema in a registry",
}
_POLICIES: Final = {
    "fail": "the query fails; the default",
    "null": "the value is null, and the column badRecord says why",
    "deadletter": "the record is written to deadLetterTopic and left out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """The URLs of a schema registry, and its user and password, which are never shown."""

    urls: str = field(repr=False)
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return ", ".join(map(str, parse_urls(self.urls)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOptions:
    """The format of keys, or that of values."""

    part: str
    """KEY or VALUE."""
    format: ValueFormat = ValueFormat.BINARY
    subject: str | None = None
    """The subject of the schema in the registry; None: `<topic>-key` or `<topic>-value`."""
    version: int | None = None
    """The version of the subject; None: the latest one."""
    message: str | None = None
    """Full name of the Protobuf message; None: the first one of the schema."""
    schema: str | None = None
    """For JSON, the types in DDL syntax; else the text of a schema that replaces the subject's."""

    def option(self, name: str) -> str:
        """Returns the name of an option of this part: `valueFormat` for `Format`."""
        return self.part + name


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOptions:
    """The formats of keys and values, and the schema registry."""

    key: PartOptions = PartOptions(part=KEY)
    value: PartOptions = PartOptions(part=VALUE)
    registry: RegistryAccess | None = None

    @property
    def parts(self) -> tuple[PartOptions, ...]:
        """The parts that have a format other than binary."""
        return tuple(part for part in (self.key, self.value) if part.format is not ValueFormat.BINARY)

    @classmethod
    def parse(cls, options: Options) -> "TypedOptions":
        """Parses the options for formats. Raises BadOption."""
        registry = _parse_registry(options)
        found = cls(
            key=_parse_part(options, KEY, has_registry=registry is not None),
            value=_parse_part(options, VALUE, has_registry=registry is not None),
            registry=registry,
        )
        if registry is not None and not any(part.format.has_schema for part in found.parts):
            raise BadOption(
                f"option {REGISTRY!r} is set, but neither 'valueFormat' nor 'keyFormat' uses a registry; set one of "
                "them to avro, protobuf or json-schema"
            )
        return found


def _parse_registry(options: Options) -> RegistryAccess | None:
    urls = options.text(REGISTRY)
    user, password = options.text(_USER, ""), options.text(_PASSWORD, "")
    if urls is None:
        for name in (_USER, _PASSWORD):
            if name in options:
                raise BadOption(f"option {name!r} needs the option {REGISTRY!r}")
        return None
    if password and not user:
        raise BadOption(f"option {_PASSWORD!r} needs the option {_USER!r}")
    try:
        parse_urls(urls)
    except ValueError as error:
        raise BadOption(f"option {REGISTRY!r}: {error}") from None
    return RegistryAccess(urls=urls, user=user or "", password=password or "")


def _parse_part(options: Options, part: str, *, has_registry: bool) -> PartOptions:
    name = f"{part}Format"
    found = PartOptions(
        part=part,
        format=ValueFormat(options.choice(name, _FORMATS, "binary")),
        subject=options.text(f"{part}Subject"),
        version=_parse_version(options, f"{part}SchemaVersion"),
        message=options.text(f"{part}Message"),
        schema=options.text(f"{part}Schema"),
    )
    _check_use(options, found)
    if found.format.has_schema and not has_registry:
        if found.format is not ValueFormat.AVRO:
            raise BadOption(f"option {name!r} is {found.format.value!r}, which needs the option {REGISTRY!r}")
        if found.schema is None:
            raise BadOption(
                f"option {name!r} is 'avro': set {REGISTRY!r} to the URL of the registry that has the schemas, or "
                f"{found.option('Schema')!r} to the text of the schema, for messages without a schema id"
            )
    return found


def _parse_version(options: Options, name: str) -> int | None:
    return None if (options.text(name) or _LATEST).lower() == _LATEST else options.integer(name, most=INT_MAX)


def _check_use(options: Options, found: PartOptions) -> None:
    """Raises BadOption for an option that has no meaning with the format."""
    has_schema, is_protobuf = found.format.has_schema, found.format is ValueFormat.PROTOBUF
    can_be_used = {
        "Subject": (has_schema, "avro, protobuf or json-schema"),
        "SchemaVersion": (has_schema, "avro, protobuf or json-schema"),
        "Message": (is_protobuf, "protobuf"),
        "Schema": (has_schema or found.format is ValueFormat.JSON, "json, avro, protobuf or json-schema"),
    }
    for name, (can, formats) in can_be_used.items():
        if found.option(name) in options and not can:
            raise BadOption(
                f"option {found.option(name)!r} has no effect while {found.option('Format')!r} is "
                f"{found.format.value!r}; set that to {formats}, or leave it out"
            )
    if found.schema is not None and found.format.has_schema and found.option("SchemaVersion") in options:
        raise BadOption(
            f"options {found.option('Schema')!r} and {found.option('SchemaVersion')!r} both name a schema; set one"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecordOptions:
    """What is done with records whose key or value cannot be decoded."""

    policy: OnBadRecord = OnBadRecord.FAIL
    topic: str | None = None
    """The dead-letter topic; None unless the policy is DEAD_LETTER."""

    @classmethod
    def parse(cls, options: Options, typed: TypedOptions) -> "BadRecordOptions":
        policy = OnBadRecord(options.choice(ON_BAD_RECORD, _POLICIES, "fail"))
        topic = options.text(DEAD_LETTER_TOPIC)
        if (policy is OnBadRecord.DEAD_LETTER) != (topic is not None):
            raise BadOption(
                f"option {ON_BAD_RECORD!r} must be 'deadletter' if {DEAD_LETTER_TOPIC!r} names a topic, and only then"
            )
        if policy is not OnBadRecord.FAIL and not typed.parts:
            raise BadOption(
                f"option {ON_BAD_RECORD!r} has no effect: every record can be read as binary; set 'valueFormat'"
            )
        return cls(policy=policy, topic=topic)


def check_json_schema_given(part: PartOptions) -> None:
    """Raises BadOption if JSON is to be read without types."""
    if part.format is ValueFormat.JSON and part.schema is None:
        raise BadOption(
            f"option {part.option('Schema')!r} is missing: {part.option('Format')!r} is 'json', and needs the "
            "types to read, such as id BIGINT, item STRING"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationOptions:
    """Which schema is written: a new one that is registered, or one that the registry has."""

    register: bool = True
    """Whether to register the schema; False: the registry must have it."""
    use_latest: bool = False
    """Whether to write with the latest version of the subject, without deriving a schema."""

    @classmethod
    def parse(cls, options: Options, typed: TypedOptions) -> "RegistrationOptions":
        found = cls(register=options.flag(REGISTER, True), use_latest=options.flag(USE_LATEST, False))
        for name in REGISTRATION_OPTIONS:
            if name in options and typed.registry is None:
                raise BadOption(f"option {name!r} needs the option {REGISTRY!r}")
        for part in typed.parts:
            if found.use_latest and part.format.has_schema and (part.schema or part.version):
                name = part.option("Schema" if part.schema else "SchemaVersion")
                raise BadOption(f"options {USE_LATEST!r} and {name!r} both name the schema to write; set one of them")
        return found
