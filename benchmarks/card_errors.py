"""Print how far one job's completion time by the committed cards is from that by the measured tables.

    python benchmarks/card_errors.py DATA/osdi21 [CARDS]

One row for each model: tuned configurations, one GPU at the initial batch size, and adaptive jobs on every
packed placement of 1 to 64 GPUs; then the errors of the step time by kind of placement, mean and worst, as
the cards state them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from polluxsim.analysis.card_errors import ErrorSummary, completion_errors
from polluxsim.analysis.fit_figure import error_table
from polluxsim.traces.cards import read_cards
from polluxsim.traces.osdi21 import read_profiles

CARDS = Path(__file__).parents[1] / "traces"


def row(name: str, summary: ErrorSummary) -> str:
    worst = summary.worst
    batch_size = "adaptive" if worst.batch_size is None else f"M = {worst.batch_size}"
    return (
        f"{name:12} {len(summary.errors):6} {summary.median:8.2%} {worst.error:+8.2%}  "
        f"K = {worst.num_replicas}, {batch_size}"
    )


def main(measured: Path, folder: Path = CARDS) -> None:
    cards, profiles = read_cards(folder), read_profiles(measured)
    print("model          jobs   median    worst  on")
    for name, profile in profiles.items():
        print(row(name, completion_errors(profile, cards[name], range(1, 65))))
    print()
    print(error_table({name: cards[name].card for name in profiles}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
