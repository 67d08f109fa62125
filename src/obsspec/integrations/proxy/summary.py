"""The figures of the proxy as a table."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from obsspec.integrations.proxy.figures import Figures
from obsspec.values import Outcome


def summary(figures: Figures) -> Group:
    return Group(_main(figures), "", _sources(figures)) if figures.by_source else Group(_main(figures))


def _main(figures: Figures) -> Table:
    would = "would have been " if figures.shadow else ""
    table = Table(title="obsspec serve" + (", shadow: nothing was started early" if figures.shadow else ""))
    table.title_justify = "left"
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("requests understood / passed on", f"{figures.asked} / {figures.passed}")
    table.add_row("turns with a tool call", str(figures.attempts))
    table.add_row("predicted in time and right", _share(figures.would_match, figures.attempts))
    if not figures.shadow:
        shares = [_share(figures.outcomes[each], figures.attempts) for each in Outcome]
        table.add_row(" / ".join(each.value for each in Outcome), " / ".join(shares))
        table.add_row("started early / asked for / dropped", _early(figures))
        table.add_row("tokens dropped", str(figures.discarded_tokens))
    table.add_row("time in tools", f"{figures.tool_s:.1f} s")
    table.add_row("time in the engine", f"{figures.generation_s:.1f} s")
    table.add_row(f"generation that {would}hidden behind tools", f"{figures.hidden_s:.1f} s")
    table.add_row("of the time in tools", _share(figures.hidden_s, figures.tool_s))
    return table


def _sources(figures: Figures) -> Table:
    table = Table(title="Predictions by source", title_justify="left")
    table.add_column("source")
    for name in ("said", "right"):
        table.add_column(name, justify="right")
    for source, (right, said) in sorted(figures.by_source.items()):
        table.add_row(source, str(said), _share(right, said))
    return table


def _early(figures: Figures) -> str:
    return f"{figures.started} / {figures.claimed} / {figures.discarded}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
