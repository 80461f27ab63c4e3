"""Metrics as OpenTelemetry's own classes write them."""

from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

DELTA, CUMULATIVE = 1, 2


def pairs(values: Mapping[str, Any]) -> list[KeyValue]:
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    return [KeyValue(key=key, value=AnyValue(**{kinds[type(value)]: value})) for key, value in values.items()]


def point(value: float, **labels: Any) -> NumberDataPoint:
    number = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    return NumberDataPoint(attributes=pairs(labels), time_unix_nano=1, start_time_unix_nano=1, **number)


def gauge(name: str, *points: NumberDataPoint) -> Metric:
    return Metric(name=name, description="a gauge", unit="1", gauge=Gauge(data_points=points))


def counter(name: str, *points: NumberDataPoint, temporality: int = CUMULATIVE, is_monotonic: bool = True) -> Metric:
    total = Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=is_monotonic)
    return Metric(name=name, sum=total)


def histogram(name: str) -> Metric:
    return Metric(name=name, histogram=Histogram(data_points=[HistogramDataPoint(count=3, sum=4.5)]))


def metrics_data(metrics: Iterable[Metric], **resource: Any) -> bytes:
    scope = ScopeMetrics(metrics=list(metrics))
    data = MetricsData(
        resource_metrics=[ResourceMetrics(resource=Resource(attributes=pairs(resource)), scope_metrics=[scope])]
    )
    return bytes(data.SerializeToString())
