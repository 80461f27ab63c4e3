"""A Celery application whose broker is a queue: what its workers run, and what a test sends."""

import os
import time

from celery import Celery

HTTP = os.environ.get("QUEUES_HTTP", "127.0.0.1:9324")
QUEUE = os.environ.get("QUEUES_NAME", "celery")
DONE = os.environ.get("TASKS_DONE", os.devnull)
VISIBILITY_S = 5
"""How soon the task of a killed worker is delivered to another one."""

app = Celery("tasks", broker=f"sqs://any:any@{HTTP}//")
app.conf.update(
    broker_transport_options={
        "region": "eu-west-1",
        "is_secure": False,
        "visibility_timeout": VISIBILITY_S,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    },
    broker_connection_retry_on_startup=True,
    task_default_queue=QUEUE,
    task_ignore_result=True,
    # A task is finished when it has run, not when it was taken: else a worker that is killed takes it along.
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,  # which would need fanout
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
)


@app.task(name="note")
def note(number: int, pause_s: float) -> None:
    """Take a while, then note that it is done: one write, so that lines of several workers do not mix."""
    time.sleep(pause_s)
    fd = os.open(DONE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, b"%d %d\n" % (number, os.getpid()))
    finally:
        os.close(fd)
