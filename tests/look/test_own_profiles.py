"""What follows from a run's profiles is told by its own, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy import ToyProfile, toy_workload

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.job_progress import own_profiles
from polluxsim.records.storage import read_run
from polluxsim.workloads.workload import Job

SHORT = ("workload=one-job", "workload.application=cifar10")


def two_nodes() -> Cluster:
    """A cluster of a user's own making: its settings say nothing of its GPUs."""
    return Cluster.uniform(2, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with profiles of its own, of an application that the cards that come with polluxsim have, too."""
    profiles = {"cifar10": ToyProfile("cifar10", init_batch_size=128)}
    workload = toy_workload(Job("a", 0.0, "cifar10", 1, 128))
    run = polluxsim.simulate(workload=workload, profiles=profiles, policy="fifo", progress=False)
    return run.save(tmp_path / "run")


def test_a_run_with_profiles_of_its_own_is_not_judged_by_the_cards(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By these its job would have done many times its work."""
    assert main(["plot", "job", str(folder), "-o", str(folder / "job.svg")]) == 0
    assert "no panel of the efficiency: the run does not say where its profiles are" in capsys.readouterr().err
    assert "efficiency" not in (folder / "job.svg").read_text()
    cards = str(shipped("traces"))
    assert main(["plot", "job", str(folder), "-o", str(folder / "no.svg"), "--profiles", cards]) == 2
    assert "are not those the run was made with" in capsys.readouterr().err
    assert not (folder / "no.svg").exists()


def test_settings_that_leave_the_folder_out_mean_the_cards(tmp_path: Path) -> None:
    arguments = ["policy=fifo", *SHORT, f"hydra.run.dir={tmp_path}"]
    assert main(["run", *arguments]) == 0
    info = json.loads((tmp_path / "run.json").read_text())
    del info["config"]["profiles"]["path"]
    (tmp_path / "run.json").write_text(json.dumps(info))
    assert own_profiles(read_run(tmp_path)).where == "the profile cards that come with polluxsim"
    info["config"]["engine"]["interference"] = 0.5
    (tmp_path / "run.json").write_text(json.dumps(info))
    with pytest.raises(InvalidInputError, match="where jobs interfere"):
        own_profiles(read_run(tmp_path))


def test_the_gpus_of_a_cluster_of_ones_own_are_known(tmp_path: Path) -> None:
    cluster = ["~cluster.num_nodes", "~cluster.gpus_per_node", f"cluster._target_={__name__}.two_nodes"]
    assert main(["run", "policy=fifo", *SHORT, f"hydra.run.dir={tmp_path}", *cluster]) == 0
    assert main(["plot", "scaling", str(tmp_path), "-o", str(tmp_path / "scaling.svg")]) == 0


def test_lives_are_those_on_the_gpu_type_of_the_nodes(tmp_path: Path) -> None:
    cluster = ["cluster=mixed", "cluster.groups=[[2,4,a100-40]]"]
    assert main(["run", "policy=fifo", *SHORT, *cluster, f"hydra.run.dir={tmp_path}"]) == 0
    lives = own_profiles(read_run(tmp_path)).lives
    assert lives.progress[-1] == pytest.approx(1)


def test_a_job_without_a_profile_has_no_panel_of_the_efficiency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "policy=fifo", "workload=shared-gpus", f"hydra.run.dir={tmp_path}"]) == 0
    figure = tmp_path / "job.svg"
    assert main(["plot", "job", str(tmp_path), "-o", str(figure)]) == 0
    assert "no panel of the efficiency: no job has an application of the profile cards" in capsys.readouterr().err
    assert figure.is_file()


def test_a_reason_in_the_records_has_no_remedy_by_other_profiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "policy=fifo", *SHORT, "engine.interference=0.5", f"hydra.run.dir={tmp_path}"]) == 0
    assert main(["plot", "job", str(tmp_path), "-o", str(tmp_path / "job.svg")]) == 0
    assert capsys.readouterr().err.endswith("where jobs interfere or share GPUs\n")


def test_figures_of_cards_with_a_small_batch_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = ["--gpu", "h100", "--params", "1e9", "--seq", "1024", "--batch", "4", "--max-batch", "8"]
    assert main(["profile", "card", "transformer", "-o", str(tmp_path / "tiny.yaml"), *card]) == 0
    for kind in ("throughput", "batch-size", "goodput", "training"):
        assert main(["plot", kind, str(tmp_path), "-o", str(tmp_path / f"{kind}.svg")]) == 0
    capsys.readouterr()
    assert main(["plot", "throughput", "--cards", str(tmp_path), "-o", str(tmp_path / "no.svg")]) == 2
    assert "no card is of an application of the profiles" in capsys.readouterr().err


def test_a_run_cut_off_before_a_job_completed_stands_beside_others(tmp_path: Path) -> None:
    for name, more in (("whole", []), ("cut", ["engine.horizon=90"])):
        assert main(["run", "policy=fifo", *SHORT, *more, "-o", str(tmp_path / name)]) == 0
    runs = [str(tmp_path / name) for name in ("whole", "cut")]
    for kind in ("slowdown-by-size", "jct-cdf", "jct-by-application", "gpu-map"):
        assert main(["plot", kind, *runs, "-o", str(tmp_path / f"{kind}.svg")]) == 0
