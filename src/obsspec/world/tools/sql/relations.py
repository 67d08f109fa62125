"""What is known of the rows behind queries: which conditions nothing meets, and whole columns of what others select."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from sqlglot import exp

from obsspec.world.tools.sql.canonical import canonical_tree, spell
from obsspec.world.tools.sql.rows import Row
from obsspec.world.tools.sql.statement import Statement

_CAPS = frozenset({10, 20, 50, 100, 200, 500, 1000})  # a tool that cuts results off does it at a round number
_MAX_FACTS = 500  # for each set of tables


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """A query without subqueries in FROM: inner joins of tables in this `order`, filtered by `conditions`.

    These are by their spelling.
    `plain`: one row of the result for each row that meets the conditions.
    """

    select: exp.Select
    order: tuple[str, ...]
    conditions: dict[str, exp.Expr]
    plain: bool
    limit: int | None = None

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(self.order)

    @property
    def grouped(self) -> bool:
        return self.select.args.get("group") is not None


@lru_cache(maxsize=256)
def relation_of(statement: Statement) -> Relation | None:
    """The relation that a query reads; None if it is more than that."""
    tree = canonical_tree(statement)
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None or tree.args.get("with_") is not None:
        return None
    joins: list[exp.Join] = tree.args.get("joins") or []
    items = [tree.args["from_"].this, *(join.this for join in joins)]
    if not all(isinstance(item, exp.Table) and not item.db and not item.args.get("alias") for item in items):
        return None
    if any(join.side or join.args.get("using") or join.args.get("method") for join in joins):
        return None
    tables = tuple(item.name for item in items)
    parts = [join.args["on"] for join in joins if join.args.get("on") is not None]
    if tree.args.get("where") is not None:
        parts.append(tree.args["where"].this)
    single = tables[0] if len(tables) == 1 else ""
    conditions = {_spell(condition, single): condition for part in parts for condition in _conjuncts(part)}
    limit = tree.args.get("limit")
    size = _number(limit.expression) if isinstance(limit, exp.Limit) else None
    if tree.args.get("offset") is not None or (limit is not None and size is None):
        return None
    return Relation(tree, tables, conditions, _is_plain(tree), size)


def _is_plain(select: exp.Select) -> bool:
    odd = any(select.args.get(key) is not None for key in ("group", "having", "distinct"))
    return not odd and not any(item.find(exp.AggFunc, exp.Window) for item in select.expressions)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    match node:
        case exp.And():
            yield from _conjuncts(node.this)
            yield from _conjuncts(node.expression)
        case exp.Paren():
            yield from _conjuncts(node.this)
        case _:
            yield node


def _spell(condition: exp.Expr, table: str) -> str:
    """Strings are compared without case; columns of the only table are written with its name."""
    if table:
        condition = condition.copy()
        for column in condition.find_all(exp.Column):
            if not column.table and column.find_ancestor(exp.Select) is None:
                column.set("table", exp.to_identifier(table))
    return spell(condition).lower()


def _number(node: exp.Expr) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else None


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """All rows that meet `conditions`, with these columns; `ordered`: the query sorted them."""

    conditions: frozenset[str]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    ordered: bool


@dataclass(slots=True)
class Facts:
    """What is known of the relations of one database."""

    _empty: dict[frozenset[str], dict[frozenset[str], None]] = field(
        default_factory=dict[frozenset[str], dict[frozenset[str], None]]
    )
    _full: dict[frozenset[str], list[Fact]] = field(default_factory=dict[frozenset[str], list[Fact]])

    def is_empty(self, relation: Relation) -> bool:
        """Other queries have shown that no row meets the conditions, or some of them."""
        conditions, tables = relation.conditions.keys(), relation.tables
        among = (known for names, known in self._empty.items() if names <= tables)
        return any(known <= conditions for empty in among for known in empty)

    def of(self, tables: frozenset[str]) -> list[Fact]:
        """Whole columns of a relation, the latest first."""
        return self._full.get(tables, [])

    def learn(self, relation: Relation, rows: tuple[Row, ...], names: tuple[str, ...] | None) -> None:
        """`names`: the columns of the rows, None if they are not all columns of the tables."""
        conditions = frozenset(relation.conditions)
        if _shows_nothing(relation, rows):
            empty = self._empty.setdefault(relation.tables, {})
            empty[conditions] = None
            if len(empty) > _MAX_FACTS:
                del empty[next(iter(empty))]
        cut = len(rows) in _CAPS if relation.limit is None else len(rows) >= relation.limit
        if relation.plain and names is not None and not cut and rows and len(rows[0]) == len(names):
            ordered = relation.select.args.get("order") is not None
            facts = self._full.setdefault(relation.tables, [])
            facts.insert(0, Fact(conditions, names, rows, ordered))
            del facts[50:]

    def absorb(self, other: Facts) -> None:
        """Takes over what was learnt of the same database elsewhere."""
        for tables, empty in other._empty.items():
            self._empty.setdefault(tables, {}).update(empty)
        for tables, facts in other._full.items():
            self._full.setdefault(tables, []).extend(facts)

    def forget(self) -> None:
        """The database is no longer what it was."""
        self._empty.clear()
        self._full.clear()


def _shows_nothing(relation: Relation, rows: tuple[Row, ...]) -> bool:
    if relation.select.args.get("having") is not None or relation.limit == 0:
        return False
    if not rows:
        return True
    counts = [index for index, item in enumerate(relation.select.expressions) if is_count(item)]
    return not relation.grouped and any(rows[0][index : index + 1] == (0,) for index in counts)


def is_count(item: exp.Expr) -> bool:
    """COUNT(*) or COUNT(1): counts rows."""
    if not isinstance(item, exp.Count):
        return False
    return isinstance(cast("exp.Expr", item.this), exp.Star | exp.Literal)


def answer_of_nothing(relation: Relation) -> list[Row] | None:
    """What a query answers when no row meets its conditions."""
    aggregates = any(item.find(exp.AggFunc) for item in relation.select.expressions)
    if relation.select.args.get("having") is not None and not relation.grouped:
        return None
    if relation.grouped or not aggregates:
        return []
    values: list[int | None] = []
    for item in relation.select.expressions:
        if isinstance(item, exp.Count):
            values.append(0)
        elif isinstance(item, exp.AggFunc):
            values.append(None)
        else:
            return None
    return [tuple(values)] if relation.limit != 0 else []
