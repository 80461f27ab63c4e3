"""Records of the topic `_schemas`: the same bytes as Confluent's registry writes; all that it writes is read."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.decision import StateRecord
from penstock.schemas.registry.data_contract import Metadata, Rule, RuleSet
from penstock.schemas.registry.layout import (
    IDS_SUBJECT,
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdsUsed,
    Key,
    ModeKey,
    NoopKey,
    SchemaKey,
    UnreadableRecord,
    Value,
    decode,
    record,
)
from penstock.schemas.registry.model import Config, Level, Mode, Reference, SchemaText, SchemaVersion

AVRO_TEXT = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'


def _version(**changes: object) -> SchemaVersion:
    values = {
        "subject": "orders-value",
        "version": 1,
        "id": 7,
        "schema": SchemaText(type="AVRO", text=AVRO_TEXT),
    } | changes
    return SchemaVersion(**values)  # type: ignore[arg-type]


WRITTEN: list[tuple[Key, Value, bytes, bytes | None]] = [
    (
        SchemaKey("orders-value", 1),
        _version(),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
        b'{"subject":"orders-value","version":1,"id":7,"schemaType":"AVRO","schema":"{\\"type\\":\\"record\\",'
        b'\\"name\\":\\"Order\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"long\\"}]}","deleted":false}',
    ),
    (
        SchemaKey(":.eu:o", 2),
        _version(
            subject=":.eu:o",
            version=2,
            deleted=True,
            schema=SchemaText(
                type="JSON",
                text='{"$ref":"item"}',
                references=(Reference("item", "items", 3),),
                metadata=Metadata(properties=(("owner", "shop"),), tags=(("a", ("PII",)),), sensitive=("b",)),
                rule_set=RuleSet(domain=(Rule(name="r", type="CEL", expr="1 < 2"),)),
            ),
        ),
        b'{"keytype":"SCHEMA","subject":":.eu:o","version":2,"magic":1}',
        b'{"subject":":.eu:o","version":2,"id":7,"schemaType":"JSON","references":[{"name":"item","subject":"items",'
        b'"version":3}],"metadata":{"tags":{"a":["PII"]},"properties":{"owner":"shop"},"sensitive":["b"]},"ruleSet":'
        b'{"domainRules":[{"name":"r","kind":"TRANSFORM","mode":"WRITEREAD","type":"CEL","expr":"1 < 2","disabled":'
        b'false}]},"schema":"{\\"$ref\\":\\"item\\"}","deleted":true}',
    ),
    (SchemaKey("s", 3), None, b'{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}', None),
    (
        ConfigKey(None),
        Config(level=Level.FULL),
        b'{"keytype":"CONFIG","magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    ),
    (
        ConfigKey("s"),
        Config(alias="t", normalize=True, validate_fields=False, level=Level.NONE, group="major"),
        b'{"keytype":"CONFIG","subject":"s","magic":0}',
        b'{"subject":"s","alias":"t","normalize":true,"validateFields":false,"compatibilityLevel":"NONE",'
        b'"compatibilityGroup":"major"}',
    ),
    (
        ModeKey("s"),
        Mode.IMPORT,
        b'{"keytype":"MODE","subject":"s","magic":0}',
        b'{"subject":"s","mode":"IMPORT"}',
    ),
    (
        DeleteSubjectKey("s"),
        4,
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":4}',
    ),
    (
        ClearSubjectKey("s"),
        1,
        b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s"}',
    ),
    (
        ContextKey(".eu"),
        1,
        b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}',
        b'{"tenant":"default","context":".eu"}',
    ),
    (
        ConfigKey(IDS_SUBJECT),
        IdsUsed(((".", 12),)),
        b'{"keytype":"CONFIG","subject":":.__penstock:ids","magic":0}',
        b'{"subject":":.__penstock:ids","compatibilityLevel":"NONE","penstockIdsUsed":{".":12}}',
    ),
]


@pytest.mark.parametrize(
    ("key", "value", "key_bytes", "value_bytes"), WRITTEN, ids=[str(each[2]) for each in WRITTEN]
)
def test_records_have_the_bytes_of_confluents_registry(
    key: Key, value: Value, key_bytes: bytes, value_bytes: bytes | None
) -> None:
    found = record(key, value)
    assert (found.key, found.value) == (key_bytes, value_bytes)
    assert decode(StateRecord(key=key_bytes, value=value_bytes)) == (key, value)


READ: list[tuple[bytes, bytes | None, Key, Value]] = [
    (  # before there were other types than Avro
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":0}',
        b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
        SchemaKey("a", 1),
        _version(subject="a", id=1, schema=SchemaText(type="AVRO", text='"string"')),
    ),
    (  # another order of names, unknown names
        b'{"magic":1,"version":1,"subject":"a","keytype":"SCHEMA","tenant":"t"}',
        b'{"md5":"x","ts":1,"offset":5,"deleted":false,"schema":"\\"int\\"","id":1,"version":1,"subject":"a"}',
        SchemaKey("a", 1),
        _version(subject="a", id=1, schema=SchemaText(type="AVRO", text='"int"')),
    ),
    (b'{"keytype":"NOOP","magic":0}', None, NoopKey(), None),
    (
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"compatibilityLevel":"FORWARD"}',
        ConfigKey(None),
        Config(level=Level.FORWARD),
    ),
    (b'{"keytype":"MODE","magic":0}', b'{"mode":"READONLY"}', ModeKey(None), Mode.READONLY),
]


@pytest.mark.parametrize(("key_bytes", "value_bytes", "key", "value"), READ, ids=[str(each[0]) for each in READ])
def test_records_of_other_registries_are_read(
    key_bytes: bytes, value_bytes: bytes | None, key: Key, value: Value
) -> None:
    assert decode(StateRecord(key=key_bytes, value=value_bytes)) == (key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"{}"),
        (b"\x00\x01", b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"ASSOC"}', b"{}"),
        (b'{"keytype":["SCHEMA"],"subject":"a","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":0}', None),
        (b'{"keytype":"SCHEMA","subject":1,"version":1}', None),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":9}', None),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":true,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":-1,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"[1]"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1,"schema":"x","references":[3]}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1,"schema":"x","references":7}'),
        (b'{"keytype":"CONFIG"}', b'{"compatibilityLevel":"SOME"}'),
        (b'{"keytype":"CONFIG"}', b'"FULL"'),
        (b'{"keytype":"MODE"}', b'{"mode":3}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a"}', b'{"version":"x"}'),
    ],
)
def test_other_records_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode(StateRecord(key=key, value=value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    (
        "keytype",
        "subject",
        "version",
        "magic",
        "id",
        "schema",
        "references",
        "metadata",
        "ruleSet",
        "deleted",
        "mode",
        "compatibilityLevel",
        "context",
        "tenant",
        "schemaType",
        "alias",
        "penstockIdsUsed",
    )
)
kinds = st.sampled_from(("SCHEMA", "CONFIG", "MODE", "CONTEXT", "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP"))


@given(kinds, st.dictionaries(names, json_values), st.none() | st.dictionaries(names, json_values) | json_values)
def test_any_json_is_read_or_refused(kind: str, key: dict[str, object], value: object) -> None:
    found = StateRecord(key=orjson.dumps(key | {"keytype": kind}), value=orjson.dumps(value))
    try:
        decoded = decode(found)
    except UnreadableRecord:
        return
    again = record(*decoded)
    assert decode(StateRecord(key=again.key, value=again.value)) == decoded
