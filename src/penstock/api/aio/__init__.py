"""The asyncio Python API."""
