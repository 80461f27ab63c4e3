"""Batch requests: reads up to ten entries with distinct ids, and builds the Successful and Failed lists."""

import re
from typing import Any, Final

from penstock.foundation.errors import PenstockError
from penstock.sqs import checks
from penstock.sqs.checks import Params
from penstock.sqs.errors import (
    EMPTY_BATCH,
    IDS_NOT_DISTINCT,
    INVALID_BATCH_ID,
    TOO_MANY_ENTRIES,
    SqsError,
    translate,
)
from penstock.sqs.limits import BATCH_ENTRIES_MAX, BATCH_ID_CHARS_MAX

_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{BATCH_ID_CHARS_MAX}}}")


def read_entries(params: Params, action: str) -> dict[str, Params]:
    """Returns the entries of a batch request by id. Raises if there are none or too many, or an id is invalid."""
    given = params.get("Entries")
    if type(given) is list and len(given) > BATCH_ENTRIES_MAX:
        raise SqsError(
            TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {len(given)}.",
        )
    entries = checks.entries(params, "Entries")
    if not entries:
        raise SqsError(EMPTY_BATCH, f"There should be at least one {action}RequestEntry in the request.")
    found: dict[str, Params] = {}
    for entry in entries:
        name = checks.maybe_text(entry, "Id") or ""
        if not _ID.fullmatch(name):
            raise SqsError(
                INVALID_BATCH_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                f"It can be at most {BATCH_ID_CHARS_MAX} letters long.",
            )
        if name in found:
            raise SqsError(IDS_NOT_DISTINCT, f"Id {name} repeated.")
        found[name] = entry
    return found


def failed(name: str, error: PenstockError) -> dict[str, Any]:
    """Returns the entry of the Failed list for the batch entry with id `name`."""
    shown_error = translate(error)
    fault = shown_error.fault
    return {"Id": name, "SenderFault": fault.is_sender, "Code": fault.code, "Message": shown_error.message}


def result(successful: list[dict[str, Any]], failures: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the result of a batch request; omits the Successful or Failed list if it is empty, as AWS does."""
    found: dict[str, Any] = {}
    if successful:
        found["Successful"] = successful
    if failures:
        found["Failed"] = failures
    return found
