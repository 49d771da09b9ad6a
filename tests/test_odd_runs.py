"""Whatever befalls its jobs, a run under any policy can be looked at and led another way by every command.

`POLLUXSIM_ODD_RUNS=200 pytest tests/test_odd_runs.py` draws so many runs, in place of a few; each is named by its seed.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from odd_jobs import POLICIES, write_jobs
from run_check import inconsistencies

from polluxsim.cli.main import main
from polluxsim.look.run_facts import cluster_of
from polluxsim.records.storage import read_run

if TYPE_CHECKING:
    from pathlib import Path

RUNS = int(os.environ.get("POLLUXSIM_ODD_RUNS", "3"))

WORLDS = (
    ("cluster.num_nodes=2",),
    ("cluster.num_nodes=3", "engine.horizon=2000"),
    ("cluster=sia-64",),
    ("cluster.num_nodes=3", "cluster/failures=rsc-1", "cluster.failures.rate=60000", "engine/checkpoints=interval"),
    ("cluster.num_nodes=3", "cluster/spot=reclaimed", "cluster.spot.rate=20000", "engine/checkpoints=epoch"),
    ("cluster=elastic",),
    ("cluster.num_nodes=2", "engine/sharing=interleaved"),
    ("cluster.num_nodes=2", "engine/sharing=leftovers"),
)
NOT_FOR_IT = (
    "has no profile, and",
    "engine.sharing is null, and",
    "name an earlier time",
    "cannot change or drop nodes",
)
"""What a command may say of a run that it is not for."""
PLOTS = ("jct-cdf", "jct-by-application", "usage", "fairness-cdf")


@pytest.mark.parametrize("seed", range(RUNS))
def test_every_command_bears_an_odd_run(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)

    def bears(*command: str) -> bool:
        """Return whether a command did it; it may refuse in a line what is not for it."""
        status = main(list(command))
        said = capsys.readouterr().err
        if status == 0:
            return True
        assert status == 2, (command, said)
        print(said)
        assert any(
            words in said for words in (*NOT_FOR_IT, "never had a GPU", "which this needs", "have no application")
        )
        return False

    earlier = random.Random(seed) if seed % 3 == 2 else None  # some jobs are from before the start of the run
    names = write_jobs(tmp_path / "jobs.csv", rng, earlier=earlier)
    world = rng.choice(WORLDS)
    while not bears(
        "run", f"policy={(policy := rng.choice(POLICIES))}", "workload.path=jobs.csv", *world, "hydra.run.dir=run"
    ):
        names = write_jobs(tmp_path / "jobs.csv", rng, earlier=earlier)
    run = read_run(tmp_path / "run")
    assert inconsistencies(run.result, cluster_of(run).gpus_per_node) == [], (policy, world)
    assert bears("table", "run")
    assert bears("report", "run", "-o", "run.html")
    assert bears("timeline", "run", "-o", "run.json")
    for name in names:
        assert bears("why", "run", name)
        assert bears("why", "run", name, "--at", rng.choice(("0", "59", "60", "700", "1999", "20h")))
    for kind in rng.sample(PLOTS, 2):
        bears("plot", kind, "run", "-o", f"{kind}.svg")
    bears("plot", "job", "run", "--job", rng.choice(names), "-o", "job.svg")
    at = rng.choice(("0", "60", "600", "1500"))
    bears("whatif", "run", "--at", at, "--drop-node", "1", "-o", "fewer")
    for other in rng.sample(POLICIES, 3):
        if bears("whatif", "run", "--at", at, f"policy={other}", "-o", other):
            future = read_run(tmp_path / other / "otherwise")
            assert inconsistencies(future.result, cluster_of(future).gpus_per_node) == [], (policy, world, at, other)
            assert bears("compare", f"{other}/as-it-was", f"{other}/otherwise")
