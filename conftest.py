"""What holds for all tests."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["anabranch_testing.keeper_fixtures"]

# Tests run beside each other, on whatever machine there is: how long an example takes says nothing.
settings.register_profile("anabranch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("anabranch")
