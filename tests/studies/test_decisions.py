"""Comparisons of a policy with recorded starts: by hand, and with runs of a real Slurm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.policies.slurm import backfill, priority, selection, will_run
from polluxsim.policies.slurm.consumption import Needs, StatedConsumption, needs
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.values import Node, NodePart, PendingJob
from polluxsim.studies.decisions import record as record_module
from polluxsim.studies.decisions import slurm as slurm_decider
from polluxsim.studies.decisions.any_policy import PolicyDecider
from polluxsim.studies.decisions.asked import AskedResources
from polluxsim.studies.decisions.changes_of_nodes import ChangesOfNodes
from polluxsim.studies.decisions.fitting import Fit, fitted
from polluxsim.studies.decisions.judging import agreement
from polluxsim.studies.decisions.orders import COMPLETING, SEEN, UNSEEN, moment_of, views_of
from polluxsim.studies.decisions.record import (
    RawJob,
    Record,
    Started,
    common_fraction,
    read_run,
    record_of,
    seconds_of,
)
from polluxsim.studies.decisions.replaying import best_replay, replayed
from polluxsim.studies.decisions.slurm import Installation, SlurmDecider
from polluxsim.studies.decisions.sources import UNLIMITED, read_record

HEADER = "job,submit,submitted,gpus,duration,limit,start,end,state,nodes\n"

# Two nodes of 4 GPUs. `wide` needs both, and waits for `a`. `short` fits beside its plan, and `long` does not.
BACKFILLED = HEADER + (
    "a,0,0.6,4,100,120,1.25,101.25,COMPLETED,n1\n"
    "wide,5,5.6,8,50,60,101.25,151.25,COMPLETED,n[1-2]\n"
    "short,9,9.6,2,40,60,9.25,49.25,COMPLETED,n2\n"
    "long,20,20.6,2,100,240,151.25,251.25,COMPLETED,n1\n"
)

EACH_SECOND = Parameters(bf_interval=1, bf_resolution=1)


def raw(
    name: str, submitted: float, start: float, end: float, gpus: int = 4, nodes: tuple[str, ...] = ("n1",)
) -> RawJob:
    return RawJob(name, submitted, start, end, gpus, nodes, 60)


def record(*jobs: RawJob) -> Record:
    return record_of(Path("run.csv"), jobs)


def slurm(nodes: int = 2, parameters: Parameters = EACH_SECOND, **more: Any) -> SlurmDecider:
    return SlurmDecider(Installation((Node(4, 64),) * nodes, parameters, **more))


@pytest.fixture
def backfilled(tmp_path: Path) -> Path:
    path = tmp_path / "run.csv"
    path.write_text(BACKFILLED)
    return path


class TestRecord:
    def test_times_are_whole_seconds_of_the_clock_of_the_starts(self, backfilled: Path) -> None:
        jobs = {job.name: job for job in read_run(backfilled).jobs}
        assert read_run(backfilled).fraction == 0.25
        # 0.6 s is in the second that begins at 0.25 s.
        assert (jobs["a"].submitted, jobs["a"].start, jobs["a"].end) == (0, 1, 101)
        assert jobs["wide"].nodes == (0, 1)

    def test_fractions_that_differ_are_none(self) -> None:
        assert common_fraction([1.999, 3.0]) == pytest.approx(0.999)
        assert common_fraction([1.5, 3.0]) == 0.0

    def test_t0_is_in_the_file_beside_it(self, backfilled: Path) -> None:
        assert read_run(backfilled).zero is None
        backfilled.with_suffix(".json").write_text('{"t0": 1000.75}')
        assert read_run(backfilled).zero == 1000.75

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"reservations": [{"name": "m", "nodes": "n1", "created": 1, "start": "x", "end": 9}]}', "start of {"),
            ('{"drains": [{"nodes": "n[1-", "start": 1}]}', "must be names of nodes, like n[1-2]"),
            ('{"drains": [{"nodes": "n1", "start": NaN}]}', "must be a time [s]"),
            ('{"drains": 5}', "drains is 5, must be a list of objects"),
            ('{"reservations": ["m"]}', "reservations is ['m'], must be a list of objects"),
            ('{"t0": Infinity}', "t0 is inf, must be a time [s]"),
        ],
    )
    def test_a_wrong_value_in_the_file_beside_it_is_named(self, backfilled: Path, content: str, message: str) -> None:
        backfilled.with_suffix(".json").write_text(content)
        with pytest.raises(InvalidInputError) as error:
            read_run(backfilled)
        assert message in str(error.value)

    def test_gpus_of_a_node_are_the_largest_use(self) -> None:
        # The second job starts in the second in which the first one ends.
        jobs = [raw("a", 0, 1, 5, 3), raw("b", 0, 5, 9, 3), raw("c", 0, 6, 8, 2)]
        assert record(*jobs).gpus_per_node == 5

    def test_a_second_has_the_state_before_it_and_its_events(self) -> None:
        jobs = [raw("a", 0, 1, 5), raw("b", 2, 5, 9), raw("c", 5, 6, 8)]
        second = next(second for second in seconds_of(record(*jobs)) if second.second == 5)
        names = {
            "running": [job.name for job in second.running], "pending": [job.name for job in second.pending],
            "submitted": [job.name for job in second.submitted], "ended": [job.name for job in second.ended],
        }  # fmt: skip
        assert names == {"running": ["a"], "pending": ["b"], "submitted": ["c"], "ended": ["a"]}
        assert second.started == {Started("b", (0,))}
        assert second.next_jobs == {"c"}

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("wide,5", "a,5", "line 3: job a occurs twice"),
            ("n[1-2]", "n[1-", "line 3: column 'nodes' is 'n[1-'"),
            ("101.25,COMPLETED,n1", "0.25,COMPLETED,n1", "line 2: column 'end' is '0.25'"),
        ],
    )
    def test_wrong_rows_are_named(self, backfilled: Path, old: str, new: str, message: str) -> None:
        backfilled.write_text(BACKFILLED.replace(old, new, 1))
        with pytest.raises(InvalidInputError, match=r".*") as error:
            read_run(backfilled)
        assert message in str(error.value)


class TestOrders:
    def test_submissions_are_first_ones_and_each_end_has_three_states(self) -> None:
        jobs = [raw("a", 0, 1, 5), raw("b", 5, 5, 9), raw("c", 5, 6, 8)]
        second = next(second for second in seconds_of(record(*jobs)) if second.second == 5)
        views = list(views_of(second))
        assert views[0] == (2, (SEEN,))
        assert {view.num_submitted for view in views} == {0, 1, 2}
        assert {view.ends for view in views} == {(UNSEEN,), (COMPLETING,), (SEEN,)}
        assert len(views) == 9

    def test_an_unseen_end_leaves_the_job_running(self) -> None:
        jobs = [raw("a", 0, 1, 5), raw("b", 2, 5, 9)]
        second = next(second for second in seconds_of(record(*jobs)) if second.second == 5)
        states = {}
        for view in views_of(second):
            moment = moment_of(second, view)
            states[view.ends] = ([job.name for job in moment.running], [job.name for job in moment.completing])
        assert states == {(SEEN,): ([], []), (UNSEEN,): (["a"], []), (COMPLETING,): ([], ["a"])}

    def test_two_passes_of_a_second_may_start_jobs(self) -> None:
        """`b` starts before the end of `a` is seen, and `c` after it: `c` would otherwise get the first node."""
        jobs = [raw("a", 0, 1, 20), raw("b", 20, 20, 90, nodes=("n2",)), raw("c", 20, 20, 90)]
        agreed = agreement(record(*jobs), slurm())
        assert (agreed.agreeing_decisions, agreed.decisions) == (2, 2)


class TestAgreement:
    def test_slurm_agrees_with_a_record_by_its_rules(self, backfilled: Path) -> None:
        agreed = agreement(read_run(backfilled), slurm())
        assert (agreed.agreeing_decisions, agreed.decisions) == (4, 4)
        # At 0, 5, 20, 49 and 251 s, something happens and nothing starts.
        assert (agreed.agreeing_quiet, agreed.quiet) == (5, 5)

    def test_a_disagreement_has_the_reasons_of_both_sides(self, backfilled: Path) -> None:
        agreed = agreement(read_run(backfilled), slurm(parameters=Parameters(scheduler_type="sched/builtin")))
        (disagreement,) = agreed.disagreements
        assert disagreement.time == 9
        assert (disagreement.recorded, disagreement.starts) == ({Started("short", (1,))}, frozenset())
        assert disagreement.jobs == ["short"]
        fact = "starts it; it asks for 2 GPUs for 60 s, and it has waited 0 s, as number 2 of the queue"
        assert disagreement.of_record["short"] == fact  # after `wide`
        assert "it or a job before it does not fit" in disagreement.of_policy["short"]

    def test_other_nodes_are_a_disagreement_unless_the_record_names_none(self) -> None:
        on_second = raw("a", 0, 1, 5, nodes=("n2",))
        other = raw("b", 0, 100, 105, nodes=("n1",))
        assert agreement(record(on_second, other), slurm()).agreeing_decisions == 1
        without = [job._replace(nodes=()) for job in (on_second, other)]
        assert agreement(record(*without), slurm(1)).agreeing_decisions == 2

    def test_a_quiet_second_agrees_if_its_starts_are_one_second_late(self) -> None:
        # The node is free at 6 s, when `c` is submitted, and `b` starts later.
        first = raw("a", 0, 0, 5)
        last = raw("c", 6, 100, 105)
        agreed = agreement(record(first, raw("b", 1, 7, 90), last), slurm(1))
        assert not agreed.wrong_quiet
        agreed = agreement(record(first, raw("b", 1, 8, 90), last), slurm(1))
        assert [(one.time, one.starts) for one in agreed.wrong_quiet] == [(6, {Started("b", (0,))})]

    def test_quiet_seconds_are_not_judged_if_the_backfill_does_not_run_each_second(self, backfilled: Path) -> None:
        agreed = agreement(read_run(backfilled), slurm(parameters=Parameters()))
        assert (agreed.quiet, agreed.unjudged_quiet) == (0, 5)

    def test_any_policy_can_be_compared(self, backfilled: Path) -> None:
        from polluxsim.run.named_policies import named_policy

        agreed = {}
        for name in ("fifo", "easy"):
            found = agreement(read_run(backfilled), PolicyDecider(named_policy(name).make, (4, 4)))
            agreed[name] = (found.agreeing_decisions, found.decisions)
        # FIFO does not start `short` ahead of `wide`.
        assert agreed == {"fifo": (3, 4), "easy": (4, 4)}


class TestSources:
    SACCT = (
        "JobID|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|Priority|NodeList|Reservation\n"
        "7|COMPLETED|2026-03-02T00:00:00|2026-03-02T00:00:05|2026-03-02T00:00:10|2026-03-02T00:01:10|60|2|2|gres/gpu=8|50|g[1-2]|\n"
        "8|RUNNING|2026-03-02T00:00:20|2026-03-02T00:00:20|2026-03-02T00:01:10|Unknown|60||1|gres/gpu=1|40|g2|maint\n"
    )

    def test_an_output_of_sacct_has_nodes_limits_and_eligible_times(self, tmp_path: Path) -> None:
        path = tmp_path / "sacct.txt"
        path.write_text(self.SACCT)
        source = read_record(path)
        first, second = source.record.jobs
        assert (first.nodes, second.nodes) == ((0, 1), (1,))
        assert (first.limit, second.limit) == (120, UNLIMITED)
        assert first.start - first.submitted == 5  # from the time at which the job could start
        assert second.end > second.start
        assert source.notes == ["1 jobs are in a reservation, which is not implemented: 8"]

    def test_running_jobs_end_after_each_recorded_time(self, tmp_path: Path) -> None:
        row = "{0}|RUNNING|2026-03-02T00:00:20|2026-03-02T00:00:20|{1}|Unknown|60||1|gres/gpu=2|40|g2|\n"
        path = tmp_path / "sacct.txt"
        path.write_text(self.SACCT + row.format(9, "2026-03-02T00:02:30") + row.format(10, "2026-03-02T00:02:40"))
        found = read_record(path).record
        first, *running = found.jobs
        assert first.end < running[-1].start
        assert {job.end - running[-1].start for job in running} == {1}
        assert found.gpus_per_node == 5

    def test_without_node_names_only_jobs_are_compared(self, tmp_path: Path) -> None:
        path = tmp_path / "sacct.txt"
        path.write_text(self.SACCT.replace("NodeList", "Nodes"))
        found = read_record(path).record
        assert not found.compares_nodes
        assert [job.nodes for job in found.jobs] == [(0, 1), (0,)]

    def test_the_log_of_philly_has_a_start_for_each_attempt(self, tmp_path: Path) -> None:
        def attempt(start: str, end: str, machine: str) -> dict[str, object]:
            return {"start_time": start, "end_time": end, "detail": [{"ip": machine, "gpus": ["gpu0", "gpu1"]}]}

        job = {
            "jobid": "app_1", "submitted_time": "2017-10-03 00:00:00",
            "attempts": [
                attempt("2017-10-03 00:01:00", "2017-10-03 00:02:00", "m1"),
                attempt("2017-10-03 00:03:00", "2017-10-03 00:04:00", "m2"),
            ],
        }  # fmt: skip
        (tmp_path / "cluster_job_log").write_text(json.dumps([job]))
        first, second = read_record(tmp_path).record.jobs
        assert (first.name, second.name) == ("app_1", "app_1#2")
        assert (first.gpus, first.nodes, second.nodes) == (2, (0,), (1,))
        assert second.submitted == first.end

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        with pytest.raises(InvalidInputError, match="neither a recorded run"):
            read_record(tmp_path / "other.csv")


class TestFit:
    def test_values_have_their_origins(self, backfilled: Path) -> None:
        fit = fitted(read_run(backfilled), {"tasks": "node", "cpus": "8"}, Parameters(), frozenset())
        origins = {value.name: value.origin for value in fit.values}
        assert origins == {
            "nodes": "inferred", "gpus": "inferred", "cpus": "given", "scheduler": "fitted", "order": "fitted",
            "tasks": "given", "t0": "fitted",
        }  # fmt: skip
        assert fit.installation.parameters == replace(EACH_SECOND, sched_interval=1, batch_sched_delay=0)
        assert fit.agreement.share == 1.0

    def test_a_stated_value_is_not_fitted(self, backfilled: Path) -> None:
        stated = Parameters(scheduler_type="sched/builtin")
        fit = fitted(read_run(backfilled), {"order": "submission"}, stated, frozenset(["scheduler_type"]))
        assert fit.agreement.share == 0.75
        assert {value.name: value.origin for value in fit.values}["scheduler"] == "given"

    def test_nodes_that_ran_no_job_can_be_stated(self, backfilled: Path) -> None:
        fit = fitted(read_run(backfilled), {"nodes": "n[1-3]"}, Parameters(), frozenset())
        assert len(fit.installation.nodes) == 3
        assert fit.agreement.share < 1.0  # the third node was free all the time

    def test_types_weights_and_tiers_change_what_agrees(self) -> None:
        """`a` asks for the type of the second node; `b` gets the second node, which has the lower weight."""
        typed = raw("a", 0, 0, 50, nodes=("n2",))._replace(gpu_type="h100")
        other = raw("b", 100, 100, 150, nodes=("n2",))
        wait = [raw("c", 200, 200, 300, nodes=("n2",)), raw("d", 200, 200, 300)]
        low = raw("e", 210, 360, 400)._replace(partition="low", gpus=8, nodes=("n1", "n2"))
        high = raw("f", 220, 300, 360)._replace(partition="high", gpus=8, nodes=("n1", "n2"))
        found = record(typed, other, raw("x", 100, 100, 150), *wait, low, high)
        settings = {"weights": "n1:5,n2:1", "tiers": "high:10"}
        shares = []
        for left_out in ("weights", "tiers", ""):
            used = {name: value for name, value in settings.items() if name != left_out}
            shares.append(fitted(found, used, Parameters(), frozenset()).agreement.share)
        assert shares[2] == 1.0
        assert max(shares[:2]) < 1.0
        values = {value.name: value for value in fitted(found, settings, Parameters(), frozenset()).values}
        assert (values["types"].value, values["types"].origin) == ("n2:h100", "inferred")

    def test_features_limit_the_nodes_of_a_job(self) -> None:
        """`a` would get the first node, which lacks a feature."""
        asks = raw("a", 0, 0, 50, nodes=("n2",))._replace(asked=AskedResources(features=frozenset({"big", "fast"})))
        found = record(asks, raw("b", 100, 100, 150))
        for features, agreeing in (("n1:big,n2:big&fast", 2), ("n[1-2]:big&fast", 1)):
            agreed = fitted(found, {"features": features}, Parameters(), frozenset()).agreement
            assert agreed.agreeing_decisions == agreeing, features

    def test_limits_of_a_qos_stop_jobs_of_a_record(self) -> None:
        """`b` waits for the end of `a`, although a node is free."""
        asked = AskedResources(qos="q")
        jobs = [raw("a", 0, 0, 50)._replace(asked=asked), raw("b", 10, 50, 90)._replace(asked=asked)]
        found = record(*jobs, raw("c", 20, 20, 90, nodes=("n2",)))
        limited = Parameters(qos={"q": {"MaxJobsPU": 1}})
        assert fitted(found, {}, limited, frozenset()).agreement.agreeing_decisions == 3
        free = fitted(found, {}, Parameters(), frozenset()).agreement
        assert free.agreeing_decisions < 3

    def test_reasons_tell_who_does_not_take_part_and_who_is_stopped(self) -> None:
        asked = AskedResources(qos="q")
        jobs = [raw("a", 0, 0, 50)._replace(asked=asked), raw("b", 10, 60, 90)._replace(asked=asked)]
        later = raw("c", 10, 30, 90, nodes=("n2",))._replace(asked=AskedResources(begin=40))
        limited = Parameters(bf_interval=1, bf_resolution=1, qos={"q": {"MaxJobsPU": 1}})
        agreed = agreement(record(*jobs, later), slurm(parameters=limited))
        (wrong,) = [one for one in agreed.disagreements if one.time == 30]
        assert "does not take part yet" in wrong.of_policy["c"]
        assert "a limit of its account or QOS stops it" in wrong.of_policy["b"]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"weights": "n1"}, "weights is 'n1', must be pairs like n[1-2]:1,n[3-4]:10"),
            ({"weights": "n9:1"}, "weights names node 'n9', must be one of n1, n2"),
            ({"tiers": "high:x"}, "tiers is 'high:x', must be pairs like high:10,low:1"),
            ({"node": "n1"}, "node is unknown, must be one of nodes, gpus"),
            ({"nodes": "n1"}, "nodes is 'n1', must be all nodes of the record, also n2"),
            ({"gpus": "3"}, "gpus is 3, must be at least 4"),
            ({"cpus": "no"}, "cpus is 'no', must be a whole number"),
            ({"order": "fifo"}, "order is 'fifo', must be one of submission, size, small"),
            ({"t0": "now"}, "t0 is 'now', must be the epoch time"),
        ],
    )
    def test_a_wrong_setting_is_named(self, backfilled: Path, settings: dict[str, str], message: str) -> None:
        with pytest.raises(InvalidConfigError) as error:
            fitted(read_run(backfilled), settings, Parameters(), frozenset())
        assert message in str(error.value)


class TestCommand:
    def run(self, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["log", "decisions", *words]) == status
        return capsys.readouterr().out

    def test_the_last_lines_count_quiet_seconds_and_decisions(
        self, backfilled: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = self.run(capsys, str(backfilled), "--policy", "slurm").splitlines()
        assert lines[-2:] == ["5 of 5 quiet seconds agree", "4 of 4 decisions agree"]

    def test_at_least_gives_the_exit_status(self, backfilled: Path, capsys: pytest.CaptureFixture[str]) -> None:
        builtin = "slurm(scheduler_type=sched/builtin)"
        self.run(capsys, str(backfilled), "--policy", builtin, "--at-least", "75%")
        printed = self.run(capsys, str(backfilled), "--policy", builtin, "--at-least", "76%", status=1)
        assert "at 9 s the record starts short on n2; the policy starts no job" in printed

    def test_settings_of_the_policy_are_those_of_slurm(
        self, backfilled: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = (str(backfilled), "--policy", "slurm(bf_interval=30,bf_resolution=60)", "--json")
        found = json.loads(self.run(capsys, *words))
        scheduler = found["settings"]["scheduler"]
        assert scheduler["value"] == "sched/backfill (bf_interval=30, bf_resolution=60)"
        assert found["unjudged_quiet_seconds"] == 5

    @pytest.mark.parametrize(
        ("more", "order"),
        [("", "size"), (", priority_favor_small=true", "small")],
    )
    def test_parameters_of_the_policy_state_order_tasks_and_tiers(
        self, backfilled: Path, capsys: pytest.CaptureFixture[str], more: str, order: str
    ) -> None:
        size = f"priority_type=priority/multifactor, priority_weight_job_size=1000{more}"
        policy = f"slurm({size}, tasks=gpu, priority_tier={{high: 10}})"
        found = json.loads(self.run(capsys, str(backfilled), "--policy", policy, "--json"))["settings"]
        values = {name: tuple(found[name].values()) for name in ("order", "tasks", "tiers")}
        assert values == {"order": (order, "given"), "tasks": ("gpu", "given"), "tiers": ("high:10", "given")}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--policy", "slurm(bf_interval=0)"], "policy.bf_interval is 0, must be a whole number"),
            (["--policy", "slurm", "nodes"], "no place for the argument"),
            (["--policy", "easy", "tasks=gpu"], "tasks has an effect for --policy slurm only"),
            (["--policy", "slurm", "--at-least", "0.9"], "--at-least is 0.9, must be a percentage, like 95%"),
            (["--policy", "unknown"], "policy=unknown is unknown"),
        ],
    )
    def test_a_mistake_is_one_line(
        self, backfilled: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
    ) -> None:
        capsys.readouterr()
        assert main(["log", "decisions", str(backfilled), *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


class TestReplay:
    def test_a_replay_by_the_right_rules_is_exact(self, backfilled: Path) -> None:
        each_second = replace(EACH_SECOND, sched_interval=1, batch_sched_delay=0)
        found = read_run(backfilled)
        replay = replayed(found, Installation((Node(4, 64),) * 2, each_second))
        # The first job starts when it is submitted, one second before the record.
        assert replay.recorded_wait == pytest.approx((1 + 96 + 0 + 131) / 4)
        assert replay.simulated_wait == pytest.approx(replay.recorded_wait - 3 / 4)
        # The record is at 0 s and at 120 s; `long` starts 31 s after the second one.
        assert list(replay.errors) == [1, 0]

    def test_a_replay_by_other_rules_is_not(self, backfilled: Path) -> None:
        builtin = Parameters(scheduler_type="sched/builtin", sched_interval=1, batch_sched_delay=0)
        replay = replayed(read_run(backfilled), Installation((Node(4, 64),) * 2, builtin))
        assert replay.simulated_wait > replay.recorded_wait + 20  # `short` waits for `wide`

    def test_the_command_prints_both_simulations(self, backfilled: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["log", "decisions", str(backfilled), "--policy", "slurm", "--replay"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-4].startswith("simulated as a whole with true run times, the mean wait is")
        assert lines[-3].startswith("simulated from the recorded state every 120 s, ")
        assert main(["log", "decisions", str(backfilled), "--policy", "easy", "--replay"]) == 2


RUNS = {"fifo": 37, "bf": 75, "mf": 83, "run1": 57, "live": 55}


def fit_of(folder: Path, run: str) -> Fit:
    return fitted(read_run(folder / f"{run}.csv"), {}, Parameters(), frozenset())


@pytest.fixture(scope="module")
def fits(slurm_runs: Path) -> dict[str, Fit]:
    """Return the fit of each recorded run."""
    return {run: fit_of(slurm_runs, run) for run in RUNS}


@pytest.mark.parametrize("run", RUNS)
def test_a_replay_is_near_the_record(fits: dict[str, Fit], run: str) -> None:
    replay = best_replay(fits[run].record, fits[run].equal)
    assert abs(replay.simulated_wait / replay.recorded_wait - 1) < 0.1
    median, high = replay.percentiles
    assert (median <= 1, high <= 5) == (True, True)
    assert len(replay.errors) > 10


@pytest.mark.parametrize(("run", "decisions"), RUNS.items())
def test_slurm_decides_as_a_real_slurmctld(fits: dict[str, Fit], run: str, decisions: int) -> None:
    agreed = fits[run].agreement
    assert (agreed.agreeing_decisions, agreed.decisions) == (decisions, decisions)
    assert agreed.agreeing_quiet == agreed.quiet > 0


def test_the_fit_finds_how_the_runs_were_made(fits: dict[str, Fit]) -> None:
    """The README of the runs states scheduler, order and tasks; the page of the rules states t0."""
    made = {
        "fifo": ("sched/builtin", "submission", "gpu", None),
        "bf": ("sched/backfill", "submission", "gpu", 3),
        "mf": ("sched/backfill", "size", "gpu", None),
        "run1": ("sched/backfill", "submission", "node", 16),
        "live": ("sched/backfill", "submission", "node", None),
    }
    for run, (scheduler, order, tasks, offset) in made.items():
        found = fits[run].record
        fit = fits[run].installation
        assert (fit.parameters.scheduler_type, fit.order, fit.tasks) == (scheduler, order, tasks)
        if offset is not None:
            known = agreement(found, SlurmDecider(replace(fit, zero=offset)))
            assert known.share == 1.0


HERE = Path(__file__).parent / "slurm_runs"


class Feature(NamedTuple):
    """A run of a real Slurm beside this file: its decisions, and what its record does not state."""

    decisions: int
    settings: dict[str, str]
    parameters: Parameters = Parameters()

    def fit(self, run: str) -> Fit:
        return fitted(read_run(HERE / f"{run}.csv"), self.settings, self.parameters, frozenset())


WITH_MEMORY = Parameters(select_type_parameters="CR_Core_Memory", def_cpu_per_gpu=16, def_mem_per_gpu=60_000)

FEATURES = {
    "each-second": Feature(47, {}),
    "default": Feature(36, {}),
    "types": Feature(35, {"weights": "n[1-2]:10"}),
    "tiers": Feature(39, {"tiers": "high:10"}),
    "memory": Feature(39, {"cpus": "64", "memory": "256000"}, WITH_MEMORY),
    "queue": Feature(39, {}),
    "reservations": Feature(41, {}),
    "preempt": Feature(52, {"tiers": "high:10"}, Parameters(preempt_type="preempt/partition_prio")),
    "partitions": Feature(38, {"partitions": "left:n[1-3],right:n[2-4],high:n[3-4]", "tiers": "high:5"}),
}


@pytest.mark.parametrize("run", FEATURES)
def test_a_run_with_a_feature_agrees(run: str) -> None:
    feature = FEATURES[run]
    agreed = feature.fit(run).agreement
    assert (agreed.agreeing_decisions, agreed.decisions) == (feature.decisions, feature.decisions)
    assert agreed.agreeing_quiet == agreed.quiet


@pytest.mark.parametrize("run", ["types", "tiers", "memory", "partitions"])
def test_a_run_with_a_feature_does_not_agree_without_its_settings(run: str) -> None:
    agreed = fitted(read_run(HERE / f"{run}.csv"), {}, Parameters(), frozenset()).agreement
    assert agreed.share < 0.95


def in_first_partition(jobs: Iterable[PendingJob]) -> list[PendingJob]:
    """Return jobs as if each were submitted to the first of its partitions only."""
    return [job._replace(partition=job.partition.split(",")[0]) for job in jobs]


def needs_without_cpus(gpus: int, num_tasks: int, stated: StatedConsumption, parameters: Parameters) -> Needs:
    """Return the needs of a job as if CPUs did not limit jobs."""
    return needs(gpus, num_tasks, stated, parameters)._replace(cpus=1)


LEFT_OUT: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "several partitions": (
        "partitions",
        lambda patch: patch.setattr(priority, "in_each_partition", in_first_partition),
    ),
    "eligibility": ("queue", lambda patch: patch.setattr(slurm_decider, "taking_part", lambda pending, *_: pending)),
    "reservations": (
        "reservations",
        lambda patch: patch.setattr(ChangesOfNodes, "reservations_at", lambda *_: []),
    ),
    "drained nodes": ("reservations", lambda patch: patch.setattr(ChangesOfNodes, "drained_at", lambda *_: 0)),
    "preemption": ("preempt", lambda patch: patch.setattr(Parameters, "preempts", False)),
    "requeued jobs": ("preempt", lambda patch: patch.setattr(record_module, "REQUEUE_WAIT", 0)),
    "CPUs": ("memory", lambda patch: patch.setattr(slurm_decider, "needs", needs_without_cpus)),
    "memory": ("memory", lambda patch: patch.setattr(NodePart, "memory_on", lambda *_: 0)),
    "exclusive": ("memory", lambda patch: patch.setattr(selection, "is_idle", lambda *_: True)),
}


@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_run_with_a_feature_needs_its_rule(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    run, leave_out = LEFT_OUT[rule]
    leave_out(monkeypatch)
    assert FEATURES[run].fit(run).agreement.share < 0.95


def test_the_fit_finds_the_default_parameters() -> None:
    parameters = fitted(read_run(HERE / "default.csv"), {}, Parameters(), frozenset()).installation.parameters
    assert (parameters.bf_interval, parameters.bf_resolution) == (30, 60)


def one_by_one(by_end: list[Any], allowed: int, free: Any, parameters: Parameters) -> Iterator[Any]:
    """Give back what running jobs hold, one job at a time, instead of in groups."""
    for job in by_end:
        if job.nodes & allowed:
            free.give_back(job.held)
            yield job


def without_runs(fitting: list[int], nodes: object) -> list[list[int]]:
    """Return one run of all fitting nodes, as if they were all neighbours."""
    return [list(fitting)]


def plan_of_first_only(original: Callable[..., None]) -> Callable[..., None]:
    """Return a method that holds nodes for the first waiting job only, as EASY backfill does."""

    def plan(self: Any, plan: Any, used: int) -> None:
        is_first = not self._result.plans
        original(self, plan._replace(holds_nodes=plan.holds_nodes and is_first), used)

    return plan


RULES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "windows": ("bf", lambda patch: patch.setattr(will_run, "groups_of_ends", one_by_one)),
    "epoch anchor": ("run1", lambda patch: patch.setattr(will_run, "first_edge", lambda end: end)),
    "runs of neighbours": ("live", lambda patch: patch.setattr(selection, "runs_of_neighbours", without_runs)),
    "a plan for each job": (
        "run1",
        lambda patch: patch.setattr(backfill._Cycle, "_plan", plan_of_first_only(backfill._Cycle._plan)),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_comparison_fails_without_a_rule(slurm_runs: Path, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    run, leave_out = RULES[rule]
    leave_out(monkeypatch)
    agreed = fit_of(slurm_runs, run).agreement
    assert agreed.decisions - agreed.agreeing_decisions > 1


OWN = ("fifo", "easy", "conservative", "slurm")


@pytest.fixture(scope="module")
def own_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of each policy on a busy cluster of several nodes."""
    folder = tmp_path_factory.mktemp("own")
    rng = random.Random(5)
    lines = ["job,submit,duration,gpus,time_limit"]
    submitted = 0
    for number in range(60):
        submitted += rng.randint(0, 60)
        duration = rng.randint(60, 900)
        limit = 60 * ceil(duration * rng.choice([1.05, 1.5, 2.5]) / 60)
        lines.append(f"j{number},{submitted},{duration},{rng.choice([1, 1, 2, 2, 4, 4, 8])},{limit}")
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["log", "import", "table", "jobs.csv", "-o", "log.parquet"]) == 0
        for policy in OWN:
            words = [f"policy={policy}", "workload=trace", "workload.path=log.parquet"]
            assert main(["run", *words, "cluster.num_nodes=4", "cluster.gpus_per_node=4", "-o", policy]) == 0
    return folder


@pytest.mark.parametrize("policy", OWN)
def test_a_policy_agrees_with_its_own_run_and_no_other_policy_does(own_runs: Path, policy: str) -> None:
    from polluxsim.records.storage import read_run as read_own_run
    from polluxsim.studies.decisions.comparing import compared_to_run

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(own_runs)
        run = read_own_run(own_runs / policy)
        shares = {other: compared_to_run(run, other).agreement for other in OWN}
    own = shares.pop(policy)
    assert own.agreeing_decisions == own.decisions > 20
    assert own.agreeing_quiet == own.quiet
    for other, agreed in shares.items():
        assert agreed.decisions == own.decisions
        assert agreed.agreeing_decisions < own.decisions, other
