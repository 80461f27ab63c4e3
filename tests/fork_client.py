"""Has the fork server of a test run a Python script, in place of this process: `fork_client.py SCRIPT ARGUMENT...`.

Started by Python without its site module, it costs a tenth of a command that imports its modules.
"""

import json
import os
import signal
import socket
import sys

PID_BYTES = 10


def main() -> int:
    control = socket.socket(fileno=os.dup(int(os.environ["PENSTOCK_TEST_FORK_SERVER"])))
    reading, writing = os.pipe()
    request = {
        "command": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "ignores_interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    }
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    socket.send_fds(control, [json.dumps(request).encode()], [0, 1, 2, writing])
    os.close(writing)
    pid = int(os.read(reading, PID_BYTES))
    for number in signals:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    code = int(os.read(reading, 16))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
