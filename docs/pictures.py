"""Draw the pictures of the documentation again: `python docs/pictures.py`, in a checkout with polluxsim installed.

`terminal` are those of the commands page: what a command prints, as an SVG without web fonts. `plots` are those of the
figures page, from nothing but what is shipped. `report` is the page, as headless Chromium shows it. Commands
run in a temporary folder that those before them left. All come out the same again, but for `scaling.png`, which shows
wall-clock times. `fit.png` needs the measured profiles.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
FIXTURES = ROOT / "tests" / "logs" / "fixtures"
WIDTH = 104
NARROWEST = 84
FONTS = "Menlo, Consolas, DejaVu Sans Mono"

# Name of the picture, if there is to be one, the command line, and lines to keep of what it prints.
TERMINAL = [
    ("run", "run hydra.run.dir=pollux", 40),
    ("", "run policy=tiresias hydra.run.dir=tiresias", 0),
    ("", "run policy=optimus hydra.run.dir=optimus", 0),
    ("table", "table pollux tiresias optimus", 40),
    ("compare", "compare pollux tiresias", 40),
    ("generate", "generate workload.csv --jobs 40 --seed 1", 40),
    ("sample", "sample philly.csv sampled.csv --jobs 3 --seed 1", 40),
    ("import", "import slurm sacct.txt jobs.parquet --gpus 64 --skip-bad", 40),
    ("reproduce", "reproduce fig1", 30),
    ("map", "map jobs.parquet mapped.csv", 40),
]


RUNS = (
    "run -m policy=pollux,tiresias,optimus hydra.sweep.dir=runs",
    "run -m policy.p=1,-1,-10 seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=80 hydra.sweep.dir=fairness",
    "run -m policy=tiresias seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=80 hydra.sweep.dir=baseline",
    "run -m policy.search=annealing,genetic cluster.num_nodes=16,32,64 hydra.sweep.dir=sizes",
)

PLOTS = {
    "jct-cdf": "runs",
    "jct-by-application": "runs",
    "usage": "runs",
    "job": "runs/0-policy=pollux --job imagenet-12 --job yolov3-1",
    "fairness-cdf": "runs",
    "sweep": "fairness baseline --x policy.p",
    "throughput": "--application cifar10 --application bert --application imagenet --application ncf",
    "scaling": "sizes --width 13",
    "batch-size": "--width 13",
    "training": "--width 8.5",
}

PAGES = {
    "report-desktop": ("", "main", 1280, "light"),
    "report-phone": ("", "main", 390, "light"),
    "report-timeline": ("", "#occupancy .card", 1280, "light"),
    "report-dark": ("", "#occupancy .card", 1280, "dark"),
    "report-job": ("#job/0/imagenet-12", "main", 1280, "light"),
}
"""Place and part of the report, the width of the window [px], and the scheme that is preferred."""

MOST_HEIGHT = 1300
"""Of a picture of a page [px]."""

COLOURS = 64
"""Of a plot: line art needs no more, and is a third of the size."""


def main() -> None:
    """Draw the pictures that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="terminal, plots, report (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=IMAGES, help="folder to write to (default: docs/images)")
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA"), help="folder with osdi21 in it")
    options = parser.parse_args()
    if wrong := set(options.kinds) - {"terminal", "plots", "report"}:
        parser.error(f"KIND is {wrong.pop()}, allowed are terminal, plots, report")
    options.output.mkdir(parents=True, exist_ok=True)
    kinds = options.kinds or ("terminal", "plots", "report")
    with tempfile.TemporaryDirectory() as folder:
        if "terminal" in kinds:
            draw_terminal(Path(folder), options.output, options.data)
        if "plots" in kinds:
            draw_plots(Path(folder), options.output)
        if "report" in kinds:
            draw_report(Path(folder), options.output)


def draw_terminal(folder: Path, output: Path, data: Path | None) -> None:
    """Draw what commands print, and cards against measurements where these are."""
    for file in ("slurm/sacct.txt", "philly.csv"):
        shutil.copy(FIXTURES / file, folder)
    for name, command, most_lines in TERMINAL:
        printed = _printed(command, folder)
        if name:
            _draw(output / f"{name}.svg", command, printed.splitlines()[:most_lines])
    if data is None:
        print("fit.png is left as it is: give --data or POLLUXSIM_DATA for it", file=sys.stderr)
        return
    _printed(f"fit {shlex.quote(str(data.resolve() / 'osdi21'))} cards --plot fit.png", folder)
    shutil.copy(folder / "fit.png", output)


def draw_plots(folder: Path, output: Path) -> None:
    """Make the runs and plot them."""
    for command in RUNS:
        _printed(command, folder)
    for kind, options in PLOTS.items():
        _printed(f"plot {kind} {options} -o {kind}.png", folder)
        with Image.open(folder / f"{kind}.png") as image:
            _save_flat(image, output / f"{kind}.png")


def draw_report(folder: Path, output: Path) -> None:
    """Make a report of three runs, and take pictures of it in headless Chromium."""
    _printed("run -m policy=pollux,tiresias,optimus hydra.sweep.dir=reported", folder)
    _printed("report reported -o report.html", folder)
    options = ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    browser = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        for name, (place, part, width, scheme) in PAGES.items():
            shot = _shot(browser, (folder / "report.html").as_uri() + place, part, width, scheme)
            with Image.open(io.BytesIO(shot)) as image:
                _save_flat(image, output / f"{name}.png")
    finally:
        browser.quit()


def _shot(browser: Any, address: str, part: str, width: int, scheme: str) -> bytes:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
    browser.get("about:blank")
    browser.get(address)
    ready = "return document.documentElement.dataset.ready === 'true'"
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(ready))
    box = "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    x, y, wide, high = browser.execute_script(f"scrollTo(0, 0); {box}", part)
    clip = {"x": x, "y": y, "width": wide, "height": min(high, MOST_HEIGHT), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    return b64decode(taken["data"])


def _save_flat(image: Image.Image, path: Path) -> None:
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _printed(command: str, folder: Path) -> str:
    print(f"$ polluxsim {command}", flush=True)
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
