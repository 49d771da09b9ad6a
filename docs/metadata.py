"""Write the metadata of the package: for archives of software, and for conda.

    python docs/metadata.py

The version is stated in `polluxsim/__init__.py` only, names and libraries in `pyproject.toml`, authors and references
in `CITATION.cff`. This script puts the version into `CITATION.cff`, and writes `codemeta.json`, `.zenodo.json` and
`recipe/meta.yaml`. `tests/test_metadata.py` fails if a file differs from the output of this script.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from cffconvert import Citation
from packaging.requirements import Requirement

from polluxsim import __version__

ROOT = Path(__file__).parents[1]

CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # packages with another name in conda-forge; the base has no windows

CONDA_COMMANDS = (
    "polluxsim --version",
    "polluxsim run policy=fifo engine.horizon=3600 -o tested",
    "polluxsim table tested",
)


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def citation() -> str:
    """Return CITATION.cff with the present version."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return re.sub(r"^version: .*$", f"version: {__version__}", text, flags=re.MULTILINE)


def codemeta() -> str:
    """Return codemeta.json, which describes the software to catalogues."""
    described = project()
    content = json.loads(Citation(citation()).as_codemeta())
    content |= {
        "description": described["description"],
        "developmentStatus": "active",
        "operatingSystem": "POSIX",
        "programmingLanguage": "Python",
        "readme": "README.md",
        "runtimePlatform": f"Python {described['requires-python']}",
        "softwareRequirements": described["dependencies"],
    }
    return _as_json(content)


def zenodo() -> str:
    """Return .zenodo.json, which describes the software to the archive Zenodo."""
    content = json.loads(Citation(citation()).as_zenodo())
    content |= {"description": project()["description"], "upload_type": "software", "access_right": "open"}
    return _as_json(content)


def recipe() -> str:
    """Return the recipe of conda, which builds the package from the archive of its sources."""
    described = project()
    python = f"python {described['requires-python']}"
    content = {
        "package": {"name": described["name"], "version": __version__},
        "source": {"path": ".."},
        "build": {
            "noarch": "python",
            "number": 0,
            "script": "{{ PYTHON }} -m pip install . --no-deps --no-build-isolation -vv",
            "entry_points": [f"{name} = {target}" for name, target in described["scripts"].items()],
        },
        "requirements": {
            "host": [python, "pip", *_build_requirements()],
            "run": [python, *map(_as_conda, described["dependencies"])],
        },
        "test": {"imports": ["polluxsim"], "commands": list(CONDA_COMMANDS)},
        "about": {
            "summary": described["description"],
            "license": described["license"],
            "license_file": described["license-files"],
        },
    }
    text: str = yaml.safe_dump(content, sort_keys=False, width=120)
    return f"# Written by docs/metadata.py from pyproject.toml.\n{text}"


def _build_requirements() -> list[str]:
    build: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    return [_as_conda(requirement) for requirement in build["requires"]]


def _as_conda(requirement: str) -> str:
    """Return a requirement as conda writes it.

    >>> _as_conda("hydra-core>=1.3.8,<1.4"), _as_conda("matplotlib>=3.9")
    ('hydra-core >=1.3.8,<1.4', 'matplotlib-base >=3.9')
    """
    parsed = Requirement(requirement)
    name = CONDA_NAMES.get(parsed.name, parsed.name).lower()
    limits = sorted(str(limit) for limit in parsed.specifier)
    return f"{name} {','.join(reversed(limits))}"


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def files() -> dict[str, str]:
    """Return the content of each file that this script writes, by its path from the root of the repository."""
    return {
        "CITATION.cff": citation(),
        "codemeta.json": codemeta(),
        ".zenodo.json": zenodo(),
        "recipe/meta.yaml": recipe(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(f"wrote {path}")
