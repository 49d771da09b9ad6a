"""All options of the command line. An option has one name, meaning, type and unit in every command that has it."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from polluxsim.cli.values import indices, power, price, pue, time, type_of
from polluxsim.common.durations import MINUTE, UNITS, from_clock
from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from polluxsim.statistics.windows import SubmissionWindow

Request = TypeVar("Request")

Kind = Callable[[str], object]
"""Type of an option: a function of the text that returns the value, and raises ArgumentTypeError if it is invalid."""


def text(word: str) -> str:
    """Return text that is not empty."""
    if not word.strip():
        raise ArgumentTypeError(f"is {word!r}, must not be empty")
    return word


def path(word: str) -> Path:
    """Return a path."""
    return Path(text(word))


def _whole(word: str) -> int | None:
    """Return a whole number that is written with digits only, perhaps after a minus sign; None for other words."""
    # `int` alone also takes "1_000", " 1" and the digits of other scripts.
    if word.isascii() and word.removeprefix("-").isdecimal():
        return int(word)
    return None


def _part(word: str) -> float | None:
    """Return the part of a percentage, like 0.95 of 95%; None for other words."""
    if not word.endswith("%"):
        return None
    return float(word.removesuffix("%")) / 100


LARGEST = 1e15  # largest number in the description of a model; larger numbers would overflow in its formulas

count = type_of(_whole, lambda value: value >= 1, "a whole number of at least 1")
index = type_of(_whole, lambda value: value >= 0, "a whole number of at least 0")
number = type_of(float, lambda value: 0 < value < inf, "a number above 0")
share = type_of(float, lambda value: 0 < value <= 1, "a number above 0 and at most 1")
percentage = type_of(_part, lambda value: 0 <= value <= 1, "a percentage, like 95%")
quantity = type_of(float, lambda value: 1e-9 <= value <= LARGEST, f"a number from 1e-09 to {LARGEST:g}")
size = type_of(float, lambda value: 1 <= value <= LARGEST, f"a number from 1 to {LARGEST:g}")
whole_size = type_of(
    float, lambda value: value % 1 == 0 and 1 <= value <= LARGEST, f"a whole number from 1 to {LARGEST:g}"
)


def duration(word: str) -> float:
    """Return a duration above 0 [s]: a number with its unit, s, min, h or d."""
    # A number without a unit, or a clock time, could be meant in hours or in minutes.
    has_unit = any(word.endswith(unit) for unit, _ in UNITS) and ":" not in word
    seconds = None
    if has_unit:
        seconds = from_clock(word)
    if seconds is None:
        raise ArgumentTypeError(f"is {word}, must be a duration with its unit, like 90min, 3h or 2d")
    if not seconds:
        raise ArgumentTypeError(f"is {word}, must be a duration above 0, like 90min, 3h or 2d")
    return seconds


window = type_of(duration, lambda value: value >= MINUTE, "at least 1min")


def names(word: str) -> list[str]:
    """Return names that commas separate, each once. Commas in brackets or quotes do not separate."""
    from polluxsim.run.configurations import split_list

    distinct_names = list(dict.fromkeys(split_list(word)))
    if not all(distinct_names):
        raise ArgumentTypeError(f"is {word!r}, must be names with commas between them, like A,B")
    return distinct_names


def _is_count(word: str) -> bool:
    """Return whether a word is a whole number above 0, written with digits only."""
    return word.isascii() and word.isdecimal() and int(word) > 0


def counts(word: str) -> list[int]:
    """Return whole numbers above 0 that commas separate."""
    words = word.split(",")
    if not all(map(_is_count, words)):
        raise ArgumentTypeError(f"is {word!r}, must be whole numbers above 0, like 64,128")
    return list(map(int, words))


def pools(word: str) -> dict[str, list[int]]:
    """Return numbers of GPUs to try by partition.

    >>> pools("gpu=64,long=16,gpu=96")
    {'gpu': [64, 96], 'long': [16]}
    """
    gpus_by_partition: dict[str, list[int]] = {}
    for part in word.split(","):
        name, _, number = part.rpartition("=")  # the name of a partition may contain "="
        if not name or not _is_count(number):
            raise ArgumentTypeError(f"is {word!r}, must be a number of GPUs for each partition, like gpu=64,long=16")
        gpus_by_partition.setdefault(name, []).append(int(number))
    return gpus_by_partition


def later_nodes(word: str) -> tuple[float, int]:
    """Return a time [s] and the number of nodes from then on.

    >>> later_nodes("12d=8")
    (1036800.0, 8)
    """
    when, _, nodes = word.rpartition("=")
    seconds = from_clock(when) if when else None
    if seconds is None or not _is_count(nodes):
        raise ArgumentTypeError(f"is {word!r}, must be a time and the nodes from then on, like 12d=8")
    return seconds, int(nodes)


def numbers(word: str) -> list[float]:
    """Return numbers above 0 that commas separate, each once."""
    try:
        return list(dict.fromkeys(map(number, word.split(","))))
    except ArgumentTypeError:
        raise ArgumentTypeError(f"is {word!r}, must be numbers above 0, like 1,1.2") from None


class MoreNodes(int):
    """A number of nodes beside the existing ones, whose number the command knows."""

    def __repr__(self) -> str:
        return f"MoreNodes({int(self)})"


def node_counts(word: str) -> list[int]:
    """Return numbers of nodes, each once. Numbers with a sign are relative to the first number.

    A single number with a plus sign is additional nodes.

    >>> node_counts("8,+4,-2"), node_counts("+4")
    ([8, 12, 6], [MoreNodes(4)])
    """
    if re.fullmatch(r"\+\d{1,6}", word, re.ASCII) and int(word):
        return [MoreNodes(int(word))]
    must = "must be the existing number of nodes, then numbers to try: 8,12 or 8,+4"
    if not re.fullmatch(r"\d+(,[+-]?\d+)*", word, re.ASCII):
        raise ArgumentTypeError(f"is {word!r}, {must}")
    words = word.split(",")
    existing = int(words[0])
    numbers_of_nodes = []
    for part in words:
        nodes = int(part)
        if part.startswith(("+", "-")):
            nodes += existing
        if nodes <= 0:
            raise ArgumentTypeError(f"is {word!r}, {must}")
        numbers_of_nodes.append(nodes)
    return list(dict.fromkeys(numbers_of_nodes))


# Parts of help texts that several commands have.
RUNS = "folder of a finished run or of a sweep"
RUN = "folder of a finished run"
DATASET = ", or a sweep's Parquet dataset"
SETTINGS = "settings of every run, like workload.hours=48 or engine.restart_delay=30"
REPEATED = "give the option once for each"
POLICIES = "policies, each with its settings in parentheses: 'easy,quotas(gpus={research: 4})'"


class Option(NamedTuple):
    """An option: its meaning, the name of its value in help texts (None for a flag), and the type of the value."""

    meaning: str
    value: str | None = None
    kind: Kind = text
    repeated: bool = False  # whether the option may be given several times


OPTIONS: Mapping[str, Option] = {
    # Inputs and outputs of a command.
    "output": Option("output", "PATH", path),
    "figure": Option("file for a figure: .png, .pdf or .svg", "FILE", path),
    "log": Option("log of a cluster, as 'polluxsim log import' writes it", "FILE", path),
    "profiles": Option("folder of profiles (default: those of polluxsim)", "DIR", path),
    "cards": Option("folder of profile cards", "DIR", path),
    "workloads": Option("folder that contains the published workloads/", "DIR", path),
    "data": Option("folder of published data, with rigid/, hetero/ and osdi21/", "DIR", path),
    "add": Option("workload file of additional jobs", "FILE", path),
    "config-dir": Option(
        "folder of your configuration files, which replace shipped files of the same names", "DIR", path, repeated=True
    ),
    "allow-classes": Option(
        "load the classes of this module that the run's settings name, from the current folder or an installed package",
        "MODULE", text, repeated=True,
    ),
    "markdown": Option("print Markdown"),
    "latex": Option("print LaTeX"),
    "csv": Option("print CSV, with times in seconds"),
    "json": Option("print JSON, with times in seconds"),
    # Costs and energy.
    "price": Option("price of a node-hour [$], or a GPU type whose price each GPU has, like h100", "PRICE", price),
    "energy": Option("print the energy of GPUs [kWh] by user or queue", "user|queue"),
    "gpu-type": Option("type of all GPUs of a cluster that states no types, like h100", "TYPE"),
    "power": Option("idle and peak power of a GPU type [W], like h100=70:700", "TYPE=IDLE:PEAK", power, repeated=True),
    "busy-share": Option("share of the range from idle to peak power that a GPU with a job draws (default: 1)", "SHARE",
                         share),
    "pue": Option("energy of the building over that of the GPUs (default: 1)", "N", pue),
    # How runs are made.
    "workers": Option("number of processes (default: one for each core)", "N", count),
    "seed": Option("seed", "N", index),
    "seeds": Option("number of seeds", "N", count),
    "most-seeds": Option("largest number of seeds with --until", "N", count),
    "until": Option("add seeds until every interval is at most this share of its mean", "SHARE", number),
    "policy": Option("policy, with its settings in parentheses: 'slurm(bf_interval=60)'", "POLICY"),
    "at-least": Option("exit with status 1 if a smaller share of the decisions agrees", "95%", percentage),
    "replay": Option("also simulate the jobs with their true run times, and print how far off their starts are"),
    "policies": Option(POLICIES, "A,B", names),
    "scenarios": Option("scenarios to run", "A,B", names),
    "suite": Option("list of scenarios", "NAME"),
    "at": Option("time on the clock of the run, 90min, 1.5h or H:MM:SS, or a date, 2026-03-04T14:00", "TIME", time),
    "from": Option("count only the jobs submitted at this time or later: a time of the run or a date", "TIME", time),
    "to": Option("count only the jobs submitted before this time", "TIME", time),
    "all": Option("make also the runs that take minutes"),
    "check": Option("exit with status 1 if a published number is not met"),
    "worlds": Option("number of random cases", "N", index),
    "task": Option("folder of a task, from 'polluxsim evolve init'", "DIR", path),
    "stage": Option("worlds in which the program runs; both: short, then full", "STAGE"),
    "candidates": Option("number of programs", "N", count),
    "decision-timeout": Option(
        "longest time of one decision, like 30s", "DURATION", duration
    ),
    "live": Option("show the cluster during the run"),
    "time-limit": Option("longest search for the bound of a workload and cluster, like 30s", "DURATION", duration),
    "sample": Option("number of rounds to compare, evenly spaced over the decisions of the run", "N", count),
    "path": Option("print steps that add up: the policy of the run takes over from POLICY at each round"),
    "at-rounds": Option("print also the bounds for schedules in which jobs start at rounds only"),
    # What a table or a figure shows.
    "metric": Option("metric, like p50_jct", "NAME", text, repeated=True),
    "user-metric": Option("a metric of your own", "NAME=MODULE.ATTRIBUTE", text, repeated=True),
    "baseline": Option("baseline: a run's folder, or a setting like policy=fifo or policy.p=-1", "NAME"),
    "by": Option("setting to compare, like policy.p", "SETTING", text, repeated=True),
    "jobs": Option("print the jobs of each run, ranked by --sort"),
    "sort": Option("value that ranks the jobs of --jobs, the largest first", "KEY"),
    "ranks": Option("rank users or queues by the mean wait of their jobs", "user|queue"),
    "x": Option("setting on the horizontal axis, like policy.p or policy", "SETTING"),
    "each": Option("draw a line for each run; by default the runs of a setting are pooled"),
    "dark": Option("draw the figure for a dark page"),
    "bounds": Option("compare each policy with the best possible schedule of each scenario"),
    "reports": Option("write a report of each policy's runs on each scenario, and link the page to them"),
    "width": Option("width in print [cm]; 8.5 fits one column and 17 fits two", "CM", number),
    "bin": Option("length of the averaging window, like 30min", "DURATION", window),
    "job": Option("name of a job", "NAME", text, repeated=True),
    "application": Option("application to draw", "NAME", text, repeated=True),
    # Clusters, jobs and changes.
    "gpus": Option("number of GPUs of the cluster, or of a job that is tried", "N,M", counts),
    "gpus-per-node": Option("GPUs of each node", "N", count),
    "nodes": Option("existing number of nodes, and other or additional numbers to try", "N,+M", node_counts),
    "extra": Option("additional nodes to try, if --nodes is not given (default: 1)", "N,M", counts),
    "nodes-from": Option("nodes of each partition: output of sinfo, scontrol or kubectl", "FILE", path),
    "partition": Option("partition of the log, or of a job that is tried; several with commas are pooled", "NAME"),
    "partition-gpus": Option("GPUs of each partition, which has its own replay", "A=N,B=M", pools),
    "split": Option(
        "time that ends the first part of the log, from its first submission, like 14d (default: the middle)",
        "TIME", time,
    ),
    "change": Option("number of nodes from a time of the log on, like 12d=8", "TIME=N", later_nodes, repeated=True),
    "nodes-before": Option("number of nodes in the first part of the log", "N", count),
    "user": Option("user of the log, or of a job that is tried", "NAME"),
    "qos": Option("QOS of the log", "NAME"),
    "load": Option("factors of the arrival rate", "X,Y", numbers),
    "failures": Option(
        "off: no node fails; on: nodes fail at the published rate of cluster/failures=rsc-1; or entries of that group",
        "off,on", names,
    ),
    "user-gpus": Option("limits on the GPUs that each user may hold at once", "N,M", counts),
    "percentile": Option("percentiles of the wait: p50, p90, p95 or p99", "p50,p90", names),
    "drop-node": Option("node that goes down for good", "N", index, repeated=True),
    "down": Option("nodes that go down for the time of --for, like 3,4", "N,M", indices),
    "for": Option("length of the outage of --down, like 6h", "DURATION", duration),
    "without": Option("job that is cancelled, or never arrives", "JOB", text, repeated=True),
    "target": Option(
        "bound on the makespan, or on the mean, p50, p90, p95 or p99 of wait, jct or rho: 'p90 wait < 10 min'", "TARGET"
    ),
    "highest-load": Option("find the highest workload.load_factor instead of the number of nodes"),
    "existing": Option("number of existing nodes; the answer is given relative to it, like +14 nodes", "N", index),
    "limit": Option("largest number of nodes (default: 64) or load (default: 4)", "N", number),
    "step": Option("difference between loads (default: 0.05)", "N", number),
    "site": Option("nodes of the cluster: output of sinfo, scontrol show nodes or kubectl get nodes", "FILE", path),
    "history": Option("earlier jobs of the cluster, with their run times and arrivals", "FILE", path),
    "state": Option("folder of 'twin collect', or - for a line of JSON (default: run Slurm's queries)", "DIR|-"),
    "time": Option("time limit of the job, like 12h (default: that of the partition)", "DURATION", duration),
    "drain": Option("nodes that take no further jobs, like n3 or n[3-5]", "NODES", text),
    "calibrate": Option("judge the estimates of recorded states, one line of JSON for each", "FILE", path),
    "record": Option("recorded run with the true starts, like RUN.csv", "FILE", path),
    "print": Option("print the commands of a shell that write the same files, and run nothing"),
    "gres": Option("gres.conf of the installation, with the types of GPUs", "FILE", path),
    "accounts": Option("accounts and users of the installation: output of sacctmgr dump", "FILE", path),
    "taken": Option("local time of the queue, like 2026-03-04T14:00 (default: the file says)", "DATE", text),
    "arrivals": Option(
        "later jobs: none; drawn from the arrivals so far, during the same time and at most three days; or the jobs of "
        "a workload file", "none|recent|FILE",
    ),
    "forks": Option("number of futures to draw", "N", count),
    "brief": Option("do not search for changes that would have let a waiting job run"),
    # Logs and workloads.
    "example": Option("print an example log for the format slurm, without other arguments"),
    "format": Option("format of the log, as 'polluxsim log import --help' lists them", "FORMAT"),
    "rows": Option("rows beside those that show the fault", "N", index),
    "skip-bad": Option("leave out invalid rows, and count them"),
    "time-zone": Option("default time zone, like Asia/Shanghai", "NAME"),
    "columns": Option("columns of a table, for the format table", "KEY=COLUMN,…", text, repeated=True),
    "unit": Option("what counts as a GPU: gpus, cpus, or resources like gpus,gres/shard*0.125", "NAME[*GPUS],…", text),
    "num-jobs": Option("number of jobs", "N", count),
    # Profile cards.
    "gpu": Option("GPU types; the card is for the first type whose memory suffices", "A,B", names),
    "params": Option("number of parameters", "N", size),
    "seq": Option("length of an example [tokens]", "N", whole_size),
    "layers": Option("number of layers (default: estimated from the parameters)", "N", whole_size),
    "hidden": Option("width of a layer (default: estimated from the parameters)", "N", whole_size),
    "vocab": Option("size of the vocabulary; 0 for a classifier", "N", index),
    "trainable": Option("share of trained parameters, below 1 with adapters (default: 1)", "SHARE", share),
    "tokens": Option("training set [tokens] (default: 20 for each parameter, Hoffmann et al. 2022)", "N", quantity),
    "batch": Option("initial batch size [examples] (default: half a million tokens)", "N", whole_size),
    "max-batch": Option("largest batch size [examples] (default: 16 times the initial batch size)", "N", whole_size),
    "noise-scale": Option(
        "gradient noise scale [examples] (default: from the loss, Kaplan et al. 2020)", "N", quantity
    ),
    "loss": Option("loss of a trained model [nats] (default: from the tokens)", "N", quantity),
    "utilisation": Option("utilisation of the GPU's peak in a pass (default: of the GPU type)", "SHARE", share),
    "network": Option("bandwidth of a node in one direction [Gbit/s] (default: of the GPU type)", "N", quantity),
    "recompute": Option("the backward pass computes the activations again, which saves memory"),
    "title": Option("title of the application (default: the name)", "TEXT"),
}  # fmt: skip
"""Options by name, grouped by subject."""

SHORT = {"output": "-o"}  # options with a short form


class TakesArguments(Protocol):
    """A parser, or a group of mutually exclusive options."""

    def add_argument(self, *spellings: str, **more: Any) -> Any:
        """Declare an option."""


def add_option(
    parser: TakesArguments,
    name: str,
    *,
    default: Any = None,  # value without the option; the help text states it
    note: str = "",  # purpose of the option in this command, after its meaning
    required: bool = False,
    choices: Collection[str] = (),  # allowed values; empty for all
    once: bool = False,  # whether the command takes an option once that other commands take several times
) -> None:
    """Let a command take an option of `OPTIONS`."""
    option = OPTIONS[name]
    spellings = [f"--{name}"]
    if name in SHORT:
        spellings.insert(0, SHORT[name])
    repeated = option.repeated and not once
    parts = [option.meaning, note]
    if name == "output":  # "output" alone says nothing, so the note continues the sentence
        parts = [f"{option.meaning}: {note}"]
    if repeated:
        parts.append(REPEATED)
    meaning = "; ".join(filter(None, parts))
    # argparse fills in values after a per cent sign.
    meaning = meaning.replace("%", "%%")
    # A note in parentheses, or one that begins with "of", is no clause of its own.
    meaning = re.sub(r"; (?=\(|of )", " ", meaning)
    default_text = _text_of_default(default)
    if default_text:
        meaning += f" (default: {default_text})"
    if option.value is None:
        parser.add_argument(*spellings, action="store_true", help=meaning, required=required)
        return
    parser.add_argument(
        *spellings,
        action="append" if repeated else "store",
        help=meaning,
        required=required,
        metavar=option.value,
        type=option.kind,
        choices=choices or None,
        default=default,
    )


def _text_of_default(default: object) -> str:
    """Return a default in the form in which the user writes it; "" if there is none."""
    if default is None:
        return ""
    if isinstance(default, list):
        return ",".join(map(_text_of_default, default))
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)


def add_forms(parser: ArgumentParser, *forms: str) -> None:
    """Declare mutually exclusive options, each for one output format."""
    group = parser.add_mutually_exclusive_group()
    for form in forms:
        group.add_argument(f"--{form}", action="store_const", const=form, dest="form", help=OPTIONS[form].meaning)


def request_of(kind: type[Request], options: Namespace, **others: object) -> Request:
    """Return a request with the options that have the names of its fields, and with other values.

    A field keeps its default if its option is not given.
    """
    values = {}
    for field in fields(cast("Any", kind)):
        value = getattr(options, field.name, None)
        # An option that is not given is None, and the default is stated in one place: the class.
        if value is not None:
            values[field.name] = value
    return kind(**values | others)


def refuse_beside(options: Namespace, other: str, names: Sequence[str]) -> None:
    """Raise InvalidConfigError if one of the options `names` is given as well as the option `other`."""
    for name in names:
        if getattr(options, name.replace("-", "_")) is not None:
            raise InvalidConfigError(f"--{name} and --{other} contradict each other; leave one out")


def as_setting(option: str) -> str:
    """Return the end of an error about an option that is the name of a setting; "" for other options."""
    from polluxsim.common.shipped import shipped

    name = option.strip("-")
    # Settings of other programs are often options, like --seed.
    is_group = (shipped("configs") / name).is_dir()
    if name == "seed" or is_group:
        return f"; write {name}=VALUE"
    return ""


def as_workload(word: str) -> str:
    """Return advice about a word that is the name of a table, where a setting should be; "" for other words."""
    if word.endswith((".csv", ".parquet")):
        return f"write workload.path={word}"
    return ""


def add_window(parser: ArgumentParser) -> None:
    """Let a command take a window of submissions."""
    add_option(parser, "from")
    add_option(parser, "to")


def window_of(options: Namespace) -> SubmissionWindow | None:
    """Return the window of `add_window`; None without one."""
    since = getattr(options, "from")  # a keyword of Python
    until = options.to
    if since is None and until is None:
        return None
    from polluxsim.statistics.windows import SubmissionWindow

    return SubmissionWindow(since, until)


def add_run(parser: TakesArguments) -> None:
    """Let a command take the folder of a run."""
    parser.add_argument("run", type=path, metavar="RUN", help=RUN)


def add_runs(parser: TakesArguments, also: str = "") -> None:
    """Let a command take folders of runs and sweeps. `also` is added to the help."""
    parser.add_argument("runs", nargs="+", type=path, metavar="RUN", help=f"{RUNS}{also}")


def add_output(parser: ArgumentParser, what: str, default: Path | str | None = None, *, required: bool = False) -> None:
    """Let a command take `-o/--output`: the file or folder that it writes. `what` says in the help what it is."""
    default_path = None if default is None else Path(default)
    add_option(parser, "output", default=default_path, note=what, required=required)
