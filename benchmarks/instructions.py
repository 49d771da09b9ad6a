"""Count the processor's instructions of a simulation, in this checkout and at an earlier revision, under valgrind.

    python benchmarks/instructions.py 0d3b0c5~1 [--policies fifo tiresias] [--times 4]
    python benchmarks/instructions.py --row "what is new" [REVISION]

Time on a shared machine scatters by several per cent; counts of instructions do not. The default workload is simulated
once in one process and some more times in another: the difference is the engine and the policy, without starting and
compiling. The revision is checked out beside this one and removed again. It must have the modules that this checkout
has, because the plugin of Hydra is that of the installed package. Needs git and valgrind.

`--row` appends a row to `benchmarks/history.csv`: the instructions of five runs, the memory of a process, the size of a
report, the number of tests and the lines of the package, at REVISION or here. `python docs/history.py` makes the page
from it. Some 15 minutes.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from checkouts import ROOT, checked_out

POLICIES = ("fifo", "srtf", "tiresias", "optimus", "easy")

HISTORY = ROOT / "benchmarks" / "history.csv"

SIMULATE = """
import sys
import polluxsim
from polluxsim.engine.simulation import simulate

first, policy = polluxsim.start(policy=polluxsim.policy("{policy}"))
start = first.scenario
for _ in range(int(sys.argv[1])):
    simulate(start.workload, start.profiles, start.cluster, type(policy)(), settings=start.settings, seed=0)
"""

RUN = "import sys; from polluxsim.cli.main import main; sys.exit(main(sys.argv[1:]))"

PEAK = "import resource, sys; sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="of git, to compare with, or to measure with --row")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=["fifo"])
    parser.add_argument("--times", type=int, default=4, help="simulations more in the second process")
    parser.add_argument("--row", metavar="NOTE", help="append a row to the history, with a note")
    options = parser.parse_args()
    if options.row is not None:
        append_row(options.revision, options.row, options.times)
        return
    if options.revision is None:
        parser.error("name a revision to compare with")
    with checked_out(options.revision) as before:
        print(f"{'policy':10}{options.revision:>16}{'now':>16}{'change':>9}   instructions of a simulation")
        for policy in options.policies:
            old = instructions(before, policy, options.times)
            new = instructions(ROOT, policy, options.times)
            print(f"{policy:10}{old:16,.0f}{new:16,.0f}{new / old - 1:+9.1%}", flush=True)


def append_row(revision: str | None, note: str, times: int) -> None:
    """Measure a revision, or this checkout, and append the row to the history."""
    place: AbstractContextManager[Path] = nullcontext(ROOT)
    if revision is not None:
        place = checked_out(revision)
    with place as root:
        date, commit = _git(root, "log", "-1", "--format=%cs %h").split()
        row: dict[str, object] = {"date": date, "commit": commit, "note": note}
        for policy in POLICIES:
            row[f"{policy} [10⁶ instructions]"] = round(instructions(root, policy, times) / 1e6, 1)
        row["memory of a run [MB]"], row["report of three runs [kB]"] = _memory_and_report(root)
        row["tests"] = _num_tests(root)
        row["lines"] = sum(path.read_text(encoding="utf-8").count("\n") for path in (root / "polluxsim").rglob("*.py"))
    is_new = not HISTORY.exists()
    with HISTORY.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(*(f"{name}: {value}" for name, value in row.items()), sep="\n")


def instructions(root: Path, policy: str, times: int) -> float:
    """Return the instructions of one simulation by a checkout."""
    few = _count(root, policy, 1)
    many = _count(root, policy, 1 + times)
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
    counted = re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)
    if run.returncode or counted is None:
        raise SystemExit(f"{' '.join(tool)} ended with {run.returncode}: {run.stderr[-1000:]}")
    return int(counted[1].replace(",", ""))


def _memory_and_report(root: Path) -> tuple[int, int]:
    """Return the most memory of a process that makes a run [MB], and the size of the report of three runs [kB]."""
    with tempfile.TemporaryDirectory() as folder:
        code = f"import atexit; atexit.register(lambda: exec({PEAK!r})); {RUN}"
        run = _python(root, folder, code, "run", "policy=tiresias", "-o", "run")
        memory = int(re.findall(r"\d+$", run.stderr)[0])
        _python(root, folder, RUN, "run", "-m", "policy=fifo,srtf,tiresias", "-o", "runs")
        _python(root, folder, RUN, "report", "runs", "-o", "report.html")
        size = (Path(folder) / "report.html").stat().st_size
    return round(memory / 1024), round(size / 1000)


def _python(root: Path, folder: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)


def _num_tests(root: Path) -> int:
    """Return the number of tests of both tiers."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    listed = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout
    return sum("::" in line for line in listed.splitlines())


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
