"""Job lists of Gavel's and Shockwave's simulators: what a row means, how batch sizes change, and what is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.common.errors import InvalidInputError, PolluxSimError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.importing import import_trace
from polluxsim.models.efficiency import gain
from polluxsim.models.known_duration import BatchPlan, PlannedProfile
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.workloads.gavel_lists import Course
from polluxsim.workloads.simulator_lists import GavelJobs
from polluxsim.workloads.workload import Job, Workload, WorkloadFile, write_workload

TEN = "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t119350\t1\t1\t-1\t30"
TWELVE = "ResNet-18 (batch size 32)\tpython3 main.py\tcv\t--steps\t1\t46890\t2\taccordion\t1\t-1.0\t100\t60"
SPEEDS = "gpu_type,model,batch_size,gpus,steps_per_s\nv100,LM,5,1,10\nv100,LM,10,1,8\nk80,LM,5,1,2\nv100,LM,20,1,0\n"
CSV = "job_id,model,batch_size,gpus,mode,total_steps,arrival_s\n"
BOTH = SPEEDS + "v100,ResNet-18,32,2,20\nv100,ResNet-18,256,2,4\n"
STEPS = "model,batch_size,gpus,doubles_at_epochs\nLM,5,1,4 6\n"


def files(folder: Path, jobs: str, speeds: str = SPEEDS, steps: str = STEPS, **options: Any) -> GavelJobs:
    for name, text in (("jobs.csv", CSV + jobs), ("speeds.csv", speeds), ("steps.csv", steps)):
        (folder / name).write_text(text)
    paths = {"throughputs": str(folder / "speeds.csv"), "noise_scale_steps": str(folder / "steps.csv")}
    return GavelJobs(str(folder / "jobs.csv"), **paths, **options)


def run(*jobs: Job) -> list[float]:

    rules = EngineSettings(120.0, 20.0)
    return [job.jct or 0.0 for job in simulate(Workload(jobs), {}, Cluster((2, 2)), Fifo(), settings=rules).job_records]


def test_lists_of_both_widths_are_read_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.trace"
    path.write_text(f"{TEN}\n{TWELVE}\n")
    (tmp_path / "throughputs_alone.csv").write_text(BOTH)
    workload = WorkloadFile(str(path)).load({})
    assert workload.notes == ("without noise_scale_steps, jobs of mode gns keep their batch size",)
    first, second = workload.jobs
    assert (first.job_id, first.application, first.num_replicas, first.submit_time) == ("0", "LM", 1, 30.0)
    assert (second.job_id, second.num_replicas, second.batch_size, second.line) == ("1", 2, 64, 2)
    assert first.plan.sizes == (5,) * 10
    assert second.plan.sizes == (32,) * 10 + (256,) * 20
    assert all(jct >= 120 for jct in run(first, second))
    import_trace("gavel", path, tmp_path / "out.parquet")


def test_the_published_list_is_the_same_in_both_forms(data_folder: Path, tmp_path: Path) -> None:
    listed = data_folder / "hetero" / "jobs_120.csv"
    with listed.open() as file:
        lines = [
            f"{row['model']} (batch size {row['batch_size']})\tx\tx\tx\t1\t{row['total_steps']}\t{row['gpus']}\t"
            f"{row['mode']}\t{row['weight']}\t-1\t{row['duration_s']}\t{row['arrival_s']}"
            for row in csv.DictReader(file)
        ]
    (tmp_path / "jobs.trace").write_text("\n".join(lines))
    for name in ("throughputs_alone.csv", "noise_scale_steps.csv"):
        (tmp_path / name).write_bytes((listed.parent / name).read_bytes())
    ours, theirs = (GavelJobs(str(path)).load({}).jobs for path in (tmp_path / "jobs.trace", listed))
    assert [(job.job_id, job.submit_time, job.duration) for job in ours] == [
        (job.job_id, job.submit_time, job.duration) for job in theirs
    ]
    assert len(ours) == 120


def test_a_list_alone_is_rigid_jobs_of_its_durations(tmp_path: Path) -> None:
    path = tmp_path / "jobs.trace"
    path.write_text(f"{TWELVE}\n")
    workload = WorkloadFile(str(path)).load({})
    assert workload.notes == ("without throughputs, jobs have the durations of the list and keep their batch size",)
    (job,) = workload.jobs
    assert (job.num_replicas, job.plan.sizes, job.duration) == (2, (32,) * 30, pytest.approx(100))
    path.write_text(f"{TWELVE}\n{TEN}\n")
    with pytest.raises(InvalidInputError, match="line 2: the speed of LM is unknown without a duration"):
        WorkloadFile(str(path)).load({})


def test_a_job_takes_as_long_as_its_steps_at_each_size(tmp_path: Path) -> None:
    """LM has 11,935 steps an epoch at 5, and 5,968 at 10; 20 does not fit, so that 10 stays."""
    (job,) = files(tmp_path, f"a,LM,5,1,gns,{6 * 11935},0\n", lag=0.0).load({}).jobs
    assert job.plan.sizes == (5, 5, 5, 10, 10, 10)
    time = 3 * 11935 / 10 + 3 * 5968 / 8
    assert job.duration == pytest.approx(time)
    assert run(job) == [pytest.approx(120 + 20 + time)]


def test_a_late_change_skips_the_rest_of_its_epoch(tmp_path: Path) -> None:
    """It is due after 3 epochs of 1,193.5 s, and carried out 300 s later."""
    (job,) = files(tmp_path, f"a,LM,5,1,gns,{6 * 11935},0\n", lag=300.0).load({}).jobs
    assert run(job) == [pytest.approx(140 + 3 * 1193.5 + 300 + 2 * 5968 / 8)]


def test_a_job_ends_after_its_time(tmp_path: Path) -> None:
    (job,) = files(tmp_path, f"a,LM,5,1,static,{2 * 11935},0\n", overtime=0.5).load({}).jobs
    assert run(job) == [pytest.approx(140 + int(2 * 59675 / 5 / 10) // 2)]


@given(
    st.sampled_from(["LM", "ResNet-18", "Recommendation", "Transformer"]),
    st.sampled_from(["static", "accordion", "gns"]),
    st.integers(1, 400),
    st.lists(st.integers(1, 200), max_size=4).map(sorted),
)
def test_batch_sizes_stay_within_their_limits(model: str, mode: str, epochs: int, doubles_at: list[int]) -> None:
    first = {"LM": 5, "ResNet-18": 16, "Recommendation": 512, "Transformer": 16}[model]
    course = Course(model, mode, first, epochs, doubles_at)
    for sizes in ([course.size(epoch) for epoch in range(epochs)], list(map(course.expected_size, range(epochs)))):
        assert all(size % first == 0 and first <= size <= course.largest for size in sizes)
        assert mode != "static" or set(sizes) == {first}


@pytest.mark.parametrize(
    ("model", "first", "critical"),
    [
        ("LM", 5, [range(10)]),
        ("ResNet-18", 16, [range(10), range(150, 160), range(250, 260)]),
        ("ResNet-18", 256, [range(20), range(150, 160), range(250, 260)]),
        ("ResNet-50", 16, [range(start, start + 10) for start in range(0, 300, 30)]),
        ("Recommendation", 512, [range(30)]),
        ("Recommendation", 1024, [range(30)]),
        ("Recommendation", 2048, [range(40)]),
        ("Recommendation", 4096, [range(10)]),
        ("Transformer", 16, [range(300)]),
    ],
)
def test_accordion_keeps_the_first_size_where_gradients_change_fast(
    model: str, first: int, critical: list[range]
) -> None:
    """By Shockwave's simulator; its users' plans trust the first 30 % of epochs to be so, too."""
    course = Course(model, "accordion", first, 300)
    small = {epoch for span in critical for epoch in span}
    assert [course.size(epoch) for epoch in range(300)] == [
        first if epoch in small else course.largest for epoch in range(300)
    ]
    small |= {*range(91)} | ({*range(60, 70), *range(80, 90)} if model == "Recommendation" else set())
    assert [course.expected_size(epoch) for epoch in range(300)] == [
        first if epoch in small else course.largest for epoch in range(300)
    ]


@given(st.integers(1, 4), st.lists(st.sampled_from([5, 10, 20, 80]), min_size=1, max_size=30), st.floats(0, 500))
def test_an_epoch_is_an_epoch_at_any_size(gpus: int, sizes: list[int], lag: float) -> None:
    sizes = [5, *sizes]
    speeds = {("v100", size): 100 / size for size in sizes}
    profile = PlannedProfile("LM", gpus, BatchPlan(tuple(sizes), 59675, len(sizes) * 11935, speeds, "v100", lag=lag))
    for size in profile.batch_sizes:
        worth = gain(profile.gradient_statistics(size, 0), size / profile.batch_sizes[0])
        assert worth == pytest.approx(profile.plan.steps(5) / profile.plan.steps(size // gpus))
    ends = [profile.epoch_end(epoch) for epoch in range(profile.application.num_epochs)]
    assert ends == sorted(ends)
    assert ends[-1] <= len(sizes) * 11935
    assert lag or ends[-1] == len(sizes) * 11935
    with pytest.raises(ProfileRangeError, match="does not fit in memory"):
        profile.step_time((gpus,), 40)


@pytest.mark.parametrize(
    ("jobs", "options", "message"),
    [
        ("a,LM,5,1,often,9,0\n", {}, "jobs.csv, line 2: column 'mode' is 'often', must be one of static, accordion"),
        (
            "a,GPT,5,1,static,9,0\n",
            {},
            "line 2: the table of throughputs has no speed > 0 of GPT with 5 examples on 1 GPUs of type v100",
        ),
        (
            "a,LM,20,1,static,9,0\n",
            {},
            "line 2: the table of throughputs has no speed > 0 of LM with 20 examples on 1 GPUs of type v100",
        ),
        ("a,LM,5,0,static,9,0\n", {}, "line 2: column 'gpus' is '0', must be a whole number ≥ 1"),
        ("a,LM,5,1,static,9,-1\n", {}, "line 2: job 'a': submit_time is -1.0, must be a number of seconds"),
        ("a,LM,5,1,gns,9,0\n", {"steps": "model,batch_size,gpus,doubles_at_epochs\nLM,5,1,x\n"}, "is 'x', must be"),
        ("a,LM,5,1,gns,9,0\n", {"speeds": SPEEDS + "v100,LM,5,1,-2\n"}, "speeds.csv, line 6: column 'steps_per_s' is"),
        ("a,LM,5,1,gns,9,0\n", {"overtime": 0.0}, "workload.overtime is 0, must be a number > 0 and ≤ 1e+06, or null"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, jobs: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolluxSimError, match=re.escape(message)) as caught:
        files(tmp_path, jobs, **options).load({})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["LM\tx", TWELVE.replace("accordion", "often"), TWELVE.replace("46890", "many")])
def test_a_bad_line_of_a_trace_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "jobs.trace").write_text(f"{TEN}\n{line}\n")
    (tmp_path / "throughputs_alone.csv").write_text(BOTH)
    with pytest.raises(InvalidInputError, match=r"jobs\.trace, line 2: "):
        WorkloadFile(str(tmp_path / "jobs.trace")).load({})


def test_a_plan_is_not_lost_in_a_workload_file(tmp_path: Path) -> None:
    workload = files(tmp_path, "a,LM,5,1,static,9,0\n").load({})
    with pytest.raises(InvalidInputError, match="has a plan of batch sizes"):
        write_workload(workload, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_the_last_epoch_of_several_steps_is_expected_at_the_first_size() -> None:
    """Which is what the published simulator believes, whatever it trains at."""
    course = Course("LM", "gns", 5, 9, (2, 4))
    assert list(map(course.expected_size, range(9))) == [5, 5, 10, 10, 20, 20, 20, 20, 5]
    once = Course("LM", "gns", 5, 9, (4,))
    assert list(map(once.expected_size, range(9))) == [5] * 4 + [10] * 5
