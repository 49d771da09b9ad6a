"""Count the processor's instructions of a simulation, in this checkout and at an earlier revision, under valgrind.

    python benchmarks/instructions.py 0d3b0c5~1 [--policies fifo tiresias] [--times 4]

Time on a shared machine scatters by several per cent; counts of instructions do not. The default workload is simulated
once in one process and some more times in another: the difference is the engine and the policy, without starting and
compiling. The revision is checked out beside this one and removed again. Needs git and valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from checkouts import ROOT, checked_out

SIMULATE = """
import sys
import polluxsim
from polluxsim.engine.simulation import simulate

first, policy = polluxsim.start(policy=polluxsim.policy("{policy}"))
start = first.scenario
for _ in range(int(sys.argv[1])):
    simulate(start.workload, start.profiles, start.cluster, type(policy)(), settings=start.settings, seed=0)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="of git, to compare with")
    parser.add_argument("--policies", nargs="+", choices=("fifo", "srtf", "tiresias", "optimus"), default=["fifo"])
    parser.add_argument("--times", type=int, default=4, help="simulations more in the second process")
    options = parser.parse_args()
    with checked_out(options.revision) as before:
        print(f"{'policy':10}{options.revision:>16}{'now':>16}{'change':>9}   instructions of a simulation")
        for policy in options.policies:
            old, new = (instructions(root, policy, options.times) for root in (before, ROOT))
            print(f"{policy:10}{old:16,.0f}{new:16,.0f}{new / old - 1:+9.1%}", flush=True)


def instructions(root: Path, policy: str, times: int) -> float:
    """Return the instructions of one simulation by a checkout."""
    few, many = (_count(root, policy, runs) for runs in (1, 1 + times))
    return (many - few) / times


def _count(root: Path, policy: str, runs: int) -> int:
    code = SIMULATE.format(policy=policy)
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    # The processor that valgrind plays has no AVX-512, and compiled kernels are of the one they run on.
    environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    subprocess.run([sys.executable, "-c", code, "1"], env=environment, cwd=root, check=True, capture_output=True)
    run = subprocess.run(
        [*tool, sys.executable, "-c", code, str(runs)],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)
    if run.returncode or found is None:
        raise SystemExit(f"{' '.join(tool)} ended with {run.returncode}: {run.stderr[-1000:]}")
    return int(found[1].replace(",", ""))


if __name__ == "__main__":
    main()
