"""Where machine code is kept, and that the results do not hang on the processor that made it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

import polluxsim
from polluxsim.common import compiling, kernels
from polluxsim.common.files import lock
from polluxsim.models import fitting, goodput
from polluxsim.models.lbfgsb import dot
from polluxsim.policies.pollux import local_search

PACKAGE = Path(polluxsim.__file__).parent
WIDEST = [name for name in __cpu_dispatch__ if "AVX512" in name or name == "X86_V4"]
AVX2 = [name for name in __cpu_dispatch__ if name in {"X86_V3", "AVX2", "FMA3"}]
TABLES = ("jobs", "rounds", "allocations", "reasons")

CALLS = """
import polluxsim.common.kernels
from polluxsim.models.goodput import GoodputModel
from polluxsim.models.profile import Application
from polluxsim.models.throughput import ThroughputParams
from polluxsim.models.efficiency import GradientStatistics
model = GoodputModel(Application("a", 10, 100, 1, 50, 1), ThroughputParams(0.1, 0.01, 0.3, 0.02, 0.1, 0.01, 1.5),
                     GradientStatistics(1.0, 20.0))
print(polluxsim.common.kernels.__file__, model.best(1, 4)[0])
"""


def python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | variables
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )


def total(numbers: object) -> float:
    result = 0.0
    for number in numbers:
        result += number
    return result


def test_one_process_compiles_a_kernel_and_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(kernels, "code_folder", lambda: tmp_path)
    monkeypatch.setattr(kernels, "PATIENCE", 0.1)
    monkeypatch.setattr(kernels._announcement, "say", lambda: said.append("compiling"))
    with (tmp_path / f"{__name__}.lock").open("a") as other:  # of another process
        fcntl.flock(other, fcntl.LOCK_EX)
        compiled = kernels.kernel(total)
        thread = threading.Thread(target=compiled, args=(np.ones(3),))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert said == ["compiling"]
        assert not compiled.overloads
    thread.join()
    assert compiled(np.ones(3)) == 3.0
    assert len(compiled.overloads) == 1


@pytest.mark.parametrize("module", ["common.kernels", "policies.pollux.genetic", "policies.pollux.rows"])
def test_the_vector_library_of_intel_is_disabled_before_numba_is_imported(module: str) -> None:
    code = f"import polluxsim.{module}; from numba.core import config; print(config.DISABLE_INTEL_SVML)"
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_INTEL_SVML"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() in ("1", "True")


@pytest.mark.slow
def test_a_kernel_follows_what_it_calls_in_another_file(tmp_path: Path) -> None:
    """`GoodputModel.best` is compiled in one file; the step time that it calls is in another."""
    copy = tmp_path / "polluxsim"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def goodput() -> tuple[float, str]:
        done = python(tmp_path, "-c", CALLS, PYTHONPATH=str(tmp_path))
        file, value = done.stdout.split()
        assert Path(file).parents[1] == copy
        return float(value), done.stderr

    first, said = goodput()
    assert said.count("compiling kernels") == 1
    assert len(said.splitlines()) == 1
    assert goodput() == (first, "")  # kept: nothing is compiled
    callee = copy / "models" / "throughput.py"
    text = callee.read_text()
    assert text.count("= accumulation_steps * grad +") == 1
    callee.write_text(text.replace("= accumulation_steps * grad +", "= 1.0 + accumulation_steps * grad +"))
    changed, said = goodput()
    assert changed < first
    assert "compiling kernels" in said
    assert len(list((copy / "__pycache__").glob("kernels-*"))) == 1  # the old machine code is gone


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_machine_code_is_kept_elsewhere_where_the_package_cannot_have_it(tmp_path: Path, variable: str) -> None:
    copy, place = tmp_path / "polluxsim", tmp_path / "elsewhere"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if variable == "XDG_CACHE_HOME":  # a file in place of the folder, which nobody, root included, can write into
        (copy / "__pycache__").write_text("")
    python(tmp_path, "-c", CALLS, PYTHONPATH=str(tmp_path), **{variable: str(place)})
    assert list(place.glob("polluxsim-*/kernels-*/**/*.nbc"))


def run_hashes(folder: Path, *settings: str, **variables: str) -> dict[str, str]:
    """Return the digests of a run's tables."""
    python(folder, "-m", "polluxsim", "run", *settings, f"hydra.run.dir={folder}", **variables)
    return {name: hashlib.sha256((folder / f"{name}.parquet").read_bytes()).hexdigest() for name in TABLES}


SEARCHES = ("annealing", "genetic")
FEW = ("workload=philly-like", "workload.num_jobs=8", "workload.hours=1", "engine.horizon=7200")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return {search: run_hashes(tmp_path_factory.mktemp(search), f"policy.search={search}", *FEW) for search in SEARCHES}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("features", [WIDEST, [*AVX2, *WIDEST]], ids=["without AVX-512", "without AVX2"])
def test_results_do_not_hang_on_the_vectors_of_numpy(
    tmp_path: Path, plain: dict[str, dict[str, str]], search: str, features: list[str]
) -> None:
    present = [name for name in features if __cpu_features__.get(name)]
    if not present:
        pytest.skip(f"NumPy uses none of {', '.join(features) or 'the wider vectors'} on this processor")
    variables = {"NPY_DISABLE_CPU_FEATURES": " ".join(present)}
    question = "import json; from numpy._core._multiarray_umath import __cpu_features__ as f; print(json.dumps(f))"
    seen = json.loads(python(tmp_path, "-W", "ignore", "-c", question, **variables).stdout)
    assert not any(seen[name] for name in present)
    assert run_hashes(tmp_path, f"policy.search={search}", *FEW, **variables) == plain[search]


@pytest.mark.slow
def test_results_do_not_hang_on_the_number_of_threads(tmp_path: Path, plain: dict[str, dict[str, str]]) -> None:
    run = run_hashes(tmp_path, "policy.search=genetic", "policy.threads=2", *FEW)
    assert run == plain["genetic"]


def test_a_helper_says_that_python_cannot_call_it() -> None:
    with pytest.raises(TypeError, match="dot is for kernels to call"):
        dot(np.ones(2), np.ones(2))


@pytest.mark.parametrize(
    ("module", "compiled"),
    [
        (
            "polluxsim.models.fitting",
            [fitting.minimise, goodput.best_choice, goodput.candidate_times, goodput.largest_goodputs],
        ),
        (
            "polluxsim.policies.pollux.annealing",
            [local_search.construct, local_search.stand_still, local_search.fill, local_search.anneal],
        ),
    ],
)
def test_a_run_needs_the_machine_code_that_is_compiled_ahead(module: str, compiled: list[Any]) -> None:
    import_module(module).warm_up()
    before = [list(kernel.signatures) for kernel in compiled]
    polluxsim.simulate(polluxsim.workload("philly-like", num_jobs=12), policy="pollux", progress=False)
    assert [list(kernel.signatures) for kernel in compiled] == before
    assert all(len(kernel.signatures) == 1 for kernel in compiled)


def test_a_process_does_not_wait_for_its_own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "code_folder", lambda: tmp_path)
    with (
        kernels.one_process("module"),
        kernels.one_process("module"),
        (tmp_path / "module.lock").open() as file,
        pytest.raises(BlockingIOError),
    ):
        lock(file)
    with (tmp_path / "module.lock").open() as file:
        lock(file)


def test_a_folder_that_another_process_removed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "code_folder", lambda: tmp_path / "removed")
    with kernels.one_process("module"):
        assert (tmp_path / "removed" / "module.lock").is_file()


def wait_for_compiling() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("compile "):
            thread.join(timeout=60)


def test_an_error_of_the_process_that_compiles_ahead_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "code_folder", lambda: tmp_path)
    monkeypatch.setattr(kernels, "announce", lambda: None)
    compiling.compile_ahead(["polluxsim.no_such_module"])
    wait_for_compiling()
    error = "ModuleNotFoundError: No module named 'polluxsim.no_such_module'"
    assert capsys.readouterr().err == (
        f"polluxsim: the kernels of polluxsim.no_such_module could not be compiled ahead ({error}); "
        "the run compiles them when it needs them\n"
    )


def test_kernels_are_compiled_ahead_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    done = subprocess.CompletedProcess([], 0, stderr="")
    monkeypatch.setattr(kernels, "code_folder", lambda: tmp_path)
    monkeypatch.setattr(kernels, "announce", lambda: None)
    monkeypatch.setattr(compiling.subprocess, "run", lambda command, **_: commands.append(command) or done)
    (tmp_path / "known").touch()
    compiling.compile_ahead(["known", "new"])
    wait_for_compiling()
    assert commands == [[sys.executable, "-m", "polluxsim.common.compiling", "new"]]
    monkeypatch.setattr(compiling, "import_module", lambda name: SimpleNamespace(warm_up=lambda: None))
    monkeypatch.setattr(sys, "argv", ["compiling", "new"])
    compiling.main()
    commands.clear()
    compiling.compile_ahead(["known", "new"])
    assert commands == []
