"""Synergy's load: as many jobs of each task and size as are asked for, at independent times, the same for a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.workloads.synergy import SplitLoad, models_by_task


def test_jobs_come_as_often_as_is_asked_and_are_of_the_tasks_and_sizes_asked_for() -> None:
    count = 4000
    load = SplitLoad(count, 8.0, {"image": 1.0, "language": 3.0}, {1: 1.0, 4: 1.0}, seed=3)
    jobs = load.load({}).jobs
    assert jobs == load.load({}).jobs
    assert jobs != SplitLoad(count, 8.0, load.split, load.gpus, seed=4).load({}).jobs
    times = np.array([job.submit_time for job in jobs])
    gaps = np.diff(times, prepend=0.0)
    error = 3 / np.sqrt(count)
    assert gaps.mean() == pytest.approx(450.0, rel=error)
    assert gaps.std() == pytest.approx(450.0, rel=2 * error)  # exponential
    tasks = {model.name: task for task, models in models_by_task().items() for model in models}
    found = [tasks[job.job_id.rpartition("-")[0]] for job in jobs]
    assert set(found) == {"image", "language"}
    assert found.count("language") / count == pytest.approx(0.75, abs=error)
    assert sum(job.num_replicas == 4 for job in jobs) / count == pytest.approx(0.5, abs=error)
    assert {job.num_replicas for job in jobs} == {1, 4}


def test_durations_are_those_of_gavel() -> None:
    """Four in five of 32 minutes to 17 hours, the others longer, evenly in powers of ten."""
    powers = np.log10([job.duration / 60 for job in SplitLoad(4000).load({}).jobs if job.duration is not None])
    short, long = powers[powers < 3], powers[powers >= 3]
    ends = [short.min(), short.max(), long.min(), long.max()]
    assert ends == pytest.approx([1.5, 3.0, 3.0, 4.0], abs=0.01)
    assert min(ends) >= 1.5
    assert max(ends) <= 4.0
    assert (powers < 3).mean() == pytest.approx(0.8, abs=3 * np.sqrt(0.16 / 4000))
    assert np.median(short) == pytest.approx(2.25, abs=0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_jobs": 0}, "workload.num_jobs is 0, must be a whole number from 1 to 10000000"),
        ({"seed": -1}, "workload.seed is -1, must be a whole number ≥ 0"),
        ({"jobs_per_hour": 0.0}, "workload.jobs_per_hour is 0, must be a finite number > 0"),
        ({"split": {"image": 0.0}}, "workload.split is {'image': 0.0}, must be numbers ≥ 0, at least one > 0"),
        ({"split": {"images": 1.0}}, "a task in workload.split is 'images', must be one of image, language, speech"),
        ({"split": {"image": "most"}}, "workload.split.image is 'most', must be a finite number ≥ 0"),
        ({"gpus": {}}, "workload.gpus is {}, must be numbers ≥ 0, at least one > 0"),
        ({"gpus": {0: 1.0}}, "a number of GPUs in workload.gpus is 0, must be a whole number from 1 to 1000000"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        SplitLoad(**settings)
    assert str(error.value).startswith(words)
