"""Metadata and rules: merged, hashed and checked as in Confluent's registry."""

import pytest

from penstock.schemas.registry.data_contract import (
    Metadata,
    Rule,
    RuleSet,
    merge_metadata,
    merge_rule_sets,
    with_version,
)
from penstock.schemas.registry.errors import InvalidRuleSet, SchemaRejected
from penstock.schemas.registry.model import Reference, SchemaText


def test_the_newer_of_two_metadata_wins() -> None:
    old = Metadata.parse({"properties": {"a": "1", "b": "2"}, "tags": {"x": ["T", "S"]}, "sensitive": ["a"]})
    new = Metadata.parse({"properties": {"b": "3"}, "tags": {"x": ["U"]}, "sensitive": ["c"]})
    merged = merge_metadata(old, new)
    assert merged is not None
    assert merged.json() == {"properties": {"a": "1", "b": "3"}, "tags": {"x": ["U"]}, "sensitive": ["a", "c"]}
    assert merge_metadata(None, new) is new
    assert merge_metadata(old, None) is old


def test_a_rule_of_the_same_name_is_replaced() -> None:
    old = RuleSet(domain=(Rule(name="a", type="CEL"), Rule(name="b", type="CEL")), enable_at="CLIENT")
    new = RuleSet(domain=(Rule(name="a", type="JSONATA"),), migration=(Rule(name="m", type="JSONATA"),))
    merged = merge_rule_sets(old, new)
    assert merged is not None
    assert [(rule.name, rule.type) for rule in merged.domain] == [("b", "CEL"), ("a", "JSONATA")]
    assert merged.enable_at == "CLIENT"


def test_the_version_is_a_property() -> None:
    metadata = with_version(None, 3)
    assert metadata.json() == {"properties": {"confluent:version": "3"}}
    assert metadata.version == "3"
    assert metadata.without_version() == Metadata()


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"domainRules": [{"name": "", "type": "CEL"}]}, "Empty rule name"),
        ({"domainRules": [{"type": "CEL"}]}, "Empty rule name"),
        ({"domainRules": [{"name": "x" * 65, "type": "CEL"}]}, "too long"),
        ({"domainRules": [{"name": "9x", "type": "CEL"}]}, "initial character"),
        ({"domainRules": [{"name": "a b", "type": "CEL"}]}, "Illegal character"),
        ({"domainRules": [{"name": "a"}]}, "Missing type"),
        ({"domainRules": [{"name": "a", "type": "T"}, {"name": "a", "type": "T"}]}, "duplicate name 'a'"),
        ({"domainRules": [{"name": "a", "type": "T", "mode": "UPGRADE"}]}, "Domain rules can only be"),
        ({"migrationRules": [{"name": "a", "type": "T"}]}, "Migration rules can only be"),
        ({"domainRules": [{"name": "a", "type": "T", "mode": "READ", "onFailure": "DLQ,NONE"}]}, "Multiple actions"),
    ],
)
def test_rules_that_clients_could_not_apply_are_refused(rules: object, reason: str) -> None:
    found = RuleSet.parse(rules)
    assert found is not None
    with pytest.raises(InvalidRuleSet, match=reason):
        found.validate()


@pytest.mark.parametrize(
    "metadata", [[], "x", {"tags": []}, {"tags": {"a": "T"}}, {"properties": {"a": 1}}, {"sensitive": [1]}]
)
def test_malformed_metadata_is_refused(metadata: object) -> None:
    with pytest.raises(SchemaRejected):
        Metadata.parse(metadata)


def test_the_guid_is_that_of_confluents_registry() -> None:
    """Golden values of `SchemaValue.toSchemaEntity().getGuid()` there."""
    plain = SchemaText(type="AVRO", text='{"type":"record"}')
    assert plain.guid == "aa55b4a1-fe05-ce21-b008-0319d074bcbe"
    whole = SchemaText(
        type="JSON",
        text='{"$ref":"item\x01\x1f\x7f\u00e4"}',
        references=(Reference("item", "items", 3),),
        metadata=Metadata(properties=(("owner", "shop"),), tags=(("a", ("PII",)),), sensitive=("b",)),
        rule_set=RuleSet(domain=(Rule(name="r", type="CEL", expr="1 < 2"),)),
    )
    assert whole.guid == "758eb7a8-ca02-bd56-6466-63e9b36a2263"
