"""Verdicts on published numbers, and how samples become estimates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from polluxsim.common.errors import InvalidInputError
from polluxsim.statistics.estimates import Estimate, Sample, Samples
from polluxsim.studies.paper import measures
from polluxsim.studies.paper.conformance import conformance_table
from polluxsim.studies.paper.drawings import dumbbell
from polluxsim.studies.paper.published import (
    COLUMNS,
    EQUAL,
    KNOWN,
    Published,
    RuleKind,
    VerdictRule,
    compare,
    findings_frame,
    judge,
    read_published,
    relative_half_width,
)
from polluxsim.studies.paper.verdict_tables import failed, notes, table_cells, verdict_markdown

NONE = VerdictRule(RuleKind.NONE)
WITHIN_3 = VerdictRule(RuleKind.WITHIN, 0.03)
ROW = Published("average JCT", "a", "", 2.0, "h", WITHIN_3, NONE, "", "simulator", step=1.0)


@pytest.mark.parametrize(
    ("ours", "published", "rule", "words", "passed"),
    [
        (1.122 * 3600, 1.122, VerdictRule(RuleKind.EXACT), "equal", True),
        (1.1224 * 3600, 1.122, VerdictRule(RuleKind.EXACT), "equal", True),
        (1.1226 * 3600, 1.122, VerdictRule(RuleKind.EXACT), "not equal", False),
        (102.9 * 3600, 100.0, WITHIN_3, "within 3 %", True),
        (96.9 * 3600, 100.0, WITHIN_3, "outside 3 %", False),
        (3600.1, 1.0, VerdictRule(RuleKind.ABOVE), "holds", True),
        (3600.0, 1.0, VerdictRule(RuleKind.ABOVE), "does not hold", False),
        (3599.9, 1.0, VerdictRule(RuleKind.BELOW), "holds", True),
        (3600.0, 1.0, VerdictRule(RuleKind.BELOW), "does not hold", False),
        (0.99 * 3600, 0.99, VerdictRule(RuleKind.AT_LEAST), "holds", True),
        (0.98 * 3600, 0.99, VerdictRule(RuleKind.AT_LEAST), "does not hold", False),
        (0.1 * 3600, 0.1, VerdictRule(RuleKind.AT_MOST), "holds", True),
        (0.11 * 3600, 0.1, VerdictRule(RuleKind.AT_MOST), "does not hold", False),
        (7.0, 1.0, NONE, "–", None),
    ],
)
def test_verdicts(ours: float, published: float, rule: VerdictRule, words: str, passed: bool | None) -> None:
    assert judge(Estimate(ours, None, None), replace(ROW, value=published, step=0.001), rule) == (words, passed)


@pytest.mark.parametrize(
    ("estimate", "width", "words", "passed"),
    [
        (Estimate(-0.19, -0.30, -0.08), 0.25, "outside 25 %", False),  # against −43 %: the sign is the same
        (Estimate(-0.19, -0.45, -0.08), 0.25, "in our interval", True),
        (Estimate(-0.19, -0.60, 0.20), 0.25, "outside 25 %", False),  # an interval that holds everything says nothing
        (Estimate(-0.35, -0.40, -0.30), 0.25, "within 25 %", True),
        (Estimate(-0.35, -0.40, -0.30), 0.0, "outside our interval", False),
        (Estimate(-0.43, None, None), 0.0, "no interval", None),
        (Estimate(-0.43, None, None), 0.25, "within 25 %", True),
    ],
)
def test_a_published_change_lies_in_our_interval_or_within_a_share_of_itself(
    estimate: Estimate, width: float, words: str, passed: bool | None
) -> None:
    row = replace(ROW, value=-43.0, unit="%", against="b")
    assert judge(estimate, row, VerdictRule(RuleKind.INTERVAL, width)) == (words, passed)


@pytest.mark.parametrize(("equal", "verdict"), [(160, ("320 of 320 equal", True)), (159, ("319 of 320 equal", False))])
def test_every_job_counts(equal: int, verdict: tuple[str, bool]) -> None:
    counts = [(KNOWN, "1", 160), (EQUAL, "1", equal), (KNOWN, "2", 160), (EQUAL, "2", 160)]
    found = Samples(Sample(metric, "a", value, workload) for metric, workload, value in counts)
    row = replace(ROW, metric=EQUAL, value=0.0, unit="jobs", measured=VerdictRule(RuleKind.EVERY_JOB))
    (finding,) = compare(found, [row], must_match=True)
    assert finding.verdict == verdict
    assert finding.published.value == 320


def samples(*values: tuple[str, str, int, float]) -> Samples:
    return Samples(Sample("average JCT", arm, value, workload, seed) for arm, workload, seed, value in values)


def test_pairs_are_by_workload_and_seed_and_seeds_of_a_workload_are_one_unit() -> None:
    rng = np.random.default_rng(0)
    sizes = {str(workload): 2.0**workload for workload in range(6)}
    a = [("a", w, s, 0.5 * size * (1 + 0.01 * rng.standard_normal())) for w, size in sizes.items() for s in range(3)]
    b = [("b", w, s, size) for w, size in sizes.items() for s in range(3)]
    found = samples(*a, *b[::-1], ("b", "9", 0, 1e9)).measured(("average JCT", "a", "b"))
    assert found is not None
    estimate = found.estimate
    assert estimate.half_width is not None
    assert (found.num_units, found.units) == (6, "workloads")  # the seventh workload has no partner
    assert estimate.value == pytest.approx(-0.5, abs=0.02)
    assert estimate.half_width < 0.1  # unpaired, the workloads' sizes alone would make it hundreds of percents
    few = samples(*a[:6], *b[:6]).measured(("average JCT", "a", "b"))
    assert few is not None
    assert few[1:3] == (6, "seeds")


def test_seeds_that_change_nothing_are_no_units() -> None:
    """One workload and a deterministic policy: no interval, and not one of no width."""
    found = samples(*(("a", "6", seed, 100.0) for seed in range(6))).measured(("average JCT", "a", ""))
    assert found is not None
    assert found == (Estimate(100.0, None, None), 1, "workloads", 0, 6)


def test_findings_say_what_was_not_run_and_what_was_cut_off() -> None:
    published = [ROW, replace(ROW, arm="b"), replace(ROW, arm="c")]
    findings = compare(samples(("a", "1", 0, 7300.0), ("c", "1", 0, float("inf"))), published, must_match=True)
    assert [finding.verdict.words for finding in findings] == ["within 3 %", "not run", "jobs cut off"]
    assert [finding.published.arm for finding in failed(findings)] == ["c"]
    assert compare(samples(("a", "1", 0, 1.0)), [ROW], must_match=False)[0].verdict.passed is None
    frame = findings_frame(findings)
    assert frame.loc[0, ["ours", "published", "unit"]].tolist() == [pytest.approx(7300 / 3600), 2.0, "h"]


def test_a_tables_row_holds_the_papers_and_the_simulators_value() -> None:
    paper = replace(ROW, value=3.0, measured=VerdictRule(RuleKind.AT_MOST), source="paper, Table 2")
    findings = compare(samples(("a", "1", 0, 7236.0)), [paper, ROW], must_match=True)
    cells = ["average JCT, a", "2.010 h", "–", "≤ 3.000 h", "", "holds", "2.000 h", "+0.50 %", "within 3 %"]
    assert table_cells(findings) == [cells]
    line = "| average JCT, a | 2.010 h | ≤ 3.000 h | holds | 2.000 h | +0.50 % | within 3 % |"
    assert line in verdict_markdown(findings, "T")


@pytest.mark.parametrize(
    ("ours", "published", "unit", "cells"),
    [
        (1290.0, 25.0, "min", ("21.50 min", "25.00 min")),
        (2446.13, 0.76, "h", ("0.679 h", "0.760 h")),
        (2446.13, 2446.13, "s", ("40.77 min", "40.77 min")),
        (1440.0, 0.4, "h", ("24.00 min", "24.00 min")),
        (0.9235, 0.9235, "s", ("0.9235 s", "0.9235 s")),
    ],
)
def test_a_row_has_one_unit_by_its_size(ours: float, published: float, unit: str, cells: tuple[str, str]) -> None:
    row = replace(ROW, value=published, unit=unit)
    (found,) = table_cells(compare(samples(("a", "1", 0, ours)), [row], must_match=True))
    assert (found[1], found[6]) == cells


def test_below_a_table_stand_what_is_not_met_and_what_intervals_are_over() -> None:
    rng = np.random.default_rng(1)
    values = [("a", str(k), 0, 3600.0 * (5 + rng.random())) for k in range(7)]
    row = replace(ROW, note="It takes longer here.")
    found = notes(compare(samples(*values), [row], must_match=True))
    assert found == ["Not met: average JCT, a. It takes longer here.", "Intervals are over 7 workloads."]


def test_half_widths_are_relative_to_the_difference() -> None:
    values = [("a", str(k), 0, 5.0 + 0.1 * (k % 3)) for k in range(8)] + [("b", str(k), 0, 10.0) for k in range(8)]
    (finding,) = compare(samples(*values), [replace(ROW, against="b")], must_match=True)
    assert finding.ours is not None
    assert finding.ours.estimate.half_width is not None
    assert relative_half_width(finding) == pytest.approx(finding.ours.estimate.half_width / 0.49, rel=0.02)
    assert relative_half_width(compare(samples(*values), [ROW], must_match=True)[0]) is None


@pytest.mark.parametrize(("value", "width"), [(5.0, float("inf")), (float("inf"), None)], ids=["few", "cut off"])
def test_a_difference_of_few_units_is_as_wide_as_can_be(value: float, width: float | None) -> None:
    values = [("a", "1", 0, value), ("b", "1", 0, 10.0)]
    difference, not_run = (replace(ROW, against=arm) for arm in ("b", "c"))
    findings = compare(samples(*values), [difference, not_run], must_match=True)
    assert [relative_half_width(finding) for finding in findings] == [width, None]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [("unit", "days", "h, min"), ("measured", "close", "a share"), ("embedded", "within", "a share"),
     ("value", "much", "a finite number"), ("metric", "", "a name")],
)  # fmt: skip
def test_a_bad_row_of_published_values_is_named(tmp_path: Path, column: str, value: str, words: str) -> None:
    good = dict(zip(COLUMNS, ("average JCT", "a", "", "2", "h", "3 %", "none", "", "simulator", ""), strict=True))
    path = tmp_path / "p.csv"
    path.write_text(f"{','.join(COLUMNS)}\n{','.join(good.values())}\n")
    assert read_published(path) == [ROW]
    path.write_text(f"{','.join(COLUMNS)}\n{','.join((good | {column: value}).values())}\n")
    with pytest.raises(InvalidInputError, match=rf"p\.csv, line 2: column '{column}'.*{words}"):
        read_published(path)


def test_the_dumbbell_chart_has_every_value_once_in_the_panels_unit() -> None:
    paper = replace(ROW, value=3.0, source="paper, Table 2")
    bound = replace(ROW, arm="b", value=100.0, measured=VerdictRule(RuleKind.AT_MOST), source="paper, Table 2")
    rng = np.random.default_rng(0)
    values = [("a", str(k), 0, 7200.0 + rng.random()) for k in range(7)] + [("b", "1", 0, 9000.0)]
    findings = compare(samples(*values), [paper, ROW, bound], must_match=True)
    (axes,) = dumbbell(findings).axes
    assert axes.get_title(loc="left") == "average JCT [h]"
    points = {line.get_marker(): line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() != "None"}
    assert points == {"o": 2.5, "D": 2.0, "s": 3.0, "|": 100.0}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    widest = max((line for line in axes.get_lines() if line.get_marker() == "None"), key=lambda line: line.get_lw())
    ours = findings[0].ours
    assert ours is not None
    assert ours.estimate.low is not None
    assert widest.get_xdata()[0] == pytest.approx(ours.estimate.low / 3600)


def test_a_percentile_above_an_unfinished_job_is_infinite() -> None:
    times = np.arange(1.0, 101.0)
    assert measures._percentile(times, 99) == np.percentile(times, 99)
    assert measures._percentile(np.append(times, np.inf), 99) == np.percentile([*times, 1e9], 99)
    assert measures._percentile(np.append(times, [np.inf] * 3), 99) == np.inf


def test_units_in_brackets_are_in_the_table_of_a_conformance() -> None:
    name = "first noise scale [examples]"
    row = Published(name, "imagenet", "", 1.0, "1", VerdictRule(RuleKind.EXACT), NONE, "", "simulator")
    (finding,) = compare(Samples([Sample(name, "imagenet", 1.0)]), [row], must_match=True)
    console = Console(width=150)
    with console.capture() as captured:
        console.print(conformance_table([("Pollux", finding)]))
    assert name in captured.get()


def test_a_run_in_which_no_job_ran_has_no_share_of_restarts() -> None:
    names = ("run_time", "num_restarts", "restart_time", "gpu_seconds", "jct")
    jobs = pd.DataFrame({"application": ["ncf"], **{name: [0.0] for name in names}})
    assert measures.overheads_of(jobs)["share of run time in restarts"] == 0
