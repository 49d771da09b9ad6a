"""Apply identities, forks that change nothing, to drawn runs, and compare all records byte for byte.

    python benchmarks/identities.py [--runs 12] [--times 3] [--kind failures] [--show]

The runs are of the kinds in `tests/engine/kinds.py`. Each run is stopped at random times, at the ends of jobs, and at
rounds. At each time, the script applies

- every identity of `tests/engine/forks.py`;
- every identity at a later time, after a random fork that is no identity;
- every fork that is no identity. It must keep the records from before the fork.

The default is 324 pairs of a run and a time, which take some minutes on one core. The exit status is 1 if there is a
difference.
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
    from collections.abc import Callable

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


def identity(name: str, point: Point) -> list[str] | None:
    """Return the differences that an identity makes; None if it is impossible."""
    change = IDENTITIES[name](point)
    return None if change is None else differences(point.whole, point.result_of(change))


def later_identity(name: str, point: Point) -> list[str] | None:
    """Return the differences that an identity makes after a random fork; None if one of them is impossible."""
    change = point.rng.choice(list(CHANGES.values()))(point)
    later = None if change is None else point.after(change)
    return None if later is None else identity(name, later)


def past(name: str, point: Point) -> list[str] | None:
    """Return the differences in the records from before a fork that is no identity; None if it is impossible."""
    change = CHANGES[name](point)
    return None if change is None else changes_of_the_past(point.whole, point.result_of(change), point.time)


CHECKS: dict[str, tuple[Callable[[str, Point], list[str] | None], list[str]]] = {
    "all records": (identity, list(IDENTITIES)),
    "all records after another fork": (later_identity, list(IDENTITIES)),
    "records from before the fork": (past, list(CHANGES)),
}


class Table:
    """Counts of forks and of forks with differences, by check, fork and kind of run."""

    def __init__(self) -> None:
        self.pairs = Counter[str]()
        self.applied = Counter[tuple[str, str, str]]()
        self.different = Counter[tuple[str, str, str]]()
        self.policies: set[str] = set()

    def add(self, kind: str, point: Point, *, show: bool) -> None:
        """Make all checks of a run at a time."""
        self.pairs[kind] += 1
        self.policies.add(type(point.policy).__name__)
        for title, (check, names) in CHECKS.items():
            for name in names:
                try:
                    found = check(name, point)
                except Exception as error:  # noqa: BLE001  (a fork that fails is a difference)
                    found = [f"{type(error).__name__}: {error}"]
                if found is None:
                    continue
                self.applied[title, name, kind] += 1
                self.different[title, name, kind] += bool(found)
                if show and found:
                    print(f"{point.name}, {point.time:.3f} s, {name}, {title}: {found[0]}")

    def print(self) -> None:
        """Print a table for each check, with the forks that have differences and all forks of each kind of run."""
        print(f"{sum(self.pairs.values())} pairs of a run and a time, {len(self.policies)} policies")
        kinds = list(self.pairs)
        for title, (_, names) in CHECKS.items():
            print(f"\n{title:30}", *(f"{kind:>15}" for kind in kinds), f"{'all':>10}")
            for name in names:
                counts = [(self.different[title, name, kind], self.applied[title, name, kind]) for kind in kinds]
                counts.append((sum(count for count, _ in counts), sum(count for _, count in counts)))
                cells = [f"{different}/{applied}" for different, applied in counts]
                print(f"{name:30}", *(f"{cell:>15}" for cell in cells[:-1]), f"{cells[-1]:>10}")


if __name__ == "__main__":
    main()
