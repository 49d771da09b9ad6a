"""Count the lines of the package at a revision and now, for the same features, room by room.

    python benchmarks/lines.py [--since 262ba8e] [--functions]

A module counts as of then unless it carries a feature that has come since: those are listed by name, with their lines.
What such features need in modules of then counts as of then, too, so that the sum is too high. Beside it: the lines of
functions and classes that are there by name both then and now, what they grew by included, and those of names that are
gone. `--functions` tells how long functions are, docstrings included. By default from the last commit before the rooms
were made. A few seconds.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PACKAGE = "polluxsim"
BEFORE = "262ba8e"
"""The last commit before the rooms."""

KERNELS = {"kernel", "helper", "inlined"}
"""What compiled functions are marked with."""

ROOMS = {
    "engine": "engine",
    "agent": "agent",
    "policies": "policies",
    "models": "models, applications, logs",
    "traces": "models, applications, logs",
    "applications": "models, applications, logs",
    "logs": "models, applications, logs",
    "workloads": "workloads",
    "metrics": "metrics",
    "api": "api",
    "app": "cli, run, sweeps, paper, look",
    "analysis": "cli, run, sweeps, paper, look",
    "cli": "cli, run, sweeps, paper, look",
    "run": "cli, run, sweeps, paper, look",
    "sweeps": "cli, run, sweeps, paper, look",
    "paper": "cli, run, sweeps, paper, look",
    "look": "cli, run, sweeps, paper, look",
}
"""Rooms of then and of now that hold the same; modules beside the rooms are in none."""

NEW = {
    "failures, checkpoints, restarts by application": """engine/failures.py engine/outages.py
        engine/progress.py checkpoints.py restarts.py metrics/gpu_time.py
        look/pauses.py look/starts.py""",
    "GPU types": """gpu_types.py agent/by_type.py policies/by_type.py
        policies/per_type.py policies/pollux/several_types.py workloads/fitting.py models/overlap.py""",
    "shared GPUs": """engine/sharing.py
        look/shared.py models/stages.py""",
    "CPUs and memory": "hosts.py models/sensitivity.py workloads/split.py",
    "policies that have come": """policies/afs.py policies/antman.py policies/backfill.py
        policies/buddies.py policies/cohort.py policies/conservative.py
        policies/deadlines.py policies/drf.py policies/elastic.py policies/elastic_edf.py policies/elasticflow.py
        policies/estimates.py policies/fair_queues.py policies/gandiva.py policies/gittins.py
        policies/hadar.py policies/jsa.py policies/las.py policies/ledger.py policies/multifactor.py
        policies/muri.py policies/online.py
        policies/pollux/idle.py policies/pollux/remaining.py
        policies/priority.py policies/proportional.py policies/queues.py policies/quiet.py policies/quotas.py
        policies/scaling.py policies/shares/* policies/shockwave/* policies/shortest.py
        policies/sia/* policies/slaq.py policies/srsf.py policies/synergy.py policies/themis.py policies/timetable.py
        policies/venn.py models/convergence.py models/nonnegative.py
        look/why/gang_words.py""",
    "batch sizes by rules and plans": "agent/rules.py agent/ruled.py models/planned.py",
    "workloads of other simulators, rigid loads, lists of nodes": """workloads/elasticflow.py
        workloads/gavel.py workloads/gavel_lists.py workloads/muri.py workloads/rigid_like.py workloads/node_list.py
        models/scaling.py""",
    "what-if, when, least change": """run/moment.py run/least_change.py run/outlook.py run/redrawn.py
        engine/futures.py cli/whatif.py cli/whatif_log.py cli/when.py api/futures.py workloads/history.py""",
    "sizing, calibration": "cli/size.py cli/calibrate.py sweeps/sizing.py sweeps/calibration.py metrics/target.py "
    "look/plot/levels.py",
    "tables of settings, changes by pairs, ranks": """look/replication.py look/settings_text.py
        look/comparing.py look/ranks.py look/frames.py cli/compare.py api/sweeps.py api/plotting.py""",
    "arena": "arena/* cli/arena.py",
    "check": "checks/* cli/check.py run/named_policy.py",
    "Gymnasium": "gym/*",
    "a recorder for training loops": "measure/*",
    "cards from first principles": "applications/transformer.py applications/transformer_card.py cli/card.py",
    "published numbers of other simulators": "paper/conformance.py cli/conformance.py",
}
"""Modules that carry features of now alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default=BEFORE, help="a revision (default: %(default)s)")
    parser.add_argument("--functions", action="store_true", help="how long functions are")
    options = parser.parse_args()
    then, now = modules_at(options.since), modules_now()
    compare(then, now)
    if options.functions:
        lengths_in_words("then", then)
        lengths_in_words("now", now)


def modules_at(revision: str) -> dict[str, str]:
    """Return the modules of a revision, by path in the package."""
    archive = subprocess.run(["git", "archive", revision, PACKAGE], cwd=HERE, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {
            member.name.removeprefix(f"{PACKAGE}/"): files.extractfile(member).read().decode()
            for member in files
            if member.name.endswith(".py")
        }


def modules_now() -> dict[str, str]:
    root = HERE / PACKAGE
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}


def compare(then: dict[str, str], now: dict[str, str]) -> None:
    before, after, added = Counter(), Counter(), Counter()
    for path, text in then.items():
        before[room_of(path)] += lines(text)
    for path, text in now.items():
        feature = feature_of(path)
        if feature is None:
            after[room_of(path)] += lines(text)
        added[feature or ""] += lines(text)
    print(f"{'rooms':62}{'then':>8}{'now':>8}{'change':>9}")
    for room in sorted(before | after):
        row(room, before[room], after[room])
    row("modules of the same features", before.total(), after.total())
    old, new = named(then), named(now)
    both = old.keys() & new.keys()
    row(
        "functions and classes that both have, by name",
        sum(old[name] for name in both),
        sum(new[name] for name in both),
    )
    row("functions and classes of then that are gone, by name", sum(old[name] for name in old.keys() - both), 0)
    print()
    for feature in NEW:
        print(f"{feature:70}{added[feature]:>8,}")
    print(f"{'features that have come':70}{added.total() - added['']:>8,}")
    print(f"{'all lines':70}{added.total():>8,}")


def row(what: str, before: int, after: int) -> None:
    print(f"{what:62}{before:>8,}{after:>8,}{f'{after / before - 1:+.0%}':>9}")


def named(modules: dict[str, str]) -> Counter[str]:
    """Return the lines of all functions and classes by name, of several with one name together."""
    found = Counter[str]()
    for text in modules.values():
        found.update(definitions(text))
    return found


def lines(text: str) -> int:
    return len(text.splitlines())


def room_of(path: str) -> str:
    room, _, module = path.partition("/")
    return ROOMS.get(room, room) if module else "beside the rooms"


def feature_of(path: str) -> str | None:
    """Return the feature of now that a module carries, None for one of then."""
    return next((name for name, paths in NEW.items() if any(fnmatch(path, one) for one in paths.split())), None)


def definitions(text: str) -> dict[str, int]:
    """Return the lines of functions and classes by name; a method's count under its class's name and its own."""
    found = dict[str, int]()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = length(node)
        elif isinstance(node, ast.ClassDef):
            methods = [member for member in node.body if isinstance(member, ast.FunctionDef)]
            found |= {f"{node.name}.{method.name}": length(method) for method in methods}
            found[node.name] = length(node) - sum(map(length, methods))
    return found


def length(node: ast.stmt) -> int:
    return node.end_lineno - node.lineno + 1


def marks(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(mark).partition("(")[0] for mark in node.decorator_list}


def lengths_in_words(when: str, modules: dict[str, str]) -> None:
    functions = [
        (length(node), path, node)
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    sizes = sorted(size for size, *_ in functions)
    median, most = sizes[len(sizes) // 2], sizes[int(0.9 * len(sizes))]
    print(f"\n{when}: {len(sizes):,} functions, median {median} lines, 90 % up to {most}, longest {sizes[-1]}")
    for size, path, node in sorted(functions, key=lambda one: -one[0]):
        if size > 45:
            kernel = " (a kernel)" if marks(node) & KERNELS else ""
            print(f"  {size:>4} {path}: {node.name}{kernel}")


if __name__ == "__main__":
    main()
