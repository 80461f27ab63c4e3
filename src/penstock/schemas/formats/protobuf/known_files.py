"""Files that every schema may import without a reference, as in Confluent's registry.

Types have full names, as in descriptors: they are resolved from the scope of the schema that uses them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from penstock.schemas.formats.protobuf.descriptor_messages import PROTOBUF_FILES, serialized_protobuf_file
from penstock.schemas.formats.protobuf.descriptor_reader import read_descriptor
from penstock.schemas.formats.protobuf.elements import File
from penstock.schemas.formats.protobuf.parser import parse_file

_META: Final = "; ".join(
    f"extend google.protobuf.{owner} {{ .confluent.Meta {name}_meta = 1088; }}"
    for owner, name in (
        ("FileOptions", "file"),
        ("MessageOptions", "message"),
        ("FieldOptions", "field"),
        ("EnumOptions", "enum"),
        ("EnumValueOptions", "enum_value"),
    )
)
_CONFLUENT: Final = {
    "meta": f"""
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {{
          string doc = 1; repeated .confluent.Meta.ParamsEntry params = 2; repeated string tags = 3;
          repeated .confluent.Rule rules = 4;
          message ParamsEntry {{ option map_entry = true; string key = 1; string value = 2; }}
        }}
        message Rule {{ string name = 1; string doc = 2; string expr = 3; string sql = 4; }}
        {_META}
    """,
    "type/decimal": """
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "type/variant": """
        package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }
    """,
    "types/decimal": """
        package confluent.types;
        import public "confluent/type/decimal.proto";
    """,
}
"""The last one is the former path of decimal.proto, which old schemas still import."""

_GOOGLE_TYPES: Final = {
    "calendar_period": """
        enum CalendarPeriod {
          CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5; HALF = 6;
          YEAR = 7;
        }
    """,
    "color": """
        import "google/protobuf/wrappers.proto";
        message Color { float red = 1; float green = 2; float blue = 3; .google.protobuf.FloatValue alpha = 4; }
    """,
    "date": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "datetime": """
        import "google/protobuf/duration.proto";
        message DateTime {
          int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6;
          int32 nanos = 7;
          oneof time_offset { .google.protobuf.Duration utc_offset = 8; .google.type.TimeZone time_zone = 9; }
        }
        message TimeZone { string id = 1; string version = 2; }
    """,
    "dayofweek": """
        enum DayOfWeek {
          DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5; SATURDAY = 6;
          SUNDAY = 7;
        }
    """,
    "decimal": "message Decimal { string value = 1; }",
    "expr": "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    "fraction": "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "interval": """
        import "google/protobuf/timestamp.proto";
        message Interval { .google.protobuf.Timestamp start_time = 1; .google.protobuf.Timestamp end_time = 2; }
    """,
    "latlng": "message LatLng { double latitude = 1; double longitude = 2; }",
    "money": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "month": """
        enum Month {
          MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY = 7;
          AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12;
        }
    """,
    "phone_number": """
        message PhoneNumber {
          message ShortCode { string region_code = 1; string number = 2; }
          oneof kind { string e164_number = 1; .google.type.PhoneNumber.ShortCode short_code = 2; }
          string extension = 3;
        }
    """,
    "postal_address": """
        message PostalAddress {
          int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4;
          string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8;
          repeated string address_lines = 9; repeated string recipients = 10; string organization = 11;
        }
    """,
    "quaternion": "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "timeofday": "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}


@cache
def known_files() -> Mapping[str, File]:
    """Returns the files by the path to import."""
    files = {
        f"google/protobuf/{name}.proto": read_descriptor(serialized_protobuf_file(name)) for name in PROTOBUF_FILES
    }
    for name, text in _GOOGLE_TYPES.items():
        files[f"google/type/{name}.proto"] = parse_file(f'syntax = "proto3"; package google.type; {text}')
    for name, text in _CONFLUENT.items():
        files[f"confluent/{name}.proto"] = parse_file(f'syntax = "proto3"; {text}')
    return files
