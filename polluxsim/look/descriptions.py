"""Descriptions of finished runs (labels, workload, cluster) and remarks that their tables do not show."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from polluxsim.common.files import printable
from polluxsim.common.parquet import read_parquet
from polluxsim.common.phrases import number_of
from polluxsim.hardware.restarts import RESTART_DELAY, ROUND_INTERVAL
from polluxsim.records.folders import SWEEP_FILE, info_of
from polluxsim.records.results import BeforeRun
from polluxsim.records.storage import Run
from polluxsim.statistics.groups import labels_of, settings_of
from polluxsim.statistics.metric_lines import FAILURE

RECLAIMED = "reclaimed"  # kind of the outages of spot nodes
NODE_FAILURES = {"failure", "group failure"}  # kinds of the outages of nodes that fail

LONGEST_NAME = 24  # longest name of a folder that names its run [characters]


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a label for each run: its policy, the settings in which the runs differ, and its folder if necessary."""
    without_folders = labels_of([settings_of(run) for run in runs], pooled=())
    counts = Counter(without_folders)
    distinct_labels = []
    for label, run in zip(without_folders, runs, strict=True):
        if counts[label] > 1:
            distinct_labels.append(f"{label} ({run.name})")
        else:
            distinct_labels.append(label)
    return distinct_labels


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run that no other run has. The runs have different folders.

    It is the name of the folder. If one is long, as in sweeps, the names are the settings that differ. If names are
    equal, they are the paths of the folders.
    """
    names = [run.name for run in runs]
    if max(map(len, names)) > LONGEST_NAME:
        names = labels(runs)
    if len(set(names)) < len(names):
        names = [printable(str(run.folder)) for run in runs]
    return names


def workload_words(info: Mapping[str, Any]) -> str:
    """Return a short description of the workload: the name of its file, or its class and its plain parameters.

    >>> workload_words({"config": {"workload": {"_target_": "polluxsim.workloads.philly.PhillyLike", "hours": 8}}})
    'Philly Like, hours 8'
    """
    workload = _part(info, "workload")
    if "path" in workload:
        path = workload["path"]
        if path is None:
            return "the shipped workload"
        return f"workload {PurePath(str(path)).name}"
    class_name = str(workload.get("_target_", "")).rpartition(".")[2]
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", class_name) or "a workload"]
    for key, value in workload.items():
        # The first word names the class. Other sentences on the run state its seed and its number of jobs.
        is_stated_elsewhere = key in {"_target_", "seed", "num_jobs"}
        if is_stated_elsewhere or isinstance(value, bool | dict | list | type(None)):
            continue
        name = key.replace("_", " ").replace("gpus", "GPUs")
        words.append(f"{name} {value}")
    return ", ".join(words)


def cluster_words(gpus_per_node: Sequence[int], types: Sequence[str] = ()) -> str:
    """Return the nodes by number of GPUs and GPU type.

    >>> cluster_words([4, 4, 8])
    '2 nodes × 4 GPUs + 1 node × 8 GPUs'
    >>> cluster_words([4, 4], ["t4", "t4"])
    '2 nodes × 4 t4'
    """
    names = types or [""] * len(gpus_per_node)
    phrases = []
    for (gpus, name), count in Counter(zip(gpus_per_node, names, strict=True)).items():
        nodes = "node" if count == 1 else "nodes"
        unit = "GPU" if gpus == 1 else "GPUs"
        phrases.append(f"{count} {nodes} × {gpus} {name or unit}")
    return " + ".join(phrases)


def outage_words(info: Mapping[str, Any]) -> str:
    """Return whether the number of nodes of a run changes, and whether its nodes and jobs fail, in words; "" if not.

    >>> outage_words({"config": {"cluster": {"num_nodes": 16, "least_nodes": 1, "failures": {"rate": 6.5}}}})
    'from 1 to 16 nodes, nodes fail'
    """
    cluster = _part(info, "cluster")
    phrases = []
    if isinstance(cluster.get("least_nodes"), int):
        phrases.append(f"from {cluster['least_nodes']} to {cluster.get('num_nodes')} nodes")
    if cluster.get("failures"):
        phrases.append("nodes fail")
    if cluster.get("spot"):
        phrases.append("spot nodes are reclaimed")
    if _part(info, "engine").get("job_failures"):
        phrases.append("jobs fail")
    return ", ".join(phrases)


def loss_noun(runs: Iterable[Run]) -> str:
    """Return the word for what took nodes and GPUs in runs: "failure", "reclaim" (of spot nodes) or "outage".

    Runs in which jobs fail, and runs in which nothing was taken, have failures. An outage is of another or of mixed
    kinds.
    """
    kinds = set[str]()
    for run in runs:
        if _part(run.info, "engine").get("job_failures"):
            return FAILURE
        kinds.update(outage.kind for outage in run.result.outage_records)
    if kinds == {RECLAIMED}:
        return "reclaim"
    if kinds <= NODE_FAILURES:
        return FAILURE
    return "outage"


def engine_words(info: Mapping[str, Any]) -> str:
    """Return the time between rounds and the cost of a restart as text, "" if the run does not state them.

    >>> engine_words({"config": {"engine": {"round_interval": 60.0, "restart_delay": 30.0}}})
    'rounds every 60 s, a restart costs 30 s'
    """
    engine = _part(info, "engine")
    phrases = []
    for name, words in (("round_interval", "rounds every"), ("restart_delay", "a restart costs")):
        if engine.get(name) is not None:
            phrases.append(f"{words} {engine[name]:g} s")
    return ", ".join(phrases)


def _part(info: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """Return the settings of a group in the content of a run.json; {} without any."""
    part = (info.get("config") or {}).get(group)
    # The part of a foreign run.json can be a text or null.
    if not isinstance(part, dict):
        return {}
    return part


def engine_waits(engine: Mapping[str, Any]) -> str:
    """Return the line that states which waits the engine adds to those of the queue, from a run's engine settings.

    Settings that are left out have their defaults.

    >>> engine_waits({"round_interval": 60.0, "restart_delay": 30.0})
    'the engine adds up to 60 s until the next round and 30 s at each start'
    >>> engine_waits({"restart_delay": 0.0})
    'the engine adds up to 60 s until the next round and 0 s at each start'
    >>> engine_waits({"round_interval": 10.0, "free_starts": True})
    'the engine adds up to 10 s until the next round and 30 s at each restart'
    """
    interval = engine.get("round_interval", ROUND_INTERVAL)
    delay = engine.get("restart_delay", RESTART_DELAY)
    by_application = engine.get("restart_delays")
    starts = "restart" if engine.get("free_starts") else "start"
    line = f"the engine adds up to {interval:g} s until the next round and {delay:g} s at each {starts}"
    if by_application:
        line += f" (other delays: {', '.join(by_application)})"
    return line


def print_remarks(folders: Sequence[Path]) -> None:
    """Print remarks on finished runs on standard error.

    They are about jobs from before the start, all settings without effect, and the first of each other kind.
    """
    infos = {folder: info_of(folder) for folder in folders}
    _print(from_before(map(before_run_in, infos.values())))
    configs = {}
    for folder, info in infos.items():
        # A run that stood still is short of results, and so tells nothing about settings.
        if not info.get("standstill"):
            configs[folder] = info["config"]
    for remarks in (_stood_still(infos), _never_grown(configs), _alike(configs)):
        _print(islice(remarks, 1))
    _print(without_effect((folder.name, info) for folder, info in infos.items()))


def print_without_effect(sweep: Path) -> None:
    """Print on standard error the settings that had no effect in the runs of a complete sweep.

    Sentences on jobs from before the start of the runs come first.
    """
    names = read_parquet(sweep / SWEEP_FILE, ["folder"])["folder"].to_pylist()
    infos = {name: info_of(sweep / name) for name in names}
    _print(from_before(map(before_run_in, infos.values())))
    _print(without_effect(infos.items()))


def _print(remarks: Iterable[str]) -> None:
    for remark in remarks:
        print(f"polluxsim: {remark}", file=sys.stderr)


def without_effect(infos: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a sentence for each setting that had no effect, and for each value that is probably a mistake.

    A sentence begins with the name of the first run with it, and the number of other runs.

    `infos` are pairs of a run's name and the content of its run.json.
    """
    # A run can state a sentence twice, and counts once. A dict keeps the order of the runs, unlike a set.
    runs_by_sentence: dict[str, dict[str, None]] = defaultdict(dict)
    for name, info in infos:
        for sentence in (*info.get("without_effect", ()), *info.get("suspicious", ())):
            runs_by_sentence[sentence][name] = None
    for sentence, runs in runs_by_sentence.items():
        first_run = next(iter(runs))
        if len(runs) == 1:
            yield f"{first_run}: {sentence}"
        else:
            yield f"{first_run} and {len(runs) - 1} more: {sentence}"


def print_from_before(runs: Iterable[Run]) -> None:
    """Print on standard error a sentence about the jobs from before the start of runs."""
    _print(from_before(run.result.before_run for run in runs))


def from_before(groups: Iterable[BeforeRun | None]) -> Iterator[str]:
    """Yield a sentence for each different group of jobs from before the start of runs.

    If there are several groups, a sentence has the number of its runs.
    """
    counts = Counter[str]()
    for group in groups:
        if group is not None:
            counts[group.sentence] += 1
    for sentence, count in counts.items():
        if len(counts) == 1:
            yield sentence
        else:
            yield f"{sentence} ({number_of(count, 'run')})"


def before_run_in(info: Mapping[str, Any]) -> BeforeRun | None:
    """Return the numbers of jobs from before the start of a run, given its run.json; None if it has none."""
    counts = info.get("before_run")
    if counts is None:
        return None
    return BeforeRun(**counts)


def _stood_still(infos: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a remark for each run that was cut off because no job made progress."""
    for folder, info in infos.items():
        if info.get("standstill"):
            yield f"{folder.name}: cut off, as {info['standstill']}"


def _never_grown(configs: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a remark for each run on an elastic cluster in which the policy never requested additional nodes."""
    for folder, config in configs.items():
        fewest_nodes = config["cluster"].get("least_nodes")
        all_nodes = config["cluster"].get("num_nodes")
        is_elastic = None not in (fewest_nodes, all_nodes) and fewest_nodes != all_nodes
        if not is_elastic:
            continue
        nodes_of_rounds = read_parquet(folder / "rounds.parquet", ["nodes"])["nodes"].to_pylist()
        if nodes_of_rounds and max(nodes_of_rounds) <= fewest_nodes:
            yield (
                f"{folder.name}: the policy never asked for more than {fewest_nodes} of the {all_nodes} nodes; it may "
                f"not be made for an elastic cluster (cluster.least_nodes={all_nodes} has them all up)"
            )


def _alike(configs: Mapping[Path, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a remark for each group of runs that differ only in their seeds and have equal results."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for folder, config in configs.items():
        config_without_seed = json.dumps({**config, "seed": None}, sort_keys=True)
        groups[config_without_seed].append(folder)
    for group in groups.values():
        if len(group) == 1:
            continue
        # The table of jobs has every result of a job, so equal tables of equal settings replicate nothing.
        distinct_tables = {(folder / "jobs.parquet").read_bytes() for folder in group}
        if len(distinct_tables) == 1:
            yield (
                f"{group[0].name} and {len(group) - 1} more differ in their seed and in no result: nothing in them is "
                "random, so they replicate nothing"
            )
