"""Topics of the metadata image that match a condition. Pure."""

from collections.abc import Callable, Collection, Mapping

from penstock.cluster.image import EMPTY, ClusterImage, Topic


class MatchingTopics:
    """Tracks the topics that match a condition. Checks only the topics that changed since the previous metadata
    image: there may be many thousands of topics."""

    def __init__(self, matches: Callable[[Topic], bool]) -> None:
        self._matches = matches
        self._seen: Mapping[bytes, Topic] = EMPTY
        self._found: dict[bytes, Topic] = {}

    def follow(self, image: ClusterImage) -> Collection[Topic]:
        """Returns the matching topics of this metadata image; called for each new image."""
        for topic_id in image.changed_topics(self._seen):
            topic = image.topics.get(topic_id)
            if topic is not None and self._matches(topic):
                self._found[topic_id] = topic
            else:
                self._found.pop(topic_id, None)
        self._seen = image.topics
        return self._found.values()
