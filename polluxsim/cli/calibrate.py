"""`polluxsim calibrate`: find the policy and cluster whose waits are nearest to those of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Replay a log under several policies and cluster sizes. Print the replays, those with waits nearest to the "
        "recorded waits first."
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="a log with waits, as 'polluxsim import' writes it")
    words = "a setting of every run, like workload.hours=48 or engine.restart_delay=30"
    parser.add_argument("names", nargs="*", default=[], metavar="KEY=VALUE", help=words)
    parser.add_argument("--policies", default="fifo,easy,conservative,multifactor", metavar="A,B",
                        help="policies, each with settings of its own in brackets: "
                        "'easy,quotas(gpus={research: 4})' (default: %(default)s)")  # fmt: skip
    parser.add_argument("--gpus", required=True, metavar="N,M", help="sizes of the cluster to try [GPUs]")
    parser.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("calibrated"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")
    parser.set_defaults(action=_calibrate)


def _calibrate(options: Namespace) -> None:
    from rich.table import Table
    from rich.text import Text

    from polluxsim.durations import HOUR
    from polluxsim.look.console import console
    from polluxsim.look.remarks import engine_waits, print_without_effect
    from polluxsim.run.overrides import split_list
    from polluxsim.sweeps.calibration import Candidates, calibrate

    candidates = Candidates(split_list(options.policies), _numbers(options.gpus), options.gpus_per_node)
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


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidConfigError(f"--gpus is {text!r}; give cluster sizes like 64,128") from None
