"""Makes fsync slow in a broker process that is started with this folder on PYTHONPATH.

Python imports a module of this name at start-up, before anything else. The delay releases the GIL, as a slow device
does: a broker that syncs on a thread does not notice it, one that syncs on its event loop stalls.
"""

import os
import time

DELAY_S = float(os.environ["PENSTOCK_TEST_FSYNC_DELAY_S"])


def _delayed(sync):
    def slow_sync(fd):
        time.sleep(DELAY_S)
        return sync(fd)

    return slow_sync


os.fsync = _delayed(os.fsync)
os.fdatasync = _delayed(os.fdatasync)
