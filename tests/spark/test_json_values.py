"""Fields of JSON values: timestamps in various formats."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.pipelines.json_values import from_json
from penstock.spark.pipelines.tables import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 11, 17, 12, 0, 0, 250_000, tzinfo=UTC)


def _read(spark: "SparkSession", ddl: str, text: str) -> Any:
    frame = spark.createDataFrame([(text,)], "value string")
    return frame.select(from_json(frame["value"], parse_schema(ddl), {"mode": "PERMISSIVE"}).alias("v")).collect()[0][
        "v"
    ]


def _utc(found: datetime) -> datetime:
    return found.astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1794916800250", NOON),
        ("1794916800", NOON.replace(microsecond=0)),
        ('"2026-11-17T12:00:00.250Z"', NOON),
        ("100000000001", datetime(1973, 3, 3, 9, 46, 40, 1000, tzinfo=UTC)),
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_a_text_or_a_number_of_seconds_or_milliseconds(
    spark: "SparkSession", text: str, expected: datetime
) -> None:
    assert _utc(_read(spark, "at TIMESTAMP, n BIGINT", f'{{"at": {text}, "n": 1794916800250}}')["at"]) == expected


def test_times_are_found_at_any_depth_and_everything_else_is_as_it_was(spark: "SparkSession") -> None:
    ddl = "a STRUCT<at: TIMESTAMP, s: STRING>, l ARRAY<STRUCT<at: TIMESTAMP>>, m MAP<STRING, TIMESTAMP>, n BIGINT"
    ms = 1_794_916_800_250
    found = _read(
        spark, ddl, f'{{"a": {{"at": {ms}, "s": "x"}}, "l": [{{"at": {ms}}}, null], "m": {{"k": {ms}}}, "n": {ms}}}'
    )
    assert (_utc(found["a"]["at"]), found["a"]["s"]) == (NOON, "x")
    assert [_utc(item["at"]) if item else None for item in found["l"]] == [NOON, None]
    assert {key: _utc(at) for key, at in found["m"].items()} == {"k": NOON}
    assert found["n"] == ms


def test_missing_fields_stay_missing(spark: "SparkSession") -> None:
    found = _read(spark, "a STRUCT<at: TIMESTAMP>, at TIMESTAMP", "{}")
    assert (found["a"], found["at"]) == (None, None)
