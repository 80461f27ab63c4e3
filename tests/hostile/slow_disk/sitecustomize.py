"""Makes fsync, or writing, slow in a broker process that is started with this folder on PYTHONPATH.

Python imports a module of this name at start-up, before anything else. The delay releases the GIL, as a slow device
does: a broker that syncs on a thread does not notice it, one that syncs on its event loop stalls. Such calls are
reported on stderr with their stack. A slow write stalls the event loop: logs are written on it.
"""

import os
import sys
import time
import traceback

DELAY_S = float(os.environ["PENSTOCK_TEST_FSYNC_DELAY_S"])
WRITE_DELAY_S = float(os.environ["PENSTOCK_TEST_WRITE_DELAY_S"])
_pwrite = os.pwrite


def _delayed(sync):
    def slow_sync(fd):
        events = sys.modules.get("asyncio.events")
        if events is not None and events._get_running_loop() is not None:
            sys.stderr.write(f"fsync on the event loop:\n{''.join(traceback.format_stack(limit=12))}")
        time.sleep(DELAY_S)
        return sync(fd)

    return slow_sync


def _slow_pwrite(fd, data, offset):
    time.sleep(WRITE_DELAY_S)
    return _pwrite(fd, data, offset)


if DELAY_S:
    os.fsync = _delayed(os.fsync)
    os.fdatasync = _delayed(os.fdatasync)
if WRITE_DELAY_S:
    os.pwrite = _slow_pwrite
