"""`polluxsim paper conformance`: one table of all published numbers that the data at hand allow, and an exit status."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hydra.utils import get_object
from perturbed_schedulers import CASES, UNCHANGED, WIDTHS, Case, Job, run, study_of, turned

from polluxsim.cli.main import main, parsed
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.summary import summarise
from polluxsim.policies.deadlines.elasticflow import ElasticFlow
from polluxsim.run.building import load
from polluxsim.statistics.estimates import Estimate, Measured
from polluxsim.studies.paper.conformance import conformance_cells, left_out, why_not
from polluxsim.studies.paper.experiments import (
    Experiment,
    Inputs,
    experiment_names,
    other_systems,
    read_experiment,
)
from polluxsim.studies.paper.published import (
    Published,
    PublishedFinding,
    RuleKind,
    Verdict,
    VerdictRule,
    difference,
    judge,
)
from polluxsim.studies.paper.published_runs import (
    CORRELATION,
    MEDIAN_DIFFERENCE,
    P90_DIFFERENCE,
    PER_JOB,
    SAME_JOBS,
    compare_job_times,
    read_job_times,
)
from polluxsim.studies.paper.runs import planned
from polluxsim.studies.plan import composer
from polluxsim.workloads.simulator_lists import ElasticFlowJobs

COLUMNS = ["system", "case", "number", "published", "ours", "difference", "tolerance", "verdict"]
MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,priority\n"


def conformance(*arguments: object) -> int:
    return main(["paper", "conformance", "--workers", "1", *map(str, arguments)])


def small_data(folder: Path) -> Path:
    """Return a folder with one of Muri's traces, of two jobs, and nothing else."""
    path = folder / "it's data" / "rigid" / "muri" / "trace3.csv"
    path.parent.mkdir(parents=True)
    path.write_text(MURI + "a,4,0,1000,bert,4,99,200,0\nb,4,1,10,bert,4,99,200,0\n")
    return folder / "it's data"


def test_what_is_at_hand_runs_and_the_rest_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = small_data(tmp_path), tmp_path / "out"
    assert conformance("--data", data, "-o", out) == 1  # two jobs have none of the published times
    told = capsys.readouterr().out
    assert "has no rigid/muri/trace3_pr.csv, rigid/muri/trace4.csv" in " ".join(told.split())
    assert "elasticflow: " in told
    table = pd.read_csv(out / "conformance.csv")
    assert list(table.columns) == COLUMNS
    policies = ("SRTF", "SRSF", "Tiresias-L", "AntMan", "Muri-S", "Muri-L")
    assert set(table["case"].str.split(" against").str[0]) == {f"{name} trace3" for name in policies}
    assert set(table.loc[table["number"] == "last completion", "verdict"]) == {"not met"}
    before = (out / "conformance.csv").read_bytes()

    def must_not_run(*_: object) -> None:
        raise AssertionError("a finished run was made again")

    monkeypatch.setattr("polluxsim.studies.launching.LocalWorkers.launch", must_not_run)
    monkeypatch.setenv("POLLUXSIM_DATA", str(data))
    assert conformance("-o", out) == 1
    assert (out / "conformance.csv").read_bytes() == before
    assert main(["paper", "reproduce", "muri", "--workers", "1", "-o", str(out)]) == 0
    assert "of 23 published numbers are met" in capsys.readouterr().out


def test_the_help_does_not_show_the_folder_of_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLUXSIM_DATA", "/some/data")
    assert parsed(["paper", "conformance"]).data == Path("/some/data")
    with pytest.raises(SystemExit):
        main(["paper", "conformance", "--help"])
    assert "/some/data" not in capsys.readouterr().out


def test_what_only_all_runs_is_told(osdi21: Path) -> None:
    inputs = Inputs(osdi21, osdi21, data=osdi21.parent)
    long = [line for line in left_out(inputs, everything=False) if "--all" in line]
    assert "fig8a: takes minutes, only --all runs it" in long
    assert not any(line.startswith("sia") for line in long)
    assert not any("--all" in line for line in left_out(inputs, everything=True))


def test_a_number_that_is_not_judged_is_no_number_that_did_not_run() -> None:
    row = next(row for row in read_experiment("table2").published if row.note)
    measured = Measured(Estimate(row.in_base_units, None, None), 1, "workloads")
    for ours, verdict, words in (
        (measured, Verdict("–", None), "not judged"),
        (None, Verdict("not run", None), "not run"),
        (measured, Verdict("off", False), "not met"),
    ):
        finding = PublishedFinding(row, ours, row.measured, verdict)
        assert conformance_cells("Pollux", finding)[-1] == words
        assert len(why_not([("Pollux", finding)])) == (words == "not met")


def test_inputs_that_an_experiment_does_not_use_are_refused(
    osdi21: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["paper", "reproduce", "muri", "--data", str(osdi21.parent), "-o", str(tmp_path / "out")]
    for option in ("--profiles", "--workloads"):
        assert main([*command, option, str(osdi21)]) == 2
        assert f"{option} has no effect on muri: all inputs are in --data; leave it out" in capsys.readouterr().err


def test_an_arm_without_its_data_is_not_placed() -> None:
    arm = read_experiment("muri").arms[0]
    with pytest.raises(InvalidConfigError, match=r"trace3.csv is missing, because no folder of data is given"):
        Inputs().placed(arm)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the folder of published data is missing; give it with --data DIR or POLLUXSIM_DATA"),
        (["--data", "nowhere"], "nowhere: no such folder; give the folder that contains rigid/"),
        (["--data", "."], "has no data of published numbers"),
    ],
)
def test_no_data_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("POLLUXSIM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert conformance(*arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert main(["paper", "reproduce", "muri"]) == 2
    assert (
        "rigid/muri/trace3.csv is missing, because no folder of data is given; give it with --data DIR"
        in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_every_system_has_its_values_and_its_command() -> None:
    assert {"muri", "elasticflow", "gavel", "shockwave"} <= set(other_systems())
    assert not set(other_systems()) & set(experiment_names())
    for name in set(other_systems()) - {"sia"}:  # whose workloads are ours
        experiment = read_experiment(name)
        text = (shipped("experiments") / "conformance" / f"{name}.yaml").read_text(encoding="utf-8")
        assert f"\n#   polluxsim paper reproduce {name} --data DATA\n" in text
        assert experiment.system != "Pollux"
        assert all(arm.data for arm in experiment.arms)
        assert {row.arm for row in experiment.published} == {arm.name for arm in experiment.arms}
        # Gandiva's published simulator passes no turns between arrivals: said beside ours, and not judged.
        judged = [row for row in experiment.published if row.arm != "Gandiva"]
        assert all(row.by_simulator == (row.measured.kind is not RuleKind.NONE) for row in judged)


def test_gangs_of_sias_experiment_fit_on_every_type(tmp_path: Path) -> None:
    """Each of Gavel's jobs can have its GPUs on the type with fewest; published workloads ask for more."""
    sia = read_experiment("sia")
    runs = {run.arm.name: run for run in planned(sia, Inputs(), 1).runs}
    assert set(runs) == {f"{system} {load}" for system in ("Gavel", "Pollux", "Sia") for load in ("1", "1.6")}
    for name, count in (("Gavel 1", 160), ("Gavel 1.6", 256)):
        spec = composer().compose(runs[name].overrides)
        jobs = load(spec.config, "workload", Inputs().load_profiles())
        assert len(jobs.jobs) == count
        assert max(job.num_replicas for job in jobs.jobs) == 16
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "workload-1.csv").touch()
    published = Inputs(workloads=tmp_path)
    assert {arm.name for arm in sia.arms if published.units(arm, 1, None)} == {"Pollux 1", "Sia 1"}


def test_points_are_of_the_share_itself() -> None:
    """Three points of 11.8 % are not three per cent of them."""
    rule = VerdictRule(RuleKind.POINTS, 0.03)
    row = Published("deadlines met", "a", "", 11.8, "%", rule, rule, "", "simulator")
    verdicts = {ours: judge(Estimate(ours, None, None), row, rule) for ours in (0.1, 0.147, 0.15)}
    assert [verdict.passed for verdict in verdicts.values()] == [True, True, False]
    assert verdicts[0.15].words == "outside 3 points"
    assert difference(0.15, row) == pytest.approx(0.032)


def judged(
    ours: dict[str, float], published: dict[str, float], rules: dict[str, VerdictRule]
) -> dict[str, bool | None]:
    """Judge the comparison of single jobs, with 1 as published correlation and share of jobs, and 0 as differences."""
    found = compare_job_times(ours, published)
    best = {SAME_JOBS: 100.0, CORRELATION: 100.0, MEDIAN_DIFFERENCE: 0.0, P90_DIFFERENCE: 0.0}
    rows = {metric: Published(metric, "a", "", best[metric], "%", rule, rule, "", "") for metric, rule in rules.items()}
    return {
        metric: judge(Estimate(found[metric], None, None), row, row.measured).passed for metric, row in rows.items()
    }


JOBS = {f"job-{number}": 60.0 * 1.2**number for number in range(40)}
RULES = {
    SAME_JOBS: VerdictRule(RuleKind.WITHIN, 0.005),
    CORRELATION: VerdictRule(RuleKind.WITHIN, 0.005),
    MEDIAN_DIFFERENCE: VerdictRule(RuleKind.POINTS, 0.005),
    P90_DIFFERENCE: VerdictRule(RuleKind.POINTS, 0.01),
}


@pytest.mark.parametrize(
    ("change", "red"),
    [
        (lambda number, time: time, set()),
        (lambda number, time: 1.004 * time, set()),
        (lambda number, time: 1.006 * time, {MEDIAN_DIFFERENCE}),
        (lambda number, time: 1.02 * time, {MEDIAN_DIFFERENCE, P90_DIFFERENCE}),
        # A tenth of the jobs changes, in opposite directions: the mean may stay, the 90th percentile does not.
        (lambda number, time: time * (1 + 0.03 * (-1) ** number) if number % 8 < 2 else time, {P90_DIFFERENCE}),
        (lambda number, time: JOBS["job-38"] if number == 2 else time, {CORRELATION}),
        (lambda number, time: None if number == 7 else time, {SAME_JOBS}),
    ],
)
def test_a_change_of_single_jobs_turns_their_verdict_red(change, red: set[str]) -> None:
    ours = {name: change(number, time) for number, (name, time) in enumerate(JOBS.items())}
    found = judged({name: time for name, time in ours.items() if time is not None}, JOBS, RULES)
    assert {metric for metric, passed in found.items() if not passed} == red


def test_jobs_that_did_not_complete_are_counted_and_not_compared() -> None:
    published = dict(list(JOBS.items())[:30])
    found = compare_job_times({name: JOBS[name] for name in list(JOBS)[10:]}, published)
    assert found[SAME_JOBS] == 20 / 40
    assert (found[CORRELATION], found[MEDIAN_DIFFERENCE]) == (pytest.approx(1), 0)
    rejected = dict.fromkeys(list(JOBS)[:10], math.nan)
    assert compare_job_times({**JOBS, **rejected}, dict(list(JOBS.items())[10:]))[SAME_JOBS] == 1
    assert compare_job_times({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0}) == {SAME_JOBS: 1.0}
    assert compare_job_times(dict.fromkeys("abc", 5.0), dict.fromkeys("abc", 5.0))[CORRELATION] == 0


def test_published_times_of_jobs_are_read_from_csv_and_json(tmp_path: Path) -> None:
    (tmp_path / "muri.csv").write_text("job_id,submit_s,start_s,end_s,jct_s\n7,0.0,1.0,3.5,3.5\n")
    assert read_job_times(tmp_path / "muri.csv") == {"7": 3.5}
    (tmp_path / "ef.csv").write_text("job_id,end_s,ended,listed_jct_s\n0,3,1,3\n1,,0,\n")
    assert read_job_times(tmp_path / "ef.csv") == {"0": 3.0}
    (tmp_path / "run.json").write_text('{"jct_s": [5.0, 6.5]}')
    assert read_job_times(tmp_path / "run.json") == {"0": 5.0, "1": 6.5}
    (tmp_path / "types.json").write_text('{"policies": {"allox": {"jct_s": [1.0]}}}')
    assert read_job_times(tmp_path / "types.json", "allox") == {"0": 1.0}
    with pytest.raises(InvalidInputError, match="cannot be read as completion times of jobs"):
        read_job_times(tmp_path / "types.json")


def test_times_of_single_jobs_are_judged_where_they_are_at_hand(tmp_path: Path) -> None:
    """Without the file the numbers are left out; with it, a policy in another order misses them."""
    data = tmp_path / "data"
    path = data / "rigid" / "muri" / "trace3.csv"
    path.parent.mkdir(parents=True)
    path.write_text(MURI + "".join(f"{number},4,{number},{50 - number},bert,4,99,20000,0\n" for number in range(40)))
    study = study_of("muri", data, tmp_path / "runs")
    assert not {row.metric for row in study.experiment.published} & set(PER_JOB)

    unmodified = Job("muri", "", UNCHANGED.words, "SRTF trace3")
    folder = run(unmodified, data, tmp_path / "runs")
    jobs = pd.read_parquet(folder / "jobs.parquet").rename(columns={"job": "job_id", "jct": "jct_s"})
    (path.parent / "expected").mkdir()
    jobs[["job_id", "jct_s"]].to_csv(path.parent / "expected" / "trace3_srtf.csv", index=False)
    study = study_of("muri", data, tmp_path / "runs")
    verdicts = [
        {each.verdict.passed for each in study.findings([job]) if each.published.metric in PER_JOB}
        for job in (unmodified, unmodified._replace(scheduler="SRTF", words="order of submission"))
    ]
    assert verdicts == [{True}, {False}]


def test_every_scheduler_with_published_numbers_has_three_perturbations() -> None:
    for name in other_systems():
        arms = {row.arm for row in read_experiment(name).published if row.measured.kind is not RuleKind.NONE}
        cases = [case for case in CASES if case.system == name]
        covered = {scheduler_of(arm) for case in cases for arm in case.arms}
        assert {scheduler_of(arm) for arm in arms} <= covered | NOT_PERTURBED, name
        for case in cases:
            assert len(case.perturbations) >= 3
            assert set(case.arms) <= arms
            for target in (target for change in case.perturbations for target in change.patches):
                assert get_object(target) is not None


def test_the_page_lists_numbers_that_turn_red_under_each_perturbation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "perturbations.md").read_text(encoding="utf-8")
    listed = {case.system: page.partition(f"\n### {read_experiment(case.system).title}\n")[2] for case in CASES}
    assert listed["muri"]
    assert listed["elasticflow"]
    for case in (case for case in CASES if listed[case.system]):
        rows = listed[case.system].partition(f"#### {case.scheduler}\n")[2].partition("\n#")[0]
        for change in case.perturbations:
            assert f"\n| {change.words} | **" in rows, (case.scheduler, change.words)


def scheduler_of(arm: str) -> str:
    """Return an arm's name without its trace, load and settings."""
    name = re.sub(r"(, no overtime| trace\w+| [\d.]+)$", "", arm)
    return "Replay" if name.endswith(" replayed") else name


NOT_PERTURBED = {"Pollux"}
"""Schedulers with perturbations among the experiments of their own paper."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if (case.system, case.scheduler) in {("muri", "SRTF"), ("muri", "SRSF"), ("elasticflow", "EDF")}
    ],
    ids=lambda case: f"{case.system}-{case.scheduler}",
)
def test_a_perturbed_rule_turns_verdicts_red(data_folder: Path, made: Path, case: Case) -> None:
    """A sample whose runs are short; `benchmarks/perturbed_schedulers.py` perturbs every scheduler."""
    study = study_of(case.system, data_folder, made / "perturbed")
    before, after = (study.findings(study.jobs(case, change)) for change in (UNCHANGED, case.perturbations[0]))
    assert turned(before, after)


LONG = {f"policy={name}" for name in ("antman", "gandiva", "muri-l", "muri-s", "shockwave")}
"""Policies whose runs take most of the time; `polluxsim paper conformance` runs them as well."""


@pytest.mark.slow
def test_each_tolerance_is_the_smallest_that_is_met(
    data_folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that miss the largest tolerance have a note that says why."""

    def without_long_runs(name: str) -> Experiment:
        experiment = read_experiment(name)
        long = LONG | {"policy=max-min"} if name == "gavel" else LONG
        arms = (
            replace(arm, is_long=arm.is_long or "trace4" in arm.name or not long.isdisjoint(arm.overrides))
            for arm in experiment.arms
        )
        return replace(experiment, arms=tuple(arms))

    monkeypatch.setattr("polluxsim.studies.paper.conformance.read_experiment", without_long_runs)
    monkeypatch.setattr("polluxsim.studies.paper.conformance.SHORT_EXPERIMENTS", ())
    assert conformance("--data", data_folder, "-o", made) == 1
    table = pd.read_csv(made / "conformance.csv")
    unexplained = {
        (row.arm, row.metric) for name in other_systems() for row in read_experiment(name).published if not row.note
    }
    assert set(table["system"]) == {"ElasticFlow", "Gavel", "Muri", "Shockwave"}
    for row in table.itertuples():
        if row.tolerance == "above":
            assert row.verdict == "met"
            continue
        width, off = (float(text.split()[0]) for text in (row.tolerance, row.difference))
        assert width / 100 in WIDTHS
        narrower = max((100 * each for each in WIDTHS if 100 * each < width), default=0.0)
        assert abs(off) >= narrower - 0.05, row  # differences are rounded
        assert row.verdict == "met" or (row.case, row.number) not in unexplained


@pytest.mark.slow
def test_admission_one_by_one_keeps_more_deadlines(data_folder: Path) -> None:
    folder = data_folder / "rigid" / "elasticflow"
    workload = ElasticFlowJobs(str(folder / "itp195_t4.csv"), str(folder / "throughputs_T4")).load({})
    summary = summarise(simulate(workload, {}, Cluster.uniform(16, 4), ElasticFlow()))
    assert summary is not None
    assert summary.deadlines_met / 195 > 0.05 + 0.7487
