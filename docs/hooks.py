"""Hooks of MkDocs: generated pages, formulas, the help of commands, the design, and the tables of `reproduce`."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import indent
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs takes hooks by their path

import lesson
import reason_tables
import results
from latex2mathml.converter import convert
from mkdocs.structure.files import File

import polluxsim
from polluxsim.look import tables
from polluxsim.metrics.declared import LESS, MORE, NEITHER
from polluxsim.policies.contract import policy
from polluxsim.statistics.metric_lines import METRICS

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
EVALUATION = "<!-- reproduced -->"
REPRODUCED = ROOT / "docs" / "reproduced"
LEADERBOARD = "arena"
"""Beginning of the names of tables that the leaderboard shows."""
GLOSSARY = "<!-- metrics -->"
OTHERS = "<!-- the other commands -->"
REASONS = "<!-- reasons -->"
EXCUSES = "<!-- excuses -->"
DESIGN = "<!-- design -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
SCREENS = re.compile(r"^<!-- (screens|wide):([\w-]+): (.*?) -->$", re.MULTILINE)
MEMBERS = re.compile(r"^<!-- members: (\w+) -->$", re.MULTILINE)
HELP = re.compile(r"^( *)<!-- help:(.*?)-->$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Make the page to play with, a report, and the charts of recorded results."""
    files.append(File.generated(config, "lesson.html", content=lesson.page()))
    files.append(File.generated(config, "report.html", content=_report()))
    for name, chart in results.charts().items():
        files.append(File.generated(config, f"images/{name}.svg", content=chart))
    return files


def _report() -> str:
    """Return the report of a small workload under three policies."""
    small = polluxsim.workload("philly-like", num_jobs=60, hours=4)
    policies = ("pollux", "tiresias", "srtf")
    runs = {name: polluxsim.simulate(small, policy=name, progress=False) for name in policies}
    with tempfile.TemporaryDirectory() as folder:
        return polluxsim.compare(runs).report(Path(folder) / "report.html").read_text(encoding="utf-8")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the markers of a page by generated text."""
    if OTHERS in markdown:
        others = [name for name in _commands() if f"\n## {name}\n" not in markdown]
        markdown = markdown.replace(OTHERS, "\n".join(map(_section, others)))
    markdown = markdown.replace(EVALUATION, _reproduced())
    if DESIGN in markdown:
        design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
        markdown = markdown.replace(DESIGN, design.replace("](docs/", "]("))
    if GLOSSARY in markdown:
        markdown = markdown.replace(GLOSSARY, _metrics())
    markdown = MEMBERS.sub(lambda found: _members(getattr(policy, found[1])), markdown)
    if REASONS in markdown:
        markdown = markdown.replace(REASONS, reason_tables.table_of_reasons())
    if EXCUSES in markdown:
        markdown = markdown.replace(EXCUSES, reason_tables.table_of_excuses())
    markdown = SCREENS.sub(_screens, markdown)
    return HELP.sub(lambda found: indent(f"```text\n{_help(found[2].split())}\n```", found[1]), markdown)


def _screens(found: re.Match[str]) -> str:
    """Return pictures of a part of the report in the colours of the reader's page: on a desktop, and on a phone."""
    kind, name, what = found.groups()
    windows = (("desktop", "74%"), ("phone", "24%")) if kind == "screens" else (("desktop", "74%"),)
    picture = '![{}, on a {}](images/report-{}-{}-{scheme}.webp#only-{scheme}){{ width="{}" loading=lazy }}'
    shown = [
        picture.format(what, window, name, window, width, scheme=scheme)
        for window, width in windows
        for scheme in ("light", "dark")
    ]
    return "\n".join(shown)


def _members(kind: type) -> str:
    """Return a table of the members of a class of the contract, from their docstrings."""
    rows = [["Member", "Meaning", "Default", "Asked by"]]
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        text = inspect.getdoc(member) or ""
        told: dict[str, str] = {}
        for label in ("Asked by", "Default"):
            text, _, rest = text.partition(f"{label}: ")
            told[label] = " ".join(rest.split())
        call = str(inspect.signature(member)) if callable(member) else ""
        arguments = re.findall(r"(\w+): ", call)
        shown = f"`{name}({', '.join(arguments)})`" if callable(member) else f"`{name}`"
        meaning = " ".join(text.split()).replace("|", "\\|")
        rows.append([shown, meaning, told["Default"], told["Asked by"]])
    columns = [number for number in range(4) if any(row[number] for row in rows[1:])]
    return tables.markdown([[row[number] for number in columns] for row in rows]).replace("---:", "---")


def _metrics() -> str:
    """Return a table of the declared metrics."""
    better = {LESS: "less", MORE: "more", NEITHER: "–"}
    rows = [["Metric", "Column", "Unit", "Better", "Formula"]]
    for name, metric in METRICS.items():
        rows.append([metric.title, f"`{name}`", metric.unit or "–", better[metric.better], metric.formula])
    return tables.markdown(rows).replace("---:", "---")


def _reproduced() -> str:
    """Return what `polluxsim paper reproduce` wrote into docs/reproduced: each table, and the figures drawn with it."""
    found = sorted(path for path in REPRODUCED.glob("*.md") if not path.stem.startswith(LEADERBOARD))
    if not found:
        return "`polluxsim paper reproduce all -o docs/reproduced` writes them beside the paper's; none are here yet."
    parts = ["Written by `polluxsim paper reproduce`, as they stand."]
    for table in found:
        parts.append(table.read_text(encoding="utf-8").strip())
        parts += [f"![{path.stem}](reproduced/{path.name})" for path in sorted(REPRODUCED.glob(f"{table.stem}*.png"))]
    return "\n\n".join(parts)


def _commands() -> list[str]:
    """Return the names of all commands; the name of a group stands before those of its commands."""
    named = re.compile(r"^    (\w+)(?: |$)", re.MULTILINE)
    found = []
    for name in named.findall(_help([])):
        text = _help([name])
        of_group = named.findall(text.partition("commands:\n")[2]) if "\ncommands:\n" in text else []
        found += [f"{name} {command}" for command in of_group] or [name]
    return found


def _section(command: str) -> str:
    """Return a section of a command as its help tells it, with its picture."""
    _, _, rest = _help(command.split()).partition("\n\n")
    what = " ".join(rest.partition("\n\n")[0].split())
    pictures = sorted(IMAGES.glob(f"{command.rsplit(maxsplit=1)[-1]}[.-]*"))
    shown = "\n".join(f"![What {command} makes](images/{path.name})" for path in pictures)
    return f'## {command}\n\n{what}\n\n{shown}\n\n??? note "polluxsim {command} --help"\n    <!-- help: {command} -->\n'


def on_page_content(content: str, **_: Any) -> str:
    """Draw formulas without a script: browsers know MathML."""
    return FORMULA.sub(_formula, content)


SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search, which is a dialog without a name to a screen reader."""
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')


def _formula(found: re.Match[str]) -> str:
    block = found[1] == "div"
    drawn: str = convert(html.unescape(found[2]).strip(), display="block" if block else "inline")
    return f'<div class="formula">{drawn}</div>' if block else drawn


def _help(command: list[str]) -> str:
    environment = os.environ | {"COLUMNS": "92", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("POLLUXSIM_DATA", None)  # the help has its value
    call = [sys.executable, "-m", "polluxsim", *command, "--help"]
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()
