"""The fair-share factors of users, as `sshare --parsable2` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

Shares = Mapping[tuple[str, str], float]  # fair-share factors by account and user


def fair_shares_of(text: str) -> tuple[Shares, int]:
    r"""Return the fair-share factors in an output of sshare, and the number of lines that cannot be read.

    >>> fair_shares_of("Account|User|FairShare\nroot||\n physics|ada|0.25\n physics|bob|?")
    ({('physics', 'ada'): 0.25}, 1)
    """
    lines = text.splitlines()
    if not lines:
        return {}, 0
    columns = lines[0].split("|")
    if not {"Account", "User", "FairShare"} <= set(columns):
        return {}, len(lines)
    shares = {}
    num_bad = 0
    for line in lines[1:]:
        values = dict(zip(columns, line.split("|"), strict=False))
        user = values.get("User", "").strip()
        if not user:
            continue  # a line of an account
        try:
            factor = float(values.get("FairShare", ""))
        except ValueError:
            factor = float("nan")
        if isfinite(factor):
            shares[values["Account"].strip(), user] = factor
        else:
            num_bad += 1
    return shares, num_bad
