"""What traces/CARDS.md says of its example is so, and the example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from polluxsim.applications.card_files import read_card
from polluxsim.applications.card_profile import CardProfile
from polluxsim.cli.main import main
from polluxsim.models.efficiency import efficiency
from polluxsim.records.storage import read_run

PAGE = (Path(__file__).parents[2] / "traces" / "CARDS.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    (found,) = re.findall(rf"<!-- test {name} -->\n```\w+\n(.*?)```", PAGE, flags=re.DOTALL)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "vit.yaml").write_text(block("card"))
    (tmp_path / "jobs.csv").write_text(block("workload"))
    return tmp_path


def test_the_table_of_results_is_what_the_card_gives(folder: Path) -> None:
    profile = CardProfile(read_card(folder / "cards" / "vit.yaml"))
    statistics = profile.gradient_statistics(512, 0)
    is_so = {
        "a step of 1 GPU, m = 64": profile.step_time((1,), 64).step_time,
        "2 GPUs of a node of 4, m = 64": profile.step_time((2,), 64).step_time,
        "4 GPUs, a full node, m = 64": profile.step_time((4,), 64).step_time,
        "8 GPUs, two full nodes, m = 64": profile.step_time((4, 4), 64).step_time,
        "1 GPU to the end at M0": profile.total_iterations(64) * profile.step_time((1,), 64).step_time / 3600,
        "φ at M = 512 in the first epoch": profile.card.noise(512, 0),
        "efficiency there": efficiency(statistics, 512 / 64),
    }
    section = PAGE.split("## What follows from it")[1].split("## Run it")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \| ([\d.]+)(?: \w+)? \|$", section, flags=re.MULTILINE)
    assert {name for name, _ in rows} == set(is_so)
    for name, shown in rows:
        decimals = len(shown.split(".")[1])
        assert f"{is_so[name]:.{decimals}f}" == shown, name


def test_every_key_of_the_example_and_of_our_cards_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", PAGE.split("## What each line says")[1].split("## What follows")[0]))
    cards = [block("card"), *(path.read_text() for path in (Path(__file__).parents[2] / "traces").glob("*.yaml"))]
    for card in map(yaml.safe_load, cards):
        keys = {
            key
            for name, value in card.items()
            if isinstance(value, dict) and name not in ("fit_errors", "types")
            for key in value
        }
        keys |= {key for row in card.get("types", {}).values() for key in row}
        sections = set(card) - {"application"}
        assert keys | sections <= explained


def test_the_example_runs(folder: Path) -> None:
    for policy in ("pollux", "tiresias"):
        arguments = ["profiles.path=cards", "workload.path=jobs.csv", f"policy={policy}", f"hydra.run.dir={policy}"]
        assert main(["run", *arguments]) == 0
        run = read_run(folder / policy)
        assert [job.status for job in run.result.job_records] == ["completed"] * 3
