"""The options that descriptors have fields for, in the order in which Confluent's registry prints them."""

from typing import Final

from penstock.schemas.formats.protobuf.elements import Kind

FILE: Final = (
    ("java_package", Kind.STRING),
    ("java_outer_classname", Kind.STRING),
    ("java_multiple_files", Kind.BOOLEAN),
    ("java_generate_equals_and_hash", Kind.BOOLEAN),
    ("java_string_check_utf8", Kind.BOOLEAN),
    ("optimize_for", Kind.ENUM),
    ("go_package", Kind.STRING),
    ("cc_generic_services", Kind.BOOLEAN),
    ("java_generic_services", Kind.BOOLEAN),
    ("py_generic_services", Kind.BOOLEAN),
    ("deprecated", Kind.BOOLEAN),
    ("cc_enable_arenas", Kind.BOOLEAN),
    ("objc_class_prefix", Kind.STRING),
    ("csharp_namespace", Kind.STRING),
    ("swift_prefix", Kind.STRING),
    ("php_class_prefix", Kind.STRING),
    ("php_namespace", Kind.STRING),
    ("php_metadata_namespace", Kind.STRING),
    ("ruby_package", Kind.STRING),
)
MESSAGE: Final = (
    ("no_standard_descriptor_accessor", Kind.BOOLEAN),
    ("deprecated", Kind.BOOLEAN),
    ("map_entry", Kind.BOOLEAN),
)
FIELD: Final = (
    ("ctype", Kind.ENUM),
    ("packed", Kind.BOOLEAN),
    ("jstype", Kind.ENUM),
    ("deprecated", Kind.BOOLEAN),
    ("debug_redact", Kind.BOOLEAN),
    ("retention", Kind.ENUM),
)
ENUM: Final = (("allow_alias", Kind.BOOLEAN), ("deprecated", Kind.BOOLEAN))
CONSTANT: Final = (("deprecated", Kind.BOOLEAN), ("debug_redact", Kind.BOOLEAN))
SERVICE: Final = (("deprecated", Kind.BOOLEAN),)
METHOD: Final = (("deprecated", Kind.BOOLEAN), ("idempotency_level", Kind.ENUM))
ONE_OF: Final = ()

FEATURES: Final = (
    "field_presence",
    "enum_type",
    "repeated_field_encoding",
    "utf8_validation",
    "message_encoding",
    "json_format",
)
"""The features of editions, all enums."""
FEATURE_SUPPORT: Final = (
    ("edition_introduced", Kind.ENUM),
    ("edition_deprecated", Kind.ENUM),
    ("deprecation_warning", Kind.STRING),
    ("edition_removed", Kind.ENUM),
)
EDITION_DEFAULT: Final = (("edition", Kind.ENUM), ("value", Kind.STRING))
DECLARATION: Final = (
    ("number", Kind.NUMBER),
    ("full_name", Kind.STRING),
    ("type", Kind.STRING),
    ("reserved", Kind.BOOLEAN),
    ("repeated", Kind.BOOLEAN),
)
META_EXTENSIONS: Final = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}
"""Confluent's own option for each kind of options: documentation, parameters, tags and rules."""
META_NUMBER: Final = 1088
RULE_FIELDS: Final = ("name", "doc", "expr", "sql")
