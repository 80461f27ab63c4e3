"""The queue chapter of `penstock demo`: workers of the Python API process a queue."""

import logging
import threading
from contextlib import ExitStack
from typing import Final

import click

IDLE_S: Final = 2.0
_SHOWN: Final = """\
  for job in mq.queue("{queue}").work():
      handle(job.body)                        # deleted when it returns, released when it raises"""


def process_queue(bootstrap: str, queue: str, workers: int, poison: str | None) -> int:
    """Runs worker threads until the queue is idle; returns how many messages they handled. Handling a message
    whose body is `poison` always fails."""
    import penstock  # imported here: other commands do not need the client library

    logging.getLogger("penstock.api").addHandler(logging.NullHandler())  # failures are printed below
    click.secho(_SHOWN.format(queue=queue), fg="cyan")
    done = [0] * workers
    lock = threading.Lock()

    def work(number: int, mq: penstock.Connection) -> None:
        def handle(job: penstock.Job) -> None:
            if job.body == poison:
                with lock:
                    click.echo(f"  worker {number + 1} fails at {job.body!r}, receive {job.receive_count}")
                raise ValueError(job.body)

        done[number] = mq.queue(queue).work(handle, visibility="30s", backoff=0, idle_timeout_s=IDLE_S)

    with ExitStack() as connections:  # if the tour is interrupted, workers end with their connections
        threads = [
            threading.Thread(target=work, args=(number, connections.enter_context(penstock.connect(bootstrap))))
            for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, count in enumerate(done):
        click.echo(f"  worker {number + 1} processed {count}")
    return sum(done)
