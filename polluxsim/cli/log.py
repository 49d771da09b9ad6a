"""Commands about logs of clusters: `import`, `calibrate`, and `whatif` of a log."""

from __future__ import annotations

import json
from argparse import Action
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from polluxsim.cli import shared_options
from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.studies.log_replays import Candidates

EXAMPLE = "example-sacct.txt"
"""File of the shipped example log."""


LOG_FORMATS = {
    "philly-raw": "Philly of Microsoft, the published JSON log",
    "philly": "Philly, the file philly.csv of Pollux's artifact",
    "itp": "ITP 2021 of Microsoft",
    "helios": "Helios of SenseTime",
    "seren": "Acme of Shanghai AI Laboratory, cluster Seren",
    "kalos": "Acme, cluster Kalos",
    "pai2020": "PAI 2020 of Alibaba, tasks (and pai_job_table.csv beside them)",
    "openb2023": "openb 2023 of Alibaba, pods",
    "sia": "job list of Sia's simulator",
    "gavel": "job list of the simulators of Gavel and Shockwave",
    "tiresias": "job list of Tiresias's simulator",
    "slurm": "output of sacct --parsable2 or --json",
    "kueue": "Workloads of Kueue: kubectl get workloads -A -o json",
    "volcano": "PodGroups and Jobs of Volcano, from kubectl with -o json",
    "table": "any CSV or JSON with a row per job, and --columns",
}
"""Formats and their logs. A test compares the names with those of `polluxsim.logs.formats`."""

TABLE_KEYS = (
    "job", "submit", "eligible", "start", "end", "duration", "wait", "gpus", "user", "tenant", "partition", "status",
    "application", "gpu_type", "nodes", "cpus", "memory", "time_limit", "priority", "qos",
)  # fmt: skip
"""Keys of a map of columns. A test compares them with those of `polluxsim.logs.formats.table`."""

SACCT = (
    "  sacct --allusers --parsable2 --starttime 2026-01-01 --endtime 2026-02-01 \\\n"
    "  --format JobID,JobName,User,Account,Partition,QOS,Priority,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,NNodes,ReqTRES,AllocTRES \\\n  > sacct.txt"
)
"""Command of Slurm that prints a log with all columns that are read."""


class _Example(Action):
    """Print the example log."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> NoReturn:
        from polluxsim.common.shipped import shipped

        print((shipped("traces") / EXAMPLE).read_text(encoding="utf-8"), end="")
        parser.exit()


def _keys_of_tables() -> str:
    """Return the help on the columns of a table."""
    return (
        "Keys of --columns: "
        + ", ".join(TABLE_KEYS)
        + ".\nsubmit and gpus are needed. COLUMN*60 converts minutes, COLUMN:1002 takes the number of entry 1002 "
        "of a list like 1=8,1002=2. A column with the name of a key needs no pair."
    )


def add_import(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Check every row of a cluster's log, and write the log as a Parquet file."
    parser.epilog = (
        "Formats:\n"
        + "\n".join(f"  {name:<15}{what}" for name, what in LOG_FORMATS.items())
        + f"\n\nThis command prints a log for the format slurm:\n{SACCT}\n\n"
        + _keys_of_tables()
        + "\n\nExample: polluxsim import slurm sacct.txt log.parquet --gpus 64"
    )
    parser.add_argument("--example", action=_Example, nargs=0,
                        help="print an example log for the format slurm, without other arguments")  # fmt: skip
    parser.add_argument("format", metavar="FORMAT", help="format of the log, from the list below")
    parser.add_argument("source", type=Path, metavar="SRC", help="file or folder to read")
    parser.add_argument("destination", type=Path, metavar="DST", help=".parquet file to write")
    parser.add_argument("--skip-bad", action="store_true", help="leave out invalid rows, and count them")
    parser.add_argument("--gpus", type=int, metavar="N", help="number of GPUs of the cluster, for the report")
    parser.add_argument("--time-zone", metavar="NAME",
                        help="default time zone, like Asia/Shanghai")  # fmt: skip
    parser.add_argument("--columns", action="append", default=[], metavar="KEY=COLUMN,…",
                        help="columns of a table, for the format table")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(action=_import)


def _import(options: Namespace) -> None:
    from polluxsim.logs.import_report import as_text
    from polluxsim.logs.importing import import_trace

    report = import_trace(
        options.format,
        options.source,
        options.destination,
        skip_bad=options.skip_bad,
        cluster_gpus=options.gpus,
        time_zone=options.time_zone,
        columns=",".join(options.columns),
    )
    print(json.dumps(report.as_json(), indent=2) if options.json else as_text(report))


def add_calibrate(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Find the policy and the cluster size that best explain the waits in a log. The command replays the log under "
        "each policy and size, and prints the replay with the most similar waits first."
    )
    parser.epilog = "Example: polluxsim calibrate log.parquet --gpus 64,96 --policies fifo,easy"
    parser.add_argument("log", type=Path, metavar="LOG", help="log with waits, as 'polluxsim import' writes it")
    words = "settings of every run, like workload.hours=48 or engine.restart_delay=30"
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE", help=words)
    parser.add_argument("--policies", default="fifo,easy,conservative,multifactor", metavar="A,B",
                        help=f"{shared_options.POLICIES} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--gpus", type=shared_options.whole_numbers, required=True, metavar="N,M",
                        help="numbers of GPUs of the cluster to try")  # fmt: skip
    parser.add_argument("--gpus-per-node", type=shared_options.whole_number(1), default=8, metavar="N",
                        help="GPUs of each node (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("calibrated"), metavar="DIR", help=shared_options.OUT)
    parser.add_argument("--workers", type=shared_options.whole_number(1), metavar="N", help=shared_options.WORKERS)
    parser.set_defaults(action=_calibrate)


def _calibrate(options: Namespace) -> None:
    from rich.table import Table
    from rich.text import Text

    from polluxsim.common.durations import HOUR
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import engine_waits, print_without_effect
    from polluxsim.run.configurations import split_list
    from polluxsim.studies.log_replays import Candidates, calibrate

    candidates = Candidates(split_list(options.policies), options.gpus, options.gpus_per_node)
    found, waits = calibrate(options.log, candidates, options.out, options.names, options.workers)
    title = f"{len(waits)} jobs waited {waits.mean() / HOUR:.2f} h on average in the log"
    table = Table(title=title, title_justify="left")
    for heading in ("policy", "GPUs", "off by [h]", "mean wait [h]", "rank correlation"):
        table.add_column(Text(heading), justify="left" if heading == "policy" else "right")
    for match in found:
        numbers = (f"{match.error / HOUR:.2f}", f"{match.mean_wait / HOUR:.2f}", f"{match.rank_correlation:.2f}")
        table.add_row(match.policy, str(match.gpus), *numbers)
    console().print(table)
    print(engine_waits(found[0].engine))
    print_without_effect(options.out)


PERCENTILES = ("p50", "p90", "p95", "p99")

OFF, ON = "off", "on"
ON_RATE = "rsc-1"
"""The entry of cluster/failures that `--failures on` takes."""


class Case(NamedTuple):
    """One replay."""

    policy: str
    nodes: int
    load: float  # jobs arrive this many times as fast as in the log
    failures: str  # an entry of cluster/failures, or `off`


def whatif_log(options: Namespace) -> None:
    """Import a log, find the policy that explains its waits, replay it in every case, and print what changes them."""
    from polluxsim.look.descriptions import engine_waits, without_effect
    from polluxsim.records.folders import info_of
    from polluxsim.run.configurations import split_list
    from polluxsim.studies.log_replays import Candidates, calibrate

    policies, nodes, loads = split_list(options.policy), _nodes(options.nodes), _loads(options.load)
    failures, percentiles = _failures(options.failures), _percentiles(options.percentile)
    folder = options.output or options.run.with_name(f"{options.run.stem}-whatif")
    log = _imported(options.run, folder)
    present = Candidates(policies, [nodes[0] * options.gpus_per_node], options.gpus_per_node)
    found, waits = calibrate(log, present, folder / "as-it-was", _without_failures(options.names))
    cases = [Case(*case) for case in product(policies, nodes, loads, failures)]
    runs = dict(zip(cases, _replayed(log, present, cases, options.names, folder / "runs"), strict=True))
    waited = {case: _waits(run, percentiles) for case, run in runs.items()}
    print(f"{len(waits)} jobs waited {length(waits.mean())} on average in the log; replayed on {nodes[0]} nodes: "
          + ", ".join(f"{match.policy} is off by {length(match.error)} a job" for match in found))  # fmt: skip
    _print_waits(waited, percentiles, failures)
    print("\n".join(_sentences(Case(found[0].policy, nodes[0], loads[0], failures[0]), waited, percentiles[0])))
    print("\n".join([*_not_monotone(waited, percentiles[0]), engine_waits(found[0].engine)]))
    for sentence in without_effect((case.policy, info_of(run)) for case, run in runs.items()):
        print(sentence)
    print(f"wrote {folder}")


def _imported(source: Path, folder: Path) -> Path:
    """Return a log as `polluxsim import` writes it; output of sacct is imported first."""
    from polluxsim.logs.importing import import_trace

    if source.suffix == ".parquet":
        return source
    folder.mkdir(parents=True, exist_ok=True)
    import_trace("slurm", source, folder / "log.parquet")
    return folder / "log.parquet"


def _nodes(text: str) -> list[int]:
    """Return numbers of nodes; those with a sign are relative to the first one.

    >>> _nodes("8,+4,-2")
    [8, 12, 6]
    """
    words = text.split(",")
    if not words[0].isdigit() or not all(word.lstrip("+-").isdigit() for word in words):
        raise InvalidConfigError(
            f"--nodes is {text!r}; give the existing number of nodes, then numbers to try: 8,12 or 8,+4"
        )
    first = int(words[0])
    return list(dict.fromkeys(first + int(word) if word[0] in "+-" else int(word) for word in words))


def _loads(text: str) -> list[float]:
    try:
        return list(dict.fromkeys(map(float, text.split(","))))
    except ValueError:
        raise InvalidConfigError(f"--load is {text!r}; give numbers like 1,1.2") from None


def _failures(text: str) -> list[str]:
    """Return entries of cluster/failures, or `off`.

    >>> _failures("off,on")
    ['off', 'rsc-1']
    """
    return list(dict.fromkeys(ON_RATE if word == ON else word for word in text.split(",")))


def _percentiles(text: str) -> list[str]:
    words = list(dict.fromkeys(text.split(",")))
    if wrong := [word for word in words if word not in PERCENTILES]:
        raise InvalidConfigError(f"--percentile is {text!r}: {wrong[0]!r} is none of {', '.join(PERCENTILES)}")
    return words


def _without_failures(names: Sequence[str]) -> list[str]:
    """Return the overrides of replays in which no node fails."""
    return [name for name in names if not name.startswith(("cluster.failures.", "cluster/repairs", "cluster.repairs"))]


def _replayed(log: Path, present: Candidates, cases: Sequence[Case], extra: Sequence[str], folder: Path) -> list[Path]:
    """Replay the log in every case, and return the runs."""
    from polluxsim.studies.driver import run_sweep
    from polluxsim.studies.log_replays import replay_of

    size = present.gpus_per_node
    most = f"workload.most_gpus={size * min(case.nodes for case in cases)}"
    same = (*replay_of(log), most, f"cluster.gpus_per_node={size}")
    plan = [
        (*same, f"policy={case.policy}", f"cluster.num_nodes={case.nodes}", f"workload.load_factor={case.load}",
         *(_without_failures(extra) if case.failures == OFF else [f"cluster/failures={case.failures}", *extra]))
        for case in cases
    ]  # fmt: skip
    return list(map(Path, run_sweep(plan, folder)["folder"]))


def _waits(run: Path, percentiles: Sequence[str]) -> tuple[float, ...]:
    """Return the mean and the percentiles of the jobs' waits in a run [s]."""
    from polluxsim.metrics.target import read_target
    from polluxsim.records.storage import read_run

    result = read_run(run).result
    return tuple(read_target(f"{what} wait < 1h").value(result) for what in ("mean", *percentiles))


def _print_waits(waited: Mapping[Case, Sequence[float]], percentiles: Sequence[str], failures: Sequence[str]) -> None:
    from rich.table import Table

    from polluxsim.look.console import console

    table, has_failures = Table(), failures != [OFF]
    for heading in ("policy", "nodes", "load", *["failures"] * has_failures,
                    *(f"{what} wait" for what in ("mean", *percentiles))):  # fmt: skip
        table.add_column(heading, justify="left" if heading in ("policy", "failures") else "right")
    for case, times in waited.items():
        words = (case.policy, str(case.nodes), f"{case.load:g}", *[case.failures] * has_failures)
        table.add_row(*words, *map(length, times))
    console().print(table)


def _sentences(base: Case, waited: Mapping[Case, Sequence[float]], percentile: str) -> Iterator[str]:
    """Yield the effect of each single change on a percentile of the wait in the case that is nearest to the log."""
    before = waited[base][1]
    for case, (_, after, *_) in waited.items():
        changed = [name for name in Case._fields if getattr(case, name) != getattr(base, name)]
        if len(changed) != 1:
            continue
        more = case.nodes - base.nodes
        what = {
            "nodes": f"{abs(more)} {'more' if more > 0 else 'fewer'} node{'' if abs(more) == 1 else 's'}",
            "load": f"{case.load / base.load:g} times the load",
            "policy": f"{case.policy} in place of {base.policy}",
            "failures": "no failures" if case.failures == OFF else f"failures as in {case.failures}",
        }[changed[0]]
        if after == before:
            yield f"{what}: leaves the {percentile} wait at {length(after)}"
        else:
            does = "cuts" if after < before else "raises"
            yield f"{what}: {does} the {percentile} wait from {length(before)} to {length(after)}"


def _not_monotone(waited: Mapping[Case, Sequence[float]], percentile: str) -> Iterator[str]:
    """Yield a line for each case that is worse than the next one with fewer nodes, or with a higher load."""
    from polluxsim.studies.sizing import reversals

    for axis, is_easier_upwards in (("nodes", True), ("load", False)):
        curves: dict[Case, dict[float, float]] = {}
        for case, times in waited.items():
            rest = case._replace(nodes=0) if axis == "nodes" else case._replace(load=0)
            curves.setdefault(rest, {})[getattr(case, axis)] = times[1]
        for rest, curve in curves.items():
            same = f"load {rest.load:g}" if axis == "nodes" else f"{rest.nodes} nodes"
            for levels in reversals(curve, easier_upwards=is_easier_upwards).items():
                easier, harder = (
                    f"{length(curve[level])} with {f'{level:g} nodes' if axis == 'nodes' else f'load {level:g}'}"
                    for level in levels
                )
                yield f"not monotone: {rest.policy}, {same}: the {percentile} wait is {easier} and {harder}"
