"""`polluxsim whatif`: how a run would have gone on otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.cli import option_help
from polluxsim.cli.finished_run import add_allowing, import_from_here, read_to_make_again, tell_classes
from polluxsim.durations import instant, length
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from omegaconf import DictConfig

    from polluxsim.storage import Run

GROUPS = ("policy", "cluster")

OTHERWISE = "otherwise"
"""Folder of the run with the changes, in the folder of a what-if."""


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Fork a finished run at a time, and compare the run with the fork. From that time on, the fork has the changes "
        "that you name. For the log of a cluster, the command compares numbers of nodes, loads and policies instead."
    )
    parser.epilog = "Example: polluxsim whatif RUN --at 3h policy=pollux"
    parser.add_argument("run", type=Path, metavar="RUN",
                        help="folder of a finished run; or a log, as sacct or 'polluxsim import' writes it",
                        )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="KEY=VALUE",
                        help="changed settings, like policy=tiresias, policy.p=-10 or cluster.num_nodes=20",
                        )  # fmt: skip
    parser.add_argument("--at", metavar="TIME", help=f"time of the fork of a run: {option_help.TIME}")
    parser.add_argument("--drop-node", type=int, action="append", default=[], metavar="N",
                        help=f"node that goes down for good; {option_help.REPEATED}")  # fmt: skip
    parser.add_argument("--without", action="append", default=[], metavar="JOB",
                        help=f"job that is cancelled, or never arrives; {option_help.REPEATED}")  # fmt: skip
    parser.add_argument("--add", type=Path, metavar="FILE", help="workload file of additional jobs")
    parser.add_argument("--seeds", type=int, default=1, metavar="N",
                        help="number of forks of each kind with different random draws (default: %(default)s)",
                        )  # fmt: skip
    parser.add_argument("--nodes", metavar="N,+M",
                        help="for a log: the existing number of nodes, and other or additional numbers to try",
                        )  # fmt: skip
    parser.add_argument("--load", default="1", metavar="X,Y", help="for a log: factors of the arrival rate")
    parser.add_argument("--policy", default="fifo,easy", metavar="A,B",
                        help=f"for a log: {option_help.POLICIES} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--failures", default="off", metavar="off,on",
                        help="for a log: replay without node failures, with them, or both. 'on' has the published rate "
                        "of cluster/failures=rsc-1; other entries of that group can be named (default: %(default)s)",
                        )  # fmt: skip
    parser.add_argument("--percentile", default="p95", metavar="p50,p90",
                        help="for a log: percentiles of the wait to print, from p50, p90, p95 and p99; the sentences "
                        "use the first one (default: %(default)s)")  # fmt: skip
    parser.add_argument("--gpus-per-node", type=int, default=8, metavar="N",
                        help="for a log: GPUs of each node (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help="folder for the runs (default: RUN-at-TIME, RUN-at-TIME-2 for other changes, ...; for a "
                        "log LOG-whatif)",
                        )  # fmt: skip
    add_allowing(parser)
    parser.set_defaults(action=_whatif)


def _whatif(options: Namespace) -> None:
    from polluxsim.cli.whatif_log import whatif_log

    if not (options.run.is_file() or options.nodes):
        _fork(options)
    elif options.nodes is None or options.at is not None:
        raise InvalidConfigError(f"{options.run} is a log, needed is --nodes, and --at is of runs")
    else:
        whatif_log(options)


def _fork(options: Namespace) -> None:
    from time import time

    from polluxsim.look.comparing import compared
    from polluxsim.look.console import console
    from polluxsim.look.remarks import without_effect
    from polluxsim.look.settings_text import comparison_text
    from polluxsim.look.table import SideBySide
    from polluxsim.metrics.summary import summarise
    from polluxsim.run.moment import Moment
    from polluxsim.workloads.workload import read_workload

    _check(options)
    started = time()
    at, run = instant(options.at), read_to_make_again(options)
    tell_classes(run)
    if options.names:
        import_from_here()  # a class that the user names, as for `polluxsim run`
    moment = Moment(run, at)
    added = () if options.add is None else read_workload(options.add).jobs
    changes = {"drop_nodes": options.drop_node, "without": options.without, "added": added}
    place = f"{options.run.resolve().name}-at-{length(moment.time)}".replace(" ", "")
    config, folder = _changed(moment.config, options.names), options.output
    others, stayed = [], []
    for number in range(options.seeds):
        seed = moment.config.seed + number if number else None
        ending = f"-seed{seed}" if number else ""
        otherwise = moment.fork(config, {}, **changes, seed=seed)
        if folder is None:
            folder = _free(options.run.with_name(place), otherwise)
        others.append(_kept(otherwise, folder / f"{OTHERWISE}{ending}", started))
        stayed.append(_kept(moment.fork(moment.config, {}, seed=seed), folder / f"as-it-was{ending}", started))
    summaries = {run.name: summarise(run.result) for run in (stayed[0], others[0])}
    console().print(SideBySide({name: summary for name, summary in summaries.items() if summary is not None}))
    print(comparison_text(compared([*stayed, *others])))
    for sentence in without_effect([(others[0].name, others[0].info)]):
        print(sentence)
    print(f"wrote {folder}")


def _free(folder: Path, otherwise: Run) -> Path:
    """Return the first folder of this name, or of it with -2, -3, …, without a what-if of other changes."""
    from itertools import count

    from polluxsim.run.claim import numbered, settings_in, settings_of

    candidates = (numbered(folder, number) for number in count(1))
    mine = settings_of(otherwise.info)
    return next(path for path in candidates if settings_in(path / OTHERWISE) in (None, mine))


def _kept(run: Run, folder: Path, since: float) -> Run:
    """Write a future as a run, and return it by the name of its folder."""
    from dataclasses import replace

    from polluxsim.run.claim import claimed, settings_of
    from polluxsim.storage import write_run

    with claimed(folder, lambda: settings_of(run.info), since) as path:
        write_run(path, run.result, run.info)
    return replace(run, name=folder.name)


def _check(options: Namespace) -> None:
    if options.at is None:
        raise InvalidConfigError("--at is missing, give it as --at TIME")
    if options.seeds < 1:
        raise InvalidConfigError(f"--seeds is {options.seeds}, allowed is a whole number ≥ 1")
    if not (options.names or options.drop_node or options.without or options.add):
        raise InvalidConfigError("nothing is to change, needed is KEY=VALUE, --drop-node, --without or --add")


def _apart(overrides: list[str]) -> Iterator[str]:
    """Yield overrides, those of a policy with settings in brackets one by one."""
    from polluxsim.run.overrides import policy_text

    for override in overrides:
        key, _, value = override.partition("=")
        yield from policy_text(value).overrides if key == "policy" else [override]


def _changed(config: DictConfig, overrides: list[str]) -> DictConfig:
    """Return the settings with an entry of a group, or settings of the one there is, as overrides say."""
    import yaml

    from polluxsim.run.moment import with_entry

    names: dict[str, str] = {}
    settings: dict[str, dict[str, Any]] = {}
    for override in _apart(overrides):
        key, equals, value = override.partition("=")
        group, _, name = key.partition(".")
        if group not in GROUPS or not equals:
            allowed = "policy=…, policy.NAME=…, cluster=… and cluster.NAME=…"
            raise InvalidConfigError(f"{override!r} cannot change on the way, allowed are {allowed}")
        if name:
            try:
                settings.setdefault(group, {})[name] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                problem = getattr(error, "problem", None) or error
                raise InvalidConfigError(f"{override}: the value is not YAML ({problem}); quote it") from None
        else:
            names[group] = value
    for group in dict.fromkeys([*names, *settings]):
        config = with_entry(config, group, names.get(group), settings.get(group, {}))
    return config
