"""Figures of the queue, the GPUs, failures and sizes have the numbers of the tables; dark figures can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from polluxsim.look.colours import INK, PAPER, luminance
from polluxsim.look.plot.cluster_views import failures, gpu_map, queue
from polluxsim.look.plot.distributions import jct_cdf, slowdown_by_size
from polluxsim.look.plot.job_life import job_life, lives_of
from polluxsim.look.plot.style import darkened
from polluxsim.look.plot.sweep import sweep
from polluxsim.records.storage import Run, read_run
from polluxsim.statistics.groups import grouped
from polluxsim.statistics.series import bin_edges, waiting_jobs

from .report.conftest import write_hand_made

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def failing(tmp_path: Path) -> Run:
    """Return a run of two nodes in which node 1 is down for 500 s."""
    return read_run(write_hand_made(tmp_path / "run"))


def area(collection) -> float:
    corners = [path.vertices for path in collection.get_paths()]
    return sum(np.ptp(each[:, 0]) * np.ptp(each[:, 1]) for each in corners)


def test_the_queue_is_that_of_the_tables(runs: list[Run]) -> None:
    (line,) = queue(grouped(runs[:1]), 600.0).axes[0].get_lines()
    edges = bin_edges(runs[0].result.end_time, 600.0)
    np.testing.assert_allclose(line.get_ydata()[::2], waiting_jobs(runs[0].result).means(edges))


def test_the_map_has_all_gpu_time_and_hatches_nodes_that_are_down(failing: Run) -> None:
    figure = gpu_map(grouped([failing]))
    idle, held, down = figure.axes[0].collections
    assert area(held) == pytest.approx(sum(job.gpu_seconds for job in failing.result.job_records) / 3600)
    assert area(idle) == pytest.approx(8 * failing.result.end_time / 3600)
    assert len(down.get_paths()) == 1
    assert down.get_hatch()
    assert area(down) == pytest.approx(4 * 500 / 3600)
    assert "node down" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_failures_cost_the_gpu_time_of_their_nodes(failing: Run) -> None:
    figure = failures(grouped([failing]))
    nodes, lost = figure.axes
    assert area(nodes.collections[0]) == pytest.approx(500 / 3600)
    down, _ = lost.get_lines()
    assert down.get_ydata()[-1] == pytest.approx(4 * 500 / 3600)


def test_slowdowns_are_by_the_gpus_that_jobs_ask_for(runs: list[Run]) -> None:
    axes = slowdown_by_size(grouped(runs[:1])).axes[0]
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.canvas.draw()
    for text in (axes.yaxis.label, axes.xaxis.label, *axes.get_xticklabels()):
        box, page = text.get_window_extent(), figure.bbox
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, text
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
    jobs = [job for job in runs[0].result.job_records if job.jct is not None and job.num_replicas == 1]
    names = [label.get_text() for label in axes.get_xticklabels()]
    (line,) = axes.get_lines()
    assert line.get_ydata()[names.index("1")] == pytest.approx(np.median([job.jct / job.run_time for job in jobs]))


@pytest.mark.parametrize("seeds", [2, 6])
def test_a_sweep_shows_the_effect_and_says_what_its_bars_are(seeds: int) -> None:
    rows = [(p, seed, 3600 * (10 + 0.1 * p + 0.01 * seed)) for p in (1.0, 2.0, 3.0) for seed in range(seeds)]
    frame = pd.DataFrame(rows, columns=["policy.p", "seed", "avg_jct"])
    frame["policy._target_"], frame["workload.path"] = "a.Pollux", "x.csv"
    axes = sweep(frame, "policy.p").axes[0]
    low, high = axes.get_ylim()
    assert low > 9.5
    assert (high - low) < 1
    caption = axes.get_title(loc="left")
    assert "the axis does not start at 0" in caption
    assert ("no bars: an interval needs 3 runs, there are 2" in caption) == (seeds == 2)
    assert ("bars: 95 % interval" in caption) == (seeds == 6)


def test_a_short_time_axis_has_minutes(runs: list[Run]) -> None:
    jobs = [job for job in runs[0].result.job_records if job.jct is not None]
    short = min(jobs, key=lambda job: job.jct)
    figure = job_life(*lives_of(grouped(runs[:1], each=True), [short.job]))
    figure.draw_without_rendering()
    assert figure.axes[-1].get_xlabel() == "time [h:min]"
    ticks = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert all(":" in tick and "." not in tick for tick in ticks)


def test_a_dark_figure_has_light_text_and_lines_on_dark_paper(runs: list[Run]) -> None:
    figure = darkened(jct_cdf(grouped(runs)))
    assert to_hex(figure.get_facecolor()) == PAPER
    axes = figure.axes[0]
    assert to_hex(axes.xaxis.label.get_color()) == INK
    paper = luminance(PAPER)
    for artist in (*axes.get_lines(), *axes.texts):
        assert (luminance(to_hex(artist.get_color())) + 0.05) / (paper + 0.05) >= 3
