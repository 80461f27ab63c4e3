"""Starts streaming queries, and restarts those whose Python source process missed Spark's start timeout.

Spark runs a Python source in a separate process, which must connect back within ten seconds; the timeout is not
configurable. On a busy machine importing PySpark takes longer, and the query fails before its first batch.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

WORKER_LATE: Final = "Python worker failed to connect back"
STARTS_MAX: Final = 20
_INITIALIZING: Final = "Initializing"
"""Prefix of a query's status message while its sources are starting."""
_POLL_S: Final = 0.1
log = logging.getLogger(__name__)


def start_query(start: Callable[[], "StreamingQuery"]) -> "StreamingQuery":
    """Starts a query and waits for its sources. Restarts it if a source process missed Spark's start timeout.

    >>> query = start_query(writer.start)
    """
    from pyspark.errors import PySparkException

    for left in reversed(range(STARTS_MAX)):
        try:
            query = start()  # with Spark Connect, it waits for the process that runs a foreachBatch function
            while query.status["message"].startswith(_INITIALIZING):
                query.awaitTermination(_POLL_S)  # type: ignore[arg-type] # annotated int, takes float
            if not query.isActive:
                query.awaitTermination()  # raises the query's error, if it failed
        except PySparkException as error:
            if not left or WORKER_LATE not in str(error):
                raise
            log.warning("a Python worker of Spark missed its start timeout; starting the query again")
        else:
            break
    return query
