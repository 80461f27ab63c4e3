"""The process that parses and compares schemas: `python -m penstock.broker.schemas.check_worker`.

It reads jobs from standard input and writes results to standard output, each with its length in front. A job that
takes too long or too much memory is refused, and the broker is not affected.
"""

import os
import resource
import signal
import struct
import sys
from typing import Final

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.registry.check_codec import decode_job, encode_result
from penstock.schemas.registry.check_runner import run

CPU_S: Final = 5.0
"""Maximum CPU time of one job, in seconds."""
MEMORY_BYTES: Final = 1 << 30
"""Maximum address space of the process."""
LENGTH: Final = struct.Struct("!I")
_NICE: Final = 5


class _TooExpensive(BaseException):
    """Raised in the middle of a job when it has used its CPU time. Not an Exception, so that no job catches it."""


def _stop(signal_number: int, frame: object) -> None:
    raise _TooExpensive


def _answer(data: bytes) -> bytes:
    """Runs one job and returns its encoded result."""
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        return encode_result(run(decode_job(data)))
    except InvalidSchema as error:
        return encode_result(error)
    except _TooExpensive:
        return encode_result(InvalidSchema(f"the schema takes more than {CPU_S:g} s to check; make it simpler"))
    except RecursionError:
        return encode_result(InvalidSchema("the schema is nested too deeply"))
    except MemoryError:
        return encode_result(InvalidSchema("the schema takes too much memory to check; make it smaller"))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)
    signal.signal(signal.SIGPROF, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal stops the broker, which then closes the pipe
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        answer = _answer(source.read(size))
        target.write(LENGTH.pack(len(answer)) + answer)
        target.flush()


if __name__ == "__main__":
    main()
