"""Apply forks that change nothing to drawn runs, and check that all records stay the same, byte for byte.

    python benchmarks/identities.py [--runs 12] [--times 3] [--kind failures] [--show]

The runs are of the kinds in `tests/engine/kinds.py`. Each run is stopped at random times, at the ends of jobs, and at
rounds. At each time, every identity of `tests/engine/forks.py` is applied to a copy of the run. Every other fork is
applied, too: the records from before the fork must stay the same. The default is 324 pairs of a run and a time, which
take some minutes on one core. The exit status is 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "engine")]

from forks import CHANGES, IDENTITIES, changes_of_the_past, differences, points  # noqa: E402
from kinds import KINDS  # noqa: E402

if TYPE_CHECKING:
    from forks import Point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12, help="runs of each kind")
    parser.add_argument("--times", type=int, default=3, help="times of each run")
    parser.add_argument("--kind", choices=KINDS, help="this kind of run only")
    parser.add_argument("--show", action="store_true", help="print the first difference of each fork")
    options = parser.parse_args()
    table = Table()
    for kind in [options.kind] if options.kind else KINDS:
        for number in range(options.runs):
            for point in points(kind, number, options.times):
                table.add(kind, point, show=options.show)
    table.print()
    sys.exit(any(table.different.values()))


class Table:
    """Counts of forks and of forks with differences, by kind of run and by fork."""

    def __init__(self) -> None:
        self.pairs = Counter[str]()
        self.applied = Counter[tuple[str, str]]()
        self.different = Counter[tuple[str, str]]()
        self.policies: set[str] = set()

    def add(self, kind: str, point: Point, *, show: bool) -> None:
        """Make all forks of a run at a time."""
        self.pairs[kind] += 1
        self.policies.add(type(point.policy).__name__)
        for name in (*IDENTITIES, *CHANGES):
            try:
                found = compared(name, point)
            except Exception as error:  # noqa: BLE001  (a fork that fails is a difference)
                found = [f"{type(error).__name__}: {error}"]
            if found is None:
                continue
            self.applied[kind, name] += 1
            self.different[kind, name] += bool(found)
            if show and found:
                print(f"{point.world.name}, {point.time:.3f} s, {name}: {found[0]}")

    def print(self) -> None:
        """Print a row for each fork, with the number of forks of each kind of run, and of those with differences."""
        print(f"{sum(self.pairs.values())} pairs of a run and a time, {len(self.policies)} policies")
        print("forks with differences of forks applied:")
        kinds = list(self.pairs)
        for title, names in (("all records", IDENTITIES), ("records from before the fork", CHANGES)):
            print(f"\n{title:30}", *(f"{kind:>15}" for kind in kinds), f"{'all':>10}")
            for name in names:
                counts = [(self.different[kind, name], self.applied[kind, name]) for kind in kinds]
                counts.append((sum(count for count, _ in counts), sum(count for _, count in counts)))
                cells = [f"{different}/{applied}" for different, applied in counts]
                print(f"{name:30}", *(f"{cell:>15}" for cell in cells[:-1]), f"{cells[-1]:>10}")


def compared(name: str, point: Point) -> list[str] | None:
    """Return the differences that a fork makes and must not make; None if the fork is impossible."""
    if name in IDENTITIES:
        other = IDENTITIES[name](point)
        return None if other is None else differences(point.whole, other)
    other = CHANGES[name](point)
    return None if other is None else changes_of_the_past(point.whole, other, point.time)


if __name__ == "__main__":
    main()
