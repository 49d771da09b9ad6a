"""Check the shipped policies in many drawn worlds, and measure the CPU time.

    python benchmarks/check_worlds.py [--worlds 1000] [--policies fifo quotas] [--first 0]

It prints a line for each policy: the findings and the CPU time. Each finding follows with the code of its world. The
exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from time import process_time

from polluxsim.checks.checking import checked_world
from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.common.errors import PolluxSimError
from polluxsim.common.shipped import shipped
from polluxsim.policies.contract.policy import traits_of
from polluxsim.run.named_policies import named_policy

NEED_A_RUN = {"replay"}
"""Policies that cannot run without a recorded run."""

SHIPPED = sorted({path.stem for path in (shipped("configs") / "policy").glob("*.yaml")} - NEED_A_RUN)


def main() -> None:
    run_checks(__doc__, 1000, "worlds", _check)


def run_checks(
    description: str | None, count: int, what: str, check: Callable[[str, range], Mapping[object, tuple[int, Finding]]]
) -> None:
    """Check the policies that the command line names, and exit with status 1 if there are findings.

    `check` returns the findings of a policy in worlds of some numbers: the first of each fault, with its number. By
    default there are `count` worlds. `what` names them in the last line.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--policies", nargs="*", help="default: all shipped policies")
    options = parser.parse_args()
    names = options.policies or SHIPPED
    numbers = range(options.first, options.first + options.worlds)
    total = 0
    for name in names:
        started = process_time()
        findings = check(name, numbers)
        total += len(findings)
        print(f"{name:22} {len(findings):2} findings, {process_time() - started:6.1f} s", flush=True)
        for number, finding in findings.values():
            print(f"    world {number}: {finding.fault}: {finding.message}", flush=True)
    print(f"{total} findings of {len(names)} policies in {len(numbers)} {what} each")
    sys.exit(total > 0)


def _check(name: str, numbers: range) -> dict[object, tuple[int, Finding]]:
    """Return the first finding of each fault of a policy, with the number of its world."""
    guest = named_policy(name)
    allowed = Allowed.under(traits_of(guest.make()))
    findings = dict[object, tuple[int, Finding]]()
    for number in numbers:
        world = with_parameters(random_world(number, allowed), guest, number)
        try:
            for finding in checked_world(guest, world):
                findings.setdefault(finding.kind, (number, finding))
        except PolluxSimError as error:
            findings.setdefault(("world", str(error)), (number, Finding(Fault.ERROR, str(error))))
    return findings


if __name__ == "__main__":
    main()
