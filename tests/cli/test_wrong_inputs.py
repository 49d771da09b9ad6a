"""Twenty wrong inputs for every command. Each message has what is wrong, why, and what to do, in one line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polluxsim.cli import options
from polluxsim.cli.commands import COMMANDS, parser_of
from polluxsim.cli.main import main
from polluxsim.cli.run import parser_of_run
from polluxsim.logs.importing import import_trace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

LEAST = 20

WHY = re.compile(
    r"must|cannot|missing|unknown|takes|there is no|(is|has|have) no\b|no (row|run|value|such|finished|change|"
    r"measured)|"
    r"not (a|after|what|YAML)\b|is given with|contradict|needs|before the command|both name|none of|neither|does not|"
    r"exists|lacks|writes a workload|is a CSV file|compares|nothing to"
)
DO = re.compile(
    r"must|--help|did you mean|, like |[;,:(] ?(or )?(give|name|choose|leave|use|write|add|make|remove|set|import|wait|"
    r"check|draw|pass|quote|try|it has)\b"
)

WRONG: dict[Callable[[str], object], tuple[str, ...]] = {
    options.count: ("many", "-1", "0", "1.5", ""),
    options.index: ("many", "-1", "1.5", "²"),
    options.number: ("x", "-1", "0", "nan", "inf"),
    options.share: ("x", "-1", "0", "2"),
    options.time: ("noon", "-1", "1:75", "inf"),
    options.duration: ("soon", "0h", "-3h", "8", "1:30"),
    options.names: ("a,,b", ",", ""),
    options.counts: ("x", "0", "1,,2", "1.5"),
    options.numbers: ("x", "0", "1,,2", "-1"),
    options.node_counts: ("x", "+4", "8,x", "8,-8", "0"),
    options.text: ("", " "),
    options.path: ("",),
}

USUAL = {
    "check": "fifo", "size": "--target 'p90 wait < 1h'", "table": "run", "compare": "run", "bound": "run",
    "regret": "run srsf",
    "report": "run", "timeline": "run", "plot": "usage run", "whatif": "run --at 10min policy=srtf",
    "when": "run --at 10min",
    "why": "run job", "log import": "slurm sacct.txt -o log.parquet", "log nodes": "nodes.txt -o site.yaml",
    "log extract": "sacct.txt -o extract.txt",
    "log calibrate": "log.parquet --gpus 8",
    "log whatif": "log.parquet --nodes 2", "log judge": "log.parquet",
    "log decisions": "sacct.txt --policy slurm",
    "twin config": "slurm.conf -o conf", "twin collect": "-o file.txt/state",
    "twin eta": "--state nowhere", "twin try": "--gpus 2 --state nowhere", "twin whatif": "--nodes +1 --state nowhere",
    "evolve init": "-o task", "evolve score": "file.txt --task empty", "evolve search": "--task empty",
    "workload": "-o w.csv", "profile fit": "measured -o cards",
    "profile card": "transformer -o g.yaml --gpu h100 --params 1e9 --seq 1024", "paper reproduce": "fig1",
}  # fmt: skip
"""Arguments of a command that are right, up to those that a wrong input adds."""

OF_HYDRA = ("multirun", "config_dir", "config_name", "cfg", "package", "resolve")
"""Options of `run` that Hydra describes."""

RUNS = ("nowhere", "empty", "file.txt", "bad.parquet")

WRONG_LINES: dict[str, list[str]] = {
    "run": [
        "policy=polux", "polcy=fifo", "policy.q=1", "+policy.q=1", "policy.p=fast", "seed=-1", "seed=1.5", "seed=???",
        "cluster.gpus_per_node=4.5", "cluster=mixed", "workload=phily", "workload.path=nowhere.csv",
        "profiles.path=nowhere", "engine.horizon=-1", "engine.round_interval=0", "+experiment=fairnes",
        "--config-dir nowhere", "-o out hydra.run.dir=there", "--live -m seed=0,1", "--cfg every", "--multirn",
        "policy",
    ],
    "check": ["polux", "nowhere.py:Mine", "file.txt:Mine", "fifo las", "policy=fifo", "fifo --worlds 5 seed=1", "",
        "fifo --config-dir nowhere", "fifo --seeds 3", "--worlds 5"],
    "arena": [
        "--policies polux", "--policies nowhere.py:Mine", "--suite quik", "--scenarios rigit", "policy=fifo",
        "seed=1",
        "--user-metric mine",
    ],
    "size": [
        "--target 'p80 wait < 1h'", "--target 'p90 wait'", "--target ''", "--limit 2.5", "--step 0.5",
        "--existing 3 --highest-load", "--log nowhere.parquet", "--log file.txt", "--figure x.gif", "policy=polux",
        "--seeds 2 seed=5", "polcy=fifo", "8",
    ],
    "table": [*RUNS, "run --ranks job", "run --metric nothing", "run --baseline nothing", "run --ranks user --csv"],
    "compare": [*RUNS, "run", "run run --by nothing", "run run --baseline nothing", "run --ranks job",
    "run --metric x", ""],
    "report": [*RUNS, "run -o x.png", "run --baseline nothing", "run -o file.txt/x.html", "run --each", "",
    "--baseline x",
        "run nowhere", "run policy=fifo", "run -o x.txt", "run --json", "run --outptu x.html"],
    "timeline": [*RUNS, "run -o x.html", "run -o x", "run run", "run -o file.txt/x.json", "run --width 3", "",
    "-o x.json",
        "run policy=fifo", "run -o run/x.txt", "run --json", "run --outptu x.json", "run -o .json/x",
        "run --at 3h", "run empty"],
    "plot": [
        "usag run", "usage", "usage nowhere", "usage empty", "usage file.txt", "usage run -o x.gif",
        "usage run --bin 1s",
        "usage run --x p", "usage run --width 100", "sweep run", "sweep run --x nothing", "job run --job nobody",
        "job run --profiles nowhere", "scaling file.txt", "throughput nowhere", "goodput --application nothing",
        "usage run --bin soon", "usage run --width wide", "sweep run --x policy.p --metric nothing",
    ],
    "whatif": [
        *(f"{run} --at 10min policy=srtf" for run in RUNS if run != "file.txt"), "run policy=srtf", "run --at 10min",
        "run --at 10min policy=polux", "run --at 10min engine.horizon=9", "run --at 10min pollux",
        "run --at 99d policy=srtf", "run --at 10min --drop-node 99", "run --at 10min --without nobody",
        "run --at 10min --add nowhere.csv", "run --at 10min --nodes3", "run --at 10min policy.backfill={a",
    ],
    "when": [
        *(f"{run} --at 10min" for run in RUNS), "run", "run nobody --at 10min",
        "run --at 10min --csv --json", "run --at 99d", "run --at 10min --arrivals nowhere.csv",
        "run nobody",
        "run --at 10min --allow-classes os", "file.txt", "bad.parquet --site nodes.txt",
        "squeue.txt", "squeue.txt --site nowhere", "squeue.txt --site nodes.txt --at 3h", "squeue.txt --site file.txt",
        "squeue.txt --site nodes.txt nobody", "squeue.txt --site nodes.txt --taken noon",
        "squeue.txt --site nodes.txt policy=polux", "squeue.txt --site nodes.txt --history nowhere.parquet",
        "run --at 10min --site nodes.txt", "run --at 10min policy=fifo", "nosuchqueue.txt",
    ],
    "why": [
        *(f"{run} job" for run in RUNS), "run nobody", "run", "run job --at 99d", "run job 1h 2h", "run job --at",
        "run job --allow-classes os", "run job --csv", "run job noon", "run job --at=",
    ],
    "bound": [
        *RUNS, "run --metric nothing", "run --time-limit soon", "run --time-limit -1s", "run --csv --json",
        "run --at-roundes", "",
    ],
    "regret": [
        *(f"{run} srsf" for run in RUNS), "run", "run polux", "run nowhere.py:Mine", "run srsf --sample 0",
        "run srsf --seeds 0", "run srsf --path --seeds 2", "run srsf --csv --json", "run srsf las", "run srsf --pathh",
        "run pollux", "run srsf --allow-classes os", "",
    ],
    "evolve init": ["-o empty", "-o file.txt", "-o task --seeds 3", "-o task more", ""],
    "evolve score": [
        "nowhere --task empty", "file.txt --task nowhere", "file.txt --task empty", "file.txt --task file.txt",
        "empty --task empty", "bad.parquet --task empty", "file.txt --task empty --stage last", "file.txt", "",
        "nowhere --task nowhere", "file.txt --task bad.parquet", "file.txt more --task empty", "--task empty",
        "file.txt --task empty --seed 1", "file.txt --task empty -o score.json",
    ],
    "evolve search": [
        "--task nowhere", "--task empty", "--task file.txt", "--task empty --candidates 0", "--task empty more", "",
    ],
    "log import": [
        "slum sacct.txt -o log.parquet", "slurm nowhere -o log.parquet", "slurm sacct.txt",
        "slurm sacct.txt -o log.csv",
        "slurm file.txt -o x.parquet", "slurm sacct.txt -o x.parquet --gpus 3,4",
        "slurm sacct.txt -o x.parquet --time-zone Europa", "slurm sacct.txt -o x.parquet --columns gpus=x",
        "table file.txt -o x.parquet", "table file.txt -o x.parquet --columns nothing=x", "slurm", "",
    ],
    "log extract": [
        "nowhere -o x.txt", "empty -o x.txt", "file.txt -o x.txt", "bad.parquet -o x.txt", "sacct.txt", "",
        "sacct.txt -o sacct.txt", "sacct.txt -o empty", "sacct.txt -o x.txt --format slum",
        "sacct.txt -o x.txt --rows many", "sacct.txt -o x.txt --time-zone Europa", "sacct.txt more -o x.txt",
        "sacct.txt -o file.txt/x.txt", "sacct.txt -o x.txt --format slurm --columns gpus=x",
        "sacct.txt -o x.txt --skip-bad",
    ],
    "log nodes": [
        "nowhere -o site.yaml", "file.txt -o site.yaml", "nodes.txt", "nodes.txt -o site.csv", "",
        "bad.parquet -o site.yaml", "nodes.txt -o site.yaml --unit shard", "nodes.txt -o site",
        "nodes.txt more -o site.yaml", "nodes.txt -o empty", "nodes.txt -o site.yaml --gpus 3", "empty -o site.yaml",
        "nodes.txt -o site.yaml cluster=mixed", "sacct.txt -o site.yaml", "squeue.txt -o site.yaml",
    ],
    "log calibrate": [
        "nowhere.parquet --gpus 8", "file.txt --gpus 8", "bad.parquet --gpus 8", "log.parquet --gpus 9",
        "log.parquet --gpus 8 --partition nowhere", "log.parquet --gpus 8 --user nobody",
        "log.parquet --gpus 8 --policies polux", "log.parquet --gpus 8 polcy=fifo", "log.parquet --gpus 8 fifo",
    ],
    "log whatif": [
        "nowhere.parquet --nodes 2", "file.txt --nodes 2", "bad.parquet --nodes 2", "run --nodes 2",
        "log.parquet --nodes 2 --percentile p80", "log.parquet --nodes 2 --failures rsc-9",
        "log.parquet --nodes 2 --policies polux", "log.parquet --nodes 2 polcy=fifo",
        "log.parquet --nodes 2 --drop-node 1", "log.parquet --nodes 8,--4", "log.parquet --nodes 8,+0,-8",
    ],
    "log decisions": [
        "nowhere.csv --policy slurm", "file.txt --policy slurm", "bad.parquet --policy slurm", "sacct.txt", "",
        "sacct.txt --policy polux",
        "sacct.txt --policy slurm nodes", "sacct.txt --policy slurm node=n1", "sacct.txt --policy slurm order=up",
        "sacct.txt --policy slurm --at-least 95", "sacct.txt --policy fifo tasks=gpu", "run --policy fifo gpus=4",
        "empty --policy slurm", "sacct.txt --policy slurm(", "sacct.txt --policy slurm --replays",
    ],
    "log judge": [
        "nowhere.parquet", "file.txt", "bad.parquet", "run", "", "log.parquet --change 3h", "log.parquet --change x=3",
        "log.parquet --change 1min=0", "log.parquet --split 99d", "log.parquet --policies polux",
        "log.parquet polcy=fifo", "log.parquet fifo", "log.parquet --partition nowhere",
    ],
    "twin config": ["nowhere.conf -o conf", "file.txt -o conf", "slurm.conf", "", "slurm.conf -o conf --gres nowhere",
        "slurm.conf -o conf --accounts nowhere", "slurm.conf -o file.txt/conf", "slurm.conf nodes.txt -o conf",
        "slurm.conf -o conf --state state", "slurm.conf -o conf --json", "slurm.conf -o conf --grs x",
        "slurm.conf -o conf --policy slurm", "slurm.conf -o conf --accounts file.txt"],
    "twin collect": [
        "--state state", "out", "--print=3", "--json", "--csv", "--forks 3", "--history sacct.txt", "--policy slurm",
        "policy=fifo", "--nodes +1", "--prnt", "--gpus 2", "--time 2h", "-x", "--drain n1",
    ],
    "twin eta": [
        "--state empty", "--state file.txt", "--state state --policy polux", "--state state --policy fifo",
        "--state state 99", "--state state 4", "--state state --history nowhere.csv",
        "--state state --history file.txt",
        "--state state --arrivals nowhere.csv", "--state state --time-zone Mars", "--state state -o page.txt",
        "--record run.csv", "--calibrate file.txt", "--calibrate nowhere.jsonl --record run.csv",
        "--calibrate file.txt --record run.csv --state state", "--state state --config-dir nowhere",
    ],
    "twin try": [
        "--gpus 2,4 --state state", "--gpus 99 --state state", "--gpus 2 --partition nowhere --state state",
        "--gpus 2 --time 12 --state state", "--state state",
    ],
    "twin whatif": [
        "--state state", "--drain n9 --state state", "--drain n[ --state state", "--nodes 4 --state state",
        "--nodes +1 --policy polux --state state",
    ],
    "workload": [
        "", "-o w.txt", "-o w.parquet", "-o w.csv --rate 2", "-o w.csv policy=fifo", "-o w.csv workload=polux",
        "-o w.csv workload=philly-like workload.hours=90min", "-o w.csv workload=philly-like workload.num_jobs=0",
        "-o w.csv profiles.path=nowhere", "-o file.txt/w.csv", "a.csv b.csv", "-o w.csv seed=-1", "-o w.csv seed=x",
        "-o w.csv workload=philly workload.path=nowhere.csv", "-o w.csv workload=philly workload.path=file.txt",
        "-o w.csv workload=mapped", "-o w.csv workload=mapped workload.path=bad.parquet",
        "-o w.csv workload=mapped workload.path=log.parquet workload.rule=a.B",
        "-o w.csv workload=mapped workload.path=log.parquet workload.select.statuses=great",
        "-o w.csv workload=mapped workload.path=log.parquet workload.select.start=99d",
    ],
    "profile fit": [
        "nowhere -o cards", "empty -o cards", "file.txt -o cards", "measured", "", "a b c",
        "nowhere -o cards --figure x.gif",
        "nowhere -o cards --plott x", "nowhere -o", "nowhere --figure", "nowhere -o cards --seed 3", "nowhere -o ''",
        "nowhere -o cards --figure ''", "nowhere -o cards -x", "nowhere -o cards --jobs 3",
        "nowhere -o cards policy=fifo", "nowhere -o cards --json", "nowhere -o cards --figure=",
        "bad.parquet -o cards",
    ],
    "profile card": [
        "lstm -o g.yaml --gpu h100 --params 1e9 --seq 9", "transformer --gpu h100 --params 1e9 --seq 9",
        "transformer -o g.yaml --gpu h1000 --params 1e9 --seq 9", "transformer -o g.yaml --gpu h100 --seq 9",
        "transformer -o g.yaml --gpu t4 --params 70e9 --seq 9",
        "transformer -o g.yaml --gpu h100 --params 1e9 --seq 9 --layers 2.5",
        "transformer -o g.txt --gpu h100 --params 1e9 --seq 9",
    ],
    "paper reproduce": ["fig77", "", "fig1 --profiles nowhere", "fig1 --workloads nowhere", "muri --data nowhere"],
    "paper conformance": [
        "", "--data nowhere", "--data file.txt", "--data empty", "fig1", "policy=fifo", "--al", "--seeds 3", "--data",
        "--workers", "--output", "--all=3", "--dat x y", "--check", "--jobs 3",
    ],
}  # fmt: skip


def values_of(action: argparse.Action) -> list[str]:
    """Return wrong values of an option."""
    kind = options.OPTIONS[action.option_strings[-1].removeprefix("--no-").removeprefix("--")].kind
    if action.choices:
        return ["nothing"]
    known = next((found for key, found in WRONG.items() if kind is key), None)
    return list(known or ("soon", "", "-3h"))


def lines_of(command: str) -> list[list[str]]:
    """Return wrong command lines: by the types of the options, and those of `WRONG_LINES`."""
    usual = shlex.split(USUAL.get(command, ""))
    parser = parser_of_run() if command == "run" else parser_of(command)
    found = [[*usual, "--nothing"], [*usual, "--nothing=3"]]
    for action in parser._actions:
        if not action.option_strings or "--help" in action.option_strings or action.dest in OF_HYDRA:
            continue
        name = action.option_strings[-1]
        if action.nargs == 0:
            found.append([*usual, f"{name}=3"])
            continue
        found += [[*usual, name], *([*usual, f"{name}={value}"] for value in values_of(action))]
    lines = [*found, *map(shlex.split, WRONG_LINES[command])]
    # A command that lacks its target would say only that.
    return [
        [*usual, *line] if command == "size" and not any("--target" in word for word in line) else line
        for line in lines
    ]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, a log, and files that are neither."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("no\n")
    (folder / "bad.parquet").write_text("no\n")
    rows = "".join(f"{number},{60 * number},{60 * number + 30},600,1\n" for number in range(3))
    (folder / "log.csv").write_text(f"job,submit,start,duration,gpus\n{rows}")
    import_trace("table", folder / "log.csv", folder / "log.parquet")
    (folder / "sacct.txt").write_text("JobID|Submit\n")
    (folder / "nodes.txt").write_text("NODELIST|STATE|GRES\na1|idle|gpu:4\n")
    (folder / "slurm.conf").write_text("ClusterName=c\nNodeName=n1 CPUs=8 Gres=gpu:4\n")
    (folder / "run.csv").write_text("job,submitted,gpus,limit,start,end,nodes\na,0,4,120,1,101,n1\n")
    (folder / "state").mkdir()
    (folder / "state" / "squeue.json").write_text(
        '{"jobs": [{"job_id": 4, "job_state": "PENDING", "priority": 0, "tres_per_node": "gres/gpu:1", "nodes": ""}]}'
    )
    (folder / "state" / "nodes.txt").write_text("NodeName=n1 CPUTot=8 Gres=gpu:4 State=IDLE Partitions=main\n")
    job = "7|PENDING|2026-03-04T10:00:00|N/A|1:00:00|gpu:4"
    (folder / "squeue.txt").write_text(f"JOBID|STATE|SUBMIT_TIME|START_TIME|TIME_LIMIT|TRES_PER_NODE\n{job}\n")
    small = ["policy=fifo", "workload=philly-like", "workload.num_jobs=2", "workload.hours=1", "engine.horizon=7200"]
    assert main(["run", *small, "-o", str(folder / "run")]) == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_each_wrong_input_is_one_line_with_what_why_and_what_to_do(
    command: str, inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(inputs)
    monkeypatch.delenv("POLLUXSIM_DATA", raising=False)
    before = {path: path.stat().st_mtime_ns for path in inputs.rglob("*")}
    lines, poor = lines_of(command), []
    assert len(lines) >= LEAST
    for words in lines:
        status = main([*command.split(), *words])
        printed = capsys.readouterr()
        message = printed.err.splitlines()[-1] if printed.err else ""
        typed = [part for word in words for part in (word, *re.split(r"[=:/]", word)) if part.strip()]
        told = "".join(message.split())
        named = "missing" in message or not typed or any("".join(word.split()).strip("+") in told for word in typed)
        if not (
            status == 2 and message.startswith("polluxsim: ") and named and WHY.search(message) and DO.search(message)
        ):
            poor.append((status, shlex.join(words), printed.err[-300:], printed.out[:60]))
    assert not poor, "\n".join(map(str, poor))
    assert {path: path.stat().st_mtime_ns for path in inputs.rglob("*")} == before
