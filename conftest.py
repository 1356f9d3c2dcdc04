"""What holds for the tests of all packages."""

from hypothesis import HealthCheck, settings

# A test may be slow because the machine is busy: only hypothesis' counts matter, not its clocks.
settings.register_profile("causeway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("causeway")
