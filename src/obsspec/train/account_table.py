"""The books of a run as a table, for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from obsspec.rollout.accounting import Account


def account_table(account: Account) -> Group:
    """Seconds, the funnel, and what to improve first."""
    improvement = account.improvement()
    advice = f"improve first: {improvement}" if improvement else "nothing was lost"
    return Group(_spent(account), _funnel(account), Text(advice))


def _spent(account: Account) -> Table:
    table = Table(title="Seconds, summed over rollouts", title_justify="left")
    for name in ("C_rollout", "C_train", "C_env", "set-up", "tools", "verifier", "wall clock"):
        table.add_column(name, justify="right")
    spent = account.spent
    figures = (account.rollout_s, account.train_s, account.env_s, spent.setup, spent.tools, spent.verify)
    table.add_row(*(f"{seconds:,.0f}" for seconds in (*figures, account.wall_s)))
    return table


def _funnel(account: Account) -> Table:
    table = Table(title=f"{account.dispatched} rollouts dispatched, {account.used} used", title_justify="left")
    for name in ("stage", "passed", "lost", "seconds lost"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for stage, factor in account.factors().items():
        table.add_row(stage, f"{factor:.3f}", str(account.lost[stage]), f"{account.lost_s[stage]:,.0f}")
    return table
