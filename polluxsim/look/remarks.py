"""Remarks on finished runs that their tables do not show."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from polluxsim.folders import info_of
from polluxsim.restarts import RESTART_DELAY, ROUND_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


def engine_waits(engine: Mapping[str, Any]) -> str:
    """Return the line that states which waits the engine adds to those of the queue, from a run's engine settings.

    Settings that are left out have their defaults.

    >>> engine_waits({"round_interval": 60.0, "restart_delay": 30.0})
    'the engine adds up to 60 s until the next round and 30 s at each start'
    >>> engine_waits({"restart_delay": 0.0})
    'the engine adds up to 60 s until the next round and 0 s at each start'
    """
    interval, delay = engine.get("round_interval", ROUND_INTERVAL), engine.get("restart_delay", RESTART_DELAY)
    by_application = engine.get("restart_delays")
    line = f"the engine adds up to {interval:g} s until the next round and {delay:g} s at each start"
    return f"{line} (other delays: {', '.join(by_application)})" if by_application else line


def print_remarks(folders: Sequence[Path]) -> None:
    """Print remarks on finished runs on standard error, the first of each kind, and all settings without effect."""
    infos = {folder: info_of(folder) for folder in folders}
    configs = {folder: info["config"] for folder, info in infos.items() if not info.get("standstill")}
    for remarks in (_stood_still(infos), _never_grown(configs), _alike(configs)):
        if (remark := next(remarks, None)) is not None:
            print(f"polluxsim: {remark}", file=sys.stderr)
    for remark in without_effect((folder.name, info) for folder, info in infos.items()):
        print(f"polluxsim: {remark}", file=sys.stderr)


def print_without_effect(sweep: Path) -> None:
    """Print on standard error the settings that had no effect in the runs of a complete sweep."""
    names = pq.read_table(sweep / "sweep.parquet", columns=["folder"])["folder"].to_pylist()
    for remark in without_effect((name, info_of(sweep / name)) for name in names):
        print(f"polluxsim: {remark}", file=sys.stderr)


def without_effect(infos: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a sentence for each setting that had no effect, with the first run's name and the number of other runs.

    `infos` are pairs of a run's name and the content of its run.json.
    """
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for name, info in infos:
        for sentence in info.get("without_effect", ()):
            names[sentence][name] = None
    for sentence, (first, *others) in names.items():
        yield f"{first}{f' and {len(others)} more' if others else ''}: {sentence}"


def _stood_still(infos: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the runs that were cut off because no job made progress."""
    for folder, info in infos.items():
        if info.get("standstill"):
            yield f"{folder.name}: cut off, as {info['standstill']}"


def _never_grown(configs: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a remark for each run on an elastic cluster in which the policy never requested additional nodes."""
    for folder, config in configs.items():
        least, most = (config["cluster"].get(name) for name in ("least_nodes", "num_nodes"))
        if least is None or most is None or least == most:
            continue
        nodes = pq.read_table(folder / "rounds.parquet", columns=["nodes"])["nodes"].to_pylist()
        if nodes and max(nodes) <= least:
            yield (
                f"{folder.name}: the policy never asked for more than {least} of the {most} nodes; it may not be made "
                f"for an elastic cluster (cluster.least_nodes={most} has them all up)"
            )


def _alike(configs: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the groups of runs that differ only in their seed and have the same results."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for folder, config in configs.items():
        groups[json.dumps({**config, "seed": None}, sort_keys=True)].append(folder)
    for group in groups.values():
        if len(group) > 1 and len({(folder / "jobs.parquet").read_bytes() for folder in group}) == 1:
            yield (
                f"{group[0].name} and {len(group) - 1} more differ in their seed and in no result: nothing in them is "
                "random, so they replicate nothing"
            )
