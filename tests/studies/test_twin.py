"""The live twin: what it reads of Slurm, what it draws, and its answers."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mutants import broken_text

from polluxsim.cli.main import main
from polluxsim.cli.twin import FirstEstimate
from polluxsim.common.errors import InvalidInputError, PolluxSimError
from polluxsim.logs.live.jobs import UNLIMITED, StateJob
from polluxsim.logs.live.nodes import StateNode
from polluxsim.logs.live.queries import QUERIES, answers, collect, shell_lines
from polluxsim.logs.live.state import SlurmState, read_state, state_of
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.values import Node
from polluxsim.studies.decisions.record import RecordedJob
from polluxsim.studies.decisions.replaying import _Simulation
from polluxsim.studies.decisions.slurm import Installation
from polluxsim.studies.twin.asking import situation
from polluxsim.studies.twin.asks import Ask, NodeNeeds
from polluxsim.studies.twin.calibrating import calibrated
from polluxsim.studies.twin.estimates import LEVELS, estimates
from polluxsim.studies.twin.futures import FutureSource, recent_arrivals
from polluxsim.studies.twin.history import Draws, Groups, PastJob, known_at, read_history
from polluxsim.studies.twin.settings import EACH_SECOND
from polluxsim.studies.twin.trying import TriedJob, job_of_wish
from polluxsim.studies.twin.world import TwinWorld

NOW = 1_800_000_000
SACCT = "JobID|User|Account|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|Partition\n"


def job(name: int, state: str = "PENDING", **more: Any) -> dict[str, Any]:
    """Return a job of `squeue --json` of 22.05. It asks for 4 GPUs for 10 min, and a running one has n1."""
    runs = state == "RUNNING"
    values = {
        "job_id": name, "job_state": state, "state_reason": "Priority", "priority": 4_294_901_760 - name,
        "submit_time": NOW - 300, "eligible_time": NOW - 300, "start_time": NOW - 60 if runs else NOW + 540,
        "end_time": 0, "time_limit": 10, "nodes": "n1" if runs else "", "node_count": 1, "cpus": 1, "tasks": 1,
        "tasks_per_node": 0, "tres_per_node": "gres:gpu:4", "partition": "main", "user_name": "ann", "account": "lab",
        "name": f"j{name}", "dependency": "",
    }  # fmt: skip
    return values | more


def texts(*jobs: dict[str, Any], nodes: int = 2) -> dict[str, str]:
    """Return the files of a state."""
    lines = [
        f"NodeName=n{number} CPUTot=64 Gres=gpu:4 State=IDLE Weight=1 Partitions=main" for number in range(1, nodes + 1)
    ]
    return {
        "taken.txt": str(NOW),
        "squeue.json": json.dumps({"errors": [], "jobs": jobs}),
        "nodes.txt": "\n".join(lines),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a state: one job runs on n1, and three jobs wait."""
    jobs = [job(1, "RUNNING"), job(2, tres_per_node="gres:gpu:4", node_count=2), job(3), job(4, priority=0)]
    path = tmp_path / "state"
    path.mkdir()
    for name, text in texts(*jobs).items():
        (path / name).write_text(text)
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == status
    out = capsys.readouterr()
    return out.err if status == 2 else out.out


class TestReading:
    def test_all_versions_tell_the_same(self) -> None:
        def newer(values: dict[str, Any], *, lists: bool) -> dict[str, Any]:
            changed = dict(values)
            for name in ("priority", "submit_time", "eligible_time", "start_time", "end_time", "time_limit",
                         "node_count", "cpus", "tasks"):  # fmt: skip
                changed[name] = {"set": True, "infinite": False, "number": values[name]}
            changed["tasks_per_node"] = {"set": False, "infinite": False, "number": 0}
            changed["tres_per_node"] = values["tres_per_node"].replace("gres:gpu:", "gres/gpu:")
            if lists:
                changed["job_state"] = [values["job_state"]]
            return changed

        jobs = [job(1, "RUNNING"), job(2, features="a100&nvlink", dependency="afterok:1(unfulfilled)")]
        old = state_of("x", texts(*jobs)).jobs
        assert state_of("x", texts(*(newer(values, lists=False) for values in jobs))).jobs == old
        assert state_of("x", texts(*(newer(values, lists=True) for values in jobs))).jobs == old
        without_limit = {"set": True, "infinite": True, "number": 0}
        unset = {"set": False, "infinite": False, "number": 4}
        for limit in (without_limit, unset, None):
            assert state_of("x", texts(job(1, time_limit=limit))).jobs[0].limit == UNLIMITED
        assert old[1].features == {"a100", "nvlink"}
        assert old[1].after == ("1",)
        assert (old[0].gpus, old[0].limit, old[0].nodes) == (4, 600, ("n1",))

    def test_nodes_of_sinfo_are_those_of_scontrol(self) -> None:
        old = {"nodes": [{"name": "n1", "state": "mixed", "state_flags": ["DRAIN"], "cpus": 64,
                          "gres": "gpu:a100:4(S:0)", "weight": 2, "partitions": ["main"],
                          "active_features": "x"}]}  # fmt: skip
        new = {"sinfo": [{"node": {"state": ["MIXED", "DRAIN"]}, "nodes": {"nodes": ["n1"]}, "cpus": {"maximum": 64},
                          "gres": {"total": "gpu:a100:4"}, "weight": {"maximum": 2}, "partition": {"name": "main"},
                          "features": {"total": "x"}}]}  # fmt: skip
        line = "NodeName=n1 CPUTot=64 Gres=gpu:a100:4 State=MIXED+DRAIN Weight=2 Partitions=main ActiveFeatures=x"
        squeue = json.dumps({"jobs": []})
        read = [
            state_of("x", {"squeue.json": squeue, "sinfo.json": json.dumps(old)}),
            state_of("x", {"squeue.json": squeue, "sinfo.json": json.dumps(new)}),
            state_of("x", {"squeue.json": squeue, "nodes.txt": line}),
        ]
        expected = StateNode("n1", 4, 64, 2, "a100", frozenset("x"), ("main",), "drained")
        assert [state.nodes for state in read] == [[expected]] * 3

    def test_the_rest_of_damaged_files_is_used_and_counted(self) -> None:
        whole = texts(job(1, "RUNNING"), job(2), job(3))
        cut = whole["squeue.json"].index('"job_id": 3') + 40
        state = state_of("x", {**whole, "squeue.json": whole["squeue.json"][:cut]})
        assert [found.name for found in state.jobs] == ["1", "2"]
        assert "squeue.json is cut off or damaged: 2 jobs before the fault are used" in state.notes
        state = state_of("x", texts(job(1, "RUNNING"), {"job_id": None}, job(2)))
        assert "squeue.json: 1 of 3 jobs cannot be read" in state.notes
        state = state_of("x", {**whole, "nodes.txt": whole["nodes.txt"] + "\nrubbish"})
        assert (len(state.nodes), "nodes.txt: 1 lines cannot be read" in state.notes) == (2, True)

    def test_unknown_nodes_and_clock_skew_are_one_line_each(self) -> None:
        state = state_of("x", texts(job(1, "RUNNING"), job(2, "RUNNING", nodes="n[8-9]"), job(3)))
        assert [found.name for found in state.jobs] == ["1", "3"]
        assert [note for note in state.notes if "n8, n9" in note] == [
            "1 running jobs are left out, like 2: the list of nodes lacks n8, n9"
        ]
        state = state_of("x", texts(job(1, "RUNNING", start_time=NOW + 7)))
        assert state.now == NOW + 7
        assert state.notes[-1].startswith("the clock of the queries is 7 s behind that of Slurm")

    def test_missing_inputs_are_named_and_needed_ones_are_an_error(self, folder: Path) -> None:
        assert "sdiag.txt" in read_state(folder).missing
        (folder / "nodes.txt").unlink()
        with pytest.raises(InvalidInputError, match=r"no nodes; write them with 'sinfo --json"):
            read_state(folder)
        (folder / "squeue.json").write_text('{"errors": [{"error": "no answer"}], "jobs": []}')
        with pytest.raises(InvalidInputError, match="check that slurmctld answers"):
            read_state(folder)


@pytest.mark.parametrize("name", ["squeue.json", "nodes.txt", "taken.txt", "config.txt", "partitions.txt", "sacct.txt"])
def test_a_broken_file_is_read_as_far_as_possible_or_refused(name: str) -> None:
    more = {
        "config.txt": "SchedulerParameters = bf_interval=9,bf_window=99\nKillWait = 12 sec\n",
        "partitions.txt": "PartitionName=main Nodes=n[1-2] PriorityTier=2 MaxTime=1-00:00:00 Default=YES\n",
        "sacct.txt": f"{SACCT}7|ann|lab|COMPLETED|2026-03-04T10:00:00|2026-03-04T10:10:00|2026-03-04T10:20:00|600|60|2|"
        "gres/gpu=8|main\n",
    }
    jobs = [
        job(1, "RUNNING"),
        job(2, node_count=2),
        job(3, features="a&b", dependency="afterok:1", required_nodes="n1"),
    ]
    whole = {**texts(*jobs), **more}
    num_read = 0
    for seed in range(int(os.environ.get("POLLUXSIM_MUTANTS", "40"))):
        rng = random.Random(seed)
        broken = broken_text(whole[name].encode(), rng, rng.choice((":", ",", "=", " "))).decode(errors="replace")
        try:
            asked = situation(state_of("x", {**whole, name: broken}))
        except PolluxSimError as error:
            assert "\n" not in str(error)
            continue
        num_read += 1
        estimates(asked.world, asked.source, asked.names(()), 1)
    assert num_read > 5


QUERY = {"squeue": ["--json"], "sinfo": ["--json"], "scontrol": ["show"], "sdiag": [], "sshare": ["--all"],
         "sacct": ["--allusers"]}  # fmt: skip
"""Commands of Slurm that only ask, and the word that begins such a question."""


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put commands of Slurm on the path that write what they are asked to a file, whose path is returned."""
    programs = tmp_path / "bin"
    programs.mkdir()
    asked = tmp_path / "asked.txt"
    state = texts(job(1, "RUNNING"), job(2), job(3))
    (tmp_path / "squeue.json").write_text(state["squeue.json"])
    (tmp_path / "nodes.txt").write_text(state["nodes.txt"])
    replies = {"squeue": "squeue.json", "scontrol": "nodes.txt"}
    names = [*QUERY, "sbatch", "scancel", "srun", "salloc", "sacctmgr", "sreport", "strigger", "sbcast", "sattach"]
    for name in names:
        reply = f"cat {tmp_path / replies[name]}" if name in replies else "echo"
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {asked}\n{reply}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("polluxsim.logs.live.queries.time.time", lambda: float(NOW))
    return asked


class TestQueries:
    @pytest.mark.parametrize(
        "words",
        [["collect", "-o", "out"], ["eta"], ["try", "--gpus", "2", "--time", "10min"], ["whatif", "--nodes", "+1"]],
    )
    def test_all_commands_of_slurm_are_queries(
        self, words: list[str], fake_slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["twin", *words, *([] if "collect" in words else ["--forks", "2"])]) == 0
        lines = fake_slurm.read_text().splitlines()
        assert len(lines) == len(QUERIES)
        for line in lines:
            program, *arguments = line.split()
            assert program in QUERY, line
            assert arguments[:1] == QUERY[program], line

    def test_the_printed_commands_are_those_of_collect(self, tmp_path: Path) -> None:
        lines = shell_lines("my state")
        assert lines[0] == "mkdir -p 'my state'"
        assert len(lines) == 2 + len(QUERIES)
        assert lines[-1].endswith("> 'my state'/sacct.txt")

    def test_a_second_collection_leaves_no_older_file(self, fake_slurm: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "sacct.txt").write_text("older")
        assert "sacct.txt" in collect(tmp_path / "out")
        assert not (tmp_path / "out" / "sacct.txt").exists()
        assert answers()["taken.txt"] == b"1800000000\n"

    def test_without_slurm_the_error_says_what_to_do(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("PATH", "")
        assert "twin collect --print" in printed(capsys, "twin", "eta", status=2)


def past(
    name: str, share: float, user: str = "", account: str = "", gpus: int = 4, submit: int = NOW - 5000
) -> PastJob:
    """Return an earlier job with a limit of 1,000 s that ran for a share of it."""
    ask = Ask(1, gpus, 1, False, 1000, user, NodeNeeds())
    return PastJob(name, ask, account, submit, submit + int(1000 * share), 1000 * share)


def drawn(jobs: list[PastJob], ask: Ask, account: str = "", elapsed: float = 0.0, count: int = 300) -> np.ndarray:
    groups = Groups(jobs)
    return np.array(
        [Draws(groups, np.random.default_rng(seed)).duration(ask, account, elapsed) for seed in range(count)]
    )


class TestHistory:
    def test_run_times_are_those_of_the_user_then_of_the_account_and_the_size(self) -> None:
        jobs = [past(f"a{i}", 0.1, "ann", "lab") for i in range(80)] + [
            past(f"b{i}", 0.9, "bob", "lab") for i in range(80)
        ]
        jobs += [past(f"c{i}", 0.5, "cid", "shop") for i in range(80)]
        median = {
            user: np.median(drawn(jobs, Ask(1, 4, 1, False, 1000, user, NodeNeeds()), "lab")) for user in ("ann", "bob")
        }
        assert median == {"ann": 100, "bob": 900}
        of_account = drawn(jobs, Ask(1, 4, 1, False, 1000, "new", NodeNeeds()), "shop")
        assert np.median(of_account) == 500
        small = [past(f"s{i}", 0.2, gpus=1) for i in range(80)] + [past(f"l{i}", 0.7, gpus=8) for i in range(80)]
        assert np.median(drawn(small, Ask(1, 1, 1, False, 1000, "", NodeNeeds()))) == 200
        assert np.median(drawn(small, Ask(1, 8, 1, False, 1000, "", NodeNeeds()))) == 700

    def test_a_running_job_runs_longer_than_it_has_run(self) -> None:
        jobs = [past(f"a{i}", 0.1) for i in range(60)] + [past(f"b{i}", 0.8) for i in range(20)]
        ask = Ask(1, 4, 1, False, 1000, "", NodeNeeds())
        assert np.median(drawn(jobs, ask)) == 100
        given_that_it_runs = drawn(jobs, ask, elapsed=300)
        assert given_that_it_runs.min() > 300
        assert np.median(given_that_it_runs) == 800
        assert drawn(jobs, ask, elapsed=1005).max() <= 1035

    def test_a_job_that_runs_longer_than_all_of_its_user_runs_as_those_of_other_users(self) -> None:
        jobs = [past(f"a{i}", 0.1, "ann") for i in range(80)] + [past(f"b{i}", 0.8, "bob") for i in range(80)]
        assert np.median(drawn(jobs, Ask(1, 4, 1, False, 1000, "ann", NodeNeeds()), elapsed=300)) == 800

    def test_jobs_after_the_state_are_ignored_and_counted(self) -> None:
        jobs = [past("a", 0.1), past("b", 0.5, submit=NOW - 200), past("c", 0.1, submit=NOW + 1)]
        history = known_at(jobs, NOW)
        assert [found.name for found in history.jobs] == ["a", "b"]
        assert [found.name for found in history.ended] == ["a"]
        assert history.notes == ["history: 2 jobs that end after the state are ignored"]

    def test_an_output_of_sacct_has_users_accounts_and_limits(self, tmp_path: Path) -> None:
        path = tmp_path / "sacct.txt"
        row = "7|ann|lab|COMPLETED|2026-03-04T10:00:00|2026-03-04T10:10:00|2026-03-04T10:20:00|600|60|2|gres/gpu=8|main"
        path.write_text(f"{SACCT}{row}\n{row.replace('600', 'long')}\n")
        (read,), notes = read_history(path)
        assert (read.ask.user, read.account, read.ask.limit, read.duration) == ("ann", "lab", 3600, 600)
        assert (read.ask.num_nodes, read.ask.gpus, read.end - read.submit) == (2, 4, 1200)
        assert notes == ["sacct.txt: 1 rows are left out: cannot be read"]


class TestAnswers:
    def test_eta_prints_starts_and_ends_with_intervals(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = printed(capsys, "twin", "eta", "--state", folder, "--forks", 3)
        assert "1 running and 3 waiting jobs on 2 nodes" in text
        assert "without estimate, and assumed to delay no other job: 1 pending jobs that are held" in text
        assert "missing inputs: partitions.txt" in text
        answer = json.loads(printed(capsys, "twin", "eta", 1, 2, "--state", folder, "--forks", 3, "--json"))
        running, waiting = answer["rows"]
        assert (running["waits"], waiting["waits"], waiting["start_squeue"]) == (False, True, 540)
        assert (
            0 < waiting["start_95_low"] <= waiting["start_50_low"] <= waiting["start_p50"] <= waiting["start_95_high"]
        )
        # The second job needs both nodes, so it starts at the end of the first one.
        assert waiting["start_p50"] == pytest.approx(running["end_p50"], abs=31)

    def test_a_first_estimate_tells_the_remaining_time(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("polluxsim.cli.twin.LEAST_REMAINING", 0.0)
        assert main(["twin", "eta", "--state", str(folder), "--forks", "6", "--json"]) == 0
        out = capsys.readouterr()
        assert json.loads(out.out)["rows"]
        assert re.fullmatch(
            r"first estimate, from 5 of 6 futures: jobs start in .+ on average; about .+ remain\n", out.err
        )
        monkeypatch.setattr("polluxsim.cli.twin.LEAST_REMAINING", 5.0)
        times = iter([100.0, 108.0])  # after the first and the fifth future
        first = FirstEstimate(45, clock=lambda: next(times))
        for done in range(1, 46):
            first.report(done, "a note")
        assert capsys.readouterr().err == "first estimate, from 5 of 45 futures: a note; about 80 s remain\n"

    def test_the_answer_of_a_seed_is_the_same_again(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("twin", "eta", "--state", folder, "--forks", 4, "--csv")
        assert printed(capsys, *words) == printed(capsys, *words)

    def test_a_line_of_standard_input_is_a_state(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = texts(job(1, "RUNNING"), job(2))
        line = json.dumps({"squeue": json.loads(files["squeue.json"]), "nodes": files["nodes.txt"]})
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{line}\n"))
        assert "standard input" in printed(capsys, "twin", "eta", "--state", "-", "--forks", 2)

    @pytest.mark.parametrize(("name", "message"), [("9", "neither waits nor runs"), ("4", "that are held")])
    def test_a_job_without_estimate_is_an_error(
        self, folder: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
    ) -> None:
        assert message in printed(capsys, "twin", "eta", name, "--state", folder, status=2)

    def test_try_prints_the_request_and_three_alternatives(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ("--state", folder, "--forks", 3, "--json")
        rows = json.loads(printed(capsys, "twin", "try", "--gpus", 8, "--time", "40min", *words))["rows"]
        assert [rows[0]["gpus"], rows[0]["limit"], rows[0]["partition"]] == [8, 2400, "main"]
        assert len(rows) == 4
        assert [row["start_p50"] for row in rows[1:]] == sorted(row["start_p50"] for row in rows[1:])
        assert "--gpus is 9, must be at most" in printed(capsys, "twin", "try", "--gpus", 9, *words, status=2)
        assert "--partition is maim" in printed(
            capsys, "twin", "try", "--gpus", 1, "--partition", "maim", *words, status=2
        )

    def test_the_fair_share_of_a_user_decides_the_priority(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        waiting = [job(number, priority=priority, user_name="bob") for number, priority in ((2, 500), (3, 510))]
        files = texts(job(1, "RUNNING", priority=500, user_name="bob"), *waiting, nodes=1)
        files["config.txt"] = "PriorityType = priority/multifactor\nPriorityWeightFairShare = 1000\n"
        files["sshare.txt"] = "Account|User|RawShares|FairShare\nroot||1|\n lab|ann|1|0.9\n lab|bob|1|0.5\n x|x|1|bad\n"
        state = state_of("x", files)
        assert state.fair_shares == {("lab", "ann"): 0.9, ("lab", "bob"): 0.5}
        assert "sshare.txt: 1 lines cannot be read" in state.notes
        world = TwinWorld(state, Parameters())
        priorities = [job_of_wish(world, TriedJob(4, 600, "main", user)) for user in ("ann", "bob", "eve", "")]
        assert [wished and wished.priority for wished in priorities] == [900, 500, 500, 500]
        # A week later, the waiting jobs have the full age.
        aged = state_of("x", files | {"config.txt": f"{files['config.txt']}PriorityWeightAge = 100\n"})
        of_arrival = TwinWorld(aged, Parameters()).priority_of()
        ask = Ask(1, 4, 1, False, 600, "ann", NodeNeeds())
        assert of_arrival(ask, "lab", NOW) - of_arrival(ask, "lab", NOW + 7 * 86_400) == pytest.approx(100)

        (tmp_path / "s").mkdir()
        for name, text in files.items():
            (tmp_path / "s" / name).write_text(text)
        words = ("twin", "try", "--gpus", 4, "--time", "10min", "--state", tmp_path / "s", "--forks", 3, "--json")
        starts = {}
        notes = {}
        for user in ("ann", "bob"):
            answer = json.loads(printed(capsys, *words, "--user", user))
            starts[user], notes[user] = answer["rows"][0]["start_p50"], answer["notes"][0]
        assert starts["ann"] < starts["bob"]
        assert notes["ann"] == "priority: with the fair-share factor 0.900 of ann (sshare.txt)"
        assert "no --user is given" in printed(capsys, *words)

    def test_whatif_compares_paired_futures(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("--state", folder, "--forks", 3, "--json")
        rows = json.loads(printed(capsys, "twin", "whatif", "--nodes", "+1", *words))["rows"]
        assert [row["job"] for row in rows] == ["2", "3"]
        assert all(row["difference_80_high"] <= 0 for row in rows)
        assert rows[0]["changed_start_p50"] == 0
        rows = json.loads(printed(capsys, "twin", "whatif", "--drain", "n2", *words))["rows"]
        assert rows[0]["changed_start_p50"] is None  # two nodes are needed, and one is left
        same = json.loads(printed(capsys, "twin", "whatif", "--policy", "slurm", *words))["rows"]
        assert {row["difference_p50"] for row in same} == {0}
        for wrong in (["--drain", "n9"], ["--nodes", "4"], []):
            printed(capsys, "twin", "whatif", *wrong, *words, status=2)

    def test_a_page_is_replaced_and_loads_itself_again(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.html"
        page.write_text("older")
        printed(capsys, "twin", "eta", "--state", folder, "--forks", 2, "-o", page)
        text = page.read_text()
        assert '<meta http-equiv="refresh"' in text
        assert "<td>ann</td>" in text
        assert "must end in .html" in printed(capsys, "twin", "eta", "--state", folder, "-o", "page.txt", status=2)

    def test_parameters_are_given_read_or_inferred(self, folder: Path) -> None:
        state = read_state(folder)
        assert situation(state, policy="slurm(bf_interval=7)").world.parameters.bf_interval == 7
        (folder / "config.txt").write_text("SchedulerParameters = bf_interval=9,bf_busy_nodes\nKillWait = 12 sec\n")
        asked = situation(read_state(folder))
        assert (asked.world.parameters.bf_interval, asked.world.parameters.kill_wait) == (9, 12)
        assert "parameters of the schedulers: config.txt, without bf_busy_nodes" in asked.notes
        assert any(note.startswith("parameters are inferred") for note in situation(state).notes)


CONF = """# A cluster
ClusterName=big-one
AuthType=auth/munge
SchedulerParameters=bf_interval=45,bf_max_job_user=20,bf_busy_nodes
PriorityType=priority/multifactor
PriorityWeightAge=1000
NodeName=DEFAULT CPUs=64 \\
  Gres=gpu:4
NodeName=a[1-2] Weight=5
NodeName=b1 Gres=gpu:h100:8 State=DRAIN Port=7
PartitionName=long Nodes=ALL Default=YES
PartitionName=short Nodes=a[1-2] PriorityTier=9
"""

CONF_OF_ACCOUNTS = """ClusterName=site
AccountingStorageEnforce=associations
PriorityType=priority/multifactor
PriorityWeightFairshare=1000
PriorityDecayHalfLife=0
NodeName=n[1-2] CPUs=64 Gres=gpu:4
"""

DUMP = """# To edit this file start with a cluster line
Cluster - 'site':Fairshare=1:QOS='normal'
Parent - 'root'
Account - 'physics':Description='light: colour #1':Fairshare=3:GrpTRES=gres/gpu=4,billing=9:MaxWallDurationPerJob=60
Account - '1001':Description='b':MaxJobs=4
Parent - 'physics'
Account - 'no'
Parent - 'no'
User - '77':DefaultAccount='no':Fairshare=1
User - 'ada':DefaultAccount='no':Fairshare=5
"""


class TestConfiguration:
    def test_a_run_takes_the_files_and_unused_lines_are_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("slurm.conf").write_text(CONF)
        Path("gres.conf").write_text("NodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3]\nAutoDetect=nvml\n")
        Path("dump.txt").write_text("Cluster - 'big-one':Fairshare=1\nUser - 'ann':Fairshare=2\n")
        text = printed(
            capsys, "twin", "config", "slurm.conf", "--gres", "gres.conf", "--accounts", "dump.txt", "-o", "conf"
        )
        for line in (
            "slurm.conf, line 3: AuthType=auth/munge", "slurm.conf, line 4: SchedulerParameters=bf_busy_nodes",
            "slurm.conf, line 10: Port=7", "gres.conf, line 2: AutoDetect=nvml",
            "dump.txt, line 2: User - 'ann':Fairshare=2",
        ):  # fmt: skip
            assert f"  {line}\n" in text
        policy = Path("conf/policy/big-one.yaml").read_text()
        assert "bf_interval: 45 #" in policy
        assert "priority_tier: {short: 9} #" in policy
        Path("jobs.csv").write_text("name,time,num_replicas,duration,queue\na,0,4,600,short\nb,0,4,60,long\n")
        words = ["--config-dir", "conf", "cluster=big-one", "policy=big-one", "workload.path=jobs.csv", "-o", "out"]
        assert main(["run", *words]) == 0

    def test_accounts_of_a_dump_become_those_of_the_policy(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("slurm.conf").write_text(CONF_OF_ACCOUNTS)
        Path("dump.txt").write_text(DUMP)
        words = ("twin", "config", "slurm.conf", "--accounts", "dump.txt", "-o", "conf")
        text = printed(capsys, *words)
        assert "priority_decay_half_life=0, 3 accounts with 2 users\n" in text
        assert "Slurm ignores limits of accounts without AccountingStorageEnforce=limits" in text
        assert "AccountingStorageEnforce=associations" not in text
        assert "  dump.txt, line 4: account physics: GrpTRES=billing=9:MaxWallDurationPerJob=60\n" in text
        policy = Path("conf/policy/site.yaml").read_text()
        for line in (
            "  physics: {fairshare: 3, GrpTRES: {gpu: 4}}",
            '  "1001": {MaxJobs: 4}',
            '  "no": {parent: physics, users: {"77": 1, ada: 5}}',
        ):
            assert f"{line}\n" in policy

        # Each job has half of the GPUs, and `physics` may hold half of them: its jobs run one after another.
        Path("jobs.csv").write_text(
            "name,time,num_replicas,duration,user\na,0,4,600,77\nb,0,4,600,ada\nc,0,4,600,eve\n"
        )
        run = ["run", "--config-dir", "conf", "cluster=site", "policy=site", "workload.path=jobs.csv", "-o", "out"]
        assert main(run) == 0
        jobs = pd.read_parquet("out/jobs.parquet").set_index("job")
        first, second = sorted((jobs.loc["a"], jobs.loc["b"]), key=lambda job: job["start_time"])
        assert second["start_time"] >= first["completion_time"]
        assert jobs.loc["c", "start_time"] < first["completion_time"]

        Path("slurm.conf").write_text(CONF_OF_ACCOUNTS.replace("associations", "limits"))
        assert "Slurm ignores" not in printed(capsys, *words)

    def test_a_single_partition_needs_no_queues(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("slurm.conf").write_text(
            "ClusterName=c\nNodeName=n[1-2] CPUs=8 Gres=gpu:4\nPartitionName=main Nodes=ALL\n"
        )
        assert main(["twin", "config", "slurm.conf", "-o", "conf"]) == 0
        Path("jobs.csv").write_text("name,time,num_replicas,duration\na,0,8,600\n")
        words = ["--config-dir", "conf", "cluster=c", "policy=c", "workload.path=jobs.csv", "-o", "out"]
        assert main(["run", *words]) == 0

    @pytest.mark.parametrize(
        ("text", "message"), [("no\n", "line 1: 'no' must be KEY=VALUE"), ("ClusterName=c\n", "no line has NodeName=")]
    )
    def test_another_file_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
    ) -> None:
        (tmp_path / "x.conf").write_text(text)
        assert message in printed(capsys, "twin", "config", tmp_path / "x.conf", "-o", tmp_path / "conf", status=2)


# Judged by recorded and simulated runs


@pytest.fixture
def recorded(data_folder: Path) -> Path:
    """Return the folder with the recorded runs of Slurm."""
    folder = data_folder.parent / "slurm"
    if not folder.is_dir():
        pytest.skip(f"needs the recorded runs in {folder}, beside the folder of measured data")
    return folder


@pytest.mark.slow
def test_estimates_of_a_recorded_run_are_better_than_those_of_squeue(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--calibrate", recorded / "live.jsonl.gz", "--record", recorded / "live.csv", "--json")
    answer = json.loads(printed(capsys, "twin", "eta", *words))
    assert answer["ratio_p50"] <= 1 / 5
    assert answer["ratio_p90"] <= 1 / 4
    assert 0.60 <= answer["coverage_80"] <= 0.98
    assert answer["agreeing_plans"] / answer["plans"] >= 0.98
    assert answer["settled_plans"] >= 190
    assert answer["agreeing_settled_plans"] / answer["settled_plans"] >= 0.995


def test_a_calibration_judges_each_state_with_what_was_known(recorded: Path, tmp_path: Path) -> None:
    with gzip.open(recorded / "live.jsonl.gz", "rt") as file:
        lines = [line for number, line in enumerate(file) if number in (18, 19)]
    (tmp_path / "few.jsonl").write_text("".join(lines))
    seen: list[int] = []
    result = calibrated(
        tmp_path / "few.jsonl", recorded / "live.csv", num_futures=4, report=lambda done, _: seen.append(done)
    )
    assert (result.num_snapshots, seen) == (2, [1, 2])
    assert result.plans.agreeing == result.plans.compared > 5
    # A job started and another one ended within 2 s before the first state.
    assert 0 < result.settled_plans.agreeing == result.settled_plans.compared < result.plans.compared
    with pytest.raises(InvalidInputError, match="no snapshot has a pending job"):
        (tmp_path / "none.jsonl").write_text('{"at": 1, "squeue": {"jobs": []}, "nodes": "NodeName=n1 CPUTot=1"}\n')
        calibrated(tmp_path / "none.jsonl", recorded / "live.csv")


def drive_jobs(seed: int, count: int, gap: float) -> list[RecordedJob]:
    """Return jobs that are drawn as the driver of the recorded runs draws them."""
    rng = random.Random(seed)
    now = 0.0
    jobs = []
    for position in range(count):
        now += rng.expovariate(1 / gap)
        gpus = rng.choice([1, 1, 2, 2, 4, 4, 8])
        seconds = round(min(170, max(8, rng.lognormvariate(np.log(45), 0.8))))
        limit = 60 * int(np.ceil(seconds * rng.choice([1.05, 1.5, 2.5]) / 60))
        nodes = tuple(range(2 if gpus == 8 else 1))
        submit = int(now)
        jobs.append(
            RecordedJob(str(position), position, submit, submit, submit + seconds, gpus, nodes, limit, "", "main")
        )
    return jobs


def state_job(found: RecordedJob, nodes: tuple[int, ...] | None) -> StateJob:
    """Return a job of a simulated run, which runs on nodes or waits."""
    runs = nodes is not None
    names = tuple(f"n{node}" for node in nodes or ())
    submit = NOW + found.submitted
    return StateJob(
        found.name, "RUNNING" if runs else "PENDING", "Priority", 4.29e9 - found.position, submit, submit,
        NOW + found.start if runs else 0, 0, found.limit, names, len(found.nodes), found.gpus_by_node[0], 1, "", False,
        frozenset(), (), (), ("main",), "", "", "", "", (), (),
    )  # fmt: skip


@pytest.mark.slow
def test_intervals_contain_the_starts_of_simulated_runs() -> None:
    parameters = Parameters(**EACH_SECOND)
    nodes = [StateNode(f"n{number}", 4, 64, 1, "", frozenset(), ("main",), "") for number in range(4)]
    inside: dict[int, list[bool]] = {level: [] for level in LEVELS}
    for seed in range(40):
        jobs = drive_jobs(seed, 75, 7.0 if seed % 2 else 10.0)
        installation = Installation((Node(4, 64),) * 4, parameters, zero=NOW)
        starts = _Simulation(installation, 0, (), jobs).run(10**6)
        earlier = []
        for found in jobs:
            ask = Ask(len(found.nodes), found.gpus_by_node[0], 1, False, found.limit, "", NodeNeeds(("main",)))
            length = found.end - found.start
            end = NOW + starts[found.name] + length
            earlier.append(PastJob(found.name, ask, "", NOW + found.submitted, end, float(length)))
        simulation = _Simulation(installation, 0, (), jobs)
        for second in range(60, max(starts.values()), 60):
            simulation.run(second)
            if not simulation._pending:
                continue
            in_state = [state_job(placed.job, placed.nodes) for placed in simulation._running.values()]
            in_state += [state_job(found, None) for found in simulation._pending]
            world = TwinWorld(SlurmState("test", NOW + second, in_state, nodes), parameters)
            history = known_at(earlier, NOW + second)
            names = [found.name for found in world.pending]
            for estimate in estimates(world, FutureSource(history, recent_arrivals(history)), names):
                for level, (low, high) in estimate.start.intervals.items():
                    inside[level].append(low <= NOW + starts[estimate.name] <= high)
    assert len(inside[80]) > 2000
    assert 0.74 <= np.mean(inside[80]) <= 0.86
    assert 0.42 <= np.mean(inside[50]) <= 0.58
