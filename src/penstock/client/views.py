"""Creates, lists, describes and drops views (filtered virtual topics), by the same Kafka requests as for topics."""

from dataclasses import dataclass
from typing import Final

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin
from penstock.client.configs import Resource
from penstock.client.errors import refusal
from penstock.foundation.codes import ErrorCode
from penstock.foundation.view_names import VIEW_IDLE_MS, VIEW_OF, VIEW_WHERE

_KEYS: Final = [VIEW_OF, VIEW_WHERE, VIEW_IDLE_MS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewInfo:
    """A view (filtered virtual topic): its source topic `of`, condition `where` and number of partitions."""

    name: str
    of: str
    where: str
    idle_ms: int
    partitions: int


class Views:
    """Admin client for views (read-only filtered topics): creates, lists, describes and drops them."""

    def __init__(self, client: KafkaClient) -> None:
        self._admin = Admin(client)
        self._cluster = ClusterAdmin(client)

    async def create(self, name: str, *, of: str, where: str, idle_ms: int = 0) -> int:
        """Creates view `name` of topic `of`: its messages that match the expression `where`. Returns the number of
        partitions. `idle_ms`: time without reads, in ms, after which the view is dropped; 0 means never."""
        configs = {VIEW_OF: of, VIEW_WHERE: where}
        if idle_ms:
            configs[VIEW_IDLE_MS] = str(idle_ms)
        partitions, _ = await self._admin.create(name, configs=configs)
        return partitions

    async def all(self, of: str | None = None) -> list[ViewInfo]:
        """Returns all views, or the views of topic `of`, without those that a subscription created for itself."""
        topics = {topic.name: len(topic.partitions) for topic in await self._admin.topics()}
        found = await self._cluster.configs(Resource.TOPIC, topics, _KEYS)
        views = [_info(name, values, topics[name]) for name, values in sorted(found.items()) if values.get(VIEW_OF)]
        return [view for view in views if of is None or view.of == of]

    async def one(self, name: str) -> ViewInfo:
        """Returns a view by its name. Raises ServerError if it does not exist or the name is a topic's."""
        topic = await self._admin.topic(name)
        found = await self._cluster.configs(Resource.TOPIC, [name], _KEYS)
        if not found.get(name, {}).get(VIEW_OF):
            raise refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION, name, f"{name!r} is a topic, not a view; use `penstock topic`"
            )
        return _info(name, found[name], len(topic.partitions))

    async def drop(self, name: str) -> None:
        """Drops a view. Raises ServerError if the name is a topic's, so that no data is deleted."""
        await self.one(name)
        await self._admin.delete(name)


def _info(name: str, values: "dict[str, str | None]", partitions: int) -> ViewInfo:
    return ViewInfo(
        name=name,
        of=values.get(VIEW_OF) or "",
        where=values.get(VIEW_WHERE) or "",
        idle_ms=int(values.get(VIEW_IDLE_MS) or 0),
        partitions=partitions,
    )
