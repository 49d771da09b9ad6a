"""Reports of rigid jobs: groups by size first, waits and slowdowns by size, and GPUs that are idle or wasted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from polluxsim.records.storage import read_run
from polluxsim.statistics.job_values import waits_and_slowdowns

from .test_composition import page_of
from .test_page import choose, size  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

    from shared_runs import SharedRuns


@pytest.fixture(scope="module")
def rigid(shared_runs: SharedRuns) -> Path:
    return shared_runs.run("fifo", "workload=philly-like-rigid", "cluster.num_nodes=4")


TOTALS = """
  const [areas, out] = [polluxReport.groups.figures()[0].areas, {}];
  for (const { name, x, low, high } of areas) {
    out[name] = high.reduce((sum, top, i) => sum + (top - low[i]) * (x[i + 1] - x[i]), 0);
  }
  return out;
"""


def test_rigid_jobs_are_grouped_by_size_and_have_waits_and_slowdowns(browser: Any, tmp_path: Path, rigid: Path) -> None:
    page = page_of(browser, tmp_path, rigid)
    assert page.run("return document.getElementById('group-by').value") == "GPUs asked for"
    assert "None" not in page.text(".hero .what")
    assert "most GPUs" in page.text(".hero .what")
    result = read_run(rigid).result
    waits, slowdowns = waits_and_slowdowns(result)
    assert sum(map(len, waits.values())) == len(result.job_records)
    shown = page.run("return polluxReport.page.figures.get('size-slowdown').dots.map(({ x, jobs }) => [x, jobs])")
    expected = [[np.median(slowdowns[place]), len(slowdowns[place])] for place in sorted(slowdowns)]
    np.testing.assert_allclose(sorted(shown), sorted(expected))
    assert page.deep("#size-wait")
    notes = page.texts("#figures figcaption, #figures .note, #figures h3")
    assert any("median of JCT over the time with GPUs" in note for note in notes)


def test_idle_and_wasted_gpu_time_come_to_those_of_the_run(browser: Any, tmp_path: Path, rigid: Path) -> None:
    page = page_of(browser, tmp_path, rigid)
    result = read_run(rigid).result
    gpus = 16
    choose(page, "group-of", "Free GPUs")
    choose(page, "group-by", "whether jobs wait")
    idle = page.run(TOTALS)
    assert set(idle) == {"while jobs wait", "no job waits"}
    free = gpus * result.end_time - sum(job.gpu_seconds for job in result.job_records)
    assert sum(idle.values()) == pytest.approx(free)
    choose(page, "group-of", "Wasted GPU time")
    wasted = page.run(TOTALS)
    assert wasted["starts and restarts"] == pytest.approx(sum(job.restart_gpu_seconds for job in result.job_records))
