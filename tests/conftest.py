"""Of all tests: how long an example takes depends on what else the machine does, and says nothing about the code."""

from hypothesis import HealthCheck, settings

settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")
