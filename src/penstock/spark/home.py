"""A Spark home without PySpark's zip archives, so that Spark's Python workers start in half the time.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on the path of its Python workers. Python keeps no bytecode for
archives: every worker compiles PySpark again, which takes a second of CPU, or two with Spark Connect. A busy machine
then misses the ten seconds that Spark gives a worker to start.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.foundation.private_folder import private_folder

_HOME: Final = "SPARK_HOME"
_LINKED: Final = ("bin", "jars", "sbin")


def slim_home() -> Path:
    """Returns a folder with links to the programs and jars of the installed PySpark, but without its archives."""
    import pyspark

    real = Path(pyspark.__file__).parent
    digest = hashlib.blake2b(f"{pyspark.__version__} {real}".encode(), digest_size=8).hexdigest()
    home = private_folder("spark-home") / digest
    home.mkdir(exist_ok=True)
    for name in _LINKED:
        with suppress(FileExistsError):
            (home / name).symlink_to(real / name)
    return home


@contextmanager
def slim_home_set() -> Iterator[None]:
    """Sets SPARK_HOME while a JVM starts in the `with` block, if its workers run this Python, and it is not set."""
    if _HOME in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        yield
        return
    os.environ[_HOME] = str(slim_home())
    try:
        yield
    finally:
        del os.environ[_HOME]
