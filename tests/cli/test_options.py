"""An option takes effect, or the command refuses it with an error that names it. Output is complete and clean."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from polluxsim.cli.commands import COMMANDS, Parser, parser_of, statuses
from polluxsim.cli.main import main, parsed
from polluxsim.cli.options import OPTIONS, SHORT
from polluxsim.cli.run import parser_of_run
from polluxsim.common.files import lock
from polluxsim.statistics.frames import runs_at
from polluxsim.studies.driver import LOCK, locked

LOG = "submitted,GPUs,seconds\n0,1,60\n"
RUN = ["workload=philly-like", "workload.num_jobs=3", "workload.hours=1", "policy=fifo"]


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *RUN, "hydra.run.dir=run"]) == 0
    capsys.readouterr()
    return tmp_path / "run"


@pytest.mark.parametrize(
    "option",
    [["--seeds", "2"], ["--drop-node", "1"], ["--without", "a"], ["--add", "nowhere.csv"], ["--at", "3h"],
     ["--allow-classes", "mine"]],
)  # fmt: skip
def test_a_what_if_of_a_log_refuses_options_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    assert main(["log", "whatif", "log.csv", "--nodes", "2", *option]) == 2
    error = capsys.readouterr().err
    assert f"there is no option {option[0]} in 'polluxsim log whatif'; 'polluxsim " in error
    assert error.rstrip().endswith("' has it ('polluxsim log whatif --help' says more)")


@pytest.mark.parametrize("more", [[], ["--drop-node", "1"]])
def test_a_what_if_of_a_run_refuses_options_of_logs(
    run: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert main(["whatif", "run", "--at", "10min", "--policy", "tiresias", *more]) == 2
    error = capsys.readouterr().err
    assert "no option --policy; write policy=VALUE ('polluxsim whatif --help' says more)" in error
    assert main(["whatif", "run", "--at", "10min", "--failures", "off", *more]) == 2
    assert "no option --failures in 'polluxsim whatif'; 'polluxsim log whatif' has it" in capsys.readouterr().err


def test_equal_runs_of_two_sweeps_count_once(run: Path, tmp_path: Path) -> None:
    for copy in ("a/0", "b/0"):
        copytree(run, tmp_path / copy)
    assert main(["run", *RUN, "seed=1", "hydra.run.dir=b/1"]) == 0
    assert [found.info["seed"] for found in runs_at([tmp_path / "a", tmp_path / "b"])] == [0, 1]
    assert len(runs_at([tmp_path / "a/0", tmp_path / "b/0"])) == 2


def test_names_of_jobs_are_not_read_as_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{name},{time},cifar10,1,128\n" for time, name in enumerate(("[/b]x", "train[resnet]", "c")))
    Path("jobs.csv").write_text(f"name,time,application,num_replicas,batch_size\n{rows}")
    assert main(["run", "policy=fifo", "workload.path=jobs.csv", "hydra.run.dir=run"]) == 0
    capsys.readouterr()
    assert main(["when", "run", "--at", "120", "--forks", "2"]) == 0
    printed = capsys.readouterr().out
    assert "[/b]x" in printed
    assert "train[resnet]" in printed


def test_a_check_removes_its_progress_line_and_keeps_standard_output_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("class Bad:\n    def allocate(self, view, rng):\n        raise ValueError('bad')\n")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["check", "bad.py:Bad", "--worlds", "21"]) == 1
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\r" not in printed
    assert "world 20 of 21" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_table_is_printed_whatever_the_encoding(run: Path) -> None:
    for encoding in ("latin-1", "ascii"):
        done = subprocess.run(
            [sys.executable, "-m", "polluxsim", "table", str(run)],
            env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert "\\u03c1" in done.stdout


def test_an_arena_changes_nothing_while_another_one_runs_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gives_nothing.py").write_text("class Mine:\n    def allocate(self, view, rng):\n        return {}\n")
    runs = Path("arena/runs")
    runs.mkdir(parents=True)
    with (runs / LOCK).open("a") as file:
        lock(file)
        assert main(["arena", "--policies", "gives_nothing.py:Mine", "--scenarios", "rigid", "--seeds", "1"]) == 2
    assert "another sweep is at work here" in capsys.readouterr().err
    assert sorted(path.name for path in Path("arena").rglob("*")) == [LOCK, "runs"]


def test_a_lock_can_be_taken_again_inside_its_own_block(tmp_path: Path) -> None:
    with locked(tmp_path), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def parsers() -> dict[str, Parser]:
    """Return the parser of every command, and of every kind of figure."""
    found = {name: parser_of(name) for name in COMMANDS if name != "run"}
    kinds = next(action for action in found["plot"]._actions if isinstance(action.choices, dict)).choices
    assert isinstance(kinds, dict)
    return found | {f"plot {kind}": parser for kind, parser in kinds.items()}


PARSERS = parsers()

OF_HYDRA = ("multirun", "config_dir", "config_name", "cfg", "package", "resolve")
"""Options of `run` that Hydra describes."""


def options_of(name: str) -> dict[str, argparse.Action]:
    """Return the options of a command by their long names, besides --help."""
    parser = parser_of_run() if name == "run" else PARSERS[name]
    named = {
        action.option_strings[-1]: action
        for action in parser._actions
        if action.option_strings and not (name == "run" and action.dest in OF_HYDRA)
    }
    return {name: action for name, action in named.items() if name not in ("--help", "--no-heartbeat")} | (
        {"--heartbeat": action} if (action := named.get("--no-heartbeat")) else {}
    )


@pytest.mark.parametrize("command", ["run", *PARSERS])
def test_an_option_has_one_name_meaning_type_and_unit_in_every_command(command: str) -> None:
    for name, action in options_of(command).items():
        option = OPTIONS[name.removeprefix("--")]
        assert (action.help or "").startswith(option.meaning.replace("%", "%%"))
        assert action.metavar == option.value
        assert action.type is (None if option.value is None else option.kind)
        names = [name, *([SHORT[name[2:]]] if name[2:] in SHORT else []), *["--no-heartbeat"] * (name == "--heartbeat")]
        assert sorted(action.option_strings) == sorted(names)


def test_every_option_is_an_option_of_some_command() -> None:
    taken = {name.removeprefix("--") for command in ("run", *PARSERS) for name in options_of(command)}
    assert taken == set(OPTIONS)


@pytest.mark.parametrize("command", ["run", *PARSERS])
def test_no_option_is_greedy(command: str) -> None:
    assert {action.nargs for action in options_of(command).values()} <= {None, 0}


def test_units_are_those_of_the_types() -> None:
    """A time or a duration has its unit in its value, other units stand in the meaning."""
    for name, option in OPTIONS.items():
        if option.value == "DURATION":
            assert option.kind("90min") == 5400
        with_time = {
            "at", "bin", "start", "split", "duration", "min-duration", "decision-timeout", "from", "to", "for",
            "time-limit", "time",
        }  # fmt: skip
        assert (option.value in ("DURATION", "TIME")) == (name in with_time)


def test_a_window_that_is_too_short_is_told_in_the_user_s_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "usage", "run", "--bin", "30s"]) == 2
    assert "--bin is 30s, must be at least 1min" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_states_its_exit_statuses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status: object = 0
    try:
        status = main([*command.split(), "--help"])
    except SystemExit as ended:
        status = ended.code
    assert status in (None, 0)
    printed = " ".join(capsys.readouterr().out.split())
    assert statuses(COMMANDS[command]) in printed


@pytest.mark.parametrize(
    ("words", "usual"),
    [("report a -o x.html b", "report a b -o x.html"), ("table a --csv b", "table a b --csv"),
     ("plot jct-cdf a -o x.png b c", "plot jct-cdf a b c -o x.png"), ("when a --at 1h j", "when a j --at 1h"),
     ("whatif a policy=fifo --at 1h policy.backfill=true", "whatif a policy=fifo policy.backfill=true --at 1h"),
     ("paper reproduce fig1 --seeds 2 fig2", "paper reproduce fig1 fig2 --seeds 2")],
)  # fmt: skip
def test_arguments_may_follow_options(words: str, usual: str) -> None:
    assert vars(parsed(words.split())) == vars(parsed(usual.split()))


def test_the_output_of_a_run_is_named_as_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *RUN, "-o", "it's here"]) == 0
    assert main(["run", "-m", *RUN, "seed=0,1", "--output=swept", "--workers", "1"]) == 0
    assert Path("it's here/run.json").is_file()
    assert len(list(Path("swept").glob("*/run.json"))) == 2
    capsys.readouterr()
    for words in (["-o", "a", "hydra.run.dir=b"], ["-o"], ["--workers", "0"], ["-o", ""]):
        assert main(["run", *RUN, *words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("polluxsim: run: ")
        assert words[0] in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it's here", "swept"]


@pytest.mark.parametrize(
    "words", [["table", "run"], ["table", "run", "--csv"], ["--help"], ["log", "import", "--help"]]
)
def test_a_closed_pipe_is_no_answer_and_no_traceback(run: Path, words: list[str]) -> None:
    """The reader has gone before the command prints."""
    assert run.is_dir()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "polluxsim", *words]
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode in ((0, 141) if "--help" in words[1:] else (141,))


def test_a_defect_has_a_traceback_and_a_status_of_its_own(tmp_path: Path) -> None:
    code = "import polluxsim.cli.main as m; m.main = lambda: 1 / 0; from polluxsim.__main__ import main; exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr
