"""What is published works where nothing of the checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from page_examples import blocks, check_output

ROOT = Path(__file__).parents[1]

PAGES = ("README.md", "docs/researchers.md", "docs/operators.md", "docs/learners.md")


def done(*command: object, cwd: Path, **more: str) -> str:
    """Return what a command prints, without the paths that lead to the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    words = [str(word) for word in command]
    completed = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment in which polluxsim is installed from its published archives.

    The wheel is built from the archive of the sources. Only the libraries that polluxsim needs are borrowed from here.
    """
    hatchling = pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    folder = tmp_path_factory.mktemp("published")
    libraries = str(Path(hatchling.__file__).parents[1])
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    done(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sources,) = folder.glob("polluxsim-*.tar.gz")
    build = ("wheel", sources, "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    done(*pip, *build, cwd=folder, PYTHONPATH=libraries)
    (wheel,) = folder.glob("polluxsim-*.whl")
    environment = folder / "env"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    done(*pip, "--python", python, "install", wheel, "--no-deps", "--no-index", cwd=folder)
    (own,) = (environment / "lib").glob("python*/site-packages")
    # Lines of this file are looked in last, and .pth files in those places, like that of the checkout, do not count.
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (own / "borrowed.pth").write_text("\n".join(borrowed))
    assert done(python, "-c", "import polluxsim; print(polluxsim.__file__)", cwd=folder).startswith(str(own))
    return environment / "bin"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_first_page_run(page: str, programs: Path, tmp_path: Path) -> None:
    search = os.pathsep.join([str(programs), os.environ["PATH"]])
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.title:
            path = tmp_path / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        else:
            assert block.language == "sh", f"{page}, line {block.line}: only programs of a shell run here"
            printed = done("bash", "-euo", "pipefail", "-c", block.text, cwd=tmp_path, PATH=search)
            check_output(block, printed, page)


@pytest.mark.slow
def test_the_published_numbers_are_in_the_wheel(programs: Path, tmp_path: Path) -> None:
    assert "fig8a" in done(programs / "polluxsim", "paper", "reproduce", "list", cwd=tmp_path)
