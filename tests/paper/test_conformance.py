"""`polluxsim conformance`: one table of all published numbers that the data at hand allow, and an exit status."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hydra.utils import instantiate

from polluxsim.cli.main import main
from polluxsim.engine.simulation import simulate
from polluxsim.look.bootstrap import Estimate
from polluxsim.metrics.summary import summarise
from polluxsim.paper.experiment import CONFIG_DIRS, names, read_experiment, systems
from polluxsim.paper.inputs import Inputs
from polluxsim.paper.planning import planned
from polluxsim.paper.published import Kind, Published, Rule, difference, judge
from polluxsim.policies.elasticflow import ElasticFlow
from polluxsim.shipped import shipped
from polluxsim.sweeps.plan import composer
from polluxsim.types import Cluster
from polluxsim.workloads.elasticflow import ElasticFlowJobs

COLUMNS = ["system", "case", "number", "published", "ours", "difference", "tolerance", "verdict"]
MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,priority\n"


def conformance(*arguments: object) -> int:
    return main(["conformance", "--workers", "1", *map(str, arguments)])


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
    assert conformance("--data", data, "--out", out) == 1  # two jobs have none of the published times
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

    monkeypatch.setattr("polluxsim.sweeps.local.LocalWorkers.launch", must_not_run)
    monkeypatch.setenv("POLLUXSIM_DATA", str(data))
    assert conformance("--out", out) == 1
    assert (out / "conformance.csv").read_bytes() == before
    assert main(["reproduce", "muri", "--workers", "1", "--out", str(out)]) == 0
    assert "of 17 published numbers are met" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needed is the folder of data: --data DIR, or POLLUXSIM_DATA"),
        (["--data", "nowhere"], "nowhere: no such folder, needed is the one that holds rigid/"),
        (["--data", "."], "none of the data that published numbers are of"),
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
    assert main(["reproduce", "muri"]) == 2
    assert "needed is the folder that holds rigid/muri/trace3.csv: --data DIR" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_system_has_its_values_and_its_command() -> None:
    assert {"muri", "elasticflow", "gavel", "shockwave"} <= set(systems())
    assert not set(systems()) & set(names())
    for name in set(systems()) - {"sia"}:  # whose workloads are ours
        experiment = read_experiment(name)
        text = (shipped("experiments") / "conformance" / f"{name}.yaml").read_text(encoding="utf-8")
        assert f"\n#   polluxsim reproduce {name} --data DATA\n" in text
        assert experiment.system != "Pollux"
        assert all(arm.data for arm in experiment.arms)
        assert {row.arm for row in experiment.published} == {arm.name for arm in experiment.arms}
        # Gandiva's published simulator passes no turns between arrivals: said beside ours, and not judged.
        judged = [row for row in experiment.published if row.arm != "Gandiva"]
        assert all(row.by_simulator == (row.measured.kind is not Kind.NONE) for row in judged)


def test_gangs_of_sias_experiment_fit_on_every_type(tmp_path: Path) -> None:
    """Each of Gavel's jobs can have its GPUs on the type with fewest; published workloads ask for more."""
    sia = read_experiment("sia")
    runs = {run.arm.name: run for run in planned(sia, Inputs(), 1).runs}
    assert set(runs) == {f"{system} {load}" for system in ("Gavel", "Pollux", "Sia") for load in ("1", "1.6")}
    for name, count in (("Gavel 1", 160), ("Gavel 1.6", 256)):
        jobs = instantiate(composer(CONFIG_DIRS).compose(runs[name].overrides).workload).load(Inputs().load_profiles())
        assert len(jobs.jobs) == count
        assert max(job.num_replicas for job in jobs.jobs) == 16
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "workload-1.csv").touch()
    published = Inputs(workloads=tmp_path)
    assert {arm.name for arm in sia.arms if published.units(arm, 1, None)} == {"Pollux 1", "Sia 1"}


def test_points_are_of_the_share_itself() -> None:
    """Three points of 11.8 % are not three per cent of them."""
    rule = Rule(Kind.POINTS, 0.03)
    row = Published("deadlines met", "a", "", 11.8, "%", rule, rule, "", "simulator")
    verdicts = {ours: judge(Estimate(ours, None, None), row, rule) for ours in (0.1, 0.147, 0.15)}
    assert [verdict.passed for verdict in verdicts.values()] == [True, True, False]
    assert verdicts[0.15].words == "outside 3 points"
    assert difference(0.15, row) == pytest.approx(0.032)


@pytest.mark.slow
def test_published_numbers_are_met_but_for_one(data_folder: Path, made: Path) -> None:
    """The file of its values says why that is not; the order of policies is published as well."""
    assert conformance("--data", data_folder, "--out", made) == 1
    table = pd.read_csv(made / "conformance.csv")
    assert (table.loc[table["system"].isin(["Gavel", "Shockwave"]), "verdict"] == "met").sum() == 11 + 29
    table = table[table["system"].isin(["Muri", "ElasticFlow"])]
    off = table[table["verdict"] != "met"]
    assert off[["case", "number"]].to_numpy().tolist() == [["Tiresias-L trace4", "99 % of the jobs"]]
    values = pd.read_csv(shipped("experiments") / "conformance" / "muri.csv")
    assert table["system"].value_counts().to_dict() == {"Muri": len(values), "ElasticFlow": 3}


@pytest.mark.slow
def test_admission_one_by_one_keeps_more_deadlines(data_folder: Path) -> None:
    folder = data_folder / "rigid" / "elasticflow"
    workload = ElasticFlowJobs(str(folder / "itp195_t4.csv"), str(folder / "throughputs_T4")).load({})
    summary = summarise(simulate(workload, {}, Cluster.uniform(16, 4), ElasticFlow()))
    assert summary is not None
    assert summary.deadlines_met / 195 > 0.05 + 0.7487
