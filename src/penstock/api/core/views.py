"""Creates and drops views (filtered virtual topics): create_view(), drop_view(), and implicitly subscribe(where=)."""

from dataclasses import replace
from typing import Final

from penstock.api.core.cluster_lookup import ClusterLookup, TopicSelection
from penstock.api.core.durations import Duration, seconds_of
from penstock.api.core.subscription_consumer import ReadOptions
from penstock.api.errors import InvalidArgument
from penstock.foundation.view_names import VIEW_IDLE_MS, VIEW_OF, VIEW_WHERE, ad_hoc_name

AD_HOC_IDLE_S: Final = 1800.0
"""Minimum time, in seconds, without a reader before a view (filtered topic) of subscribe(where=) is dropped."""


def create_view(lookup: ClusterLookup, name: str, of: str, where: str, idle: Duration | None) -> None:
    configs = {VIEW_OF: of, VIEW_WHERE: where}
    if idle is not None:
        configs[VIEW_IDLE_MS] = str(int(1000 * seconds_of(idle, "idle")))
    lookup.create(name, configs)


def drop_view(lookup: ClusterLookup, name: str) -> None:
    if not lookup.config(name, VIEW_OF):
        raise InvalidArgument(f"{name!r} is a topic, not a view; drop_view() would delete its messages")
    lookup.delete(name)


def with_views(read_options: ReadOptions, where: str, lookup: ClusterLookup) -> ReadOptions:
    """Returns options that read each topic through a view (filtered topic) with condition `where`; creates the views
    if missing."""
    idle_s = max(AD_HOC_IDLE_S, 2 * read_options.processing_timeout_s)
    names = []
    if read_options.missing == "create":
        lookup.auto_create(read_options.selection.names)
    else:
        lookup.require(read_options.selection.names)
    for topic in read_options.selection.names:
        names.append(ad_hoc_name(topic, where.strip()))
        configs = {VIEW_OF: topic, VIEW_WHERE: where.strip(), VIEW_IDLE_MS: str(int(1000 * idle_s))}
        lookup.create(names[-1], configs, exists_ok=True)
    return replace(read_options, selection=TopicSelection(names))


def check_where(where: str | None, read_options: ReadOptions) -> None:
    """Raises InvalidArgument if `where` is not a condition, or is combined with a pattern or missing="wait"."""
    if where is None:
        return
    if not isinstance(where, str) or not where.strip():
        raise InvalidArgument(f"where={where!r} is not a condition; for example where=\"tag = 'eu'\"")
    if read_options.selection.pattern is not None:
        raise InvalidArgument("where= needs topic names: a view cannot be created of a pattern")
    if read_options.missing == "wait":
        raise InvalidArgument("where= needs existing topics: it cannot be combined with missing='wait'")
