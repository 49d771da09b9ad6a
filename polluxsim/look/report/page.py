"""Puts the page together: what was run, the numbers, the figures, and every run's tables in compact form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.embed.util import standalone_docs_json_and_render_items
from bokeh.models import Range1d
from bokeh.resources import Resources
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from polluxsim.durations import HOUR
from polluxsim.look.groups import policy_name, settings_of
from polluxsim.look.lives import NO_LIVES, Lives
from polluxsim.look.report import titles
from polluxsim.look.report.figures import Shown, by_application, distribution, over_time
from polluxsim.look.report.occupancy import occupancy
from polluxsim.look.report.panels import cluster_view, job_figures, job_table, occupancy_map
from polluxsim.look.report.payload import packed, run_columns
from polluxsim.look.report.sentences import packed_reasons
from polluxsim.look.report.side_by_side import lines
from polluxsim.look.report.style import run_color
from polluxsim.look.slots import cluster_of
from polluxsim.metrics.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bokeh.model import Model

    from polluxsim.metrics.summary import Summary
    from polluxsim.records import ReasonRecord
    from polluxsim.storage import Run

SCRIPTS = ("data", "format", "map", "cluster", "table", "job", "page")
"""The page's own scripts, in the order in which they need each other."""

MOST_COLUMNS = 5
"""More runs than this stand one below the other in the summary."""

MOST_NAMED = 3
"""More policies than this are counted in the headline, not named."""


@dataclass(frozen=True)
class Subject:
    """A run to report on, and what is known beyond its tables.

    Attributes
    ----------
    run
        The run. It has jobs.
    lives
        Efficiency and progress of its jobs over time.
    lives_note
        Where those are from, or why there are none: a sentence for people.
    reasons
        What decided about its jobs, as far as it is recorded.
    """

    run: Run
    lives: Lives = NO_LIVES
    lives_note: str = ""
    reasons: Sequence[ReasonRecord] = ()


class Card(NamedTuple):
    """What the page says of one run in words."""

    name: str
    label: str
    color: str
    seed: str
    workload: str
    cluster: str
    rounds: str
    info: str


def report(subjects: Sequence[Subject]) -> str:
    """Return the report of runs as the text of an HTML file that needs no other and no network.

    Parameters
    ----------
    subjects
        The runs, of which the first is what the others are compared with.

    Raises
    ------
    ValueError
        If there is no run, or one without jobs.
    """
    if not subjects:
        raise ValueError("no runs, needed is one or more")
    runs = [subject.run for subject in subjects]
    summaries = [_summary(run) for run in runs]
    labels = titles.labels(runs)
    shown = [
        Shown(label, run.result, occupancy(run.result, cluster_of(run)))
        for label, run in zip(labels, runs, strict=True)
    ]
    places, embedded = _embedded(_models(shown))
    cards = [_card(run, show, number) for number, (run, show) in enumerate(zip(runs, shown, strict=True))]
    return _template("page.html").render(
        title=_title(runs, summaries),
        cards=cards,
        first=cards[0],
        tiles=_tiles(labels, summaries),
        lines=lines(summaries),
        across=len(runs) <= MOST_COLUMNS,
        places=places,
        library=Markup(Resources(mode="inline", components=["bokeh", "bokeh-widgets", "bokeh-tables"]).render_js()),
        style=Markup(_asset("report.css")),
        scripts=[Markup(_asset(f"{name}.js")) for name in SCRIPTS],
        embedded=Markup(embedded),
        payloads=[Markup(_payload(subject, show)) for subject, show in zip(subjects, shown, strict=True)],
        reasons=list(map(_reasons, subjects)),
        version=runs[0].info.get("versions", {}).get("polluxsim", ""),
        commit=(runs[0].info.get("git_commit") or "")[:12],
    )


def _embedded(models: Mapping[str, Model]) -> tuple[dict[str, str], str]:
    """Return the element that each figure goes into, and all figures as JSON."""
    document = Document()
    for model in models.values():
        document.add_root(model)
    documents, (item,) = standalone_docs_json_and_render_items(document)
    roots = item.roots.to_json()
    places = {name: roots[model.ref["id"]] for name, model in models.items()}
    return places, _json({"documents": documents, "items": [item.to_json()]})


def _reasons(subject: Subject) -> Markup | None:
    return Markup(packed_reasons(subject.run.result, subject.reasons)) if subject.reasons else None


def _summary(run: Run) -> Summary:
    summary = summarise(run.result)
    if summary is None:
        raise ValueError(f"run {run.name!r} has no jobs, needed is one or more")
    return summary


def _models(shown: Sequence[Shown]) -> dict[str, Model]:
    hours = max(run.result.end_time for run in shown) / HOUR
    span = Range1d(0, hours, bounds=(0, hours), name="hours")
    gpus, efficiency, queue = over_time(shown, span)
    return {
        "cdf": distribution(shown),
        "applications": by_application(shown),
        "gpus": gpus,
        "efficiency": efficiency,
        "queue": queue,
        "map": occupancy_map(span),
        "cluster": cluster_view(),
        "table": job_table(),
    } | {f"job_{number}": plot for number, plot in enumerate(job_figures())}


def _title(runs: Sequence[Run], summaries: Sequence[Summary]) -> str:
    policies = list(dict.fromkeys(policy_name(settings_of(run)) for run in runs))
    if len(policies) > MOST_NAMED:
        who = f"{len(policies)} policies"
    elif len(policies) > 1:
        who = f"{policies[0]} against {' and '.join(policies[1:])}"
    else:
        who = policies[0] if len(runs) == 1 else f"{policies[0]}, {len(runs)} runs"
    counts = sorted({summary.num_jobs for summary in summaries})
    jobs = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{who} on {jobs} jobs"


def _card(run: Run, shown: Shown, number: int) -> Card:
    info = run.info
    return Card(
        name=run.name,
        label=shown.label,
        color=run_color(number),
        seed=str(info.get("seed", "–")),
        workload=titles.workload_words(info),
        cluster=titles.cluster_words(shown.held.gpus_per_node),
        rounds=f"rounds every {titles.setting(info, 'engine', 'round_interval')} s, "
        f"a restart costs {titles.setting(info, 'engine', 'restart_delay')} s",
        info=json.dumps(info, indent=2, sort_keys=True, ensure_ascii=False),
    )


def _tiles(labels: Sequence[str], summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return the key numbers of the first run, each with what the next runs have instead."""
    wanted = ("average JCT", "99th percentile JCT", "makespan", "GPU-hours", "restarts")
    return [
        {"line": line, "first": line.cells[0], "others": list(zip(labels[1:4], line.cells[1:4], strict=True))}
        for line in lines(summaries)
        if line.label in wanted
    ]


def _payload(subject: Subject, shown: Shown) -> str:
    jobs = shown.result.job_records
    head = {
        "label": shown.label,
        "end": shown.result.end_time,
        "jobs": [job.job for job in jobs],
        "applications": sorted({job.application for job in jobs}),
        "gpusPerNode": list(shown.held.gpus_per_node),
        "livesNote": subject.lives_note,
    }
    return packed(run_columns(shown.result, shown.held, subject.lives), head)


def _template(name: str) -> Template:
    rules = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return rules.from_string(_asset(name))


def _asset(name: str) -> str:
    return (files("polluxsim.look.report") / "assets" / name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """Return JSON that can stand inside a script element: no text in it can end the element."""
    return str(serialize_json(value)).replace("<", "\\u003c")
