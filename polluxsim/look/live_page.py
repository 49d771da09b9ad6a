"""A page with an answer that is written again and again. An open page shows the new content by itself."""

from __future__ import annotations

from html import escape
from pathlib import Path

from polluxsim import __version__
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.look.sheets import Block, Sheet
from polluxsim.look.tables import Lines

EVERY = 15  # time after which an open page loads itself again [s]

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color-scheme:light dark}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto;margin:1em 0}"
    "th,td{padding:3px 12px;text-align:right;white-space:nowrap;border-bottom:1px solid #8884}"
    "th:first-child,td:first-child{text-align:left}caption{text-align:left;font-weight:600}p{margin:.3em 0}"
)


def check_page(path: Path) -> None:
    """Raise InvalidConfigError if the name of a page does not end in .html."""
    if path.suffix != ".html":
        raise InvalidConfigError(f"-o {path}: the file is a page, so its name must end in .html")


def write_page(sheet: Sheet, title: str, path: Path) -> None:
    """Write an answer as one HTML file that needs no other file, whole or not at all."""
    parts = []
    for part in sheet.parts:
        parts.append(_table(part) if isinstance(part, Block) else f"<p>{escape(part)}</p>")
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{EVERY}">'
        f'<meta name="viewport" content="width=device-width"><meta name="generator" content="polluxsim {__version__}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main><h1>{escape(title)}</h1>\n"
    )
    text = page + "\n".join(parts) + "\n</main></body></html>\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written ({error.strerror or error}); choose another file") from None


def _table(block: Block) -> str:
    """Return a table in HTML."""
    head, *rows = block.lines
    caption = f"<caption>{escape(block.title)}</caption>" if block.title else ""
    return f"<table>{caption}<thead>{_rows([head], 'th')}</thead><tbody>{_rows(rows, 'td')}</tbody></table>"


def _rows(lines: Lines, cell: str) -> str:
    """Return rows of a table in HTML."""
    rows = []
    for line in lines:
        rows.append("<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in line) + "</tr>")
    return "\n".join(rows)
