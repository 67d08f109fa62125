"""The names in a query, in the order in which a database looks them up, each with the tables it may belong to.

The order is that of MySQL: all tables as they are written; then for each SELECT its derived tables, USING, the select
list, WHERE, ON (the last join first), GROUP BY, HAVING and ORDER BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from sqlglot import exp

from obsspec.world.tools.sql.statement import Statement


@dataclass(frozen=True, slots=True)
class Source:
    """What a FROM clause names: a table, or a subquery with `columns` (None if they are not in the text)."""

    alias: str
    table: str = ""
    columns: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class TableName:
    """`name` is lower case; `database` is what it was qualified with."""

    name: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class ColumnName:
    """`shown` as it is spelled in messages; `scopes` from the inner SELECT outwards; without any it exists nowhere."""

    name: str
    qualifier: str
    shown: str
    clause: str
    scopes: tuple[tuple[Source, ...], ...]


Name = TableName | ColumnName
Scopes = tuple[tuple[Source, ...], ...]


@lru_cache(maxsize=1024)
def names_of(statement: Statement) -> tuple[Name, ...] | None:
    """All names of a query in order of resolution; None if it uses what is not understood here."""
    if statement.tree is None:
        return None
    if any(call.name.lower() not in _FUNCTIONS for call in statement.tree.find_all(exp.Anonymous)):
        return None  # an unknown function is a complaint of its own
    defined = {cte.alias_or_name.lower() for cte in statement.tree.find_all(exp.CTE)}
    names: list[Name] = []
    for table in sorted(statement.tree.find_all(exp.Table), key=_position):
        if table.name.lower() not in defined or table.db:
            names.append(TableName(table.name.lower(), table.db.lower()))
    try:
        names.extend(_Resolver(statement.tree).query(statement.tree, ()))
    except _NotUnderstoodError:
        return None
    return tuple(names)


_FUNCTIONS = frozenset(("now", "ifnull", "curdate", "concat_ws", "truncate", "format", "database", "version", "rand"))


class _NotUnderstoodError(Exception):
    """A construct whose names are resolved in a way that is not modelled."""


def _position(table: exp.Table) -> int:
    return cast("int", table.this.meta.get("start", 0)) if isinstance(table.this, exp.Identifier) else 0


class _Resolver:
    def __init__(self, tree: exp.Query) -> None:
        self._ctes = {cte.alias_or_name.lower(): cast("exp.Query", cte.this) for cte in tree.find_all(exp.CTE)}
        self._resolving: list[str] = []

    def query(self, tree: exp.Expr, outer: Scopes) -> Iterator[Name]:
        match tree:
            case exp.Select():
                yield from self._select(tree, outer)
            case exp.Subquery():
                yield from self.query(tree.this, outer)
            case exp.SetOperation():
                yield from self.query(tree.this, outer)
                yield from self.query(tree.expression, outer)
            case _:
                raise _NotUnderstoodError

    def _select(self, select: exp.Select, outer: Scopes) -> Iterator[Name]:
        items: list[exp.Expr] = []
        if select.args.get("from_") is not None:
            items.append(select.args["from_"].this)
        joins: list[exp.Join] = select.args.get("joins") or []
        items.extend(join.this for join in joins)
        sources: list[Source] = []
        for item in items:
            yield from self._derived(item, outer)
            sources.append(self._source(item))
        used = [cast("list[exp.Expr]", join.args.get("using") or []) for join in joins]
        shared = {column.name.lower() for columns in used for column in columns}
        if any(join.args.get("method") == "NATURAL" for join in joins):
            raise _NotUnderstoodError
        scopes = ((*sources,), *outer)
        walk = _Walk(self, scopes, shared)
        for item in select.expressions:
            yield from walk.expression(item, "field list")
        yield from walk.clause(select.args.get("where"), "where clause")
        for join in reversed(joins):
            yield from walk.clause(join.args.get("on"), "on clause")
        yield from self._late(select, walk)

    def _late(self, select: exp.Select, walk: _Walk) -> Iterator[Name]:
        """GROUP BY, HAVING, ORDER BY: they also see the names of the select list."""
        aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        plain = {item.name.lower() for item in select.expressions if isinstance(item, exp.Column)}
        group: exp.Expr | None = select.args.get("group")
        yield from walk.clause(group, "group statement", aliases)
        grouped = {column.name.lower() for column in group.find_all(exp.Column)} if group is not None else set[str]()
        star = any(item.is_star for item in select.expressions)
        having: exp.Expr | None = select.args.get("having")
        if having is not None:
            visible = None if star else aliases | plain | grouped
            yield from walk.having(having, visible)
        yield from walk.clause(select.args.get("order"), "order clause", aliases | plain)

    def _derived(self, item: exp.Expr, outer: Scopes) -> Iterator[Name]:
        if isinstance(item, exp.Subquery):
            yield from self.query(item.this, outer)
        elif not isinstance(item, exp.Table) or item.args.get("joins"):
            raise _NotUnderstoodError
        elif item.name.lower() in self._ctes and not item.db:
            name = item.name.lower()
            if name in self._resolving:  # recursive
                raise _NotUnderstoodError
            self._resolving.append(name)
            yield from self.query(self._ctes[name], ())
            self._resolving.pop()

    def _source(self, item: exp.Expr) -> Source:
        alias = item.alias_or_name.lower()
        if isinstance(item, exp.Subquery):
            return Source(alias, columns=_output(item.this))
        name = item.name.lower()
        if name in self._ctes and not cast("exp.Table", item).db:
            return Source(alias, columns=_output(self._ctes[name]))
        return Source(alias, table=name)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Visits the expressions of one SELECT."""

    resolver: _Resolver
    scopes: Scopes
    shared: set[str]

    def clause(self, node: exp.Expr | None, where: str, known: Sequence[str] | set[str] = ()) -> Iterator[Name]:
        if node is not None:
            yield from self.expression(node, where, known)

    def expression(self, node: exp.Expr, where: str, known: Sequence[str] | set[str] = ()) -> Iterator[Name]:
        match node:
            case exp.Column():
                yield from self._column(node, where, known)
            case exp.In() if isinstance(node.args.get("query"), exp.Expr):
                yield from self.expression(node.this, "IN/ALL/ANY subquery", known)
                yield from self.resolver.query(node.args["query"], self.scopes)
            case exp.Subquery() | exp.Select() | exp.SetOperation():
                yield from self.resolver.query(node, self.scopes)
            case _:
                for child in node.iter_expressions():
                    yield from self.expression(child, where, known)

    def having(self, node: exp.Expr, visible: set[str] | None) -> Iterator[Name]:
        """Outside of aggregates only names of the select list and of GROUP BY are seen (`visible`, None: unknown)."""
        match node:
            case exp.Column():
                if visible is None:
                    raise _NotUnderstoodError
                if node.name.lower() not in visible:
                    yield _named(node, "having clause", ())
            case exp.AggFunc():
                yield from self.expression(node, "having clause")
            case exp.Subquery() | exp.Select() | exp.Exists() | exp.In():
                yield from self.expression(node, "having clause", visible or ())
            case _:
                for child in node.iter_expressions():
                    yield from self.having(child, visible)

    def _column(self, column: exp.Column, where: str, known: Sequence[str] | set[str]) -> Iterator[Name]:
        if isinstance(column.this, exp.Star):
            return
        if not column.table and (column.name.lower() in known or column.name.lower() in self.shared):
            return
        if column.args.get("db"):
            raise _NotUnderstoodError
        yield _named(column, where, self.scopes)


def _named(column: exp.Column, where: str, scopes: Scopes) -> ColumnName:
    shown = f"{column.table}.{column.name}" if column.table else column.name
    return ColumnName(column.name.lower(), column.table.lower(), shown, where, scopes)


def _output(tree: Any) -> frozenset[str] | None:
    """The names of the columns of a subquery; None if they depend on a table."""
    while isinstance(tree, exp.Subquery | exp.SetOperation):
        tree = tree.this
    if not isinstance(tree, exp.Select) or any(item.is_star for item in tree.expressions):
        return None
    names = [item.alias_or_name.lower() for item in tree.expressions]
    return frozenset(name for name in names if name)
