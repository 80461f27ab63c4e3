"""ElasticMQ from Maven Central: its own server with its own defaults, which keep messages in memory."""

from pathlib import Path
from typing import Final

from bench.peers.maven import jars_of
from bench.process import Process, free_port

VERSION: Final = "1.7.1"

CONFIG: Final = """\
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1" }}
rest-stats {{ enabled = false }}
"""
LOGBACK: Final = """\
<configuration><root level="WARN"/></configuration>
"""
"""Nothing is said about requests."""


class ElasticMq:
    name = "ElasticMQ"
    forgets_deletions = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def http_port(self) -> int:
        assert self._process is not None
        return self._process.port

    def start(self) -> None:
        jars = jars_of("elasticmq", "org.elasticmq", "elasticmq-server_2.13", VERSION)
        self._folder.mkdir(parents=True, exist_ok=True)
        port, config, logback = free_port(), self._folder / "elasticmq.conf", self._folder / "logback.xml"
        config.write_text(CONFIG.format(port=port))
        logback.write_text(LOGBACK)
        command = [
            "java",
            f"-Dconfig.file={config}",
            f"-Dlogback.configurationFile={logback}",
            "-cp",
            f"{jars}/*",
            "org.elasticmq.server.Main",
        ]
        self._process = Process(command, self._folder / "stderr", port)
        self._process.wait_for_port()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
