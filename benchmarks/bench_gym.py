"""Steps a second of the environment on one core under actions like FIFO's, on 64 GPUs, and where the time goes.

`python benchmarks/bench_gym.py [--episodes N] [--profile]`. CPU time, without resets; of it the engine's own, which is
all of `advance` and `commit`.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from time import process_time
from typing import Any

import numpy as np

import polluxsim
from polluxsim.engine.simulation import Simulation
from polluxsim.gym import ClusterEnv

LOADS = {
    "philly-like, 160 jobs in 8 h": polluxsim.workload("philly-like"),
    "philly-like-rigid, 24 h": polluxsim.workload("philly-like-rigid", hours=24),
}


class Stopwatch:
    """Adds up the CPU time of some methods."""

    def __init__(self, *methods: str) -> None:
        self.seconds = 0.0
        for name in methods:
            setattr(Simulation, name, self._timed(getattr(Simulation, name)))

    def _timed(self, method: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            started = process_time()
            try:
                return method(*arguments)
            finally:
                self.seconds += process_time() - started

        return timed


def steps_of(env: ClusterEnv, seed: int) -> tuple[int, float]:
    """Return the steps of an episode, and their CPU time [s]."""
    _, info = env.reset(seed=seed)
    started, steps, over = process_time(), 0, False
    while not over:
        _, _, done, cut, info = env.step(np.int64(info["action_mask"][1]))
        steps, over = steps + 1, done or cut
    return steps, process_time() - started


def main() -> None:
    """Measure, and print a line for each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    watch = Stopwatch("advance", "commit")
    for name, load in LOADS.items():
        env = ClusterEnv(load, settings=polluxsim.settings(reasons="none"))
        steps_of(env, 0)
        watch.seconds = 0.0
        found = np.array([steps_of(env, seed) for seed in range(1, 1 + options.episodes)])
        steps, seconds = found.sum(axis=0)
        share = watch.seconds / seconds
        print(f"{name}: {steps / seconds:.0f} steps/s, {share:.0%} of the time in the engine")
        if options.profile:
            with cProfile.Profile() as profile:
                steps_of(env, 1)
            pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main()
