"""Energy by user and queue, by hand, and in total against the GPU time of the cluster."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.hardware.power import POWER, Power
from polluxsim.statistics.energy import Consumption, energy_of
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim import Result

# One node of 4 GPUs, rounds every 60 s, starts without delay. `a` holds 2 GPUs from 60 s for an hour, `b` 1 GPU from
# 60 s for two hours. The run begins at the first submission, 0 s, and ends at 7260 s.
JOBS = (Job.rigid("a", 0.0, 2, 3600.0, user="ann", queue="vision"), Job.rigid("b", 0.0, 1, 7200.0, user="bob"))


@pytest.fixture(scope="module")
def run() -> Result:
    settings = polluxsim.settings(restart_delay=0.0)
    return polluxsim.simulate(Workload(JOBS), policy="fifo", cluster=(1, 4), settings=settings, progress=False)


def test_energy_is_that_by_hand(run: Result) -> None:
    consumption = Consumption({"x": Power(100.0, 500.0)}, "x", busy_share=0.75, pue=1.5)
    found = energy_of(run, "user", consumption)
    # 400 W busy; 2 GPU h each; 1.5 times: 2 h × 0.4 kW × 1.5 = 1.2 kWh.
    assert {name: (part.jobs, part.gpu_hours, part.kwh) for name, part in found.by_name.items()} == {
        "ann": (1, pytest.approx(2.0), pytest.approx(1.2)),
        "bob": (1, pytest.approx(2.0), pytest.approx(1.2)),
    }
    idle = 4 * 7260 / 3600 - 4
    assert found.idle.gpu_hours == pytest.approx(idle)
    assert found.idle.kwh == pytest.approx(idle * 0.1 * 1.5)
    assert found.kwh == pytest.approx(2.4 + idle * 0.15)
    assert set(energy_of(run, "queue", consumption).by_name) == {"vision", "(none)"}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_with_equal_power_of_idle_and_busy_gpus_the_energy_is_that_of_the_cluster(policy: str) -> None:
    """On two types, with preemptions: all GPUs that are up draw their power all the time."""
    draw = random.Random(0)
    jobs = [
        Job.rigid(
            f"{number}", draw.uniform(0, 5000), draw.choice([1, 2, 4]), draw.uniform(300, 6000), user=f"{number % 3}"
        )
        for number in range(40)
    ]
    cluster = polluxsim.cluster("mixed", groups=[[2, 4, "t4"], [1, 8, "h100"]])
    found = polluxsim.simulate(Workload(tuple(jobs)), policy=policy, cluster=cluster, progress=False)
    energy = energy_of(found, "user", Consumption({"t4": Power(50, 50), "h100": Power(200, 200)}))
    hours = (found.result.end_time - found.result.start_time) / 3600
    assert energy.kwh == pytest.approx((8 * 0.05 + 8 * 0.2) * hours)
    records = found.result.job_records
    assert sum(part.gpu_hours for part in energy.by_name.values()) == pytest.approx(
        sum(job.gpu_seconds for job in records) / 3600
    )


def test_nodes_that_are_down_draw_no_power(tmp_path: Path) -> None:
    file = tmp_path / "failures.csv"
    file.write_text("node,time,down_until\n1,600,4200\n")
    failures = {"_target_": "polluxsim.engine.failures.RecordedFailures", "path": str(file)}
    cluster = polluxsim.cluster(num_nodes=2, failures=failures)
    settings = polluxsim.settings(restart_delay=0.0)
    jobs = Workload((Job.rigid("a", 0.0, 4, 7140.0, user="ann"),))
    found = polluxsim.simulate(jobs, policy="fifo", cluster=cluster, settings=settings, progress=False)
    idle = energy_of(found, "user", Consumption({"x": Power(100, 200)}, "x")).idle
    assert idle.gpu_hours == pytest.approx((8 * 7200 - 4 * 7140 - 4 * 3600) / 3600)


def test_types_with_power_are_known_types_and_below_their_peak() -> None:
    assert set(POWER) < set(GPU_TYPES)
    assert all(0 < power.idle < power.peak / 4 or name in ("k80",) for name, power in POWER.items())


def test_what_is_not_known_is_said_in_a_line(
    run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run.save("run")
    assert main(["table", "run", "--energy", "user", "--gpu-type", "h100", "--pue", "1.2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"│ ann │ 1 │ 2.0 │ {2 * 0.7 * 1.2:.1f} │" in told
    assert "a GPU of type h100 draws 700 W with a job and 69 W without; the peak is 700 W" in told
    assert "energy of GPUs only, with a PUE of 1.2; CPUs, memory and network are left out" in told
    for words, message in (
        ((), "the cluster of run states no GPU types; name the type of all GPUs with --gpu-type, like h100"),
        (
            ("--gpu-type", "p100"),
            "the power of GPU type 'p100' is not known; state it in W with --power p100=IDLE:PEAK",
        ),
        (("--gpu-type", "h100", "--power", "t4=9:70"), "--power names t4, but the GPUs of run are of type h100"),
        (("--gpu-type", "h100", "--power", "h100=90"), "must be a GPU type with its idle and peak power [W]"),
        (("--gpu-type", "h100", "--pue", "0.5"), "--pue is 0.5, must be a number from 1 to 10"),
        (("--gpu-type", "h100", "--csv"), "--energy cannot be used with --csv"),
    ):
        assert main(["table", "run", "--energy", "user", *words]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert main(["table", "run", "--pue", "1.2"]) == 2
    assert "--pue has no effect without --energy; add --energy user or --energy queue" in capsys.readouterr().err
    nobody = polluxsim.simulate(
        Workload((Job.rigid("a", 0.0, 1, 60.0),)), policy="fifo", cluster=(1, 1), progress=False
    )
    with pytest.raises(InvalidInputError, match="no job of fifo with GPUs has a user"):
        energy_of(nobody, "user", Consumption(gpu_type="t4"))
