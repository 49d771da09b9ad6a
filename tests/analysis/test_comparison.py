"""Verdicts on published numbers, and how samples become estimates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polluxsim.analysis.comparison import Sample, Samples, compare, relative_half_width, to_frame
from polluxsim.analysis.published import COLUMNS, Kind, Published, Tolerance, judge, judge_order, read_published
from polluxsim.analysis.verdict_table import failed, markdown, rows
from polluxsim.errors import InvalidInputError

NONE = Tolerance(Kind.NONE)
WITHIN_3 = Tolerance(Kind.RELATIVE, 0.03)
ROW = Published("average JCT", "a", "", 2.0, "h", WITHIN_3, NONE, "", "simulator")


@pytest.mark.parametrize(
    ("ours", "published", "tolerance", "words", "passed"),
    [
        (100.0, 100.0, Tolerance(Kind.EXACT), "equal", True),
        (100.0 + 1e-9, 100.0, Tolerance(Kind.EXACT), "equal", True),
        (100.1, 100.0, Tolerance(Kind.EXACT), "not equal", False),
        (102.9, 100.0, WITHIN_3, "within 3 %", True),
        (96.9, 100.0, WITHIN_3, "outside 3 %", False),
        (-0.1, -0.5, Tolerance(Kind.SIGN), "same sign", True),
        (0.1, -0.5, Tolerance(Kind.SIGN), "other sign", False),
        (0.0, -0.5, Tolerance(Kind.SIGN), "other sign", False),
        (0.99, 0.99, Tolerance(Kind.AT_LEAST), "holds", True),
        (0.98, 0.99, Tolerance(Kind.AT_LEAST), "does not hold", False),
        (0.1, 0.1, Tolerance(Kind.AT_MOST), "holds", True),
        (0.11, 0.1, Tolerance(Kind.AT_MOST), "does not hold", False),
        (7.0, 1.0, NONE, "–", None),
    ],
)
def test_verdicts(ours: float, published: float, tolerance: Tolerance, words: str, passed: bool | None) -> None:
    assert judge(ours, published, tolerance) == (words, passed)


def test_changes_are_held_against_a_tolerance_as_the_ratios_they_are() -> None:
    assert judge(-0.49, -0.50, WITHIN_3, is_change=True).passed
    assert not judge(-0.48, -0.50, WITHIN_3, is_change=True).passed


def test_an_order_names_who_stands_on_the_wrong_side() -> None:
    published = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0}
    ours = {"a": 10.0, "b": 30.0, "c": 20.0, "d": 40.0}
    assert judge_order("a", ours, published).passed
    assert judge_order("b", ours, published) == ("other order: c", False)
    assert judge_order("d", ours, published).passed  # c and d are alike as published
    assert judge_order("a", {**ours, "b": 10.0}, published) == ("other order: b", False)


def samples(*values: tuple[str, str, int, float]) -> Samples:
    return Samples(Sample("average JCT", arm, value, workload, seed) for arm, workload, seed, value in values)


def test_pairs_are_by_workload_and_seed_and_seeds_of_a_workload_are_one_unit() -> None:
    rng = np.random.default_rng(0)
    sizes = {str(workload): 2.0**workload for workload in range(6)}
    a = [("a", w, s, 0.5 * size * (1 + 0.01 * rng.standard_normal())) for w, size in sizes.items() for s in range(3)]
    b = [("b", w, s, size) for w, size in sizes.items() for s in range(3)]
    estimate, units = samples(*a, *b[::-1], ("b", "9", 0, 1e9)).estimate(("average JCT", "a", "b"))
    assert estimate is not None
    assert estimate.half_width is not None
    assert units == 6  # the seventh workload has no partner
    assert estimate.value == pytest.approx(-0.5, abs=0.02)
    assert estimate.half_width < 0.1  # unpaired, the workloads' sizes alone would make it hundreds of percents
    assert samples(*a[:6], *b[:6]).estimate(("average JCT", "a", "b"))[1] == 6


def test_findings_say_what_was_not_run_and_what_was_cut_off() -> None:
    published = [ROW, replace(ROW, arm="b"), replace(ROW, arm="c")]
    findings = compare(samples(("a", "1", 0, 7300.0), ("c", "1", 0, float("inf"))), published, must_match=True)
    assert [finding.verdict.words for finding in findings] == ["within 3 %", "not run", "jobs cut off"]
    assert [finding.published.arm for finding in failed(findings)] == ["c"]
    assert compare(samples(("a", "1", 0, 1.0)), [ROW], must_match=False)[0].verdict.passed is None
    frame = to_frame(findings)
    assert frame.loc[0, ["ours", "published", "unit"]].tolist() == [pytest.approx(7300 / 3600), 2.0, "h"]


def test_a_tables_row_holds_the_papers_and_the_simulators_value() -> None:
    paper = replace(ROW, value=3.0, tolerance=Tolerance(Kind.AT_MOST), source="paper, Table 2")
    findings = compare(samples(("a", "1", 0, 7200.0)), [paper, ROW], must_match=True)
    assert rows(findings) == [["average JCT, a", "2.000 h", "–", "≤ 3.000 h", "holds", "2.000 h", "+0.00 %", "equal"]]
    assert "| average JCT, a | 2.000 h | ≤ 3.000 h | holds | 2.000 h | +0.00 % | equal |" in markdown(findings, "T")


def test_half_widths_are_relative_to_the_difference() -> None:
    values = [("a", str(k), 0, 5.0 + 0.1 * (k % 3)) for k in range(8)] + [("b", str(k), 0, 10.0) for k in range(8)]
    (finding,) = compare(samples(*values), [replace(ROW, against="b")], must_match=True)
    assert finding.ours is not None
    assert finding.ours.half_width is not None
    assert relative_half_width(finding) == pytest.approx(finding.ours.half_width / 0.49, rel=0.02)
    assert relative_half_width(compare(samples(*values), [ROW], must_match=True)[0]) is None


@pytest.mark.parametrize(("value", "width"), [(5.0, float("inf")), (float("inf"), None)], ids=["few", "cut off"])
def test_a_difference_of_few_units_is_as_wide_as_can_be(value: float, width: float | None) -> None:
    values = [("a", "1", 0, value), ("b", "1", 0, 10.0)]
    difference, not_run = (replace(ROW, against=arm) for arm in ("b", "c"))
    findings = compare(samples(*values), [difference, not_run], must_match=True)
    assert [relative_half_width(finding) for finding in findings] == [width, None]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [("unit", "days", "h, min"), ("tolerance", "close", "a share"), ("tolerance", "relative", "a share"),
     ("value", "much", "a finite number"), ("metric", "", "a name")],
)  # fmt: skip
def test_a_bad_row_of_published_values_is_named(tmp_path: Path, column: str, value: str, words: str) -> None:
    good = dict(zip(COLUMNS, ("average JCT", "a", "", "2", "h", "3 %", "none", "", "simulator"), strict=True))
    path = tmp_path / "p.csv"
    path.write_text(f"{','.join(COLUMNS)}\n{','.join(good.values())}\n")
    assert read_published(path) == [ROW]
    path.write_text(f"{','.join(COLUMNS)}\n{','.join((good | {column: value}).values())}\n")
    with pytest.raises(InvalidInputError, match=rf"p\.csv, line 2: column '{column}'.*{words}"):
        read_published(path)
