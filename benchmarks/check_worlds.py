"""Check the shipped policies in many drawn worlds, and measure the CPU time.

    python benchmarks/check_worlds.py [--worlds 1000] [--policies fifo quotas] [--first 0]

It prints a line for each policy: the findings and the CPU time. Each finding follows with the code of its world. The
exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import sys
from time import process_time

from polluxsim.checks.checking import checked_world
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.worlds import Allowed, drawn
from polluxsim.common.errors import PolluxSimError
from polluxsim.common.shipped import shipped
from polluxsim.policies.contract.view import traits_of
from polluxsim.run.composing import named_policy

NEED_A_RUN = {"replay"}
"""Policies that cannot run without a recorded run."""

SHIPPED = sorted({path.stem for path in (shipped("configs") / "policy").glob("*.yaml")} - NEED_A_RUN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--policies", nargs="*", help="default: all shipped policies")
    options = parser.parse_args()
    names = options.policies or SHIPPED
    numbers = range(options.first, options.first + options.worlds)
    found = [_check(name, numbers) for name in names]
    print(f"{sum(found)} findings of {len(names)} policies in {len(numbers)} worlds each")
    sys.exit(any(found))


def _check(name: str, numbers: range) -> int:
    """Print the first finding of each fault of a policy; return the number of faults."""
    guest = named_policy(name)
    allowed = Allowed.under(traits_of(guest.make()))
    started, findings = process_time(), {}
    for number in numbers:
        world = with_parameters(drawn(number, allowed), guest, number)
        try:
            for finding in checked_world(guest, world):
                findings.setdefault(finding.kind, (number, finding))
        except PolluxSimError as error:
            findings.setdefault(("world", str(error)), (number, error))
    print(f"{name:22} {len(findings):2} findings, {process_time() - started:6.1f} s", flush=True)
    for number, finding in findings.values():
        print(f"    world {number}: {getattr(finding, 'fault', 'error')}: {getattr(finding, 'message', finding)}")
    sys.stdout.flush()
    return len(findings)


if __name__ == "__main__":
    main()
