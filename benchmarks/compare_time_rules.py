"""What the whole-second rule of the published results changes: `engine=osdi21` against `engine=exact`.

python benchmarks/compare_time_rules.py [--data ../shared/data] [--workloads 1 3 6 8]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.workloads.workload import read_workload

POLICIES = {"pollux": Pollux, "optimus": Optimus, "tiresias": Tiresias}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--workloads", type=int, nargs="+", default=[1, 3, 6, 8])
    options = parser.parse_args()
    osdi21 = Path(options.data) / "osdi21"
    profiles = ProfileFolder(str(osdi21)).load()
    for number in options.workloads:
        workload = read_workload(osdi21 / "workloads" / f"workload-{number}.csv")
        for name, policy in POLICIES.items():
            jct = {}
            for whole_seconds in (True, False):
                settings = EngineSettings(whole_seconds=whole_seconds)
                result = simulate(workload, profiles, Cluster.uniform(16, 4), policy(), settings=settings)
                jct[whole_seconds] = np.array([job.jct for job in result.job_records])
            change = np.abs(jct[False] / jct[True] - 1)
            mean = jct[False].mean() / jct[True].mean() - 1
            print(
                f"workload {number}, {name:8}: mean JCT {jct[True].mean():7.1f} s, exactly {mean:+.2%}; "
                f"jobs: median {np.median(change):.2%}, worst {change.max():.0%}"
            )


if __name__ == "__main__":
    main()
