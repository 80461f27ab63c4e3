"""Views, for a connection: made and dropped, and those that a subscription makes for itself."""

from dataclasses import replace
from typing import Final

from penstock.api.core.cluster_lookup import Lookup, Wanted
from penstock.api.core.durations import Duration, seconds_of
from penstock.api.core.intake import Reading
from penstock.api.errors import InvalidArgument
from penstock.foundation.view_names import VIEW_IDLE_MS, VIEW_OF, VIEW_WHERE, ad_hoc_name

AD_HOC_IDLE_S: Final = 1800.0
"""A view that a subscription has made is dropped when nobody has read it for so long, or for twice the time that one
message may take, if that is longer."""


def create_view(lookup: Lookup, name: str, of: str, where: str, idle: Duration | None) -> None:
    configs = {VIEW_OF: of, VIEW_WHERE: where}
    if idle is not None:
        configs[VIEW_IDLE_MS] = str(int(1000 * seconds_of(idle, "idle")))
    lookup.create(name, configs)


def drop_view(lookup: Lookup, name: str) -> None:
    if not lookup.config(name, VIEW_OF):
        raise InvalidArgument(f"{name!r} is a topic, and no view; a topic is deleted with all that is in it")
    lookup.delete(name)


def through_views(reading: Reading, where: str, lookup: Lookup) -> Reading:
    """The same reading, of the records that match: each topic is read through a view, which is made if need be."""
    idle_s = max(AD_HOC_IDLE_S, 2 * reading.processing_timeout_s)
    names = []
    if reading.missing == "create":
        lookup.summon(reading.wanted.names)
    else:
        lookup.require(reading.wanted.names)
    for topic in reading.wanted.names:
        names.append(ad_hoc_name(topic, where.strip()))
        configs = {VIEW_OF: topic, VIEW_WHERE: where.strip(), VIEW_IDLE_MS: str(int(1000 * idle_s))}
        lookup.create(names[-1], configs, exists_ok=True)
    return replace(reading, wanted=Wanted(names))


def check_where(where: str | None, reading: Reading) -> None:
    """Raises InvalidArgument."""
    if where is None:
        return
    if not isinstance(where, str) or not where.strip():
        raise InvalidArgument(f"where={where!r} is no condition; write for example where=\"tag = 'eu'\"")
    if reading.wanted.pattern is not None:
        raise InvalidArgument("where= needs topics by their names: views are made of them, not of patterns")
    if reading.missing == "wait":
        raise InvalidArgument("where= needs topics that exist: missing='wait' does not go together with it")
