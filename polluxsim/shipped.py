"""Where the folders are that come with polluxsim: configurations, profile cards, workloads."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """Return a folder that stands at the top of a source tree, and within the package where that is installed."""
    package = Path(__file__).parent
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name
