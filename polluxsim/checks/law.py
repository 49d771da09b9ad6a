"""A law of scheduling that a policy must keep."""

from __future__ import annotations

from collections.abc import Iterator

from polluxsim.checks.findings import Finding
from polluxsim.policies.contract.reasons import RoundSeen
from polluxsim.records.results import Result

SLACK = 1e-6  # times may differ by this share, for rounding


class Law:
    """A law about a run. It checks every round, and then the result."""

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield the faults of one round."""
        yield from ()

    def check_end(self, result: Result) -> Iterator[Finding]:
        """Yield the faults of the whole run."""
        yield from ()
