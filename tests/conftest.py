"""Of all tests: how long an example takes depends on what else the machine does, and says nothing about the code."""

from hypothesis import settings

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
