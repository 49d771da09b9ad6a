"""How much shorter Pollux makes jobs than tuned Optimus and Tiresias: default workloads of 20 seeds, with an interval.

python benchmarks/reduction_intervals.py [--seeds 20] [--profiles FOLDER]

Each seed's workload (what `workload=philly-like` draws: 160 jobs over 8 hours, tuned) is run on 16 nodes of 4
GPUs under Pollux at p = -1, Optimus+Oracle and Tiresias. A reduction is 1 - average JCT under Pollux / that under the
other, paired by seed; the 95 % interval is that of its mean over seeds.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.summary import summarise
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.statistics.estimates import mean
from polluxsim.workloads.philly import PhillyLike

POLICIES = {"Pollux": Pollux, "Optimus+Oracle": Optimus, "Tiresias": Tiresias}
METRICS = {"average JCT": "avg_jct", "makespan": "makespan"}
# Source: the runs that the artifact of Pollux (OSDI '21) publishes, mean over its 8 workloads.
PUBLISHED = {("average JCT", "Optimus+Oracle"): 0.516, ("average JCT", "Tiresias"): 0.319}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--profiles", help="folder of profiles (default: the cards that come with polluxsim)")
    options = parser.parse_args()
    profiles = ProfileFolder(options.profiles).load()
    found = {(metric, name): [] for metric in METRICS for name in POLICIES}
    for seed in track(range(options.seeds), "seeds", console=Console(stderr=True)):
        workload = PhillyLike(seed=seed).load(profiles)
        for name, policy in POLICIES.items():
            result = simulate(
                workload, profiles, Cluster.uniform(16, 4), policy(), settings=EngineSettings(), seed=seed
            )
            summary = summarise(result)
            for metric, field in METRICS.items():
                found[metric, name].append(getattr(summary, field))
    table = Table(title=f"{options.seeds} generated workloads of 160 jobs, 16 x 4 GPUs")
    for column in (
        "metric",
        *(f"{name}, h" for name in POLICIES),
        "against",
        "reduction",
        "95 % interval",
        "published",
    ):
        table.add_column(column, justify="left" if column in ("metric", "against") else "right")
    for metric in METRICS:
        means = [f"{np.mean(found[metric, name]) / 3600:.3f}" for name in POLICIES]
        for other in list(POLICIES)[1:]:
            reductions = 1 - np.array(found[metric, "Pollux"]) / np.array(found[metric, other])
            estimate = mean(reductions, least=-np.inf)
            interval = "" if estimate.low is None else f"{estimate.low:.1%} to {estimate.high:.1%}"
            published = PUBLISHED.get((metric, other), math.nan)
            shown = "" if math.isnan(published) else f"{published:.1%}"
            table.add_row(metric, *means, other, f"{estimate.value:.1%}", interval, shown)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
