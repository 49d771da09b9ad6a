"""Draw command lines of `polluxsim run`, right and wrong ones, and state what each of them means.

The meaning of a command line is the resolved configuration of each run with its folder, or the text that is printed,
or the error. No run is simulated. `python tests/command_lines.py` records the meaning of 500 drawn command lines in
`tests/cli/command_lines.jsonl.gz`. `tests/cli/test_command_lines.py` compares a sample with it, and
`python tests/command_lines.py --compare` all of them. A new setting changes what is drawn, so `--again` records the
meaning of the recorded command lines anew.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from polluxsim.cli.main import main
from polluxsim.common.shipped import shipped

RECORDING = Path(__file__).parent / "cli" / "command_lines.jsonl.gz"
NUMBER = 500
SEED = 62
MOST_RUNS = 8  # largest number of runs of a sweep that are recorded in full; of larger sweeps a digest is recorded

GROUPS = ("agent", "cluster", "engine", "policy", "profiles", "workload")
INNER = ("cluster/failures", "cluster/spot", "cluster/repairs", "engine/checkpoints", "engine/job_failures",
         "engine/sharing")  # fmt: skip
SMALL = ["workload=philly-like", "workload.num_jobs=3", "workload.hours=1"]

OWN_FILES = {
    "conf/policy/mine.yaml": "_target_: mine.Mine\nquantum: 2.0 # time of a turn [s]\n",
    "conf/policy/las.yaml": "_target_: mine.Mine\nquantum: 3.0\n",
    "conf/policy/wraps.yaml": "defaults:\n  - /policy@inner: fifo\n  - _self_\n_target_: mine.Wraps\n",
    "conf/policy/fresh.yaml": "defaults:\n  - fifo\n  - _self_\nbackfill: true\n",
    "conf/cluster/t4-16x4.yaml": "_target_: polluxsim.hardware.clusters.Cluster.uniform\nnum_nodes: 3\ngpus_per_node: 2\n",
    "conf/cluster/interpolated.yaml": (
        "_target_: polluxsim.hardware.clusters.Cluster.uniform\nnum_nodes: ${seed}\ngpus_per_node: 4\n"
    ),
    "conf/study/small.yaml": "# @package _global_\ndefaults:\n  - override /policy: srtf\ncluster:\n  num_nodes: 2\n",
    "conf/study/swept.yaml": (
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      policy: fifo,las\n      seed: 1,2\n"
    ),
    "more/policy/mine.yaml": "_target_: mine.Mine\nquantum: 7.0\n",
    "more/policy/other.yaml": "_target_: mine.Mine\nquantum: ???\n",
    "broken/policy/bad.yaml": "_target_: mine.Mine\nquantum: [1\n",
    "broken/policy/odd.yaml": "_target_: mine.Mine\nquantum: ${nowhere}\n",
    "broken/policy/text.yaml": "just text\n",
    "whole/run.yaml": "defaults:\n  - _self_\n  - policy: fifo\n  - cluster: nodes\nseed: 3\n",
    "mine.py": (
        "class Mine:\n    def __init__(self, quantum: float = 1.0): self.quantum = quantum\n"
        "    def allocate(self, view, rng): return {}\n"
        "class Wraps:\n    def __init__(self, inner): self.inner = inner\n"
        "    def allocate(self, view, rng): return {}\n"
    ),
}
"""Files of a user, in the folder in which the command lines are given."""


class Drawer:
    """Draws command lines."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._settings = {group: _settings_of(group) for group in GROUPS}

    def draw(self) -> list[str]:
        """Return the words after `polluxsim run`."""
        kinds: list[Callable[[], list[str]]] = [
            self._single, self._single, self._single, self._in_brackets, self._own, self._own, self._swept, self._swept,
            self._experiment, self._hydra, self._wrong, self._wrong, self._printed, self._inner,
        ]  # fmt: skip
        words = self._random.choice(kinds)()
        if self._random.random() < 0.15:
            words.append(f"seed={self._random.choice(['0', '7', '12', '-1', '1.5', 'x', 'null', 'true', '1e3'])}")
        if self._random.random() < 0.3:
            self._random.shuffle(words)
        return words

    def _value(self, value: object) -> str:
        """Return the text of a value like another value, sometimes of another kind."""
        draw = self._random
        if draw.random() < 0.12:
            return draw.choice(
                ["null", "x y", "'quoted, text'", "[1,2]", "{a: 1}", "true", "nan", "inf", "", "+2", "90min"]
            )
        choices = {
            bool: ["true", "false", "True"],
            float: [str(value), str(value * 2), "1", "60s", "1h", "0.5"] if isinstance(value, float) else [],
            int: [str(value), str(value + 1), str(value * 2), "1", "3.0"] if isinstance(value, int) else [],
            list: ["[]", "[1]", "[3250, 2h]"],
            dict: ["{}", "{a: 1}", "{'1001': 2}", "{vision: 4, speech: 2}"],
        }
        if type(value) in choices:
            return draw.choice(choices[type(value)])
        return "2" if value is None else str(value)

    def _entry(self, group: str) -> str:
        return self._random.choice(sorted(self._settings[group]))

    def _setting(self, group: str, entry: str) -> str | None:
        settings = {name: value for name, value in self._settings[group][entry].items() if not name.startswith("_")}
        if not settings:
            return None
        name = self._random.choice(sorted(settings))
        return f"{name}={self._value(settings[name])}"

    def _chosen(self) -> list[str]:
        """Return the choice of an entry, and perhaps changes of its settings."""
        group = self._random.choice(["policy", "policy", "policy", "cluster", "engine", "agent", "workload"])
        entry = self._entry(group)
        words = [f"{group}={entry}"]
        for _ in range(self._random.randrange(3)):
            setting = self._setting(group, entry)
            if setting is not None:
                words.append(f"{group}.{setting}")
        return words

    def _single(self) -> list[str]:
        words = self._chosen()
        if self._random.random() < 0.5:
            words += [
                word for word in self._chosen() if word.partition("=")[0] not in {w.partition("=")[0] for w in words}
            ]
        return [*words, "-o", "out"] if self._random.random() < 0.3 else words

    def _in_brackets(self) -> list[str]:
        entry = self._entry("policy")
        settings = [self._setting("policy", entry) for _ in range(self._random.randrange(1, 3))]
        text = f"{entry}({', '.join(setting for setting in settings if setting)})"
        return [f"policy={text}"] if self._random.random() < 0.7 else [f"policy={text},fifo", "-m"]

    def _own(self) -> list[str]:
        draw = self._random
        folders = draw.choice([
            ["--config-dir", "conf"], ["--config-dir=conf"], ["-cd", "conf"], ["hydra.searchpath=[conf,more]"],
            ["hydra.searchpath=[file://more]"], ["--config-dir", "conf", "hydra.searchpath=[more]"],
            ["--config-dir", "more"], ["--config-dir", "broken"], ["--config-dir", "whole"], ["--config-dir", "nowhere"],
            ["--config-dir", "conf", "--config-dir", "more"],
        ])  # fmt: skip
        words = draw.choice([
            ["policy=mine"], ["policy=mine", "policy.quantum=5"], ["policy=mine", "+policy.extra=1"], ["policy=las"],
            ["policy=wraps"], ["policy=wraps", "policy.inner.backfill=true"], ["policy=wraps", "policy@policy.inner=las"],
            ["policy=fresh"], ["cluster=interpolated", "seed=4"], ["+study=small"], ["+study=swept"], ["policy=other"],
            ["policy=other", "policy.quantum=1"], ["policy=bad"], ["policy=odd"], ["policy=text"], ["policy=fifo"],
            ["policy=mine,las", "-m"], ["policy=mine(quantum=9)"], ["policy=mine.Mine"], ["policy=mine.py:Mine"],
        ])  # fmt: skip
        return [*folders, *words]

    def _swept(self) -> list[str]:
        draw = self._random
        axes = draw.sample([
            "policy=fifo,srtf", "policy=choice(fifo,las)", "seed=range(0,3)", "seed=0,1", "cluster.num_nodes=2,4",
            "policy=pollux", "policy.p=-1,-10", "seed=range(5)", "policy=glob(tiresias*)", "cluster=nodes,elastic",
            "cluster.num_nodes=range(1,9,4)", "policy='easy,quotas(gpus={a: 2})'", "policy=easy,quotas(gpus={a: 2})",
            "engine=exact,osdi21", "agent=null,fixed", "cluster/failures=null,drawn", "workload.num_jobs=2,3",
            "policy=fifo", "seed=choice(1,2)", "seed=interval(0,3)", "seed=0,range(2,4)", "policy=fifo,nope",
            "seed=extend_list(3)", "seed=sort(3,1)", "+metrics.a=x.y,x.z", "hydra.sweep.dir=swept",
            "hydra.sweeper.workers=2", "'hydra.sweep.subdir=${seed}'", "hydra.sweeper.workers=two", "policy.nope=1,2",
            "engine.round_interval=30s,1min", "seed=", "policy=fifo,fifo",
        ], draw.randrange(1, 4))  # fmt: skip
        words = [*SMALL, *axes] if draw.random() < 0.5 else axes
        return [*words, draw.choice(["-m", "-m", "-m", "--multirun"])] if draw.random() < 0.9 else words

    def _experiment(self) -> list[str]:
        draw = self._random
        group = draw.choice(["experiment", "experiment", "conformance"])
        names = sorted(path.stem for path in (shipped("experiments") / group).glob("*.yaml"))
        words = [f"+{group}={draw.choice([*names, 'nope'])}"]
        return words + draw.choice(
            [[], ["seed=0,1"], ["policy=fifo"], ["cluster.num_nodes=4"], ["-m"], ["hydra.mode=RUN"]]
        )

    def _hydra(self) -> list[str]:
        words = self._random.choice([
            ["hydra.run.dir=there"], ["hydra.run.dir='a/${policy._target_}'"], ["hydra/launcher=nowhere", "-m"],
            ["hydra/launcher=basic", "-m"], ["hydra.sweep.dir=a/b", "-m", "seed=1,2"], ["hydra.mode=MULTIRUN", "seed=1,2"],
            ["hydra.run.dir=there", "-o", "here"], ["hydra.nope=1"], ["hydra/sweeper=basic", "-m"],
            ["hydra.sweeper.cache=cached", "-m", "seed=1,2"], ["hydra.sweeper.params={seed: '1,2'}", "-m"],
            ["hydra.job.config.override_dirname.exclude_keys=[seed]", "-m", "seed=1,2"], ["hydra=null"],
            ["hydra.sweep.subdir=x", "-m", "seed=1,2"], ["hydra.run.dir='${now:%Y}/${hydra:runtime.choices.cluster}'"],
        ])  # fmt: skip
        return [*self._chosen(), *words]

    def _wrong(self) -> list[str]:
        draw = self._random
        entry = self._entry("policy")
        return draw.choice([
            [f"policy={entry[:-1]}x"], [f"polcy={entry}"], [f"policy.{entry}=1"], ["cluster.num_node=3"], ["policy=null"],
            ["cluster=none"], ["workload=nope"], ["agent=none"], ["seed"], ["policy"], ["--policy", entry], ["--seed=3"],
            ["seed=[1"], ["seed='1"], ["policy=fifo,srtf"], ["policy.backfill=true"], ["policy=fifo", "policy.backfil=true"],
            ["~policy"], ["~agent"], ["agent=null"], ["cluster/failures=null"], ["cluster.num_nodes=+2"], ["nope=3"],
            ["+nope=3"], ["+nope.deep=3"], ["++policy.p=3"], ["+policy.p=3"], ["~policy.p"], ["~seed"], ["~policy.nope"],
            ["policy=[fifo]"], ["policy={a: 1}"], ["cluster=[nodes,elastic]"], ["policy=fifo(backfill=true"],
            ["policy=fifo(backfill)"], ["policy.gpus={'true': 1}", "policy=quotas"], ["jobs.csv"], ["workload.path"],
            ["--workers", "two"], ["--workers"], ["-o"], ["--live", "-m"], ["--nope"], ["--config-dir"], ["-x"],
            ["policy@nope=fifo"], ["engine/sharing=nope"], ["metrics.mine=x.y"], ["metrics=3"], ["seed=1", "seed=2"],
            ["policy=fifo", "policy=srtf"], ["policy.1=2"], ["seed=${nowhere}"], ["seed=${cluster.num_nodes}"],
            ["policy= fifo"], ["policy =fifo"], ["=3"], ["policy=='x'"], ["cluster.gpus_per_node={a: 1}"],
            ["workload=a.csv"], ["profiles=null"], ["engine.restart_delays={null: 3}"], ["policy=mine.Policy"],
            ["-c", "jobb"], ["--cfg"], ["policy.p=nan"], ["workload.path=nowhere.csv"], ["reproduce=1"],
        ])  # fmt: skip

    def _printed(self) -> list[str]:
        words = self._random.choice([
            ["--cfg", "job"], ["--cfg", "job", "--resolve"], ["--cfg=job"], ["-c", "job"], ["--cfg", "job", "-p", "policy"],
            ["--cfg", "job", "--package", "cluster"], ["--cfg", "job", "-p", "nope"], ["--help"], ["-h"],
        ])  # fmt: skip
        return [*self._chosen(), *words]

    def _inner(self) -> list[str]:
        draw = self._random
        group = draw.choice(INNER)
        names = sorted(path.stem for path in (shipped("configs") / group).glob("*.yaml"))
        entry = draw.choice(names)
        settings = _settings_of(group)[entry]
        words = [f"{group}={entry}"]
        if draw.random() < 0.6:
            name = draw.choice(sorted(settings))
            words.append(f"{group.replace('/', '.')}.{name}={self._value(settings[name])}")
        return words


def _settings_of(group: str) -> dict[str, dict[str, Any]]:
    files = sorted((shipped("configs") / group).glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}


def drawn(number: int = NUMBER, seed: int = SEED) -> list[list[str]]:
    """Return different command lines."""
    drawer = Drawer(seed)
    lines: dict[str, list[str]] = {}
    while len(lines) < number:
        words = drawer.draw()
        lines.setdefault(json.dumps(words), words)
    return list(lines.values())


class _ComposedError(Exception):
    """Ends a command once its runs are composed."""


@contextmanager
def user_folder() -> Iterator[Path]:
    """Make the files of the user in a temporary folder, which is the current folder in the block."""
    before = Path.cwd()
    path_before = list(sys.path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for place, text in OWN_FILES.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text, encoding="utf-8")
        os.chdir(folder)
        sys.path.append(str(folder))
        try:
            yield folder
        finally:
            os.chdir(before)
            sys.path[:] = path_before
            sys.modules.pop("mine", None)


def meaning(words: list[str], folder: Path) -> dict[str, Any]:
    """Return what a command line means, as plain values."""
    runs: list[dict[str, Any]] = []
    output, errors = StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(errors), _recording(runs):
        try:
            status: object = main(["run", *words])
        except _ComposedError:
            status = "composed"
        except SystemExit as error:
            status = error.code
    texts = {"out": output.getvalue(), "err": errors.getvalue()}
    result = {"words": words, "status": status, **{name: text for name, text in texts.items() if text}}
    if status != "composed":
        pass
    elif len(runs) > MOST_RUNS:
        digest = hashlib.sha256(_masked(json.dumps(runs, sort_keys=True), folder).encode()).hexdigest()
        result |= {"number": len(runs), "sha256": digest, "runs": runs[:2]}
    elif runs:
        result["runs"] = runs
    masked: dict[str, Any] = json.loads(_masked(json.dumps(result, sort_keys=True), folder))
    return masked


@contextmanager
def _recording(runs: list[dict[str, Any]]) -> Iterator[None]:
    """Note the runs that a command composes, and end the command before it makes them."""
    from polluxsim.cli import run as cli_run
    from polluxsim.cli import sweep as cli_sweep
    from polluxsim.run.execution import Execution

    def run_one(spec: Any, output: Path, **options: object) -> None:
        runs.append({"config": spec.config, "folder": str(output)})
        Execution(spec)
        raise _ComposedError

    def complete_sweep(entries: Any, folder: Path, *others: object, **options: object) -> None:
        for entry in entries:
            place = f"{folder}/{entry.folder.relative_to(folder)}"
            overrides, name = list(entry.overrides), entry.policy_entry
            runs.append({"config": entry.config, "folder": place, "overrides": overrides, "entry": name})
        raise _ComposedError

    with patch.object(cli_run, "_run_one", run_one), patch.object(cli_sweep, "complete_sweep", complete_sweep):
        yield


def _masked(text: str, folder: Path) -> str:
    """Return a text without what differs from place to place and from time to time."""
    masks = {str(folder): "FOLDER", str(Path(__file__).parents[1]): "ROOT", sys.prefix: "PREFIX"}
    for place, mask in masks.items():
        text = text.replace(place, mask)
    text = re.sub(r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d", "TIME", text)
    text = re.sub(r"must be one of basic[\w, ]*", "must be one of basic", text)  # and the installed launchers
    return re.sub(r'"\d{4}/', '"YEAR/', text)


def record(lines: list[list[str]]) -> None:
    """Record the meaning of command lines."""
    with user_folder() as folder:
        meanings = [meaning(words, folder) for words in lines]
    text = "".join(json.dumps(item, sort_keys=True) + "\n" for item in meanings)
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))


def recorded() -> list[dict[str, Any]]:
    """Return the recorded meanings."""
    lines = gzip.decompress(RECORDING.read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def differing(recordings: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the recorded and the present meaning of each command line where they differ."""
    pairs = []
    with user_folder() as folder:
        for recording in recordings:
            present = meaning(recording["words"], folder)
            if present != recording:
                pairs.append((recording, present))
    return pairs


def main_of_script() -> int:
    """Record the meaning of drawn command lines, or do what the option says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--compare", action="store_true", help="print the recorded lines that mean something else now")
    choice.add_argument("--again", action="store_true", help="record the meaning of the recorded lines anew")
    options = parser.parse_args()
    if options.compare:
        differences = differing(recorded())
        for before, now in differences:
            print(f"recorded {before}\nnow      {now}\n")
        print(f"{len(differences)} of {len(recorded())} command lines mean something else")
        return int(bool(differences))
    if options.again:
        record([recording["words"] for recording in recorded()])
    else:
        record(drawn())
    return 0


if __name__ == "__main__":
    sys.exit(main_of_script())
