"""A process that holds leased keys until it is killed: `python holder.py <url> <folder> <ttl_s> <key>...`.

SIGUSR1 makes its event loop hang; its other threads go on.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path

from penstock.coordination.store import ABSENT, Put
from penstock.coordination.stores import open_store


async def hold(url: str, folder: str, ttl_s: str, *keys: str) -> None:
    store = await open_store(url, Path(folder), float(ttl_s))
    await store.transact([Put(key, b"held", ABSENT, leased=True) for key in keys])
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, time.sleep, 600)
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(hold(*sys.argv[1:]))
