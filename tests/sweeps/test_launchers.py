"""Whoever does the runs of a sweep: the same bytes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from small_sweeps import process, results, write_inputs

from polluxsim.records.storage import RUN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    inputs = write_inputs(tmp_path_factory.mktemp("inputs"))
    return ["-m", "policy=pollux,fifo", "seed=1,2", *inputs.overrides]


@pytest.fixture(scope="module")
def expected(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("one_process")
    done = process(*arguments, f"hydra.sweep.dir={folder}", "hydra.sweeper.workers=1")
    assert done.returncode == 0, done.stderr
    assert len(results(folder)) == 4 * (len(RUN_FILES) - 1) + 1  # but the timing, and the table
    return results(folder)


def test_two_processes_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: dict[str, bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = process(*arguments, "hydra.sweeper.workers=2", "hydra.sweep.dir=out")
    assert done.returncode == 0, done.stderr
    assert "differ in their seed and in no result" in done.stderr
    assert done.stderr.count("\n") == 1
    assert results(tmp_path / "out") == expected


def test_a_run_that_fails_is_named_and_the_others_have_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: dict[str, bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    fails = write_failing_policy(tmp_path)
    done = process(*arguments, "hydra/launcher=submitit_local", *fails, "seed=1", "hydra.sweep.dir=out")
    assert done.returncode == 2
    assert done.stderr.startswith("polluxsim: policy=fails seed=1 ")
    assert "ValueError: no decision" in done.stderr
    assert done.stderr.count("\n") == 1
    made = _runs(results(tmp_path / "out"))
    assert len(made) == len(RUN_FILES) - 1
    assert made == {name: content for name, content in _runs(expected).items() if name in made}


def write_failing_policy(folder: Path) -> list[str]:
    """Write a policy that fails at its first decision, and return the overrides of a sweep over it and FIFO."""
    (folder / "conf" / "policy").mkdir(parents=True)
    (folder / "conf" / "policy" / "fails.yaml").write_text("_target_: fails.Fails\n")
    (folder / "fails.py").write_text(
        "class Fails:\n    def allocate(self, view, rng):\n        raise ValueError('no decision')\n"
    )
    return ["--config-dir", "conf", "policy=fails,fifo"]


def _runs(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of runs by what was set for each, without its number."""
    return {name.split("-", 1)[1]: content for name, content in files.items() if "/" in name}


@pytest.fixture
def ray_cluster() -> Iterator[str]:
    """Start a Ray head that does no runs, and a worker node that does; give the head's address."""
    script = (
        "from ray.cluster_utils import Cluster\n"
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 0, 'include_dashboard': False})\n"
        "cluster.add_node(num_cpus=2)\n"
        "cluster.wait_for_nodes()\n"
        "print('address', cluster.address, flush=True)\n"
        "input()\n"
        "cluster.shutdown()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = ""
        for line in cluster.stdout:
            if line.startswith("address"):
                address = line.split()[1]
                break
        assert address
        yield address
        cluster.stdin.write("\n")
        cluster.stdin.flush()
        cluster.wait(60)


def test_a_ray_cluster_gives_the_same_bytes_and_names_a_run_that_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ray_cluster: str,
    arguments: list[str],
    expected: dict[str, bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={ray_cluster}"]
    done = process(*arguments, "seed=2", *where, "hydra.sweep.dir=whole")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "whole" / "sweep.parquet").is_file()
    made = _runs(results(tmp_path / "whole"))
    done = process(*arguments, *write_failing_policy(tmp_path), "seed=1", *where, "hydra.sweep.dir=out")
    assert done.returncode == 2
    assert done.stderr.startswith("polluxsim: policy=fails seed=1 "), done.stderr
    made |= _runs(results(tmp_path / "out"))
    assert len(made) == 3 * (len(RUN_FILES) - 1)
    assert made == {name: content for name, content in _runs(expected).items() if name in made}
