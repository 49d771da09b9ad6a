"""Every example of the documentation runs: the blocks of a page, one after the other, in a folder of their own."""

from __future__ import annotations

import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from page_examples import BLOCK, Block, blocks, check_output

from polluxsim.cli.commands import COMMANDS, GROUPS
from polluxsim.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
ROOT = DOCS.parent
MOST_COLUMNS = 80
QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|#.*")
PAGES = sorted(path for path in DOCS.glob("*.md") if BLOCK.search(path.read_text(encoding="utf-8")))
README = ROOT / "README.md"
LONG = {"complete-policy", "sweeps", "tutorial"} | {
    f"{subject}recipes" for subject in ("", "policy-", "cluster-", "log-", "operator-")
}
"""Pages whose examples take more than 20 s together; they are in the slow tier."""

FROM_THE_WHEEL = {"README", "learners", "operators", "researchers"}
"""Pages whose examples `tests/test_wheel.py` runs in an environment without this checkout."""


def own_commands(text: str) -> list[list[str]] | None:
    """Return the arguments of each polluxsim command if a program has no others and needs no shell, else None.

    These commands run in this process, which spares a second for each.
    """
    commands = [shlex.split(line, comments=True) for line in text.replace("\\\n", "").splitlines()]
    commands = [words for words in commands if words]
    needs_shell = re.search(r"[|<>&;*?~]", QUOTED.sub("", text)) or re.search(r"[$`]", text)
    if needs_shell or any(words[0] != "polluxsim" for words in commands):
        return None
    return [words[1:] for words in commands]


def run(block: Block, namespace: dict[str, object], page: str) -> None:
    """Write a file, or run a program in the present folder."""
    if block.title:
        path = Path(block.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        # Empty lines before it, so that a traceback names the page's own line.
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
    elif (commands := own_commands(block.text)) is not None:
        printed = io.StringIO()
        for command in commands:
            with redirect_stdout(printed), redirect_stderr(printed):
                status = main(command)
            assert status == 0, f"{page}, line {block.line}:\n{' '.join(command)}\n{printed.getvalue()}"
        check_output(block, printed.getvalue(), page)
    else:
        search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PATH": search, "PYTHONPATH": paths}
        call = ["bash", "-euo", "pipefail", "-c", block.text]
        done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, f"{page}, line {block.line}:\n{block.text}{done.stdout}{done.stderr}"
        check_output(block, done.stdout, page)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow) if path.stem in LONG else path
        for path in PAGES
        if path.stem not in FROM_THE_WHEEL
    ],
    ids=lambda path: path.stem,
)
def test_the_examples_of_a_page_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = blocks(path.read_text(encoding="utf-8"))
    for block in found:
        run(block, namespace, path.name)


def test_the_examples_fit_a_page() -> None:
    """Lines do not run out of the column of text on a desktop."""
    found = [
        (path.name, line) for path in PAGES for block in blocks(path.read_text()) for line in block.text.split("\n")
    ]
    assert [(name, line) for name, line in found if len(line) > MOST_COLUMNS] == []


def test_every_command_is_run_on_some_page_and_those_of_the_readme_are_run_or_say_why_not() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in [*PAGES, README]}
    shell = {path: [block.text for block in blocks(text) if block.language == "sh"] for path, text in texts.items()}
    run_somewhere = "\n".join(itertools.chain.from_iterable(shell.values()))
    need_files_that_one_has = {"profile fit", "log calibrate", "log nodes", "paper conformance"}
    take_minutes = {"evolve init", "evolve score", "evolve search"}  # tests/evolution runs them on a small task
    first = "|".join(f"{group} \\w+" for group in GROUPS)
    named = set(re.findall(rf"^ *polluxsim ({first}|\w+)", run_somewhere, re.MULTILINE))
    assert named >= set(COMMANDS) - need_files_that_one_has - take_minutes
    assert len(shell[README]) + texts[README].count("<!-- not run: ") == texts[README].count("```sh\n")


def test_the_readme_has_at_most_120_lines_and_ten_of_any_output() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    shown = [block.output for block in blocks(text) if block.output]
    assert len(shown) == 5
    assert all(len(output.splitlines()) <= 10 for output in shown)


def test_output_is_compared_with_what_a_page_shows() -> None:
    def shows(output: str) -> bool:
        try:
            check_output(Block(1, "sh", None, "", output), "a b\nc d\ne f\n", "page")
        except AssertionError:
            return False
        return True

    assert all(map(shows, ("a b\nc d\ne f", "a b\n…\n", "…\nc d\n…", "…\ne f", "a b\n…\ne f")))
    assert not any(map(shows, ("a b\nc d", "c d\n…", "…\nc d", "e f\n…\na b", "a x\n…", "…\nx\n…")))


def test_commands_that_need_no_shell_are_found() -> None:
    assert own_commands("polluxsim size --target 'p90 < 1h' \\\n  --limit 8  # how many?\n\npolluxsim table a\n") == [
        ["size", "--target", "p90 < 1h", "--limit", "8"],
        ["table", "a"],
    ]
    for text in ("polluxsim table a > b", "cd a\npolluxsim table b", "polluxsim table $A", "polluxsim table a/*"):
        assert own_commands(text) is None


def test_a_block_is_found_run_and_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (
        '```csv title="a/b.csv"\n1\n```\n<!-- not run: why -->\n```sh\nfalse\n```\n```text\nno\n```\n'
        "```sh\ntest -f a/b.csv\n```\n```python\nx = 1\n```\n```python\nassert x == 2\n```\n```sh\nfalse\ntrue\n```\n"
    )
    found = blocks(page)
    assert [(block.line, block.language) for block in found] == [
        (2, "csv"), (12, "sh"), (15, "python"), (18, "python"), (21, "sh"),
    ]  # fmt: skip
    namespace: dict[str, object] = {}
    for block in found[:3]:
        run(block, namespace, "page")
    for block in found[3:]:
        with pytest.raises(AssertionError):
            run(block, namespace, "page")
    assert {"index", "tutorial", "recipes"} & {path.stem for path in PAGES} == {"tutorial", "recipes"}
