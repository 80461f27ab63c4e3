"""Response encodings of the SQS API: AWS JSON 1.0, and the Query protocol's XML or JSON."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.foundation.http import HttpResponse
from penstock.sqs import json_codec, peek_codec, query_codec, query_json_codec
from penstock.sqs.errors import SqsError


class Codec(NamedTuple):
    """Functions that encode results and errors in one response format."""

    encode: Callable[[str, dict[str, Any] | None, bytes], HttpResponse]
    """Encodes the result of an action; arguments: the action's name, the result, the request id."""
    encode_error: Callable[[SqsError, bytes], HttpResponse]
    encode_message: Callable[[dict[str, Any]], Any]
    """Encodes one message of a large ReceiveMessage response; `encode` then embeds the encoded message unchanged."""
    is_xml: bool = False


JSON: Final = Codec(
    lambda action, result, request_id: json_codec.encode(result, request_id),
    json_codec.encode_error,
    json_codec.fragment,
)
QUERY_XML: Final = Codec(
    query_codec.encode,
    query_codec.encode_error,
    lambda message: query_codec.fragment("ReceiveMessage", "Message", message),
    is_xml=True,
)
PEEK_JSON: Final = Codec(peek_codec.encode, peek_codec.encode_error, peek_codec.fragment)
QUERY_JSON: Final = Codec(query_json_codec.encode, query_json_codec.encode_error, query_json_codec.fragment)
