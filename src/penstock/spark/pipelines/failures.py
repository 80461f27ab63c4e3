"""Explains failures of Spark in one sentence with cause and remedy, instead of a stack trace."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError
from penstock.spark.query_start import WORKER_LATE


class PipelineFailed(PenstockError):
    """A pipeline failed in Spark."""


class _KnownFailure(NamedTuple):
    pattern: re.Pattern[str]
    cause: str  # may use the groups of the pattern
    cure: str


def _known(pattern: str, cause: str, cure: str) -> _KnownFailure:
    return _KnownFailure(re.compile(pattern, re.DOTALL), cause, cure)


_MEMORY: Final = "give it more with `-o 'spark={spark.driver.memory: 4g}'`, or read less at a time with max_rows"
_CHECKPOINT: Final = "restore the pipeline as it was, or start over with `-o checkpoint=ANOTHER_FOLDER`"
_KNOWN_FAILURES: Final = (
    _known(r"OutOfMemoryError|Java heap space|GC overhead limit", "Spark ran out of memory", _MEMORY),
    _known(
        r"Python worker exited unexpectedly|Python worker process terminated",
        "a Python worker of Spark died",
        _MEMORY,
    ),
    _known(
        r"Answer from Java side is empty|Error while sending or receiving|Connect(?:ion)?Refused|Connection refused",
        "Spark's Java process has ended, most often for lack of memory",
        _MEMORY,
    ),
    _known(
        WORKER_LATE,
        "a Python worker of Spark did not start in time",
        "run it again when the machine is less busy: it continues where it stopped",
    ),
    _known(r"No space left on device", "the disk is full", "free space, or move spark.local.dir and the checkpoint"),
    _known(
        r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`(.+?)` cannot be resolved\. Did you mean one of the following\? \[(.+?)\]",
        "there is no column {0}; similar names are {1}",
        "correct the SQL or the schema",
    ),
    _known(
        r"\[UNRESOLVED_COLUMN[^\]]*\][^`]*`(.+?)` cannot be resolved",
        "there is no column {0}",
        "correct the SQL or the schema",
    ),
    _known(
        r"\[TABLE_OR_VIEW_NOT_FOUND\][^`]*`(.+?)` cannot be found",
        "the SQL names a table {0} that is none of the sources",
        "add it to sources, or use one of their names",
    ),
    _known(r"\[PARSE_SYNTAX_ERROR\] (.+?)(?: SQLSTATE|\n)", "the SQL cannot be read: {0}", "correct it"),
    _known(
        r"There are \[?(\d+)\]? sources in the checkpoint offsets and now there are \[?(\d+)\]? sources",
        "the checkpoint belongs to a pipeline with {0} sources, and this one has {1}",
        _CHECKPOINT,
    ),
    _known(
        r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_\w*SCHEMA|Provided (?:key|value) schema does not match",
        "the checkpoint holds the state of another query",
        _CHECKPOINT,
    ),
    _known(
        r"All masters are unresponsive|Could not parse Master URL",
        "Spark's master does not answer",
        "correct --master",
    ),
    _known(
        r"ExecutorLostFailure|Remote RPC client disassociated",
        "executors of Spark were lost",
        "run it again: it continues where it stopped",
    ),
)
_OURS: Final = re.compile(r"(?:^|\n|\s)penstock(?:\.\w+)+: (.+?)(?=\n|$)")
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?= SQLSTATE|\n|$)")
_PYTHON: Final = re.compile(r"\n(\w+(?:\.\w+)*(?:Error|Exception)): (.+?)(?=\n|$)")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (?=(.+?)(?: SQLSTATE|\n|$))")  # conditions may be nested
_WRAPPERS: Final = (
    "STREAM_FAILED",
    "PYTHON_DATA_SOURCE_ERROR",
    "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR",
    "FOREACH",
)


def explain(error: BaseException, log: Path | None = None) -> PipelineFailed:
    """Returns an error whose message is one sentence about `error`, followed by the path of the log."""
    where = f"; {log} has the details" if log else ""
    return PipelineFailed(summarize_failure(_error_text(error)) + where)


def summarize_failure(said: str) -> str:
    """Returns one sentence with the cause and remedy of a failure, given Spark's error message.

    >>> summarize_failure("[TABLE_OR_VIEW_NOT_FOUND] The table or view `order` cannot be found. Verify ...")
    'the SQL names a table order that is none of the sources; add it to sources, or use one of their names'
    """
    ours = _OURS.findall(said)
    if ours:
        return str(ours[-1]).strip()  # our own errors include a remedy
    raised = _RAISED.search(said)
    if raised:
        return raised[1].strip()
    for known in _KNOWN_FAILURES:
        found = known.pattern.search(said)
        if found:
            groups = [group.replace("`", "").rstrip(".") for group in found.groups()]
            return f"{known.cause.format(*groups)}; {known.cure}"
    python = _PYTHON.findall(said)
    if python:
        kind, message = python[-1]
        return f"{kind.rpartition('.')[2]}: {message.strip()}"
    for condition, message in _CONDITION.findall(said):
        if not condition.startswith(_WRAPPERS):
            return str(message).strip()
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else "Spark failed without a message"


def _error_text(error: BaseException) -> str:
    """Returns the messages of an error and of its causes, without Java stack traces."""
    parts = []
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PenstockError):
            parts.append(f"\n{type(seen).__module__}.{type(seen).__name__}: {' '.join(seen.message.split())}\n")
        else:
            parts.append(f"{_heading(seen)}{str(seen).partition('JVM stacktrace:')[0]}")
        seen = seen.__cause__
    return "\n".join(parts)


def _heading(error: BaseException) -> str:
    """Returns the type name of a Python error as a prefix for its message; an empty string for an error of Spark."""
    module = type(error).__module__
    return "" if module.startswith(("pyspark", "py4j")) else f"\n{type(error).__name__}: "
