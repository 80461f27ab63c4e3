"""The part of the Python API that threads and asyncio share."""
