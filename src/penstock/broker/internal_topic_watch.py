"""Logs warnings about misconfigured internal topics, at startup and whenever such a topic changes."""

import logging
from typing import Final

from penstock.broker.configs import Configs
from penstock.broker.settings import SETTING_PREFIXES
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.internal_topics import find_faults

logger = logging.getLogger(__name__)

FIX: Final = "penstock cluster repair-internal-topics"


class InternalTopicWatch:
    """Logs the configuration faults of internal topics, once for each change of a topic."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._seen: dict[str, Topic] = {}

    def apply(self, image: ClusterImage) -> None:
        for name in SETTING_PREFIXES:
            topic = image.by_name.get(name)
            if topic is None:
                self._seen.pop(name, None)
            elif not self._is_known(topic):
                self._report(topic)
                self._seen[name] = topic

    def _is_known(self, topic: Topic) -> bool:
        """Whether settings and partition count are the same as when the topic was last checked."""
        known = self._seen.get(topic.name)
        return (
            known is not None
            and known.topic_id == topic.topic_id
            and known.configs == topic.configs
            and len(known.partitions) == len(topic.partitions)
        )

    def _report(self, topic: Topic) -> None:
        for fault in find_faults(topic.configs):
            logger.warning(
                "internal_topic_misconfigured topic=%s setting=%s found=%s expected=%r ignored=%s fix=%r",
                topic.name,
                fault.setting,
                fault.found,
                fault.expected,
                fault.is_repairable,
                FIX,
            )
        setting = SETTING_PREFIXES[topic.name] + "num.partitions"
        wanted = self._configs[setting]
        if len(topic.partitions) != wanted:
            logger.warning(
                "internal_topic_partitions topic=%s found=%d %s=%d fix=%r",
                topic.name,
                len(topic.partitions),
                setting,
                wanted,
                FIX,
            )
