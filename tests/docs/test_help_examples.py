"""Every example in the help of every command runs, on files with the names that the examples have."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polluxsim.cli.commands import COMMANDS
from polluxsim.cli.main import main
from polluxsim.look.plot.request import FIGURE_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = re.compile(r"^(?:Example:| ) (polluxsim .*)$", re.MULTILINE)
COMMANDS_WITH_HELP = [*COMMANDS, *(f"plot {kind}" for kind in FIGURE_KINDS)]

QUICK = {
    "size", "table", "compare", "timeline", "why", "log import", "log nodes", "log calibrate", "workload",
    "profile card", "twin config", "twin collect", "twin try", "twin whatif",
}  # fmt: skip
"""Commands whose examples take about a second. The others take up to minutes; they are in the slow tier."""

POLICY = """from polluxsim.policies.tools.gangs import schedule_gangs


class MyPolicy:
    def allocate(self, view, rng):
        return schedule_gangs(view, sorted(view.jobs, key=lambda job: job.num_replicas))
"""

FEW_JOBS = ("workload=philly-like", "workload.num_jobs=6", "workload.hours=1", "cluster.num_nodes=8")
SWEEPS = {
    "plot sweep": ("policy=pollux", "policy.p=-1,1"),
    "plot failures": ("policy=fifo,srtf", "cluster/failures=drawn", "cluster.failures.rate=9000"),
    "plot scaling": ("policy=fifo", "cluster.num_nodes=8,12"),
}
"""Settings of the sweep that an example is for; other examples have a sweep of two policies."""


NODES = """NODELIST|PARTITION|GRES|STATE|CPUS
a[01-06]|gpu*|gpu:a100:8|mixed|128
"""

QUEUE = """JOBID|USER|PARTITION|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|TRES_PER_NODE|NODELIST
6001|user01|gpu|RUNNING|2026-03-12T06:00:00|2026-03-12T07:00:00|1:00:00|4:00:00|6|gres:gpu:a100:8|a[01-06]
6002|user02|gpu|PENDING|2026-03-12T07:30:00|N/A|0:00|2:00:00|1|gres:gpu:a100:8|
"""


RECORD = """job,submitted,gpus,limit,start,end,nodes
a,0,4,120,1,101,n1
wide,5,8,60,101,151,"n[1-2]"
short,9,2,60,9,49,n2
"""

CONF = "ClusterName=site\nNodeName=n[1-2] CPUs=64 Gres=gpu:4\nPartitionName=gpu Nodes=ALL Default=YES\n"

STATE = {"jobs": [
    {"job_id": 1, "job_state": "RUNNING", "submit_time": 1795530595, "start_time": 1795530596, "time_limit": 2,
     "nodes": "n1", "node_count": 1, "cpus": 1, "tres_per_node": "gres/gpu:4", "priority": 9, "partition": "gpu"},
    {"job_id": 2, "job_state": "PENDING", "submit_time": 1795530603, "start_time": 1795530716, "time_limit": 1,
     "nodes": "", "node_count": 2, "cpus": 2, "tres_per_node": "gres/gpu:4", "priority": 8, "partition": "gpu"},
]}  # fmt: skip
STATE_NODES = "".join(f"NodeName=n{number} CPUTot=64 Gres=gpu:4 State=IDLE Partitions=gpu\n" for number in (1, 2))


class Folder:
    """A folder in which examples run. It has the files that the examples name, each made when it is first needed."""

    def __init__(self, path: Path, data: Path | None) -> None:
        self.path = path
        self._data = data

    def prepare(self, command: str, words: list[str]) -> None:
        """Make the files and folders that an example of a command names."""
        makers: dict[str, Callable[[], None]] = {
            "sacct.txt": self._example_log,
            "log.parquet": lambda: self.run("log", "import", "slurm", "sacct.txt", "-o", "log.parquet"),
            "workload.csv": lambda: self.run(
                "workload", "workload=philly-like", "workload.num_jobs=20", "seed=1", "-o", "workload.csv"
            ),
            "nodes.txt": lambda: self._write("nodes.txt", NODES),
            "squeue.txt": lambda: self._write("squeue.txt", QUEUE),
            "run.csv": lambda: self._write("run.csv", RECORD),
            "slurm.conf": lambda: self._write("slurm.conf", CONF),
            "dump.txt": lambda: self._write("dump.txt", "Account - 'lab':MaxJobs=4\n"),
            "state": self._state,
            "live.jsonl.gz": self._snapshots,
            "mine.py": lambda: self._write("mine.py", POLICY),
            "RUN": lambda: self.run("run", "policy=fifo", "-o", "RUN"),
            "SWEEP": lambda: self._sweep(command),
            "philly.csv": lambda: self._link("philly.csv", "osdi21/traces/philly.csv"),
            "measured": lambda: self._link("measured", "osdi21/traces"),
            "DATA": lambda: self._link("DATA", "."),
        }
        named = [name for name in makers if any(name in re.split(r"[=:,/]", word) for word in words)]
        if "log.parquet" in named and "import" not in words:
            named.insert(0, "sacct.txt")
        for name in named:
            is_output = words[words.index("-o") + 1] == name if "-o" in words else False
            if not is_output and not (self.path / name).exists():
                makers[name]()

    def run(self, *words: str) -> str:
        """Run a command, which must succeed, and return what it prints."""
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            try:
                status = main(list(words))
            except SystemExit as end:  # of --help and --example
                status = int(end.code or 0)
        may_say_no = words[0] == "paper"  # status 1 says that some published number is not met
        assert status == 0 or (status == 1 and may_say_no), f"{shlex.join(['polluxsim', *words])}\n{printed.getvalue()}"
        return printed.getvalue()

    def _example_log(self) -> None:
        self._write("sacct.txt", self.run("log", "import", "--example"))

    def _state(self) -> None:
        (self.path / "state").mkdir()
        self._write("state/squeue.json", json.dumps(STATE))
        self._write("state/nodes.txt", STATE_NODES)

    def _snapshots(self) -> None:
        """Write one recorded state, and the run in which job 3 waits then."""
        line = json.dumps({"at": 50, "squeue": STATE, "nodes": STATE_NODES})
        (self.path / "live.jsonl.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
        self._write("live.csv", RECORD.replace("a,", "1,").replace("wide,", "2,").replace("short,", "3,"))
        self._write("live.json", '{"t0": 1795530595}')

    def _sweep(self, command: str) -> None:
        self.run("run", "-m", *FEW_JOBS, *SWEEPS.get(command, ("policy=fifo,srtf",)), "-o", "SWEEP")

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def _link(self, name: str, source: str) -> None:
        if self._data is None:
            pytest.skip("needs the published data (../shared/data, or the variable POLLUXSIM_DATA)")
        (self.path / name).symlink_to(self._data / source)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Folder]:
    """Return the folders by the sweep that their examples need; most examples share one."""
    data = data_folder()
    return {name: Folder(tmp_path_factory.mktemp("examples"), data) for name in ("", *SWEEPS)}


@pytest.mark.parametrize(
    "command",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS_WITH_HELP],
)
def test_the_examples_of_the_help_run(
    command: str, folders: dict[str, Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folders.get(command, folders[""])
    monkeypatch.chdir(folder.path)
    monkeypatch.syspath_prepend(str(folder.path))
    examples = EXAMPLE.findall(folder.run(*command.split(), "--help"))
    assert examples, f"the help of {command} has no example"
    for example in examples:
        words = shlex.split(example)[1:]
        folder.prepare(command, words)
        folder.run(*words)


def data_folder() -> Path | None:
    """Return the folder of published data, or None if there is none."""
    place = Path(os.environ.get("POLLUXSIM_DATA") or Path(__file__).parents[3] / "shared" / "data")
    return place if (place / "osdi21").is_dir() else None
