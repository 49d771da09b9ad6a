"""Draw the terminal pictures of the commands page: `python docs/pictures.py`, in a checkout with polluxsim installed.

Each is what a command prints, run in a temporary folder that the commands before it left, as an SVG without web fonts.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
FIXTURES = ROOT / "tests" / "traces" / "fixtures"
MEASURED = Path(os.environ.get("POLLUXSIM_DATA", ROOT.parent / "shared" / "data")) / "osdi21"
WIDTH = 104
NARROWEST = 84
FONTS = "Menlo, Consolas, DejaVu Sans Mono"

# Name of the picture, if there is to be one, the command line, and lines to keep of what it prints.
PICTURES = [
    ("run", "run hydra.run.dir=pollux", 40),
    ("", "run policy=tiresias hydra.run.dir=tiresias", 0),
    ("", "run policy=optimus hydra.run.dir=optimus", 0),
    ("table", "table pollux tiresias optimus", 40),
    ("generate", "generate workload.csv --jobs 40 --seed 1", 40),
    ("sample", "sample philly.csv sampled.csv --jobs 3 --seed 1", 40),
    ("import", "import slurm sacct.txt jobs.parquet --gpus 64 --skip-bad", 40),
    ("reproduce", "reproduce fig1", 30),
    ("map", "map jobs.parquet mapped.csv", 40),
]


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        for file in ("slurm/sacct.txt", "philly.csv"):
            shutil.copy(FIXTURES / file, folder)
        for name, command, most_lines in PICTURES:
            printed = _printed(command, Path(folder))
            if name:
                _draw(IMAGES / f"{name}.svg", command, printed.splitlines()[:most_lines])
        if MEASURED.is_dir():
            _printed(f"fit {MEASURED} cards --plot fit.png", Path(folder))
            shutil.copy(Path(folder) / "fit.png", IMAGES)


def _printed(command: str, folder: Path) -> str:
    environment = os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "polluxsim", *shlex.split(command)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    done = subprocess.run(call, cwd=folder, text=True, check=True, env=environment, **quiet)
    return done.stdout.replace(f"{folder.resolve()}/", "")


def _draw(path: Path, command: str, lines: list[str]) -> None:
    text = Text.from_ansi("\n".join(lines))
    prompt = Text(f"$ polluxsim {command}", style="bold")
    width = max(NARROWEST, *(line.cell_len + 1 for line in [*text.split(), prompt]))
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(prompt)
    console.print(text)
    svg = console.export_svg(title="", theme=MONOKAI, unique_id=path.stem)
    # Web fonts would be asked for over the network: the reader's own monospace will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", FONTS)
    path.write_text(svg.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
