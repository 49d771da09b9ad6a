"""Reading slurm.conf line by line."""

from __future__ import annotations

from pathlib import Path

from polluxsim.logs.live.slurm_conf import Line, lines_of


def test_a_backslash_at_the_end_of_the_file_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(
        "ClusterName=a  # name\nNodeName=n1 \\\n  CPUs=4\n\nSchedulerType=sched/builtin \\", encoding="utf-8"
    )
    assert list(lines_of(path)) == [
        Line(1, "ClusterName=a"),
        Line(2, "NodeName=n1 CPUs=4"),
        Line(5, "SchedulerType=sched/builtin"),
    ]
