"""Penstock's API 30031, KnownSchemaIds: asks the broker that leads the schema registry which ids are registered."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, String, field, request, response, struct

IDS_MAX: Final = 4096
"""Maximum number of ids in a KnownSchemaIds request."""


@struct
class SchemaIdsQuestion:
    subject: String
    is_prefix: Bool
    """Whether all subjects that start with `subject` are meant."""
    ids: Array[Int32]


@struct
class SchemaIdsAnswer:
    ids: Array[Int32]
    """Those ids of the question that are registered under one of its subjects."""


@request(ApiKey.KNOWN_SCHEMA_IDS, versions="0", flexible="0+")
class KnownSchemaIdsRequest:
    questions: Array[SchemaIdsQuestion]


@response(ApiKey.KNOWN_SCHEMA_IDS, versions="0", flexible="0+")
class KnownSchemaIdsResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    answers: Array[SchemaIdsAnswer] = field(default=())
    """In the order of the questions."""
