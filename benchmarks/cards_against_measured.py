"""Whole runs by profile cards against runs by the measured profiles: average JCT of each policy, and their order.

python benchmarks/cards_against_measured.py [--data ../shared/data]

On every published workload that is there: tuned ones at each load, and realistic ones. The cards were fitted to the
profiles and to no workload, so that all of them are held out.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.workloads.workload import read_workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.workload import Workload

POLICIES = {"pollux": Pollux, "optimus": Optimus, "tiresias": Tiresias}


def average_jct(workload: Workload, profiles: Mapping[str, Profile], policy: str) -> float:
    settings = EngineSettings(whole_seconds=True)
    result = simulate(workload, profiles, Cluster.uniform(16, 4), POLICIES[policy](), settings=settings)
    return float(np.mean([job.jct for job in result.job_records]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    osdi21 = Path(parser.parse_args().data) / "osdi21"
    measured, cards = ProfileFolder(str(osdi21)).load(), ProfileFolder().load()
    off = {name: [] for name in POLICIES}
    for path in sorted(osdi21.glob("workloads*/workload-*.csv")):
        workload = read_workload(path)
        by_measured = {name: average_jct(workload, measured, name) for name in POLICIES}
        by_cards = {name: average_jct(workload, cards, name) for name in POLICIES}
        same_order = sorted(POLICIES, key=by_measured.__getitem__) == sorted(POLICIES, key=by_cards.__getitem__)
        for name, errors in off.items():
            errors.append(by_cards[name] / by_measured[name] - 1)
        cells = [f"{name} {by_cards[name]:7.0f} s ({off[name][-1]:+.1%})" for name in POLICIES]
        where = f"{path.parent.name} {path.stem}"
        print(f"{where}: {', '.join(cells)}; order {'the same' if same_order else 'CHANGED'}", flush=True)
    for name, errors in [*off.items(), ("all", np.concatenate(list(off.values())))]:
        spread = f"{min(errors):+.1%} to {max(errors):+.1%}"
        print(f"{name}: {spread}, mean {np.mean(errors):+.1%}, standard deviation {np.std(errors, ddof=1):.1%}")


if __name__ == "__main__":
    main()
