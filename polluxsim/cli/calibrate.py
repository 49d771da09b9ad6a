"""`polluxsim calibrate`: find the policy and cluster whose waits are nearest to those of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
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
                        help=f"{option_help.POLICIES} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--gpus", required=True, metavar="N,M", help="numbers of GPUs of the cluster to try")
    parser.add_argument("--gpus-per-node", type=int, default=8, metavar="N",
                        help="GPUs of each node (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("calibrated"), metavar="DIR", help=option_help.OUT)
    parser.add_argument("--workers", type=int, metavar="N", help=option_help.WORKERS)
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
