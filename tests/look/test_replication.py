"""Tables of settings: means over replicates, changes over pairs, the baseline and the verdict."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.look.plot.sweep import drawn_of
from polluxsim.look.plot.sweep import sweep as draw_sweep
from polluxsim.look.settings_frames import as_csv, as_json, frame_of_settings
from polluxsim.look.settings_tables import as_html, as_latex, as_markdown, as_text, verdict
from polluxsim.look.tables import html, latex, markdown
from polluxsim.statistics.comparisons import SettingsTable, settings_table
from polluxsim.statistics.number_texts import change_text

JCT = "average JCT [h]"
FACTORS = {1.0: 1.1, -1.0: 1.0, -10.0: 1.05}


def sweep(workloads: int = 8, noise: float = 0.01) -> pd.DataFrame:
    """Return three powers on workloads whose sizes differ by much more than the powers do."""
    rng = np.random.default_rng(0)
    rows = []
    for workload, size in enumerate(np.exp(rng.normal(0, 0.8, workloads))):
        for p, factor in FACTORS.items():
            jct = 3600 * size * factor * (1 + noise * rng.standard_normal() * (p != -1))
            rows.append(
                {"policy._target_": "a.Pollux", "policy.p": p, "seed": workload, "workload.seed": workload,
                 "avg_jct": jct, "p99_jct": 7 * jct, "makespan": 9 * jct, "restarts": 0, "cut_off": []}
            )  # fmt: skip
    return pd.DataFrame(rows)


def test_pairs_tell_what_bars_over_unlike_workloads_hide() -> None:
    table = frame_of_settings(settings_table(sweep(), baseline="policy.p=-1"))[JCT]
    assert table.index.tolist() == ["p = 1", "p = −1", "p = −10"]
    np.testing.assert_allclose(table["change"].dropna(), [0.10, 0.05], atol=0.02)
    for setting in ("p = 1", "p = −10"):
        assert table.low["p = 1"] < table["mean"]["p = −1"] < table.high["p = 1"]  # bars overlap
        assert table["change low"][setting] > 0  # and yet the change is real
    assert np.isnan(table["change"]["p = −1"])
    words = verdict(settings_table(sweep(), baseline="policy.p=-1"))
    assert "average JCT: p = 1 (+9.7 %), p = −10 (+4.8 %)" in words
    assert "(of 8 comparisons, about 0.4 would look real by chance)" in words


def test_the_order_of_runs_and_what_else_is_there_change_nothing() -> None:
    frame = sweep()
    shuffled = frame.sample(frac=1, random_state=1)
    whole = frame_of_settings(settings_table(frame, baseline="p = −1"))
    pd.testing.assert_frame_equal(
        whole.sort_index(), frame_of_settings(settings_table(shuffled, baseline="p = −1")).sort_index()
    )
    few = frame_of_settings(settings_table(frame[frame["policy.p"] != 1], baseline="p = −1"))
    pd.testing.assert_frame_equal(few, whole.loc[few.index])


def test_the_baseline_is_the_setting_of_the_first_run_or_the_one_that_is_named() -> None:
    frame = sweep()
    assert set(settings_table(frame).baselines.values()) == {"p = 1"}
    for name in ("policy.p=-1", "policy.p=-1e0", "p = −1"):
        assert set(settings_table(frame, baseline=name).baselines.values()) == {"p = −1"}
    last = frame.assign(folder=[f"run-{number}" for number in range(len(frame))]).iloc[::-1]
    assert set(settings_table(last).baselines.values()) == {"p = −10"}
    assert set(settings_table(last, baseline="run-1").baselines.values()) == {"p = −1"}
    message = r"no run is the baseline 'policy.p=3'; give a setting that a run has, or one of p = 1"
    with pytest.raises(InvalidInputError, match=message):
        settings_table(frame, baseline="policy.p=3")
    with pytest.raises(InvalidInputError, match=r"no run is the baseline 'policy.p=\['"):
        settings_table(frame, baseline="policy.p=[")
    with pytest.raises(InvalidInputError, match=r"or one of p = 1; p = −1; p = −10; did you mean p = −10\?"):
        settings_table(frame, baseline="p = -10")
    with pytest.raises(InvalidInputError, match=r"no metric 'speed'; give one of avg_jct"):
        settings_table(frame, ["speed"])


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("workload.num_jobs", (1_234_567, 1_234_568)),
        ("profiles.path", ("/mine/cards", "/yours/cards")),
        ("engine.horizon", (0.12345678901, 0.12345678902)),
    ],
)
def test_settings_that_differ_a_little_are_two(key: str, values: tuple[object, object]) -> None:
    frame = pd.concat([sweep(2).assign(**{key: value}) for value in values])
    assert len(settings_table(frame).cells) == 2 * len(FACTORS)


def test_of_several_baselines_each_is_compared_with_the_one_like_it() -> None:
    frame = pd.concat([sweep().assign(**{"cluster.num_nodes": nodes}) for nodes in (8, 16)])
    against = settings_table(frame, baseline="policy.p=-1").baselines
    assert against["p = 1, num nodes = 8"] == "p = −1, num nodes = 8"
    assert against["p = 1, num nodes = 16"] == "p = −1, num nodes = 16"


@pytest.mark.parametrize("write", [as_text, as_markdown, as_latex, as_html])
def test_every_form_names_the_baseline_and_says_what_few_pairs_mean(write: Callable[[SettingsTable], str]) -> None:
    def words(workloads: int) -> str:
        return " ".join(write(settings_table(sweep(workloads))).split())

    assert "against p = 1 (baseline)" in words(8)
    assert "ratio of geometric means over pairs, minus 1" in words(8)
    assert "assume normal" not in words(8)
    assert "The intervals of 5 pairs assume normal log ratios." in words(5)
    assert "No verdict on differences: it needs 6 pairs with the same workload and seed, 1 more than" in words(5)
    assert "An interval needs 3 pairs: 1 is missing." in words(2)
    needed = "Intervals need 3 pairs of runs with the same workload and seed, and a verdict on differences needs 6."
    assert needed in words(1)
    assert "One run each." in words(1)
    assert not any(text in words(1) for text in ("An interval needs", "No verdict"))
    assert needed not in words(2)
    assert "95 % interval]" not in words(2)


def test_a_change_is_the_ratio_of_geometric_means() -> None:
    frame = sweep(6)
    jct = frame.pivot_table(index="seed", columns="policy.p", values="avg_jct")
    expected = np.exp(np.log(jct[1.0] / jct[-1.0]).mean()) - 1
    table = frame_of_settings(settings_table(frame, baseline="policy.p=-1"))[JCT]
    assert table["change"]["p = 1"] == pytest.approx(expected, rel=1e-9)
    assert table["pairs"]["p = 1"] == 6


def test_a_metric_that_is_zero_in_one_run_of_a_pair_has_no_change() -> None:
    frame = sweep(6)
    frame["restarts"] = [3, 2, 0] * 5 + [3, 0, 0]
    text = as_text(settings_table(frame, ["restarts"], "policy.p=1"))
    words = " ".join(text.split())
    why = "the values differ and one is 0, negative or infinite in 1 pair"
    assert f"p = −1: restarts has no ratio: {why}." in words
    assert "p = −10: restarts is 0 in every run, so its change is −100 %." in words
    assert "−100.0 % [−100.0, −100.0]" in words or "−100 % [−100, −100]" in words


def test_a_metric_that_one_seed_of_each_workload_leaves_at_zero_has_no_change() -> None:
    frame = pd.concat([sweep(6).assign(seed=seed) for seed in (1, 2)])
    frame["restarts"] = [3, 3, 0] * 6 + [3, 3, 4] * 6
    table = settings_table(frame, ["restarts"], "policy.p=1")
    assert "p = −10: restarts has no ratio: the values differ and" in as_text(table, 200)
    assert "is 0 in every run" not in as_text(table, 200)
    assert np.isnan(frame_of_settings(table)["restarts"]["change"]["p = −10"])


def test_an_infinite_mean_is_told() -> None:
    assert "∞" in as_text(settings_table(sweep().assign(avg_jct=np.inf), ["avg_jct"]))


def test_runs_that_seeds_do_not_change_are_no_missing_runs() -> None:
    frame = pd.concat([sweep(1).assign(seed=seed) for seed in (1, 2, 3)])
    words = as_text(settings_table(frame, ["avg_jct"]), 400)
    assert "One run each" not in words
    assert "Means over 1 workload. An interval needs 3 independent runs: 2 are missing; runs of a workload" in words
    assert "An interval needs 3 independent pairs: 2 are missing; runs of a workload whose seeds change" in words
    assert "it needs 6 independent pairs with the same workload and seed, 5 more than there are." in words


def test_ends_of_intervals_are_possible_values() -> None:
    """One run in six is a thousand times as long, as the 99th percentile of FIFO's ρ can be."""
    frame = sweep(6, noise=0.0)
    frame.loc[frame["policy.p"] == 1, "avg_jct"] *= [1, 1, 1000, 1, 1, 1]
    for few in (frame, frame[frame["seed"] < 4]):
        table = frame_of_settings(settings_table(few, ["avg_jct"], "policy.p=-1"))[JCT]
        assert (table["low"] >= 0).all()
        assert table["change low"]["p = 1"] >= -1
        assert table["change high"]["p = 1"] > 0


def test_what_does_not_differ_is_not_called_real() -> None:
    frame = sweep(noise=0.5)
    frame["avg_jct"] = frame.groupby("seed")["avg_jct"].transform("mean")
    table = settings_table(frame, ["avg_jct"], "policy.p=-1")
    assert verdict(table) == "No difference against p = −1 (baseline) is real by the 95 % intervals."


def test_times_of_jobs_cut_off_are_bounds_and_not_compared() -> None:
    frame = sweep()
    names = [["a"] if row == 0 else [] for row in range(len(frame))]
    counts = [float(len(row)) for row in names]  # as pandas has them if a table has no such column
    for column in (names, counts):
        frame["cut_off"] = column
        text = as_text(settings_table(frame, ["avg_jct"], "policy.p=-1"))
        line = next(line for line in text.splitlines() if line.startswith("p = 1 "))
        assert "≥" in line
        assert "p = 1 (" not in verdict(settings_table(frame, ["avg_jct"], "policy.p=-1"))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_blocks_fold_to_the_width_and_keep_every_number(width: int) -> None:
    many = pd.concat([sweep().assign(**{"engine.round_interval": float(s)}) for s in (30, 60, 120, 240)])
    table = settings_table(many)
    text = as_text(table, width)
    assert max(map(len, text.splitlines())) <= max(width, 60)
    assert "…" not in text
    for row in table.cells.values():
        assert f"{row['restarts'].mean.estimate.value:.0f}" in text
    assert text.count("30") >= 3


def test_every_form_has_the_frame_s_numbers() -> None:
    table = settings_table(sweep(), ["avg_jct"])
    frame = frame_of_settings(table)
    in_seconds = frame.copy()
    for part in ("mean", "low", "high"):
        in_seconds[JCT, part] *= 3600
    read = pd.read_csv(io.StringIO(as_csv(table)), index_col="setting")
    assert set(read.pop("baseline")) == {"p = 1"}
    assert list(read)[:3] == ["avg_jct", "avg_jct.low", "avg_jct.high"]
    np.testing.assert_allclose(read.to_numpy(), in_seconds.to_numpy(), rtol=1e-12)
    again = json.loads(as_json(table))
    for label, row in in_seconds.iterrows():
        assert again[label]["baseline"] == "p = 1"
        numbers = {part.replace(" ", "_"): value for (_, part), value in row.items() if np.isfinite(value)}
        assert again[label]["avg_jct"] == numbers
    for text in (as_markdown(table), as_latex(table), as_text(table)):
        for value in frame[JCT]["mean"]:
            assert f"{value:.2f}" in text


def test_a_share_is_in_per_cent_in_tables_for_readers_and_a_share_in_those_for_programs() -> None:
    frame = sweep()
    frame["gpu_time.lost"] = 0.00361
    table = settings_table(frame, ["gpu_time.lost"])
    assert "[%]" in as_text(table)
    assert "0.361" in as_text(table)
    read = pd.read_csv(io.StringIO(as_csv(table)))
    np.testing.assert_allclose(read["gpu_time.lost"], 0.00361)


def test_a_count_of_one_run_has_no_decimals() -> None:
    frame = sweep().head(1).assign(restarts=25.0)
    assert "| 25 |" in as_markdown(settings_table(frame, ["restarts"]))


def random_sweep(rng: np.random.Generator) -> pd.DataFrame:
    """Return a sweep over policies, and in half of all cases over numbers of jobs too, with outliers."""
    policies = ["a.Fifo", "b.Tiresias", "c.Pollux"][: rng.integers(2, 4)]
    numbers = [20, 60] if rng.random() < 0.5 else [40]
    rows = []
    for seed in range(rng.integers(1, 9)):
        for number in numbers:
            for policy in policies:
                jct = 3600.0 * number * np.exp(rng.normal(0, 1.5))
                rows.append({"policy._target_": policy, "workload.num_jobs": number, "seed": seed, "avg_jct": jct})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(50))
def test_bars_of_a_sweep_s_figure_are_the_table_s_changes(seed: int) -> None:
    """Each point is found in the table by its mean, which no two settings share."""
    frame = random_sweep(np.random.default_rng(seed))
    x = "policy" if seed % 2 else "workload.num_jobs"
    for baseline in (None, "policy=fifo", "policy=tiresias"):
        table = frame_of_settings(settings_table(frame, ["avg_jct"], baseline))[JCT]
        baselines = settings_table(frame, ["avg_jct"], baseline).baselines
        num_bars = 0
        for series in drawn_of(frame, x, "avg_jct", baseline=baseline).series:
            for mean, low, high, change in zip(series.mean, series.low, series.high, series.change, strict=True):
                (label,) = [label for label in table.index if np.isclose(table["mean"][label], mean, rtol=1e-12)]
                if np.isnan(change):
                    continue
                num_bars += 1
                drawn = np.array([low, change, high]) / table["mean"][baselines[label]] - 1
                printed = [table[part][label] for part in ("change low", "change", "change high")]
                np.testing.assert_allclose(drawn, printed, rtol=1e-9, atol=1e-12)
        has_intervals = "change low" in table and table["change low"].notna().any()
        assert (num_bars > 0) == has_intervals


def test_settings_are_compared_within_one_workload() -> None:
    frame = sweep()
    both = pd.concat([frame.assign(**{"workload.num_jobs": number}) for number in (20, 60)])
    table = settings_table(both, ["avg_jct"])
    assert len(table.cells) == 6
    assert len(set(table.baselines.values())) == 2
    for label, baseline in table.baselines.items():
        assert ("60" in label) == ("60" in baseline)


def test_settings_of_different_workloads_alone_have_no_changes() -> None:
    frame = sweep().rename(columns={"policy.p": "workload.num_jobs"})
    table = settings_table(frame, ["avg_jct"])
    assert all(cell["avg_jct"].change is None for cell in table.cells.values())
    assert "No changes: each setting has another workload." in as_text(table)
    changed = settings_table(frame, ["avg_jct"], "workload.num_jobs=-1")
    assert sum(cell["avg_jct"].change is not None for cell in changed.cells.values()) == 2


def test_the_note_of_a_sweep_s_figure_stays_inside_it() -> None:
    frame = sweep().rename(columns={"policy.p": "engine.restart_delay"})
    frame["engine.restart_delay"] += 20_000
    figure = draw_sweep(frame, "engine.restart_delay")
    note = figure.axes[0]._left_title
    assert "20001, by pairs" in " ".join(note.get_text().split())
    assert note.get_window_extent(figure.canvas.get_renderer()).x1 < figure.bbox.x1


def test_names_stand_along_the_axis() -> None:
    frame = pd.concat([sweep(), sweep().assign(**{"policy._target_": "b.Tiresias", "policy.p": None})])
    frame = frame[(frame["policy.p"] == -1) | frame["policy.p"].isna()]
    drawn = drawn_of(frame, "policy", "avg_jct")
    assert drawn.names == ["Pollux", "Tiresias"]
    assert [series.label for series in drawn.series] == [""]


def test_characters_that_are_syntax_in_a_form_are_escaped() -> None:
    lines = [["", "x"], [r"a|b_c^d~e{f}$g\h%i&j#k<l>", "±1 × 2 ≈ 3"]]
    assert markdown(lines).splitlines()[2].startswith(r"| a\|b_c^d")
    body = latex(lines).splitlines()[4]
    assert body.startswith(
        r"a|b\_c\textasciicircum{}d\textasciitilde{}e\{f\}\$g\textbackslash{}h\%i\&j\#k$<$l$>$ & $\pm$1 $\times$ 2"
    )
    assert "k&lt;l&gt;" in html(lines)
    assert all(line.count("|") - line.count(r"\|") == 3 for line in markdown(lines).splitlines())


def test_a_setting_with_a_bar_does_not_break_the_table() -> None:
    frame = sweep().rename(columns={"policy.p": "policy.mode"})
    frame["policy.mode"] = [f"a|{value}" for value in frame["policy.mode"]]
    rows = [line for line in as_markdown(settings_table(frame, ["avg_jct"])).splitlines() if line.startswith("|")]
    assert len({line.count("|") - line.count(r"\|") for line in rows}) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((0.0,), "±0.0 %"),
        ((-0.0004,), "±0.0 %"),
        ((0.386, -0.0001, 2.5), "+38.6 % [±0.0, +250.0]"),
        ((1.4, 0.78, 200.0), "+140 % [+78, >+9,999]"),
        ((24.48,), "×25"),
        ((24.48, -0.5, 200.0), "×25 [×0.5, ×201]"),
    ],
)
def test_changes_have_one_notation(change: tuple[float, ...], text: str) -> None:
    assert change_text(*change) == text
