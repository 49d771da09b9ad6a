"""Check a policy in random worlds, and show each of its faults in the smallest world that has it."""

from polluxsim.checks.checking import check, checked_world
from polluxsim.checks.findings import Finding
from polluxsim.checks.worlds import World

__all__ = ["Finding", "World", "check", "checked_world"]
