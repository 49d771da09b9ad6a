"""`polluxsim check`: looks for faults of a policy in worlds drawn at random."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

FAULTS = 1
"""Exit status where a fault was found."""

STEP = 20
"""Worlds between two looks at the progress."""

CLEAR = "\r\x1b[K"


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Test a policy in many small random clusters and workloads. Print each fault and a test with the smallest case "
        "that has it. Then measure the time of a decision with thousands of jobs."
    )
    parser.epilog = "Example: polluxsim check mine.py:MyPolicy --worlds 200"
    parser.add_argument("policy", metavar="POLICY", help="your class as mine.py:MyPolicy, or the name of a policy")
    parser.add_argument("--worlds", type=int, default=1000, metavar="N",
                        help="number of random cases (default: %(default)s)")  # fmt: skip
    parser.add_argument("--decision-timeout", type=float, metavar="SECONDS", help="longest time of one decision")
    parser.set_defaults(action=_check)


def _check(options: Namespace) -> int:
    from polluxsim.checks.apart import found_apart

    if options.worlds < 0:
        raise InvalidConfigError(f"--worlds is {options.worlds}, allowed is a whole number ≥ 0")
    if options.decision_timeout is not None and not options.decision_timeout > 0:
        raise InvalidConfigError(f"--decision-timeout is {options.decision_timeout}, allowed is a number > 0")
    faults = 0
    for told in found_apart(options.policy, options.worlds, options.decision_timeout):
        if not isinstance(told, int):
            faults += 1
            print(f"{CLEAR * sys.stderr.isatty()}{told[0]}\n\n{told[1]}", flush=True)
        elif sys.stderr.isatty() and told % STEP == 0:
            print(f"{CLEAR}world {told:,} of {options.worlds:,}", end="", file=sys.stderr, flush=True)
    print(f"{options.policy}: {faults or 'no'} fault{'s' * (faults != 1)} found in {options.worlds:,} worlds")
    return FAULTS if faults else 0
