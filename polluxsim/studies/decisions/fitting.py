"""Infer and fit what a record does not state about an installation of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf, lcm
from typing import NamedTuple

from polluxsim.common.errors import InvalidConfigError, allowed_among, invalid_setting
from polluxsim.common.tables import read_number
from polluxsim.logs.site.hostlist import expanded
from polluxsim.policies.slurm.parameters import BACKFILL, BUILTIN, Parameters
from polluxsim.policies.slurm.values import MUCH_MEMORY, Node, NodeSet, node_set
from polluxsim.policies.slurm.will_run import EDGE
from polluxsim.studies.decisions.judging import Agreement, agreement
from polluxsim.studies.decisions.record import Record
from polluxsim.studies.decisions.slurm import FITTED_ORDERS, ORDERS, TASKS, Installation, SlurmDecider

SETTINGS = (
    "nodes",
    "gpus",
    "cpus",
    "memory",
    "types",
    "features",
    "weights",
    "tiers",
    "partitions",
    "scheduler",
    "order",
    "tasks",
    "t0",
)
"""What a user may state about an installation."""

CPUS_PER_GPU = 16  # of a node, if nothing is stated
OF_INTERVALS = frozenset(("bf_interval", "bf_resolution", "sched_interval", "batch_sched_delay"))
"""Parameters of which two groups of values are tried if none is stated: schedulers in each second, and the defaults."""
MOST_OFFSETS = 120  # largest number of epoch times that are tried; plans of a longer resolution depend on more of them


class Value(NamedTuple):
    """A value of an installation, and where it comes from."""

    name: str
    value: str
    origin: str  # given, read, inferred, fitted or assumed


class Fit(NamedTuple):
    """The installation that agrees best with a record."""

    record: Record  # with the nodes in the order of the installation
    installation: Installation
    values: Sequence[Value]
    agreement: Agreement
    second_best: Sequence[str]  # sentences on the second-best fits
    equal: Sequence[Installation]  # installations with other epoch times that agree equally well, with the best one


class Choice(NamedTuple):
    """One of the combinations that are tried."""

    parameters: Parameters
    order: str
    tasks: str

    @property
    def scheduler(self) -> str:
        """Return the scheduler with its interval and resolution."""
        if not self.parameters.has_backfill:
            return BUILTIN
        interval = self.parameters.bf_interval
        return f"{BACKFILL} (bf_interval={interval}, bf_resolution={self.parameters.bf_resolution})"

    def __str__(self) -> str:
        return f"{self.scheduler}, order={self.order}, tasks={self.tasks}"


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if a setting is unknown."""
    for name in settings:
        if name not in SETTINGS:
            raise InvalidConfigError(f"{name} is unknown, {allowed_among(name, SETTINGS)}")


def nodes_of(record: Record, settings: Mapping[str, str]) -> tuple[Record, tuple[Node, ...], list[Value]]:
    """Return the record with the given order of nodes, the nodes, and where the values come from."""
    record, values = _named_nodes(record, settings)
    gpus = _whole("gpus", settings) if "gpus" in settings else record.gpus_per_node
    values.append(Value("gpus", f"{gpus} on each node", "given" if "gpus" in settings else "inferred"))
    if gpus < record.gpus_per_node:
        raise invalid_setting("gpus", gpus, f"at least {record.gpus_per_node}, which jobs hold on one node")
    cpus = _whole("cpus", settings) if "cpus" in settings else CPUS_PER_GPU * gpus
    values.append(Value("cpus", f"{cpus} on each node", "given" if "cpus" in settings else "assumed"))
    memory = MUCH_MEMORY
    if "memory" in settings:
        memory = _whole("memory", settings)
        values.append(Value("memory", f"{memory} MB on each node", "given"))
    types = _types(record, settings, values)
    weights = _weights(record, settings, values)
    features = _features(record, settings, values)
    nodes = []
    for number, _ in enumerate(record.node_names):
        of_node = features.get(number, frozenset())
        nodes.append(Node(gpus, cpus, weights.get(number, 1), types.get(number, ""), of_node, memory))
    return record, tuple(nodes), values


def _types(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[int, str]:
    """Return the GPU type of nodes by number: as the user states it, or the type that their jobs asked for."""
    if "types" in settings:
        values.append(Value("types", settings["types"], "given"))
        return _by_node("types", settings["types"], record, "n[1-2]:a100,n[3-4]:h100")
    types: dict[int, str] = {}
    for job in record.jobs:
        for node in job.nodes if job.gpu_type else ():
            types[node] = job.gpu_type
    if types:
        named = [f"{record.node_names[node]}:{name}" for node, name in sorted(types.items())]
        values.append(Value("types", ",".join(named), "inferred"))
    return types


def _features(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[int, frozenset[str]]:
    """Return the stated features of nodes by number."""
    if "features" not in settings:
        return {}
    values.append(Value("features", settings["features"], "given"))
    texts = _by_node("features", settings["features"], record, "n[1-2]:big&fast,n3:big")
    return {node: frozenset(text.split("&")) for node, text in texts.items()}


def _weights(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[int, int]:
    """Return the stated weights of nodes by number."""
    if "weights" not in settings:
        return {}
    values.append(Value("weights", settings["weights"], "given"))
    example = "n[1-2]:1,n[3-4]:10"
    texts = _by_node("weights", settings["weights"], record, example)
    return {node: _number("weights", text, settings["weights"], example) for node, text in texts.items()}


def _tiers(settings: Mapping[str, str], values: list[Value]) -> dict[str, int]:
    """Return the stated tiers of partitions by name."""
    if "tiers" not in settings:
        return {}
    values.append(Value("tiers", settings["tiers"], "given"))
    example = "high:10,low:1"
    pairs = _pairs("tiers", settings["tiers"], example)
    return {name: _number("tiers", text, settings["tiers"], example) for name, text in pairs}


def _partitions(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[str, NodeSet]:
    """Return the stated nodes of partitions by name."""
    if "partitions" not in settings:
        return {}
    text = settings["partitions"]
    values.append(Value("partitions", text, "given"))
    partitions: dict[str, NodeSet] = {}
    for name, nodes in _pairs("partitions", text, "gpu:n[1-4],short:n[5-6]"):
        partitions[name] = partitions.get(name, 0) | node_set(_numbers("partitions", nodes, record))
    return partitions


def _numbers(setting: str, text: str, record: Record) -> list[int]:
    """Return the numbers of nodes that a setting names, like n[1-4]."""
    numbers = {name: number for number, name in enumerate(record.node_names)}
    names = expanded(text) or [text]
    for name in names:
        if name not in numbers:
            raise InvalidConfigError(f"{setting} names node {name!r}, {allowed_among(name, record.node_names)}")
    return [numbers[name] for name in names]


def _by_node(setting: str, text: str, record: Record, example: str) -> dict[int, str]:
    """Return values of nodes by number."""
    by_node: dict[int, str] = {}
    for names, value in _pairs(setting, text, example):
        by_node |= dict.fromkeys(_numbers(setting, names, record), value)
    return by_node


def _pairs(setting: str, text: str, example: str) -> list[tuple[str, str]]:
    """Return the pairs of a text NAME:VALUE,NAME:VALUE. Commas in brackets do not separate."""
    pairs = []
    for part in re.split(r",(?![^\[]*\])", text):
        name, colon, value = part.strip().rpartition(":")
        if not colon or not name or not value:
            raise invalid_setting(setting, text, f"pairs like {example}")
        pairs.append((name, value))
    return pairs


def _number(setting: str, text: str, whole_text: str, example: str) -> int:
    """Return the whole number of a pair."""
    if not text.isdecimal():
        raise invalid_setting(setting, whole_text, f"pairs like {example}")
    return int(text)


def _named_nodes(record: Record, settings: Mapping[str, str]) -> tuple[Record, list[Value]]:
    """Return the record with the nodes in the given order, by default in the order of the numbers in their names."""
    if "nodes" not in settings:
        return record, [Value("nodes", ",".join(record.node_names), "inferred")]
    names = expanded(settings["nodes"])
    if not names or len(set(names)) < len(names):
        raise invalid_setting("nodes", settings["nodes"], "different names of nodes, like n[1-4]")
    missing = [name for name in record.node_names if name not in names]
    if missing:
        raise invalid_setting("nodes", settings["nodes"], f"all nodes of the record, also {missing[0]}")
    numbers = {name: number for number, name in enumerate(names)}
    jobs = []
    for job in record.jobs:
        nodes = tuple(sorted(numbers[record.node_names[node]] for node in job.nodes))
        jobs.append(job._replace(nodes=nodes))
    return replace(record, jobs=jobs, node_names=names), [Value("nodes", settings["nodes"], "given")]


def _whole(name: str, settings: Mapping[str, str]) -> int:
    """Return a setting that is a whole number of at least 1."""
    number = read_number(settings[name])
    if number is None or not number.is_integer() or number < 1:
        raise invalid_setting(name, settings[name], "a whole number of at least 1")
    return int(number)


def _word(name: str, settings: Mapping[str, str], words: Sequence[str]) -> Sequence[str]:
    """Return a given word, or all words that may be tried."""
    if name not in settings:
        return words
    if settings[name] not in words:
        raise InvalidConfigError(f"{name} is {settings[name]!r}, {allowed_among(settings[name], words)}")
    return [settings[name]]


def fitted(record: Record, settings: Mapping[str, str], parameters: Parameters, stated: frozenset[str]) -> Fit:
    """Return the installation under which Slurm agrees best with a record.

    Without other settings, 12 combinations of scheduler, order and tasks are tried, and then the epoch time of second 0
    modulo 30 s.

    Parameters
    ----------
    settings
        What the user states about the installation.
    parameters
        Parameters of slurm.conf, as far as the user states them.
    stated
        Names of the parameters that the user states.
    """
    check_settings(settings)
    record, nodes, values = nodes_of(record, settings)
    zero = _zero(record, settings)
    choices = list(_choices(settings, parameters, stated))
    known_zero = 0 if zero is None else round(zero + record.fraction)
    first = Installation(
        nodes,
        parameters,
        zero=known_zero,
        tiers=_tiers(settings, values),
        partitions=_partitions(record, settings, values),
        node_names=tuple(record.node_names),
        changes=record.changes,
    )
    tried = []
    for choice in choices:
        tried.append(replace(first, parameters=choice.parameters, order=choice.order, tasks=choice.tasks))
    ranked = _ranked(record, tried)
    best = ranked[0].installation
    choice = choices[ranked[0].position]
    sentences = []
    equal = [best]
    if len(ranked) > 1:
        sentences.append(f"second-best combination: {choices[ranked[1].position]}: {_score(ranked[1].agreement)}")
    is_given = "scheduler" in settings or "scheduler_type" in stated
    values.append(Value("scheduler", choice.scheduler, _origin(is_given, len(choices))))
    values.append(Value("order", choice.order, _origin("order" in settings, len(choices))))
    values.append(Value("tasks", choice.tasks, _origin("tasks" in settings, len(choices))))
    if zero is not None:
        values.append(Value("t0", f"{zero:.3f}", "given" if "t0" in settings else "read"))
    elif choice.parameters.has_backfill:
        equal, second = _with_offset(record, best)
        best = equal[0]
        modulus = _modulus(best)
        values.append(Value("t0", f"{(best.zero - record.fraction) % modulus:.3f} modulo {modulus} s", "fitted"))
        sentences.append(second)
    result = agreement(record, SlurmDecider(best))
    return Fit(record, best, values, result, sentences, equal)


def _origin(is_given: bool, num_choices: int) -> str:
    return "given" if is_given or num_choices == 1 else "fitted"


def _zero(record: Record, settings: Mapping[str, str]) -> float | None:
    """Return the epoch time of the zero of the record [s]; None if it is unknown."""
    if "t0" not in settings:
        return record.zero
    zero = read_number(settings["t0"])
    if zero is None:
        raise invalid_setting("t0", settings["t0"], "the epoch time of second 0 of the record [s]")
    return zero


def _choices(settings: Mapping[str, str], parameters: Parameters, stated: frozenset[str]) -> Iterator[Choice]:
    """Yield the combinations to try, in the order in which they win on ties: those that claim more come first."""
    words = _word("scheduler", settings, (BUILTIN, BACKFILL))
    if "scheduler_type" in stated:
        words = [parameters.scheduler_type]
    tried = []
    for word in words:
        with_type = replace(parameters, scheduler_type=word)
        if not stated & OF_INTERVALS:
            tried.append(replace(with_type, bf_interval=1, bf_resolution=1, sched_interval=1, batch_sched_delay=0))
        if word == BACKFILL or stated & OF_INTERVALS:
            tried.append(with_type)
    orders = _word("order", settings, ORDERS) if "order" in settings else FITTED_ORDERS
    tasks = _word("tasks", settings, TASKS)
    for chosen, order, task in product(tried, orders, tasks):
        yield Choice(chosen, order, task)


class _Tried(NamedTuple):
    """An installation that is tried, and its agreement; not a whole one if two other installations agree better."""

    position: int
    installation: Installation
    agreement: Agreement


def _ranked(record: Record, installations: Iterable[Installation]) -> list[_Tried]:
    """Return installations in order of their agreement; the first ones win on ties."""
    tried: list[_Tried] = []
    for position, installation in enumerate(installations):
        wrong = sorted(len(other.agreement.disagreements) for other in tried)
        most_wrong = wrong[1] if len(wrong) > 1 else inf  # no more than the second-best one has
        agreed = agreement(record, SlurmDecider(installation), most_wrong=most_wrong, tells_reasons=False)
        tried.append(_Tried(position, installation, agreed))
    return sorted(tried, key=lambda one: one.agreement.rank, reverse=True)


def _with_offset(record: Record, installation: Installation) -> tuple[list[Installation], str]:
    """Return the installations with the best epoch times of second 0, and a sentence on the second-best one."""
    modulus = _modulus(installation)
    ranked = _ranked(record, (replace(installation, zero=offset) for offset in range(modulus)))
    best = ranked[0]
    equal = [one.installation for one in ranked if one.agreement.rank == best.agreement.rank]
    if len(equal) > 1:
        sentence = f"second-best t0: {len(equal) - 1} other seconds agree equally well"
    else:
        later = (ranked[1].installation.zero - best.installation.zero) % modulus
        sentence = f"second-best t0: {later} s later: {_score(ranked[1].agreement)}"
    if len(equal) == modulus:  # the epoch time does not matter
        equal = equal[:1]
    return equal, sentence


def _modulus(installation: Installation) -> int:
    """Return the time after which the decisions for a later epoch time recur [s]."""
    modulus = lcm(EDGE, installation.parameters.bf_resolution)
    return modulus if modulus <= MOST_OFFSETS else EDGE


def _score(agreed: Agreement) -> str:
    """Return the agreement of a fit in words."""
    return f"{agreed.agreeing_decisions} of {agreed.decisions} decisions agree"
