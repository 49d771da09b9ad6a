"""Write the catalogue of policies, agents, clusters, workloads and engine settings from the configuration files.

python docs/catalogue.py > docs/catalogue.md
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

CONFIGS = Path(__file__).parents[1] / "configs"
GROUPS = {
    "policy": "Policies decide which job gets which GPUs.",
    "agent": "Agents choose the batch sizes of jobs. Without one, a job chooses the batch size with the highest "
    "goodput under policies that let jobs adapt, and keeps the user's batch size under other policies.",
    "cluster": "Clusters are the nodes and their GPUs.",
    "workload": "Workloads are the jobs that arrive.",
    "profiles": "Profiles state how fast each model trains on some GPUs and how well it uses a batch size.",
    "engine": "Engine settings are the length of a round, the restart delay and the rules of time.",
}
"""Groups of configuration files and their descriptions, in the order of the page."""

TARGET = re.compile(r"^_target_: (\S+)", re.MULTILINE)
HEADER = re.compile(r"# (?P<what>\S.*) Source: (?P<source>\S.*)\.")


class Entry(NamedTuple):
    """Name, description and source of a configuration file, and the path of its class."""

    name: str
    what: str
    source: str
    target: str


def entries(group: str) -> list[Entry]:
    """Return the entries of a group by name.

    Each file begins with the line `# What it does. Source: where it was published.`
    """
    found = []
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        header = HEADER.fullmatch(text.splitlines()[0])
        if header is None:
            raise ValueError(f"{path.name}: the first line is not '# What it does. Source: where it was published.'")
        target = TARGET.search(text)
        found.append(Entry(path.stem, header["what"], header["source"], "" if target is None else target[1]))
    return found


def linked(target: str) -> str:
    """Return a link to the documentation of a class."""
    return f"[`{target.rpartition('.')[2]}`][{target}]"


def page() -> str:
    """Return the page as Markdown."""
    lines = [
        "# Catalogue",
        "",
        "This page lists every choice of `polluxsim run`. Select one with `GROUP=NAME`, for example `policy=tiresias`.",
        "`polluxsim run --help policy=tiresias` prints the settings of a choice.",
    ]
    for group, what in GROUPS.items():
        found = entries(group)
        lines += ["", f"## {group}: {len(found)} {'entry' if len(found) == 1 else 'entries'}", "", what, ""]
        if group == "policy":
            lines += [f"| `{group}=` | what it does | source | class |", "|---|---|---|---|"]
            lines += [f"| `{each.name}` | {each.what} | {each.source} | {linked(each.target)} |" for each in found]
        else:
            lines += [f"| `{group}=` | what it does | source |", "|---|---|---|"]
            lines += [f"| `{each.name}` | {each.what} | {each.source} |" for each in found]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
