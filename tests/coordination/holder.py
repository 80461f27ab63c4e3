"""A process that holds leased keys: `python holder.py <url> <folder> <ttl_s> <key>...`. It is there to be killed."""

import asyncio
import sys
from pathlib import Path

from penstock.coordination.opening import open_store
from penstock.coordination.store import ABSENT, Put


async def hold(url: str, folder: str, ttl_s: str, *keys: str) -> None:
    store = await open_store(url, Path(folder), float(ttl_s))
    await store.transact([Put(key, b"held", ABSENT, leased=True) for key in keys])
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(hold(*sys.argv[1:]))
