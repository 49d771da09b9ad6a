"""Jobs that odd things happen to, and the policies that anybody can ask for."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from polluxsim.common.shipped import shipped

if TYPE_CHECKING:
    import random
    from pathlib import Path

POLICIES = sorted({path.stem for path in (shipped("configs") / "policy").glob("*.yaml")} - {"replay", "synergy"})


def write_jobs(
    path: Path,
    rng: random.Random,
    count: int = 12,
    share_profiled: float | None = None,
    earlier: random.Random | None = None,
) -> list[str]:
    """Write jobs that wait for others, give up, are late or take too long; return their names.

    A share of None is drawn. With `earlier`, some jobs run or wait at the start of the run.
    """
    rows: list[dict[str, object]] = []
    time = 0
    if share_profiled is None:
        share_profiled = rng.choice((0.0, 0.8, 1.0))
    for index in range(count):
        time += rng.choice((0, 0, 10, 60, 300, 900))
        row: dict[str, object] = {"name": f"j{index}", "time": time, "num_replicas": rng.choice((1, 1, 2, 4, 8))}
        if rng.random() < share_profiled:
            name, batch_size = rng.choice((("cifar10", 128), ("ncf", 32768), ("bert", 24), ("cifar10", 512)))
            row |= {"application": name, "batch_size": batch_size, "num_replicas": rng.choice((1, 2, 4))}
        else:
            row["duration"] = rng.choice((30, 600, 4000, 20000))
        row |= {"user": rng.choice(("ada", "bob", "")), "queue": rng.choice(("", "a", "b"))}
        row |= {"priority": rng.choice(("", 1, -1)), "deadline": rng.choice(("", "", time + 100, time + 3000))}
        row["cancel_time"] = time + rng.choice((0, 5, 100, 2000)) if rng.random() < 0.3 else ""
        row["time_limit"] = rng.choice((50, 600, 5000)) if rng.random() < 0.25 else ""
        row["after"] = rng.choice(rows)["name"] if rows and rng.random() < 0.25 else ""
        if earlier is not None and earlier.random() < 0.4:
            row |= _from_before(row, earlier)
        rows.append(row)
    columns = dict.fromkeys(name for row in rows for name in row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return [str(row["name"]) for row in rows]


def _from_before(row: dict[str, object], rng: random.Random) -> dict[str, object]:
    """Return the columns of a job that was submitted before the start of the run."""
    ran, waited = rng.choice((10, 300)), rng.choice((0, 40, 7000))
    columns: dict[str, object] = {
        "time": -ran - waited - 1,
        "past_state": rng.choice(("running", "running", "pending")),
    }
    if columns["past_state"] == "running":
        columns |= {"past_started": -ran, "past_progress": 10, "after": ""}
    return columns
