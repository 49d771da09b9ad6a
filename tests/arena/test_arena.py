"""`polluxsim arena`: one sweep of policies, scenarios and seeds, and what follows from its numbers."""

from __future__ import annotations

import re
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.look.colours import POLICY_COLOURS
from polluxsim.run.building import build
from polluxsim.studies.arena.contest import ArenaRequest, arena
from polluxsim.studies.arena.leaderboard import frame_of_leaderboard, leaderboard
from polluxsim.studies.arena.page import heat_map, page
from polluxsim.studies.arena.playing import Played, Player, default_policies, read_suite
from polluxsim.studies.arena.words import absences, as_markdown, change_in_words, ranking_note, verdicts
from polluxsim.studies.plan import composer

MINE = """
class Mine:
    def allocate(self, view, rng):
        held, allocation = set(), {}
        for job in sorted(view.jobs, key=lambda job: -len(job.placement)):
            for node, gpus in enumerate(view.gpus_per_node):
                if node not in held and gpus >= job.num_replicas:
                    held.add(node)
                    allocation[job.job_id] = job.placement or ((node, job.num_replicas),)
                    break
        return allocation
"""


def row(policy: str, scenario: str, seed: int, jct: float, **more: float) -> dict[str, object]:
    return {"policy": policy, "scenario": scenario, "seed": seed, "avg_jct": jct, "decision_time": 0.001, **more}


def played(**means: tuple[float, ...]) -> Played:
    """Return runs of policies a, b, … with an average JCT for each on every scenario [h], other by seed."""
    rows = [
        row(policy, scenario, seed, 3600 * mean * (1 + seed / 50 + (seed * place % 3) / 500), restarts=place)
        for scenario, values in means.items()
        for place, (policy, mean) in enumerate(zip("abc", values, strict=False))
        for seed in range(8)
    ]
    return Played(rows, {Player("c", "third"): "it has no legs"})


def test_a_ranking_that_flips_is_said_and_one_that_may_be_chance_is_not() -> None:
    board = leaderboard(played(first=(1.0, 2.0, 1.001), second=(2.0, 1.0, 1.5)))
    assert [one.policy for one in board.standings["first"]] == ["a", "c", "b"]
    assert {(flip.first, flip.second) for flip in board.flips} == {("a", "b"), ("b", "c"), ("a", "c")}
    said = "\n".join(verdicts(board))
    assert "a beats b on first (−50.1 % average JCT), and loses to it on second (b −49.9 %)." in said
    same = leaderboard(played(first=(1.0, 2.0), second=(1.0, 3.0)))
    assert same.flips == []
    assert "No two policies change places" in "\n".join(verdicts(same))


def test_of_many_that_are_not_told_apart_the_first_are_named() -> None:
    times = 1 + np.random.default_rng(0).random((9, 6)) / 2
    rows = [row(f"p{p}", "s", seed, time) for p, line in enumerate(times.tolist()) for seed, time in enumerate(line)]
    board = leaderboard(Played(rows + [{**each, "scenario": "t"} for each in rows], {}))
    names = [one.policy for one in board.standings["s"][1:7]]
    assert f"not told apart on s from {', '.join(names)} and 2 more and on t from" in " ".join(verdicts(board))
    absent = {Player("none", "s"): "it has no legs", Player("none", "t"): "it has no legs"}
    assert list(absences(board._replace(absent=absent))) == ["none did not play on any scenario: it has no legs."]


def test_the_ranking_over_all_is_a_geometric_mean() -> None:
    board = leaderboard(played(first=(1.0, 2.0), second=(4.0, 1.0)))
    assert log(board.overall["a"]) == pytest.approx(log(4.0) / 2, rel=0.02)
    assert log(board.overall["b"]) == pytest.approx(log(2.0) / 2, rel=0.02)


def test_the_ranking_over_all_covers_the_same_scenarios_for_every_policy() -> None:
    board = leaderboard(played(first=(1.0, 2.0, 4.0), second=(4.0, 1.0), third=(1.0, 1.0)))
    assert board.compared == ["first"]
    assert list(board.overall) == ["a", "b", "c"]
    assert board.overall["b"] == pytest.approx(2.0, rel=0.02)
    assert "every policy served every job (first)." in as_markdown(board, dict.fromkeys(board.standings, ""))


def test_a_policy_without_a_scenario_in_common_with_the_others_is_left_out_of_the_ranking() -> None:
    rows = [row(policy, name, seed, 1.0) for name in "st" for policy in ("a", "b") for seed in range(6)]
    board = leaderboard(Played(rows + [row("c", "u", seed, 1.0) for seed in range(6)], {}))
    assert board.compared == ["s", "t"]
    assert list(board.overall) == ["a", "b"]
    assert "without c, which did not serve every job on these scenarios" in ranking_note(board)


def test_equal_policies_are_tied_and_no_policy_is_credited_with_the_best_value() -> None:
    board = leaderboard(Played([row(policy, "s", seed, 1.0 + seed) for policy in "abc" for seed in range(6)], {}))
    (sentence, _) = verdicts(board)
    assert sentence == "a, b and c are tied for the least average JCT on s."
    assert {change_in_words(one, "avg_jct") for one in board.standings["s"]} == {"tied"}
    frame = frame_of_leaderboard(board)
    assert set(frame[frame.metric == "avg_jct"]["rank"]) == {1}


def test_below_six_seeds_there_is_no_verdict() -> None:
    rows = [row(policy, "s", seed, mean) for policy, mean in (("a", 1.0), ("b", 9.0)) for seed in range(5)]
    board = leaderboard(Played(rows, {}))
    assert list(verdicts(board)) == [
        "No verdict on differences: it needs 6 seeds of each scenario, and there are 5.",
    ]
    tied = leaderboard(Played([row(policy, "s", 1, 1.0) for policy in "ab"], {}))
    assert list(verdicts(tied)) == [
        "a and b are tied for the least average JCT on s.",
        "No verdict on differences: it needs 6 seeds of each scenario, and there are 1.",
    ]


def test_who_serves_not_all_is_behind_those_that_do() -> None:
    rows = [row("quick", "s", seed, 1.0, rejected=1) for seed in range(6)]
    rows += [row("slow", "s", seed, 9.0, rejected=0) for seed in range(6)]
    board = leaderboard(Played(rows, {}))
    assert [one.policy for one in board.standings["s"]] == ["slow", "quick"]
    assert board.standings["s"][1].left == 6
    assert list(board.overall) == ["slow"]


def test_every_scenario_can_be_composed_and_loaded() -> None:
    composing = composer()
    profiles = build(composing.compose(()).config, "profiles").load()
    for scenario in (*read_suite("quick").scenarios, *read_suite("full").scenarios):
        config = composing.compose((*scenario.overrides, "policy=fifo", "seed=1")).config
        jobs = build(config, "workload").load(profiles).jobs
        assert build(config, "cluster").num_gpus >= max(job.num_replicas for job in jobs)
        assert (scenario.name == "deadlines") == any(job.deadline is not None for job in jobs)
    assert len(default_policies()) == 13


def test_an_arena_says_who_cannot_play_goes_on_where_it_was_and_gives_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("mine.py").write_text(MINE)
    call = ["arena", "--policies", "fifo,optimus,mine.py:Mine", "--scenarios", "rigid", "--seeds", "1"]
    assert main([*call, "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "Optimus did not play rigid: philly-like rigid workload, seed 1" in said
    assert "Optimus needs one of every job" in said
    files = [Path("arena") / f"arena.{ending}" for ending in ("parquet", "md")]
    before = [path.read_bytes() for path in files]
    runs = sorted(Path("arena/runs").glob("*/run.json"))
    times = [path.stat().st_mtime_ns for path in runs]
    runs[0].unlink()
    assert main([*call, "--workers", "1"]) == 0
    assert [path.read_bytes() for path in files] == before
    assert [path.stat().st_mtime_ns for path in runs[1:]] == times[1:]
    table = pd.read_parquet(files[0])
    assert {"Mine", "fifo", "optimus"} == set(table.policy)
    text = Path("arena/arena.html").read_text()
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_name_on_the_page_is_text() -> None:
    suite = read_suite("quick", ("load-1",))
    rows = [row("<b>x</b>", "load-1", seed, 1.0) for seed in range(6)]
    board = leaderboard(Played(rows, {Player("y", "load-1"): "<script>"}))
    text = page(board, suite)
    assert "<b>x" not in text
    assert "<script" not in text
    assert "<b>x</b>" in as_markdown(board, {"load-1": "t"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policies", "polux"], "policy=polux is unknown"),
        (["--scenarios", "lod-1"], "there is no scenario 'lod-1'"),
        (["--seeds", "0"], "--seeds is 0"),
        (["policy=fifo"], "'policy=fifo' cannot be set for an arena"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["arena", *arguments, "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_heat_map_says_how_far_each_policy_is_from_the_best_and_leads_to_reports() -> None:
    suite = read_suite("quick", ("load-1", "rigid"))
    rows = [row("fifo", "load-1", seed, 7200.0, gpu_hours=1.0 + seed) for seed in range(6)]
    rows += [row("srtf", "load-1", seed, 3600.0, gpu_hours=2.0 + seed) for seed in range(6)]
    rows += [row(policy, "rigid", seed, 3600.0, gpu_hours=3.0) for policy in ("fifo", "srtf") for seed in range(6)]
    board = leaderboard(Played(rows, {}))
    address = "reports/load-1-fifo.html"
    heat = heat_map(board, {Player("fifo", "load-1"): address})
    assert list(heat) == ["srtf", "fifo"]
    assert [cell.text for cell in heat["srtf"]] == ["best", "tied"]
    behind, equal = heat["fifo"]
    assert (behind.text, behind.heat, behind.link) == ("+100 %", 100.0, address)
    assert (equal.text, equal.heat, equal.link) == ("tied", 0.0, "#rigid")
    text = page(board, suite, {Player("fifo", "load-1"): address})
    assert text.index('class="heat"') < text.index('class="trades"') < text.index('<section id="load-1">')
    assert f'<a href="{address}" title="FIFO on load-1: average JCT 2 h' in text
    assert text.count(POLICY_COLOURS["SRTF"]) >= 1


def test_policies_have_the_names_of_reports_unless_two_would_be_the_same() -> None:
    suite = read_suite("quick", ("load-1",))
    rows = [
        row(policy, "load-1", seed, 3600.0 + place)
        for place, policy in enumerate(("fifo", "pollux(p=-2)", "mine"))
        for seed in range(6)
    ]
    board = leaderboard(Played(rows, {}))
    text = as_markdown(board, {"load-1": "t"}) + page(board, suite)
    assert "| FIFO |" in text
    assert "Pollux(p=-2)" in text
    assert not re.search(r"\bfifo\b|\bpollux\(", text)
    other = leaderboard(Played([*rows, *(row("Fifo", "load-1", seed, 4000.0) for seed in range(6))], {}))
    assert re.findall(r"(?i)\| (fifo) \|", as_markdown(other, {"load-1": "t"})) == ["fifo", "Fifo"] * 2


def test_the_arena_page_fits_and_has_no_serious_findings(browser: Any, tmp_path: Path) -> None:
    suite = read_suite("quick", ("load-1", "rigid"))
    policies = ("fifo", "srtf", "tiresias", "pollux")
    values = {"p99_jct": 7200.0, "makespan": 9000.0, "p99_fairness": 2.0, "restarts": 3, "gpu_hours": 9.0}
    rows = [
        row(policy, scenario, seed, 3600 * (1.0 + 0.1 * place + 0.01 * seed), **values)
        for scenario in ("load-1", "rigid")
        for place, policy in enumerate(policies)
        for seed in range(6)
    ]
    (tmp_path / "arena.html").write_text(page(leaderboard(Played(rows, {})), suite))
    size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for scheme in ("light", "dark"):
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})
        browser.get((tmp_path / "arena.html").as_uri())
        cut = """
          const wide = [...document.querySelectorAll(".wide")];
          return wide.filter((each) => each.scrollWidth > each.clientWidth + 1).length;
        """
        assert browser.execute_script(cut) == 0
        browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
        found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        assert [each["id"] for each in found["violations"] if each["impact"] in ("serious", "critical")] == []


def test_an_arena_with_bounds_has_the_gaps_in_all_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--policies", "fifo,srsf", "--scenarios", "rigid", "--seeds", "1", "--workers", "1"]
    assert main(["arena", *words, "--bounds", "-o", str(tmp_path / "arena")]) == 0
    said = "On rigid, no schedule has a shorter average JCT than"
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "arena" / "arena.html").read_text()
    frame = pd.read_parquet(tmp_path / "arena" / "arena.parquet")
    bounded = frame[frame.metric.isin(["avg_jct", "p99_jct", "makespan"])]
    assert len(bounded) == 6
    # The columns have the unit of the means.
    assert (bounded["mean"] >= bounded.best_possible * (1 - 1e-9)).all()
    assert np.allclose(bounded.gap.astype(float), bounded["mean"] / bounded.best_possible.astype(float) - 1)
    assert frame[frame.metric == "restarts"].gap.isna().all()
    assert main(["arena", *words, "-o", str(tmp_path / "arena")]) == 0
    assert "best_possible" not in pd.read_parquet(tmp_path / "arena" / "arena.parquet")


def test_an_unknown_suite_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="suite is 'long', must be"):
        arena(ArenaRequest(suite="long", folder=tmp_path / "arena"))
    assert list(tmp_path.iterdir()) == []
