"""Groups of runs that replicate a setting. Their labels name the settings that differ."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import yaml

from polluxsim.common.durations import clock, length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, did_you_mean
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import read_number
from polluxsim.common.written import OWN, as_declared, declared_by
from polluxsim.records.folders import OBJECT, POLICY, POLICY_ENTRY, RULE_OF_SHARES, of_results, policy_name
from polluxsim.records.storage import Run, flat
from polluxsim.statistics.forks import CHANGES, fork_of

Settings = Mapping[str, Any]

REPLICATES = ("seed", "workload.seed", "workload.path")
"""Settings that replicate a run: runs that differ only in them are pooled."""

FORKED_AT = "policy.forked_at"
"""Time of the fork after which a run has its settings [s], among the settings. Runs that are not forks have no time
of a fork."""


NULL = "null"  # no value, as the command line writes it


class RunGroup(NamedTuple):
    """Runs that a figure shows as one line. They differ only in seed or workload.

    The label names the settings that differ from other groups. The policy decides the colour.
    """

    label: str
    policy: str
    runs: tuple[Run, ...]


def grouped(runs: Sequence[Run], *, each: bool = False) -> tuple[RunGroup, ...]:
    """Return runs in groups by policy, in the given order, and by the settings that differ.

    With `each`, every run is a group, and its label has the seed and the workload too.
    """
    settings = [settings_of(run) for run in runs]
    have_equal_settings = len({_hashable(row) for row in settings}) < len(settings)
    pooled: tuple[str, ...] = REPLICATES
    if each or have_equal_settings:
        pooled = ()
    labels = labels_of(settings, pooled=pooled)
    if have_equal_settings:  # only the folders distinguish the runs
        labels = [f"{label} ({run.name})" for label, run in zip(labels, runs, strict=True)]
    policies = list(map(policy_name, settings))
    members: dict[tuple[str, str], list[Run]] = {}
    for policy, label, run in zip(policies, labels, runs, strict=True):
        members.setdefault((policy, label), []).append(run)
    groups = []
    for (policy, label), runs_of_group in members.items():
        groups.append(RunGroup(label, policy, tuple(runs_of_group)))
    return tuple(sorted(groups, key=lambda group: policies.index(group.policy)))


def settings_of(run: Run) -> dict[str, Any]:
    """Return the settings of a run by dotted name, like `policy.p`; for a run that records none, its folder as `run`.

    The changes of a fork and its time are settings too.
    """
    return settings_in_info(run.info, run.name)


def settings_in_info(info: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the settings of a run as `settings_of` does, from the content of its run.json and its name."""
    config = info.get("config")
    if not isinstance(config, Mapping):
        return {"run": name}
    # The metrics of the user change no result.
    config_of_results = {group: part for group, part in config.items() if group != "metrics"}
    settings = of_results(flat(config_of_results))
    settings |= _changes(info)
    fork = fork_of(info)
    if fork is not None:
        settings[FORKED_AT] = float(fork["time"])
    return settings


def _changes(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the changes of a fork and of the forks before it, as settings. `info` is the content of run.json."""
    descent = info.get("descent", {})
    changes: dict[str, str] = {}
    if "before" in descent:
        changes = _changes(descent["before"])

    def add(key: str, words: str) -> None:
        """Add words to those of the forks before, whose changes still have effect."""
        if changes.get(key):
            words = f"{changes[key]} {words}"
        changes[key] = words

    for name, key in CHANGES.items():
        if descent.get(name):
            add(key, " ".join(map(str, descent[name])))
    if descent.get("down_nodes"):
        add("cluster.down_for", length(descent["down_for"]))
    return changes


def names_of(name: object, values: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the names of a run for `is_named`: its own, and the choice of the user's configuration of its policy.

    `values` is the content of its run.json, or its row in a table.
    """
    entry = values.get(POLICY_ENTRY)
    if entry is None:
        return (name,)
    return name, f"policy={entry}"


def is_named(settings: Settings, names: Iterable[object], wanted: str) -> bool:
    """Return whether `wanted` is a name of a run, or a setting of the run as KEY=VALUE.

    KEY=VALUE has the form of the command line: `policy=max-min`, `cluster/failures=null`, `engine.horizon=3h`. Settings
    without a value may be missing, as in the rows of a table.
    """
    if wanted in names:
        return True
    key, _, text = wanted.partition("=")
    part = key.replace("/", ".")
    if text.lower() == NULL:
        return settings.get(part) is None and _can_be_null(settings, part)
    if key == "policy":
        return _has_policy(settings, text)
    entries = _shipped_entries(key)
    if entries:
        return text in entries and _shipped_as(settings, key) == text
    return key in settings and _is_written(settings, key, text)


def _has_policy(settings: Settings, entry: str) -> bool:
    """Return whether a run has the policy of a configuration file, or a policy of a class with this name."""
    if entry.lower() in _shipped_entries("policy"):
        return _shipped_as(settings, "policy") == entry.lower()
    return policy_name(settings).lower() == entry.lower().replace("-", "")


def _can_be_null(settings: Settings, key: str) -> bool:
    """Return whether a run has a setting, or a part, that may have no value and is left out then.

    Any name may be a setting of a class of the user.
    """
    if key in settings:
        return True
    if any(other.startswith(f"{key}.") for other in settings):
        return False
    if key == "agent":
        return True
    target = settings.get(_target_of(key, settings))
    if not isinstance(target, str):
        return False
    return not target.startswith(OWN) or key.rpartition(".")[2] in declared_by(target).settings


def _is_written(settings: Settings, key: str, text: str) -> bool:
    """Return whether a text states the value of a setting."""
    value = settings[key]
    if value == text:
        return True
    try:
        # YAML reads 1e-3 as text, so numbers are read before.
        wanted: object = read_number(text)
        if wanted is None:
            wanted = yaml.safe_load(text)
        target = settings.get(_target_of(key, settings))
        annotation = declared_by(str(target)).annotations.get(key.rpartition(".")[2], "")
        wanted = as_declared(key, wanted, annotation)
        if isinstance(wanted, list) and isinstance(value, str):  # tables have lists as text
            value = json.loads(value)
    except (yaml.YAMLError, InvalidConfigError, ValueError):
        return False
    return bool(value == wanted)


@cache
def _shipped_entries(group: str) -> Mapping[str, Settings]:
    """Return the settings of the shipped entries of a group, by the name of the configuration."""
    if not group:  # the folder itself has files that are no entries of a group
        return {}
    part = group.replace("/", ".")
    entries = {}
    for file in shipped("configs").glob(f"{group}/*.yaml"):
        entries[file.stem] = flat({part: yaml.safe_load(file.read_text(encoding="utf-8"))})
    return entries


def _shipped_as(settings: Settings, group: str) -> str | None:
    """Return the shipped configuration of a group, like `las`, with the class and most settings of a run.

    None if no shipped configuration has the class of the run.
    """

    def class_in(row: Settings) -> object:
        """Return the class of the group in settings, for a policy its name."""
        if group == "policy":
            return policy_name(row)
        return row.get(f"{group.replace('/', '.')}._target_")

    num_equal = {}  # settings with the value of the run, by entry
    for entry, content in _shipped_entries(group).items():
        if class_in(content) == class_in(settings):
            # By text, because 1 and True are equal as values.
            num_equal[entry] = sum(repr(settings.get(key)) == repr(value) for key, value in content.items())
    return max(num_equal, key=lambda entry: num_equal[entry], default=None)


def baseline_first(runs: Sequence[Run], baseline: str | None) -> list[Run]:
    """Return runs with those first that `baseline` names: the folder of a run, or a setting as KEY=VALUE.

    Raise InvalidInputError if it names no run.
    """
    if baseline is None:
        return list(runs)
    baseline_runs = list[Run]()
    compared_runs = list[Run]()
    for run in runs:
        if is_named(settings_of(run), names_of(run.name, run.info), baseline):
            baseline_runs.append(run)
        else:
            compared_runs.append(run)
    if not baseline_runs:
        raise no_baseline(baseline, [run.name for run in runs])
    return baseline_runs + compared_runs


def no_baseline(baseline: str, names: Iterable[str]) -> InvalidInputError:
    """Return the error about a baseline that matches no run."""
    choices = list(names)
    # A user who wrote a name of a policy may have meant the setting of a run.
    policies = [f"policy={name.lower()}" for name in choices]
    meant = did_you_mean(baseline, choices) or did_you_mean(baseline, policies)
    advice = "give a setting that a run has" if "=" in baseline else "give KEY=VALUE"
    return InvalidInputError(f"no run is the baseline {baseline!r}; {advice}, or one of {'; '.join(choices)}{meant}")


def labels_of(rows: Sequence[Settings], pooled: Iterable[str] = REPLICATES, ignoring: Iterable[str] = ()) -> list[str]:
    """Return a label for each row of settings: its policy if there are several, and the other settings that differ.

    Labels leave out pooled and ignored settings, for example the setting along the x axis of a sweep. A setting that
    one row lacks and another has differs; only the label of the other names it. The label of a fork ends with its time,
    like "SRTF from 3:00:00".
    """
    left_out = {*pooled, *ignoring, POLICY, OBJECT, RULE_OF_SHARES, FORKED_AT}
    has_several_policies = len({policy_name(row) for row in rows}) > 1
    num_values_by_text: dict[str, Counter[str]] = {}  # by setting, the number of its distinct values with each text

    def setting_text(key: str, row: Settings, keys: Sequence[str]) -> str:
        """Return the text of a setting of a row among the `keys` of its label, with the whole value if need be."""
        if key not in num_values_by_text:
            num_values_by_text[key] = Counter(in_words(key, value) for value in _distinct_values(key, rows))
        # Two values may have one text, like two files with one name in different folders.
        if num_values_by_text[key][in_words(key, row[key])] > 1:
            return f"{key} = {row[key]}"
        return in_words(key, row[key], keys)

    differences = _Differences(rows)
    has_seed_of_run = all(row.get("workload.seed", row.get("seed")) == row.get("seed") for row in rows)
    labels = []
    for row in rows:
        keys = [key for key in row if key not in left_out and differences.has(key, row)]
        keys.sort(key=lambda key: not key.startswith("policy."))  # settings of the policy first, beside its name
        if "seed" in keys and has_seed_of_run:
            # The seed of the workload follows the seed of the run.
            keys = [key for key in keys if key != "workload.seed"]
        parts = [setting_text(key, row, keys) for key in keys]
        if has_several_policies or not parts:
            parts.insert(0, policy_name(row))
        label = ", ".join(parts)
        if FORKED_AT in row:
            label += f" from {clock(row[FORKED_AT])}"
        labels.append(label)
    return labels


def _distinct_values(key: str, rows: Sequence[Settings]) -> list[object]:
    """Return the distinct values of a setting. Lists are no keys of a dict, so values count as equal by their text."""
    values: dict[str, object] = {}
    for row in rows:
        if key in row:
            values[repr(row[key])] = row[key]
    return list(values.values())


class _Differences:
    """The settings that differ among runs. Each question about runs of a class is answered once, and then kept."""

    def __init__(self, rows: Sequence[Settings]) -> None:
        self._rows = rows
        self._by_class: dict[str, dict[Hashable, list[Settings]]] = {}  # runs by class, by the key of the class
        self._answers: dict[tuple[str, str, Hashable], bool] = {}

    def has(self, key: str, row: Settings) -> bool:
        """Return whether a setting of a run differs among the runs whose class has the setting.

        For example, only runs of Pollux have a fairness power, and only workloads from a file have a path.
        """
        target = _target_of(key, row)
        is_class = key == target  # the setting names the class, so that all runs have it
        name = None if is_class else _class_in(row, target)
        question = (key, target, name)
        if question not in self._answers:
            comparable_runs = self._rows if is_class else self._of_class(target, name)
            distinct_values = {_hashable(other.get(key)) for other in comparable_runs}
            self._answers[question] = len(distinct_values) > 1
        return self._answers[question]

    def _of_class(self, target: str, name: Hashable) -> Sequence[Settings]:
        """Return the runs whose setting `target` names a class."""
        if target not in self._by_class:
            by_class: dict[Hashable, list[Settings]] = {}
            for row in self._rows:
                by_class.setdefault(_class_in(row, target), []).append(row)
            self._by_class[target] = by_class
        return self._by_class[target][name]


def _class_in(row: Settings, target: str) -> Hashable:
    """Return the class that a setting names, for a policy its name."""
    if target == POLICY:  # rules of shares have names, but one class
        return policy_name(row)
    return _hashable(row.get(target))


def _target_of(key: str, row: Settings) -> str:
    """Return the key of the innermost `_target_` above a setting, which names the class that has the setting."""
    parts = key.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        target = f"{'.'.join(parts[:depth])}._target_"
        if target in row:
            return target
    return f"{parts[0]}._target_"


NODES_BY_NUMBER = {"cluster.lost_nodes": "without {}", "cluster.down_nodes": "{} down"}
"""Settings whose values are numbers of nodes, and their words."""


def in_words(key: str, value: object, among: Sequence[str] = ()) -> str:
    """Return the text of one setting for a legend. Its name is the last part of the key if that is unique in `among`.

    >>> in_words("policy.p", -1.0)
    'p = −1'
    >>> in_words("policy.search", "annealing")
    'annealing'
    >>> in_words("cluster.lost_nodes", "3"), in_words("cluster.lost_nodes", "1 2")
    ('without node 3', 'without nodes 1 2')
    >>> in_words("cluster.failures._target_", "polluxsim.engine.failures.DrawnFailures")
    'drawn failures'
    """
    if key in NODES_BY_NUMBER and value is not None:
        # "lost nodes = 3" would read as a count.
        noun = "nodes" if " " in str(value) else "node"
        return NODES_BY_NUMBER[key].format(f"{noun} {value}")
    last = key.rpartition(".")[2]
    num_with_this_end = [other.rpartition(".")[2] for other in among].count(last)
    name = key if num_with_this_end > 1 else last.replace("_", " ")
    if isinstance(value, bool):
        return name if value else f"not {name}"
    if isinstance(value, int | float):
        return f"{name} = {value:.10g}".replace("-", "−")  # digits that tell seeds apart
    if value is None:
        return f"no {name}"
    text = str(value).rstrip("/")
    if last == "_target_" and key.count(".") > 1:  # a part of a part: drawn failures
        return re.sub("(?<=[a-z])(?=[A-Z])", " ", text.rpartition(".")[2]).lower()
    if "/" in text:
        text = text.rpartition("/")[2]
    elif last == "_target_":
        text = text.rpartition(".")[2]
    return text if last in {"search", "_target_", "path", "run"} else f"{name} = {text}"


def _hashable(value: object) -> Hashable:
    """Return a hashable value that is equal for equal settings."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(item)) for key, item in value.items()))
    return repr(value)
