"""Lets a test hang the event loop of a broker process that is started with this folder on PYTHONPATH.

Python imports a module of this name at start-up, before anything else. SIGUSR1 blocks the main thread, which runs the
event loop; all other threads go on, as when a callback never returns.
"""

import signal
import time

signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
