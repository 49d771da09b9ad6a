"""`log decisions` with the factors of priority/multifactor, by records worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from polluxsim.cli.main import main

HEADER = "job,submit,submitted,gpus,duration,limit,start,end,state,nodes,user,partition,qos\n"

# One node of 4 GPUs. `busy` of ada ends at 600 s, when `again` of ada and `other` of bob wait.
BOTH_WAIT = HEADER + (
    "busy,0,0.0,4,600,660,0.0,600.0,COMPLETED,n1,ada,low,normal\n"
    "again,5,5.0,4,60,120,660.0,720.0,COMPLETED,n1,ada,low,normal\n"
    "other,6,6.0,4,60,120,600.0,660.0,COMPLETED,n1,bob,high,urgent\n"
)


def decided(tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, *, record: str = BOTH_WAIT) -> str:
    """Return the last line of a comparison."""
    path = tmp_path / "run.csv"
    path.write_text(record)
    policy = f"slurm(priority_type=priority/multifactor,{settings})"
    main(["log", "decisions", str(path), "--policy", policy, "scheduler=sched/builtin", "t0=0"])
    return capsys.readouterr().out.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("settings", "agree"),
    [
        ("priority_weight_job_size=1000", 2),
        # ada used the node for 600 s, and bob nothing.
        ("priority_weight_fairshare=1000,accounts={lab:{users:{ada:1,bob:1}}}", 3),
        ("priority_weight_fairshare=1000,priority_flags=NO_FAIR_TREE,accounts={lab:{users:{ada:1,bob:1}}}", 3),
        ("priority_weight_qos=1000,qos={normal:{Priority:1},urgent:{Priority:10}}", 3),
        ("priority_weight_partition=1000,priority_job_factor={low:1,high:10}", 3),
        # Both are submitted before the same computation of priorities, but `again` is one second older.
        ("priority_weight_age=100000000", 2),
    ],
)
def test_a_factor_orders_the_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, agree: int
) -> None:
    assert decided(tmp_path, capsys, settings).startswith(f"{agree} of 3 decisions agree")


def test_the_age_comes_before_the_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`small` waits for 900 s and `large` for 300 s when `busy` ends. By the size alone, `large` goes first."""
    record = HEADER + (
        "busy,0,0.0,8,1200,1260,0.0,1200.0,COMPLETED,n[1-2],ada,low,normal\n"
        "small,300,300.0,4,60,120,1200.0,1260.0,COMPLETED,n1,ada,low,normal\n"
        "large,900,900.0,8,60,120,1260.0,1320.0,COMPLETED,n[1-2],ada,low,normal\n"
    )
    size = "priority_weight_job_size=1000"
    by_age = f"{size},priority_weight_age=100000,priority_max_age=60"
    assert decided(tmp_path, capsys, size, record=record).startswith("2 of 3")
    assert decided(tmp_path, capsys, by_age, record=record).startswith("3 of 3")


def test_factors_need_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.csv"
    path.write_text(BOTH_WAIT)
    assert main(["log", "decisions", str(path), "--policy", "slurm", "order=factors"]) == 2
    assert "order is factors, and the policy states none; state them" in capsys.readouterr().err
