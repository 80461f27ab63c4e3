"""Limits of Protobuf schemas: what no real schema reaches, and what bounds the time and memory that one may cost."""

from typing import Final

TEXT_LENGTH_MAX: Final = 8 * 1024 * 1024
"""Maximum characters of a schema, as sent and as printed. A broker refuses larger records long before."""
NESTING_MAX: Final = 100
"""Maximum depth of nested messages, map types, option values and package names. The Protobuf runtimes refuse
descriptors that are nested more deeply."""
FILES_MAX: Final = 1000
"""Maximum number of schemas that a schema refers to, directly or through others."""
DIFFERENCES_MAX: Final = 1000
"""Maximum number of differences that a comparison returns; the verdict is known after one."""
COMPARISONS_MAX: Final = 500_000
"""Maximum number of fields that a comparison of two schemas compares, in all types that they use."""
NUMBER_LENGTH_MAX: Final = 1000
"""Maximum digits of a number in an option. Doubles have at most 309 digits before the decimal point."""
