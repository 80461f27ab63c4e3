"""Administration of views (filtered virtual topics): creates views, lists their settings.

Any client that can create topics can create views: `view.of` and `view.where` are settings of the new topic.
"""

from typing import TYPE_CHECKING, Final

from penstock.broker.configs import Source, Value
from penstock.cluster import administration
from penstock.cluster.view_changes import plan_view
from penstock.cluster.views import View
from penstock.foundation.errors import InvalidConfig, InvalidPartitions, InvalidReplicaAssignment, InvalidTopic
from penstock.foundation.settings import Kind, Setting, Table
from penstock.foundation.view_names import AD_HOC, VIEW_IDLE_MS, VIEW_OF, VIEW_WHERE
from penstock.log.setting_table import LOG_SETTINGS
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfigs, CreatableTopicResult

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

NONE: Final = -1
IDLE_MS_MIN: Final = 1000
DAY_MS: Final = 86_400_000

VIEW_SETTINGS: Final = Table(
    [
        Setting(name=VIEW_OF, kind=Kind.STRING, default="", doc="The topic that this is a view of."),
        Setting(name=VIEW_WHERE, kind=Kind.STRING, default="", doc="Which of its records are in the view."),
        Setting(
            name=VIEW_IDLE_MS,
            kind=Kind.LONG,
            default="0",
            minimum=0,
            maximum=365 * DAY_MS,
            doc="The view is dropped when it has not been read for this long; 0: never.",
        ),
    ]
)


def is_view(topic: CreatableTopic) -> bool:
    """Whether a CreateTopics request asks for a view (filtered virtual topic): it has a setting such as `view.of`."""
    return any(entry.name in VIEW_SETTINGS.by_name for entry in topic.configs)


def check_no_ad_hoc(name: str) -> None:
    """Raises InvalidTopic if a topic name is reserved for temporary views (filtered virtual topics)."""
    if AD_HOC.fullmatch(name):
        raise InvalidTopic(f"topic name {name!r} is not allowed: its suffix is reserved for temporary views")


async def create_view(topic: CreatableTopic, validate_only: bool, broker: "Broker") -> CreatableTopicResult:
    """Creates a view with the partitions of the topic that it filters; rejects a request for another partition count.

    Raises BadExpression, and Kafka's errors of CreateTopics.
    """
    view = _parse_view(topic, broker)
    await broker.views.check(view.where)
    plan_view(broker.image, view)
    source = broker.image.by_name[view.of]
    if topic.num_partitions not in (NONE, 1, len(source.partitions)):
        raise InvalidPartitions(
            f"a view has the partitions of its topic: {view.of!r} has {len(source.partitions)}, not"
            f" {topic.num_partitions}; leave the number out"
        )
    if topic.assignments:
        raise InvalidReplicaAssignment(
            f"a view has the replicas of its topic {view.of!r}; do not assign replicas to it"
        )
    if not validate_only:
        await administration.create_view(broker.metadata, view)
    return CreatableTopicResult(
        name=view.name,
        topic_id=bytes(16) if validate_only else view.view_id,
        error_code=0,
        error_message=None,
        num_partitions=len(source.partitions),
        replication_factor=len(source.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name, value=value, read_only=True, config_source=Source.TOPIC, is_sensitive=False
            )
            for name, value in view.configs().items()
        ],
    )


def _parse_view(topic: CreatableTopic, broker: "Broker") -> View:
    configs = {}
    for entry in topic.configs:
        if entry.name not in VIEW_SETTINGS.by_name:
            raise InvalidConfig(
                f"{entry.name} is not a setting of a view (expected {', '.join(VIEW_SETTINGS.by_name)});"
                " set it on the view's topic"
            )
        if entry.value is None:
            raise InvalidConfig(f"{entry.name} has no value; leave it out to get the default")
        configs[entry.name] = entry.value
    parsed = VIEW_SETTINGS.parse(configs)
    if not parsed[VIEW_OF] or VIEW_WHERE not in configs:
        raise InvalidConfig(f"a view needs {VIEW_OF}, the name of a topic, and {VIEW_WHERE}, a condition")
    idle_ms = parsed[VIEW_IDLE_MS]
    if 0 < idle_ms < IDLE_MS_MIN:
        raise InvalidConfig(f"{VIEW_IDLE_MS}={idle_ms} is not allowed; expected 0, or at least {IDLE_MS_MIN}")
    return View(
        view_id=broker.new_topic_id(),
        name=topic.name,
        topic_id=b"",
        of=parsed[VIEW_OF],
        where=configs[VIEW_WHERE].strip(),
        created_ms=broker.clock.now_ms(),
        idle_ms=idle_ms,
    )


def view_values(view: View, broker: "Broker") -> list[tuple[Setting, list[Value]]]:
    """Returns the view's own settings, then those of the topic that it filters, which apply to the view, too."""
    own = view.configs()
    source = broker.image.topics[view.topic_id]
    shown: list[tuple[Setting, list[Value]]] = [
        (setting, [Value(setting.name, own.get(setting.name, setting.default), Source.TOPIC)])
        for setting in VIEW_SETTINGS
    ]
    return [*shown, *((setting, broker.configs.topic_values(setting, source.configs)) for setting in LOG_SETTINGS)]
