"""Starting streaming queries where Spark's own patience is too short.

Spark runs a source that is written in Python in a process of its own, which it gives ten seconds to start and to call
back; no setting changes that. On a busy machine importing PySpark takes longer, and the query fails before it has
done anything. So it is started again.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

WORKER_LATE: Final = "Python worker failed to connect back"
STARTS_MAX: Final = 5
_INITIALIZING: Final = "Initializing"
"""How the status of a query begins whose sources have not started."""
_POLL_S: Final = 0.1
log = logging.getLogger(__name__)


def start_query(start: Callable[[], "StreamingQuery"]) -> "StreamingQuery":
    """Start a query, and wait until its sources have started. Raises what it fails with until then.

    >>> query = start_query(writer.start)
    """
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(STARTS_MAX)):
        query = start()
        try:
            while query.status["message"].startswith(_INITIALIZING):
                query.awaitTermination(_POLL_S)  # type: ignore[arg-type] # it takes parts of seconds, and says so
            if not query.isActive:
                query.awaitTermination()  # raises what it has failed with, if it has
        except StreamingQueryException as error:
            if not left or WORKER_LATE not in str(error):
                raise
            log.warning("query=%s: a Python process of Spark was late; starting it again", query.id)
        else:
            break
    return query
