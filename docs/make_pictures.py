"""Make the pictures of docs/images again, from nothing but what is shipped.

    python docs/make_pictures.py [FOLDER]

Each is made by the commands printed; runs go to a temporary folder. All come out the same again, but for `scaling.png`,
which shows wall-clock times.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from PIL import Image

from polluxsim.app.cli import main as polluxsim

RUNS = (
    "run -m policy=pollux,tiresias,optimus hydra.sweep.dir=runs",
    "run -m policy.p=1,-1,-10 seed=0,1,2 workload=philly-like workload.num_jobs=80 hydra.sweep.dir=fairness",
    "run -m policy=tiresias seed=0,1,2 workload=philly-like workload.num_jobs=80 hydra.sweep.dir=baseline",
    "run -m policy.search=exact,genetic cluster.num_nodes=16,32,64 hydra.sweep.dir=sizes",
)

PICTURES = {
    "jct-cdf": "runs",
    "jct-by-application": "runs",
    "usage": "runs",
    "job": "runs/0-policy=pollux --job imagenet-12 --job yolov3-1",
    "sweep": "fairness baseline --x policy.p",
    "throughput": "--application cifar10 --application bert --application imagenet --application ncf",
    "scaling": "sizes --width 13",
    "batch-size": "--width 13",
    "training": "--width 8.5",
}

COLOURS = 64
"""Of a picture: line art needs no more, and is a third of the size."""


def make(folder: Path) -> None:
    """Make the runs in the present folder and write the pictures."""
    for command in RUNS:
        _run(command)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, options in PICTURES.items():
        _run(f"plot {kind} {options} -o {kind}.png")
        with Image.open(f"{kind}.png") as image:
            flat = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            flat.save(folder / f"{kind}.png", optimize=True)
        print(f"{folder / kind}.png: {(folder / kind).with_suffix('.png').stat().st_size / 1000:.0f} kB")


def _run(command: str) -> None:
    print(f"$ polluxsim {command}", flush=True)
    if status := polluxsim(shlex.split(command)):
        sys.exit(status)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "images").resolve()
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        try:
            make(target)
        finally:
            os.chdir(target.parent)
