"""Writes the options of elements into the options of descriptors, as Confluent's registry does.

Only options that descriptors have a field for are written, and Confluent's own; other extensions are dropped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.schemas.formats.protobuf import option_tables
from penstock.schemas.formats.protobuf.elements import Extensions, Kind, Option, Primitive, Value
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.java_text import java_text
from penstock.schemas.formats.protobuf.merging import merge_by_name
from penstock.schemas.formats.protobuf.numbers import read_number

_UNKNOWN_RETENTION: Final = "RETENTION_UNKNOWN"
_INT_MAX: Final = 2**31 - 1

Table = Sequence[tuple[str, Kind]]


def write_options(owner: Any, options: Sequence[Option], table: Table, meta: Any = None) -> None:
    """Sets the options of a descriptor. `meta`: the extension that carries Confluent's option of this kind."""
    if not options:
        return
    merged = merge_by_name(options)
    for name, kind in table:
        if name in merged:
            _set(owner.options, name, kind, java_text(merged[name].value))
    if "features" in merged:
        _write_features(owner.options.features, merged["features"])
    if meta is not None and meta.full_name in merged:
        _write_meta(owner.options, meta, merged[meta.full_name])


def write_field_options(owner: Any, options: Sequence[Option], meta: Any) -> None:
    if not options:
        return
    write_options(owner, options, option_tables.FIELD, meta)
    for option in options:
        if option.name == "targets":
            owner.options.targets.append(_enum_number(owner.options, "targets", java_text(option.value)))
        elif option.name == "edition_defaults":
            _write_edition_default(owner.options.edition_defaults.add(), option)
    _write_feature_support(owner, options)


def write_constant_options(owner: Any, options: Sequence[Option], meta: Any) -> None:
    if not options:
        return
    write_options(owner, options, option_tables.CONSTANT, meta)
    _write_feature_support(owner, options)


def write_extension_options(owner: Any, extensions: Extensions) -> None:
    for option in extensions.options:
        if option.name == "declaration":
            _write_declaration(owner.options.declaration.add(), option)
    merged = merge_by_name(extensions.options)
    if "features" in merged:
        _write_features(owner.options.features, merged["features"])
    if "verification" in merged:
        number = _find_enum_number(owner.options, "verification", java_text(merged["verification"].value))
        if number is not None:
            owner.options.verification = number


def _set(options: Any, name: str, kind: Kind, text: str) -> None:
    if kind is Kind.STRING:
        setattr(options, name, text)
    elif kind is Kind.BOOLEAN:
        setattr(options, name, text.lower() == "true")
    elif name == "retention" and _find_enum_number(options, name, text) is None:
        setattr(options, name, _enum_number(options, name, _UNKNOWN_RETENTION))
    else:
        setattr(options, name, _enum_number(options, name, text))


def _find_enum_number(message: Any, field: str, name: str) -> int | None:
    found = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_name.get(name)
    return None if found is None else found.number


def _enum_number(message: Any, field: str, name: str) -> int:
    number = _find_enum_number(message, field, name)
    if number is None:
        raise invalid(f"{name!r} is no value of option {field}")
    return number


def _map_of(option: Option) -> Mapping[str, Value]:
    if option.kind is not Kind.MAP or not isinstance(option.value, dict):
        raise invalid(f"the value of option {option.name} must be in braces: {{name: value}}")
    return option.value


def _word(value: Value, name: str) -> str:
    """Returns a string or the name of an enum value."""
    if isinstance(value, str):
        return value
    if isinstance(value, Primitive) and value.kind is Kind.ENUM:
        return value.value
    raise invalid(f"{name} in an option must be a string or a name, not {java_text(value)}")


def _string(value: Value | None, name: str) -> str:
    if not isinstance(value, str):
        raise invalid(f"{name} in one of Confluent's options must be a string")
    return value


def _set_known_value(message: Any, field: str, value: Value) -> None:
    """Sets an enum; to 0, which means unknown, if the value is."""
    setattr(message, field, _find_enum_number(message, field, _word(value, field)) or 0)


def _write_features(features: Any, option: Option) -> None:
    values = _map_of(option)
    features.SetInParent()
    for name in option_tables.FEATURES:
        if name in values:
            _set_known_value(features, name, values[name])


def _write_feature_support(owner: Any, options: Sequence[Option]) -> None:
    option = merge_by_name(options).get("feature_support")
    if option is None:
        return
    values = _map_of(option)
    support = owner.options.feature_support
    support.SetInParent()
    for name, kind in option_tables.FEATURE_SUPPORT:
        if name not in values:
            continue
        if kind is Kind.STRING:
            setattr(support, name, _word(values[name], name))
        else:
            _set_known_value(support, name, values[name])


def _write_edition_default(default: Any, option: Option) -> None:
    values = _map_of(option)
    if "edition" in values:
        edition = _word(values["edition"], "edition")
        _set_known_value(default, "edition", "EDITION_2023" if edition == "2023" else edition)
    if "value" in values:
        default.value = _word(values["value"], "value")


def _write_declaration(declaration: Any, option: Option) -> None:
    values = _map_of(option)
    for name, kind in option_tables.DECLARATION:
        if name not in values:
            continue
        value = values[name]
        if kind is Kind.STRING:
            setattr(declaration, name, _word(value, name))
        elif not isinstance(value, Primitive) or value.kind is not kind:
            raise invalid(f"{name} in a declaration of extensions must be a {kind.value.lower()}")
        elif kind is Kind.BOOLEAN:
            setattr(declaration, name, value.value == "true")
        else:
            number = read_number(value.value)
            if number is None or not -_INT_MAX - 1 <= number <= _INT_MAX:
                raise invalid(f"{name} in a declaration of extensions must be a number of 32 bits")
            setattr(declaration, name, int(number))


def _write_meta(options: Any, meta: Any, option: Option) -> None:
    """Writes documentation, parameters, tags and rules; nothing if all are empty."""
    values = _map_of(option)
    doc = _string(values.get("doc", ""), "doc")
    params = _params(values.get("params", []))
    tags = values.get("tags", [])
    tags = [_string(each, "a tag") for each in tags] if isinstance(tags, list) else [java_text(tags)]
    rules = _rules(values.get("rules", []))
    if "doc" not in values and not params and not tags and not rules:
        return
    written = options.Extensions[meta]
    written.SetInParent()
    if doc:
        written.doc = doc
    for key, value in params.items():
        written.params.add(key=key, value=value)
    written.tags.extend(tags)
    for rule in rules:
        if rule:
            written.rules.add(**rule)


def _params(value: Value) -> dict[str, str]:
    params = {}
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            raise invalid("params in one of Confluent's options must be like {key: ..., value: ...}")
        params[_string(each.get("key"), "the key of a parameter")] = _string(
            each.get("value"), "the value of a parameter"
        )
    return params


def _rules(value: Value) -> list[dict[str, str]]:
    rules = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            raise invalid("rules in one of Confluent's options must be like {name: ..., expr: ...}")
        fields = {name: _string(each[name], name) for name in option_tables.RULE_FIELDS if name in each}
        rules.append({name: text for name, text in fields.items() if text})
    return rules
