"""The published values of single workloads, as experiments/published_runs.csv has them, from the artifact's own files.

python benchmarks/published_runs.py [--data ../shared/data/osdi21] > experiments/published_runs.csv

Of the tuned workloads from results-*/*/summary.json; of the realistic ones, of which the artifact has inputs only, from
reruns of it in published/jct.csv. Computed with Python's own statistics, not with polluxsim's metrics.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, quantiles

COLUMNS = ("run", "workload", "average JCT", "99th percentile JCT", "mean JCT imagenet", "last completion", "source")
RERUNS = ("optimus", "tiresias")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("POLLUXSIM_DATA", "../shared/data")) / "osdi21"
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(parser.parse_args().data))


def rows(osdi21: Path) -> list[list[object]]:
    found = []
    for path in sorted(osdi21.glob("results-*/*/summary.json")):
        run = path.parent.relative_to(osdi21).as_posix()
        summary = json.loads(path.read_text())
        for name, jct in sorted(summary["jcts"].items()):
            values = of_run(jct, workload_of(osdi21, run, name))
            assert abs(values[0] - summary["avgs"][name]) < 1e-6
            found.append([run, name.removeprefix("workload-"), *values, "published run of the artifact (OSDI 21)"])
    for (policy, workload), jct in sorted(reruns(osdi21).items()):
        path = osdi21 / "workloads-realistic" / f"workload-{workload}.csv"
        found.append([f"rerun/{policy}-realistic", workload, *of_run(jct, path), "rerun of the artifact (OSDI 21)"])
    return found


def workload_of(osdi21: Path, run: str, name: str) -> Path:
    load = run.rpartition("-")[2] if run.startswith("results-jobload") else "1.0"
    return osdi21 / ("workloads" if load == "1.0" else f"workloads-{load}") / f"{name}.csv"


def reruns(osdi21: Path) -> dict[tuple[str, str], dict[str, float]]:
    found = defaultdict[tuple[str, str], dict[str, float]](dict)
    with (osdi21 / "published" / "jct.csv").open() as file:
        for row in csv.DictReader(file):
            if row["workload_set"] == "workloads-realistic" and row["policy"] in RERUNS:
                found[row["policy"], row["workload"]][row["job"]] = float(row["jct_s"])
    return found


def of_run(jct: dict[str, float], workload: Path) -> list[object]:
    with workload.open() as file:
        jobs = list(csv.DictReader(file))
    assert {job["name"] for job in jobs} == set(jct)
    large = [jct[job["name"]] for job in jobs if job["application"] == "imagenet"]
    last = max(float(job["time"]) + jct[job["name"]] for job in jobs)
    tail = quantiles(jct.values(), n=100, method="inclusive")[98]
    return [fmean(jct.values()), round(tail, 6), fmean(large) if large else "", last]


if __name__ == "__main__":
    main()
