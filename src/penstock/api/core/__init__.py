"""Code shared by the blocking and the asyncio Python API."""
