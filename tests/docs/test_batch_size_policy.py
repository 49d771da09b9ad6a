"""The policy on the page about batch sizes is short, has no fault, and comes near Pollux."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polluxsim
from polluxsim.checks import check

PAGE = Path(__file__).parents[2] / "docs" / "batch-sizes.md"
NAME = "SumOfGoodputs"
MOST_LINES = 60
BESIDE_POLLUX = 1.1  # largest ratio of mean JCTs


def code() -> str:
    """Return the code of the policy on the page."""
    found = re.search(r'^```python title="goodputs.py"\n(.*?)^```$', PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_policy_is_short_and_has_no_fault(tmp_path: Path) -> None:
    assert len(code().splitlines()) <= MOST_LINES
    path = tmp_path / "goodputs.py"
    path.write_text(code(), encoding="utf-8")
    assert check(f"{path}:{NAME}", 10) == []


def test_the_policy_comes_near_pollux_and_its_batch_sizes_matter() -> None:
    namespace: dict[str, Any] = {}
    exec(code(), namespace)
    policy: Any = namespace[NAME]
    jobs = polluxsim.workload("philly-like", num_jobs=30, hours=1)
    given: dict[str, Any] = {"cluster": (4, 4), "progress": False}
    mine = polluxsim.simulate(jobs, policy=policy(), **given)
    pollux = polluxsim.simulate(jobs, policy="pollux", **given)
    assert mine.jobs.jct.mean() <= BESIDE_POLLUX * pollux.jobs.jct.mean()
    assert {record.chosen_by for record in mine.result.chooser_records} == {"policy"}

    class Smallest(policy):  # type: ignore[misc]
        def best(self, job: Any, nodes: int, gpus: int) -> Any:
            goodput, size = super().best(job, nodes, gpus)
            if size is None:
                return goodput, None
            (limits,) = job.batch_limits.values()
            return goodput, polluxsim.BatchSize(total=max(limits.smallest, limits.least_per_gpu * gpus))

    smallest = polluxsim.simulate(jobs, policy=Smallest(), **given)
    assert smallest.jobs.jct.mean() > 1.2 * mine.jobs.jct.mean()
