"""Write the page about the history of benchmarks from `benchmarks/history.csv`.

python docs/history.py > docs/history.md
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

HISTORY = Path(__file__).parents[1] / "benchmarks" / "history.csv"

FIRST_LINES = """# History of benchmarks

Each row is a release, or a commit that claims speed. The counts of instructions are those of one simulation of the
default workload, 160 jobs on 16 nodes. Other work of the machine does not change them, but it changes times, which are
therefore not listed. `python benchmarks/instructions.py --row NOTE` measures a row, and `python docs/history.py` writes
this page from `benchmarks/history.csv`.
"""


def page() -> str:
    """Return the page in Markdown."""
    with HISTORY.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0])
    lines = [FIRST_LINES]
    lines.append(_line(names))
    lines.append(_line("---" if name in ("date", "commit", "note") else "---:" for name in names))
    for row in rows:
        lines.append(_line(row[name] for name in names))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page())
