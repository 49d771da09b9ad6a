"""Answers as JSON, Markdown and one page, and costs: against the text of the same answer, and by hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import matplotlib.figure
import pytest

from polluxsim.cli.main import main
from polluxsim.hardware.costs import HOURS_OF_MONTH
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.look.one_page import MOST_LINES, MOST_ROWS, CaptionedFigure, OnePage, as_html
from polluxsim.look.plot.waits import draw_shares, draw_waits
from polluxsim.look.sheets import Block

Told = Callable[..., tuple[str, str]]

# One node of 8 GPUs; rounds of a replay are every 10 s. `long` holds all GPUs from 10 s to 1010 s; `short` comes at
# 100 s and waits until 1010 s, for 910 s.
TWO_JOBS = """job,submit,start,end,gpus
long,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T00:16:50Z,8
short,2026-03-02T00:01:40Z,2026-03-02T00:16:50Z,2026-03-02T00:18:30Z,8
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Return a function that runs a command beside the log of `TWO_JOBS`, and returns its output and its errors."""
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(TWO_JOBS)
    assert main(["log", "import", "table", "log.csv", "-o", "log.parquet", "--time-zone", "UTC"]) == 0

    def run(*command: str, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert main(list(command)) == status
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


WHATIF = ("log", "whatif", "log.parquet", "--nodes", "1,+1", "--policies", "fifo", "--percentile", "p50")


def test_a_whatif_of_a_log_has_the_same_numbers_in_all_forms(told: Told) -> None:
    text, _ = told(*WHATIF, "--price", "20")
    numbers, errors = told(*WHATIF, "--price", "20", "--json")
    found = json.loads(numbers)
    # FIFO on one node: waits of 10 s and 910 s; on two nodes: 10 s and 0 s.
    assert [(case["policy"], case["nodes"], case["waits"]) for case in found["cases"]] == [
        ("fifo", 1, {"mean": 460.0, "p50": 460.0}), ("fifo", 2, {"mean": 5.0, "p50": 5.0}),
    ]  # fmt: skip
    assert [case["cost_per_month"] for case in found["cases"]] == [20 * HOURS_OF_MONTH, 40 * HOURS_OF_MONTH]
    assert found["calibration"]["replays"][0]["error"] == 0
    assert found["calibration"]["verdict"]["is_credible"] is True
    (effect,) = found["effects"]
    assert (effect["change"], effect["before"]["value"], effect["after"]["value"]) == ("1 more node", 460.0, 5.0)
    plain = " ".join(text.split())
    assert "│ fifo │ 1 │ 1 │ 7.67 min │ 7.67 min │" in plain
    assert "1 node costs $14,610 a month, at $20 for a node-hour" in plain
    assert "1 more node: $14,610 more a month" in plain
    for sentence in found["sentences"]:
        assert " ".join(sentence.split()) in plain
    assert "wrote log-whatif" in errors
    marks, _ = told(*WHATIF, "--price", "20", "--markdown")
    assert "| fifo | 2 | 1 | 5 s | 5 s |" in marks
    assert "- 1 more node: cuts the p50 wait from 7.67 min to 5 s" in marks


def test_a_calibration_has_the_same_numbers_in_all_forms(told: Told) -> None:
    command = ("log", "calibrate", "log.parquet", "--gpus", "8,16", "--policies", "fifo")
    found = json.loads(told(*command, "--json")[0])
    assert (found["num_jobs"], found["mean_wait_in_log"]) == (2, 460.0)
    assert [(each["gpus"], each["error"], each["mean_wait"]) for each in found["replays"]] == [
        (8, 0.0, 460.0), (16, 455.0, 5.0),
    ]  # fmt: skip
    assert re.search(r"\| fifo \| 16 \| .*0\.13 \| 0\.00 \| 0 \|", told(*command, "--markdown")[0])


def test_a_size_has_the_same_numbers_in_all_forms_and_a_cost(told: Told) -> None:
    command = ("size", "--log", "log.parquet", "--target", "mean wait < 60s", "--limit", "4", "--existing", "1")
    text, _ = told(*command, "--price", "t4")
    plain = " ".join(text.split())
    month = 8 * GPU_TYPES["t4"].price * HOURS_OF_MONTH
    assert f"2 nodes cost ${2 * month:,.0f} a month, at $0.978 for a GPU-hour of t4" in plain
    assert f"relative to the 1 node that exist: ${month:,.0f} more a month" in plain
    found = json.loads(told(*command, "--price", "t4", "--json")[0])
    assert found["answer"] == 2
    by_nodes = {level["nodes"]: level for level in found["levels"]}
    assert (by_nodes[1]["value"], by_nodes[1]["meets_target"], by_nodes[2]["meets_target"]) == (460.0, False, True)
    assert by_nodes[3]["cost_per_month"] == pytest.approx(3 * month)
    assert "cost_per_month" not in told(*command, "--json")[0]
    assert "| 2 | 5 |" in told(*command, "--markdown")[0]
    for words, message in (
        (("--price", "0"), "--price is 0, must be a price of a node-hour above 0, or a type of k80, p100"),
        (("--price", "20", "--highest-load"), "--price is for numbers of nodes; leave it out with --highest-load"),
    ):
        plain_command = [word for word in command if word not in ("--existing", "1", "--limit", "4")]
        assert message in told(*plain_command, *words, status=2)[1]


def test_the_page_has_question_answer_uncertainty_assumptions_and_two_figures(told: Told) -> None:
    text, _ = told(*WHATIF, "--price", "20", "-o", "page.html")
    assert "wrote page.html" in text
    page = Path("page.html").read_text()
    assert Path("log-whatif/runs").is_dir()
    assert "How long do jobs wait with 2 nodes in place of 1?" in page
    positions = [page.index(word) for word in ("<h1>", ">Answer<", ">Uncertainty<", "<svg", "<table", ">Assumptions<")]
    assert positions == sorted(positions)
    assert page.count("<svg") == 2
    assert "1 more node: cuts the p50 wait from 7.67 min to 5 s" in page
    assert "$14,610 more a month" in page
    assert "fifo on 2 nodes" in page
    # The file needs no other file: no address is loaded. Addresses of namespaces and of licences are not.
    loaded = re.findall(r"""(?:src|href)=["'](?!#)([^"']+)|url\((?!["']?#)""", page)
    assert loaded == []
    assert told(*WHATIF, "--price", "20", "-o", "again.html")
    assert Path("again.html").read_text() == page


def test_the_page_of_waits_that_are_not_explained_gives_no_answer(told: Told) -> None:
    text = """job,submit,start,end,gpus
a,2026-03-02T00:00:00Z,2026-03-02T04:00:00Z,2026-03-02T05:00:00Z,4
b,2026-03-02T01:00:00Z,2026-03-02T05:00:00Z,2026-03-02T06:00:00Z,4
"""
    Path("odd.csv").write_text(text)
    told("log", "import", "table", "odd.csv", "-o", "odd.parquet", "--time-zone", "UTC")
    command = ("log", "whatif", "odd.parquet", "--nodes", "1,+1", "--price", "20")
    told(*command, "-o", "odd.html")
    page = Path("odd.html").read_text()
    assert "The replays do not explain the waits in the log, so there is no answer" in page
    assert "a month" not in page
    assert page.count("<svg") == 2
    assert json.loads(told(*command, "--json")[0])["cases"] == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium to print pages")
def test_the_longest_page_has_two_printed_pages(tmp_path: Path) -> None:
    """All sections are full, and the sentences are as long as those on jobs that are left out."""
    sentence = "the p95 wait of the jobs that complete in both replays is cut from 10 h to 24 min " * 3
    rows = [["policy", *map(str, range(9))], *([["conservative"] + ["12.34 min"] * 9] * (MOST_ROWS + 5))]
    names = {f"policy {number}, 12 nodes": 3600.0 * (number + 1) for number in range(8)}
    figures = [
        CaptionedFigure(draw_waits(names, "p95 wait"), "Waits."),
        CaptionedFigure(draw_shares({"log": [1.0, 2.0], "fifo": [1.0, 3.0], "easy": [0.0, 1.0]}), "Shares."),
    ]
    many = [sentence] * MOST_LINES
    page = as_html(OnePage(sentence[:120], many, many, many, figures, Block(rows), "the output with --json"))
    assert page.count("And 13 more in the output with --json") == 3
    assert "and 5 more rows in the output with --json" in page
    file = tmp_path / "page.html"
    file.write_text(page)
    printed = tmp_path / "page.pdf"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={printed}", file.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed.read_bytes())) == 2
    assert isinstance(figures[0].drawing, matplotlib.figure.Figure)


def test_json_is_all_that_standard_output_has(told: Told) -> None:
    """Also for a log with partitions, on which the text says that they are pooled."""
    rows = "a,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T01:00:00Z,8,x\n"
    rows += "b,2026-03-02T00:01:00Z,2026-03-02T01:00:00Z,2026-03-02T02:00:00Z,8,y\n"
    Path("two.csv").write_text("job,submit,start,end,gpus,partition\n" + rows)
    told("log", "import", "table", "two.csv", "-o", "two.parquet", "--time-zone", "UTC")
    for command in (
        ("size", "--log", "two.parquet", "--target", "mean wait < 10h", "--limit", "3"),
        ("log", "calibrate", "two.parquet", "--gpus", "8", "--policies", "fifo"),
        ("log", "whatif", "two.parquet", "--nodes", "1", "--policies", "fifo"),
    ):
        text, _ = told(*command)
        found = json.loads(told(*command, "--json")[0])
        assert any("partition" in sentence for sentence in found["sentences"]), command
        for sentence in found["sentences"]:
            assert " ".join(sentence.split()) in " ".join(text.split())
