"""The fair-share factor of users, with accounts below accounts: fair tree, and the classic formula.

Fair tree ranks the users depth-first: of siblings, the one with the larger level goes first. The level is the part of
the shares among the siblings, over the part of their usage. The factor is the rank over the number of users, where the
first user has the highest rank. Equal users have one rank, users go before equal accounts, and the children of equal
accounts are sorted together.

The classic factor is 2^(−U/(S·d)). S is the product of the parts of the shares on the path to the user, d the
dampening, and U the effective usage: of an account below the root, its part A of all usage; below another account with
the effective usage P, A + (P − A) · the part of the shares among the siblings.

(Specification, "priority/multifactor"; Slurm's "Fair Tree Fairshare Algorithm" and "Classic Fairshare Algorithm".)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from polluxsim.policies.slurm.accounts import Accounts


class Association(NamedTuple):
    """A user, or an account with what is below it."""

    name: str
    shares: int
    usage: float  # of a user, or the sum of all users below
    children: tuple[Association, ...] = ()
    is_user: bool = True


def associations(accounts: Accounts, usage: Mapping[str, float]) -> tuple[Association, ...]:
    """Return what is directly below the root: accounts, and users without an account, who have one share each.

    Parameters
    ----------
    usage
        Usage of users by name; 0 for users of accounts without an entry.
    """
    below_root = _below("", accounts, usage)
    without = [user for user in usage if not accounts.of_user(user)]
    return (*below_root, *(Association(user, 1, usage[user]) for user in without))


def _below(account: str, accounts: Accounts, usage: Mapping[str, float]) -> tuple[Association, ...]:
    """Return the accounts and users directly below an account."""
    children: list[Association] = []
    for name in accounts.children(account):
        below = _below(name, accounts, usage)
        used = sum(child.usage for child in below)
        children.append(Association(name, accounts.by_name[name].shares, used, below, is_user=False))
    if account:
        for user, shares in accounts.by_name[account].users.items():
            # A user of several accounts counts in one of them.
            if accounts.of_user(user) == account:
                children.append(Association(user, shares, usage.get(user, 0.0)))
    return tuple(children)


def fair_tree(below_root: Sequence[Association]) -> dict[str, float]:
    """Return the factor of each user by fair tree.

    >>> fair_tree([Association("ada", 1, 30.0), Association("bob", 1, 0.0), Association("eve", 2, 30.0)])
    {'bob': 1.0, 'eve': 0.6666666666666666, 'ada': 0.3333333333333333}
    """
    ranking = _Ranking(_num_users(below_root))
    ranking.visit(_with_levels(below_root), is_tied=False)
    return ranking.factors


def _num_users(siblings: Sequence[Association]) -> int:
    """Return the number of users among associations and below them."""
    return sum(1 if sibling.is_user else _num_users(sibling.children) for sibling in siblings)


def _with_levels(siblings: Sequence[Association]) -> list[tuple[float, Association]]:
    """Return siblings with their levels. No shares give the level 0, and shares without usage ∞."""
    all_shares = sum(sibling.shares for sibling in siblings)
    all_used = sum(sibling.usage for sibling in siblings)
    levels = []
    for sibling in siblings:
        if not sibling.shares:
            level = 0.0
        elif not sibling.usage:
            level = inf
        else:
            level = (sibling.shares / all_shares) / (sibling.usage / all_used)
        levels.append((level, sibling))
    return levels


class _Ranking:
    """The ranks that are given so far."""

    def __init__(self, num_users: int) -> None:
        self._num_users = num_users
        self._next_rank = num_users
        self._rank = num_users  # of the last user
        self.factors: dict[str, float] = {}

    def visit(self, siblings: Sequence[tuple[float, Association]], *, is_tied: bool) -> None:
        """Rank the users among siblings and below them; `is_tied` tells that the first one equals the last user."""
        order = sorted(siblings, key=lambda entry: (-entry[0], not entry[1].is_user))
        previous: float | None = None
        equal_accounts: list[tuple[float, Association]] = []
        for number, (level, sibling) in enumerate(order):
            # Whether the first sibling is tied, only the caller knows.
            if previous is not None:
                is_tied = level == previous
            previous = level
            if sibling.is_user:
                self._rank_user(sibling.name, is_tied=is_tied)
                continue
            if not equal_accounts:
                accounts_are_tied = is_tied
            equal_accounts += _with_levels(sibling.children)
            is_last = number + 1 == len(order) or order[number + 1][0] != level
            if is_last:
                self.visit(equal_accounts, is_tied=accounts_are_tied)
                equal_accounts = []

    def _rank_user(self, name: str, *, is_tied: bool) -> None:
        """Give a user the next rank, or the rank of the last user if both are equal."""
        if not is_tied:
            self._rank = self._next_rank
        self.factors[name] = self._rank / self._num_users
        # Equal users use up a rank each, so that the last user has the rank 1 unless it is tied.
        self._next_rank -= 1


def classic(below_root: Sequence[Association], dampening: int = 1) -> dict[str, float]:
    """Return the factor of each user by the classic formula.

    >>> classic([Association("ada", 1, 10.0), Association("bob", 1, 0.0)])
    {'ada': 0.25, 'bob': 1.0}
    """
    all_used = sum(sibling.usage for sibling in below_root)
    factors: dict[str, float] = {}
    _add_classic(below_root, 1.0, None, all_used, dampening, factors)
    return factors


def _add_classic(
    siblings: Sequence[Association],
    shares_above: float,
    usage_above: float | None,
    all_used: float,
    dampening: int,
    factors: dict[str, float],
) -> None:
    """Add the factors of the users among siblings and below them.

    `shares_above` and `usage_above` are S and P of the account above; at the root, there is no P.
    """
    all_shares = sum(sibling.shares for sibling in siblings)
    for sibling in siblings:
        part = sibling.shares / all_shares if all_shares else 0.0
        used = sibling.usage / all_used if all_used else 0.0
        if usage_above is not None:
            used += (usage_above - used) * part
        shares = shares_above * part
        if not sibling.is_user:
            _add_classic(sibling.children, shares, used, all_used, dampening, factors)
        # Without shares, the exponent would be −∞.
        elif shares:
            factors[sibling.name] = 2.0 ** (-used / shares / dampening)
        else:
            factors[sibling.name] = 0.0
