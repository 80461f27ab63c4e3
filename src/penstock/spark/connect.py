"""Connects to Spark Connect servers, and reports why a server cannot be used."""

import logging
import socket
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.errors import SparkFailed, SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SCHEME: Final = "sc://"
PORT_DEFAULT: Final = 15002
_CONNECT_S: Final = 10.0
"""Seconds to wait for the TCP connection: a refused one fails at once, one that a firewall drops does not."""
_ANSWER_S: Final = 45.0
"""Seconds to wait for the first answer, which takes a busy server half a minute after its start."""


class FolderNotShared(PenstockError):
    """The Spark Connect server does not see a folder of this machine."""


def is_connect(address: str) -> bool:
    """Returns whether a Spark master is a Spark Connect server.

    >>> is_connect("sc://localhost:15002")
    True
    """
    return address.startswith(SCHEME)


def is_connect_session(spark: "SparkSession") -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def connect(name: str, remote: str, settings: Mapping[str, str]) -> "SparkSession":
    """Connects to a Spark Connect server. A setting that only its start can change is left, with a warning."""
    if find_spec("pyspark") is None or find_spec("grpc") is None or find_spec("grpc_status") is None:
        raise SparkMissing("Spark Connect is not installed: pip install 'penstock[connect]'")
    from pyspark.core.context import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SparkFailed(f"cannot connect to {remote}: this process has a Spark session of its own; stop that first")
    try:
        check_server(remote)
        spark = SparkSession.builder.appName(f"penstock {name}").remote(remote).getOrCreate()
        for key, value in settings.items():
            if spark.conf.get(key, None) == value:
                continue
            if spark.conf.isModifiable(key):
                spark.conf.set(key, value)
            else:
                log.warning("%s keeps its own %s: it is set where the server starts", without_token(remote), key)
    except PySparkException as error:
        raise SparkFailed(f"cannot connect to {without_token(remote)}: {_first_line(error)}") from error
    return spark


def check_server(remote: str) -> None:
    """Raises SparkFailed unless a Spark Connect server answers. Spark's own client would retry for many minutes."""
    import grpc
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.proto import base_pb2 as messages
    from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

    builder = DefaultChannelBuilder(remote)
    host, address = builder.host.strip("[]"), without_token(remote)
    try:
        socket.create_connection((host, int(builder.endpoint.rpartition(":")[2])), timeout=_CONNECT_S).close()
    except OSError as error:
        raise SparkFailed(
            f"there is no Spark Connect server at {address}: {error.strerror or error}; start one, or correct the "
            "address"
        ) from None
    session = str(uuid.uuid4())
    user = messages.UserContext(user_id=builder.userId or "")
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ANSWER_S)
            server = SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
            asked = messages.AnalyzePlanRequest(
                session_id=session,
                user_context=user,
                spark_version=messages.AnalyzePlanRequest.SparkVersion(),
            )
            server.AnalyzePlan(asked, timeout=_ANSWER_S, metadata=builder.metadata())
            left = messages.ReleaseSessionRequest(session_id=session, user_context=user)
            server.ReleaseSession(left, timeout=_ANSWER_S, metadata=builder.metadata())
        except grpc.FutureTimeoutError:
            raise SparkFailed(f"{address} is no Spark Connect server: it does not answer") from None
        except grpc.RpcError as error:
            raise SparkFailed(f"{address} cannot be used as a Spark Connect server: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """Returns the cause of a failed call in words of a user."""
    import grpc

    match error.code():
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return "it refuses the token; give the right one as sc://HOST:PORT/;token=TOKEN"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"it did not answer within {_ANSWER_S:.0f} s"
        case code:
            return f"{code.name}: {(error.details() or 'no details').splitlines()[0]}"


def without_token(remote: str) -> str:
    """Returns the address without its parameters, one of which may be a token."""
    return remote.partition("/;")[0]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_shared(spark: "SparkSession", folder: Path) -> None:
    """Raises FolderNotShared if a Spark Connect server does not see files of this machine in `folder`."""
    if not is_connect_session(spark):
        return
    from pyspark.errors import AnalysisException

    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f"_probe-{uuid.uuid4().hex}"
    probe.touch()
    try:
        spark.read.text(str(probe)).schema  # noqa: B018 - the server looks for the file
    except AnalysisException as error:
        raise FolderNotShared(
            f"the Spark Connect server does not see the folder {folder} of this machine; use a folder on "
            "storage that both share"
        ) from error
    finally:
        probe.unlink()
