"""RabbitMQ from the system's packages: one node, its own defaults, nothing kept outside its folder."""

import shutil
from pathlib import Path
from typing import Final

from bench.cache import NotRun
from bench.process import Process, free_port

PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The one on the PATH changes to a user of its own, who may not write here."""


class RabbitMq:
    name = "RabbitMQ"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None
        self._mapper: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        assert self._process is not None
        return self._process.port

    def start(self) -> None:
        mapper = shutil.which("epmd")
        if mapper is None or not PROGRAM.exists():
            raise NotRun("RabbitMQ is not installed: apt-get install rabbitmq-server")
        self._folder.mkdir(parents=True, exist_ok=True)
        port, mapper_port = free_port(), free_port()
        # Erlang's port mapper would outlive the process that starts it first: this one is ours to stop.
        command = [mapper, "-address", "127.0.0.1", "-port", str(mapper_port)]
        self._mapper = Process(command, self._folder / "epmd", mapper_port)
        self._mapper.wait_for_port()
        self._process = Process([PROGRAM], self._folder / "stderr", port, self._environment(port, mapper_port))
        self._process.wait_for_port()

    def _environment(self, port: int, mapper_port: int) -> dict[str, str]:
        folder = self._folder
        return {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-environment"),
            "RABBITMQ_CONFIG_FILE": str(folder / "no-configuration"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }

    def stop(self) -> None:
        for process in (self._process, self._mapper):
            if process is not None:
                process.stop()
        self._process = self._mapper = None
