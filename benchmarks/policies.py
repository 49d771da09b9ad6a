"""Every policy: the lines of its class, and the processor time of 160 jobs on 16 nodes of 4 GPUs.

    python benchmarks/policies.py [POLICY …]

Time is that of a second run, so that nothing is compiled in it. Policies that share GPUs run with the way to share that
they need, autoscalers with their one job; `replay` needs a file and is left out.
"""

from __future__ import annotations

import sys
from inspect import getsourcelines
from time import process_time
from typing import TYPE_CHECKING

from hydra.utils import get_class
from omegaconf import OmegaConf

import polluxsim
from polluxsim.common.shipped import shipped
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved, Leftovers

if TYPE_CHECKING:
    from polluxsim.api.results import Result

SHARING = {"antman": Leftovers(), "muri-s": Interleaved(), "muri-l": Interleaved()}


def simulated(name: str) -> Result:
    """Run a policy on the default workload, or on what it is for."""
    if name.startswith("autoscale"):
        return polluxsim.simulate(polluxsim.workload("one-job"), policy=name, cluster="elastic", progress=False)
    policy = polluxsim.policy(name, packing=False) if name == "gandiva" else name
    settings = EngineSettings(sharing=SHARING[name]) if name in SHARING else None
    return polluxsim.simulate(policy=policy, settings=settings, progress=False)


def main() -> None:
    folder = shipped("configs") / "policy"
    names = sys.argv[1:] or sorted(path.stem for path in folder.glob("*.yaml") if path.stem != "replay")
    print(f"{'policy':<24}{'class':<22}{'lines':>6}{'time [s]':>10}{'mean JCT [min]':>16}")
    for name in names:
        target = get_class(OmegaConf.load(folder / f"{name}.yaml")["_target_"])
        simulated(name)
        begun = process_time()
        run = simulated(name)
        seconds = process_time() - begun
        lines = sum(not line.startswith("@") for line in getsourcelines(target)[0])
        jct = run.jobs.jct.mean() / 60
        print(f"{name:<24}{target.__name__:<22}{lines:>6}{seconds:>10.2f}{jct:>16.1f}", flush=True)


if __name__ == "__main__":
    main()
