"""Kinds of differences between two JSON Schemas: which of them break a reader, and the sentence for each."""

from typing import Final

from penstock.schemas.formats.format import READER, WRITER

_COMPATIBLE_NAMES: Final = """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED
    MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
    """
COMPATIBLE: Final = frozenset(_COMPATIBLE_NAMES.split())
"""Differences that do not break readers."""

_LENIENT_NAMES: Final = """
    ADDITIONAL_PROPERTIES_NARROWED ADDITIONAL_PROPERTIES_REMOVED
    UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_PROPERTIES_REMOVED
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """
LENIENT: Final = COMPATIBLE | frozenset(_LENIENT_NAMES.split())
"""Differences that the lenient policy of Confluent's registry allows: properties may come and go."""

_SENTENCES: Final = (
    (
        "_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "What is at path {} does not fit the schema for further properties or items",
    ),
    (
        "_ADDED_TO_OPEN_CONTENT_MODEL",
        "The reader schema declares a property or item at path {}, where the writer schema allows anything",
    ),
    (
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "The reader schema requires the property at path {}, which the writer schema does not have",
    ),
    (
        "_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "The writer schema declares a property or item at path {}, where the reader schema allows none",
    ),
    ("REQUIRED_ATTRIBUTE_ADDED", "The property at path {} is required by the reader schema only"),
    ("SCHEMA_ADDED", "What is at path {} is restricted by the reader schema only"),
    ("TYPE_CHANGED", "The types at path {} differ between the reader schema and the writer schema"),
    ("SUBSCHEMAS_CHANGED", "At path {}, a member of one combined schema fits no member of the other"),
    ("SUM_TYPE_NARROWED", "The combined schema at path {} has fewer members in the reader schema"),
    ("PRODUCT_TYPE_EXTENDED", "The combined schema at path {} has more members in the reader schema"),
    ("NOT_TYPE_EXTENDED", "What is excluded at path {} is more in the reader schema"),
    ("TYPE_NARROWED", "The numbers at path {} must be integers in the reader schema only"),
    ("DEPENDENCY_ARRAY_EXTENDED", "The properties required at path {} are more in the reader schema"),
    ("ENUM_ARRAY_NARROWED", "The values at path {} are fewer in the reader schema"),
    ("_NARROWED", "Further properties or items at path {} are restricted by the reader schema only"),
    ("S_REMOVED", "Further properties or items at path {} are refused by the reader schema only"),
    ("_ADDED", "The keyword at path {} exists in the reader schema only"),
    ("_INCREASED", "The value at path {} is greater in the reader schema"),
    ("_EXPANDED", "The value at path {} is a multiple of the writer's in the reader schema"),
    ("_DECREASED", "The value at path {} is less in the reader schema"),
    ("_CHANGED", "The values at path {} differ between the reader schema and the writer schema"),
)
"""Ends of kinds, with the sentence that is shown for them. The first that fits counts."""


def describe(kind: str, path: str) -> str:
    """Returns the text that is shown for a difference, in the layout of Confluent's registry."""
    sentence = next(text for end, text in _SENTENCES if kind.endswith(end))
    quoted = f"'{path}'"
    sentence = sentence.replace("reader schema", f"{READER} schema").replace("writer schema", f"{WRITER} schema")
    return f'{{errorType:"{kind}", description:"{sentence.replace("{}", quoted)}"}}'
