"""The site builds without a warning and requests nothing from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import hooks
import pytest
import reason_tables
import results
from shared_runs import SharedRuns

from polluxsim.cli.commands import COMMANDS
from polluxsim.statistics.metric_lines import METRICS

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself: sources, stylesheets, icons, imports and urls of stylesheets.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|data)=["']?\s*(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|next|prev))[^>]*?\bhref=["']?\s*(?:https?:)?//[^"'\s>]+"""
    r"""|@import\s+["'](?:https?:)?//[^"']+|url\(["']?(?:https?:)?//[^)]+""",
    re.IGNORECASE,
)
WIDEST = 88
"""Of a signature, in characters: more do not fit beside the contents."""
OURS = re.compile(r"/(?:work|tmp|home|root)/")


@pytest.fixture(scope="session")
def site(shared_runs: SharedRuns) -> Path:
    """Return the folder of the site, which is built once for all workers."""

    def make(folder: Path) -> None:
        done = build(ROOT / "mkdocs.yml", folder)
        assert done.returncode == 0, done.stdout + done.stderr

    return shared_runs.folder("site", make)


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: it would hide warnings from --strict, too.
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "#nowhere", "/absolute.md"])
def test_a_broken_link_ends_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n[this]({link})\n")
    own = f"docs_dir: {tmp_path / 'docs'}\nhooks: []\nplugins: []\nnav: [index.md]\n"
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{own}")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert link in done.stderr


WITHOUT_PICTURE = {
    "bound", "regret", "log-whatif", "log-nodes", "log-judge", "log-decisions", "log-extract", "evolve-init",
    "evolve-score", "evolve-search", "twin-config", "twin-collect", "twin-eta", "twin-try", "twin-whatif",
}  # fmt: skip
"""Commands whose section refers to another page."""


@pytest.mark.slow
def test_every_page_is_there(site: Path) -> None:
    text = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert {"index.html", "tutorial.html", "recipes.html", "model.html", "commands.html"} <= set(text)
    assert text["model.html"].count("<math") > 40
    assert "arithmatex" not in text["model.html"]
    assert 'id="polluxsim.api.simulating.simulate"' in text["reference/api.html"]
    assert '<iframe class="live" src="report.html"' in text["index.html"]
    assert "Tiresias and SRTF against Pollux on 60 jobs" in text["report.html"]
    assert (
        text["reports.html"].count("-dark.webp#only-dark") == text["reports.html"].count("-light.webp#only-light") > 8
    )
    commands = [kind.replace(" ", "-") for kind in COMMANDS]
    assert len(commands) >= 20
    for command in commands:
        section = text["commands.html"].partition(f'id="{command}"')[2].partition("<h2")[0]
        assert section, f"docs/commands.md has no section about {command}"
        assert "<img" in section or command in WITHOUT_PICTURE, f"docs/commands.md has no picture of {command}"
        assert f"usage: polluxsim {command.replace('-', ' ')}" in text["commands.html"] or command == "run"
    assert not [name for name, page in text.items() if "--8&lt;--" in page or "<!-- help" in page]
    assert not [name for name, page in text.items() if OURS.search(page)]


RESULT_PAGES = {"evaluation", "perturbations", "leaderboard"}
LONG = RESULT_PAGES | {"commands", "changelog", "404"}
MOST_HEIGHT = 8000
"""Of a page on a desktop of 1,440 px [px]."""


@pytest.mark.slow
def test_pages_are_at_most_eight_thousand_pixels_high(browser: Any, site: Path) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    heights = {}
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).with_suffix("").as_posix()
        if page in LONG or page.startswith("reference/"):
            continue
        browser.get(path.as_uri())
        browser.execute_async_script(
            "const pictures = [...document.images]; for (const each of pictures) each.loading = 'eager';"
            "Promise.allSettled(pictures.map(each => each.decode())).then(arguments[0])"
        )
        heights[page] = browser.execute_script("return document.documentElement.scrollHeight")
    assert len(heights) > 60
    assert {page: height for page, height in heights.items() if height > MOST_HEIGHT} == {}


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(RESULT_PAGES))
def test_a_page_of_results_begins_with_a_chart_and_a_table_of_contents(site: Path, page: str) -> None:
    text = (site / f"{page}.html").read_text(encoding="utf-8").partition("<h1")[2]
    places = [text.index(part) for part in (f'src="images/{page}.svg"', '<div class="toc">', "<table")]
    assert places == sorted(places)
    chart = (site / "images" / f"{page}.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in chart


@pytest.mark.slow
def test_sections_that_moved_to_other_pages_keep_their_anchors(site: Path) -> None:
    moved = {
        "schedulers": {"shares-of-time", "several-gpu-types", "the-table-of-types", "clusters-that-grow"}
        | {"published-numbers", "intended-differences", "shorter-jobs-first-under-pollux"},
        "recipes": {"write-a-policy", "train-a-policy", "replay-a-log", "import-any-table", "find-the-number-of-nodes"},
    }
    for page, anchors in moved.items():
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        assert [
            anchor
            for anchor in anchors
            if not re.search(rf'<a [^>]*href="[\w-]+\.html[^>]* id="{anchor}"', text)
            and not re.search(rf'<a [^>]*id="{anchor}"[^>]*href="[\w-]+\.html', text)
        ] == []


@pytest.mark.slow
def test_signatures_are_folded_so_that_none_is_cut_off(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")]
    code = [
        each for page in pages for each in re.findall(r'<div class="doc-signature highlight">(.*?)</div>', page, re.S)
    ]
    signatures = [unescape(re.sub(r"<[^>]+>", "", each)).strip().splitlines() for each in code]
    assert sum(len(lines) > 5 for lines in signatures) > 20
    assert [line for lines in signatures for line in lines if len(line) > WIDEST] == []


@pytest.mark.slow
def test_nothing_is_asked_for_over_the_network(site: Path) -> None:
    asked = {
        path.name: found
        for path in site.rglob("*")
        if path.suffix in {".html", ".css", ".svg"} and (found := FETCHED.findall(path.read_text(encoding="utf-8")))
    }
    assert asked == {}
    scripts = {path.name for path in site.rglob("*.html") for _ in re.finditer(r"<script[^>]*src=", path.read_text())}
    assert scripts  # the site has some, so the look at them was one


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.b/c.js">',
        "<img alt=x src=//a.b/c.png>",
        '<link rel="stylesheet" href="https://a.b/c.css">',
        "@font-face { src: url('https://a.b/c.woff') }",
    ],
)
def test_what_would_be_fetched_is_recognised(text: str) -> None:
    assert FETCHED.search(text)
    assert not FETCHED.search(
        '<a href="https://a.b/"> <link href="https://a.b/" rel="canonical">'.replace(
            '<link href="https://a.b/" rel="canonical">', '<link rel="canonical" href="https://a.b/">'
        )
    )


def test_the_chart_of_verdicts_counts_those_that_the_page_states() -> None:
    tables = {path.stem: next(results.markdown_tables(path.read_text())) for path in hooks.REPRODUCED.glob("[!a]*.md")}
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    counts = [results.counted_verdicts(table) for table in tables.values()]
    met, judged = sum(met for met, _ in counts), sum(met + missed for met, missed in counts)
    stated = [tuple(map(int, found)) for found in re.findall(r"(\d+) of (\d+) judged numbers met", page)]
    assert (met, judged) == (sum(each for each, _ in stated), sum(each for _, each in stated))


def test_what_reproduce_wrote_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "REPRODUCED", tmp_path)
    assert "none are here yet" in hooks.on_page_markdown("<!-- reproduced -->")
    (tmp_path / "fig7.md").write_text("| a | b |\n")
    (tmp_path / "fig7-cdf.png").touch()
    shown = hooks.on_page_markdown("<!-- reproduced -->")
    assert "| a | b |\n\n![fig7-cdf](reproduced/fig7-cdf.png)" in shown


def test_the_pictures_ask_for_nothing_either() -> None:
    for path in (ROOT / "docs" / "images").glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert not FETCHED.search(text)
        assert not OURS.search(text)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["index", "schedulers", "metrics", "evaluation"])
def test_axe_finds_nothing_serious_on_the_site(browser: Any, site: Path, page: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.get((site / f"{page}.html").as_uri())
    still = "const style = document.createElement('style'); style.textContent = '* { transition: none !important }';"
    browser.execute_script(f"{still} document.head.append(style)")  # or axe sees colours on their way
    for scheme in ("default", "slate"):
        browser.execute_script("document.body.dataset.mdColorScheme = arguments[0]", scheme)
        browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
        found = browser.execute_async_script(
            "axe.run(document, { iframes: false }).then(arguments[arguments.length - 1])"
        )
        serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"], each["nodes"][0]["failureSummary"]) for each in serious] == []


@pytest.mark.slow
def test_the_glossary_has_every_metric_with_its_formula(site: Path) -> None:
    text = unescape((site / "metrics.html").read_text(encoding="utf-8"))
    assert all(metric.formula for metric in METRICS.values())
    assert [metric.title for metric in METRICS.values() if f">{metric.formula}</td>" not in text] == []


def test_each_kind_of_reason_has_a_line() -> None:
    """A kind that excuses idle GPUs has a second line, which states when."""
    kinds = [kind for kinds in reason_tables.kinds_by_module().values() for kind in kinds]
    assert len(kinds) >= 57
    lines = hooks.on_page_markdown("<!-- reasons -->").splitlines()
    assert sorted(line.split(" | ")[1] for line in lines[2:]) == sorted(f"`{kind.name}`" for kind in kinds)
    assert (
        "| `drf`, `fair-queues`, `quotas` | `preempted` | A job of the same queue takes the GPUs of a job. |" in lines
    )
    excused = [kind for kind in kinds if kind.excuses_waiting or kind.excuses_running]
    lines = hooks.on_page_markdown("<!-- excuses -->").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| `{name}`" for name in sorted(map(str, excused))]
    assert all(line.count(" | ") == 2 for line in lines[2:])
