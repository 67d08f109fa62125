"""Queries over rows that are known: filters, groups, aggregates, order and limits, without any database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from sqlglot import exp

from obsspec.world.tools.sql.relations import Fact, Relation
from obsspec.world.tools.sql.rows import Row
from obsspec.world.tools.sql.values import AGGREGATES, UnclearError, compare, like, loose_key, order_key

Described = Callable[[exp.Column], tuple[str, Row]]  # the table of a column, and the row that describes the column
_MAX_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Result:
    """`kind`: what the order of the rows rests on; a class for how far the result can be trusted."""

    rows: list[Row]
    kind: str


def evaluate(relation: Relation, fact: Fact, described: Described) -> Result | None:
    """The answer to a query from the rows of another one on the same tables; None if these do not tell."""
    if not fact.conditions <= relation.conditions.keys() or len(fact.rows) > _MAX_ROWS:
        return None
    reader = _Reader({name: index for index, name in enumerate(fact.columns)}, described)
    try:
        return _Query(relation, reader, fact).result()
    except (UnclearError, TypeError, ArithmeticError):
        return None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Values of expressions over the rows of a group (one row where nothing is grouped)."""

    places: Mapping[str, int]
    described: Described

    def value(self, node: exp.Expr, rows: Sequence[Row]) -> Any:
        match node:
            case exp.Column():
                return rows[0][self.place(node)] if rows else None
            case exp.Literal():
                return node.name if node.is_string else _literal(node.name)
            case exp.Paren():
                return self.value(node.this, rows)
            case exp.Neg():
                return -self.value(node.this, rows)
            case exp.Null():
                return None
            case _ if type(node) in AGGREGATES:
                return self._aggregate(cast("exp.AggFunc", node), rows)
            case _:
                raise UnclearError

    def place(self, column: exp.Column) -> int:
        name = f"{self.described(column)[0]}.{column.name}"
        if name not in self.places:
            raise UnclearError
        return self.places[name]

    def indexed(self, node: exp.Expr) -> bool:
        """Whether the database reads this column in order."""
        return isinstance(node, exp.Column) and self.described(node)[1][3:4] not in ((), ("",))

    def holds(self, node: exp.Expr, rows: Sequence[Row]) -> bool | None:
        """Whether a condition is true; None is SQL's unknown."""
        held = self._holds(node, rows)
        return _not(held) if node.args.get("negate") else held

    def _holds(self, node: exp.Expr, rows: Sequence[Row]) -> bool | None:
        match node:
            case exp.Paren():
                return self.holds(node.this, rows)
            case exp.And():
                return _and(self.holds(node.this, rows), self.holds(node.expression, rows))
            case exp.Or():
                return _not(_and(_not(self.holds(node.this, rows)), _not(self.holds(node.expression, rows))))
            case exp.Not():
                return _not(self.holds(node.this, rows))
            case exp.Is() if isinstance(node.expression, exp.Null):
                return self.value(node.this, rows) is None
            case exp.Like():
                return like(self.value(node.this, rows), self.value(node.expression, rows))
            case exp.In() if node.expressions:
                found = [compare(self.value(node.this, rows), self.value(item, rows)) for item in node.expressions]
                return True if 0 in found else None if None in found else False
            case exp.Between():
                value, low, high = (self.value(node.args[part], rows) for part in ("this", "low", "high"))
                return _and(_test(compare(value, low), "ge"), _test(compare(value, high), "le"))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                sign = {"EQ": "eq", "NEQ": "ne", "LT": "lt", "LTE": "le", "GT": "gt", "GTE": "ge"}[type(node).__name__]
                return _test(compare(self.value(node.this, rows), self.value(node.expression, rows)), sign)
            case _:
                raise UnclearError

    def _aggregate(self, node: exp.AggFunc, rows: Sequence[Row]) -> Any:
        inner: exp.Expr = node.this
        if isinstance(node, exp.Count) and isinstance(inner, exp.Star | exp.Literal):
            return len(rows)
        distinct = isinstance(inner, exp.Distinct)
        if distinct and len(inner.expressions) != 1:
            raise UnclearError
        source = inner.expressions[0] if distinct else inner
        values = [value for row in rows if (value := self.value(source, (row,))) is not None]
        if distinct:
            values = list({loose_key(value): value for value in values}.values())
        found = AGGREGATES[type(node)](values)
        return self._rounded(found, source) if isinstance(node, exp.Avg) else found

    def _rounded(self, mean: Any, source: exp.Expr) -> Any:
        """The mean of a column with fixed decimals has four more of them."""
        kind = self.described(source)[1][1:2] if isinstance(source, exp.Column) else ()
        fixed = re.match(r"(?:float|double)\(\d+,(\d+)\)", str(kind[0] if kind else ""))
        return round(mean, int(fixed.group(1)) + 4) if fixed and mean is not None else mean


@dataclass(frozen=True, slots=True)
class _Query:
    relation: Relation
    reader: _Reader
    fact: Fact

    def result(self) -> Result:
        select = self.relation.select
        self._check_groups()
        extra = [node for text, node in self.relation.conditions.items() if text not in self.fact.conditions]
        rows = [row for row in self.fact.rows if all(self.reader.holds(node, (row,)) for node in extra)]
        groups = self._groups(rows)
        having: exp.Expr | None = select.args.get("having")
        if having is not None:
            groups = [group for group in groups if self.reader.holds(having.this, group)]
        keyed = [(self._order(group), self._output(group)) for group in groups]
        if select.args.get("distinct") is not None:
            keyed = _distinct(keyed)
            if self._by_index(select.expressions):
                keyed.sort(key=lambda item: order_key(item[1][0]))
        kind = self._kind(keyed)
        if select.args.get("order") is not None:
            keyed = self._sorted(keyed)
        outputs = [output for _, output in keyed]
        return Result(outputs[: self.relation.limit], kind)

    def _check_groups(self) -> None:
        """A column that differs within a group is an error; which these are is only plain for grouped columns."""
        select = self.relation.select
        group: exp.Expr | None = select.args.get("group")
        order: exp.Expr | None = select.args.get("order")
        shown = [*select.expressions, *(order.expressions if order is not None else [])]
        if group is None and not any(item.find(exp.AggFunc) for item in shown):
            return
        parts = group.expressions if group is not None else []
        if not all(isinstance(part, exp.Column) for part in parts):
            raise UnclearError
        grouped = {self.reader.place(part) for part in parts}
        for item in shown:
            for column in item.find_all(exp.Column):
                if column.find_ancestor(exp.AggFunc) is None and self.reader.place(column) not in grouped:
                    raise UnclearError

    def _groups(self, rows: list[Row]) -> list[list[Row]]:
        select = self.relation.select
        group: exp.Expr | None = select.args.get("group")
        if group is None:
            whole = any(item.find(exp.AggFunc) for item in select.expressions)
            return [rows] if whole else [[row] for row in rows]
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            names = tuple(loose_key(self.reader.value(part, (row,))) for part in group.expressions)
            found.setdefault(names, []).append(row)
        if self._by_index(group.expressions):
            return [rows for _, rows in sorted(found.items(), key=lambda item: order_key(item[0][0]))]
        return list(found.values())

    def _by_index(self, parts: list[exp.Expr]) -> bool:
        """The database meets the groups in the order of an index."""
        return len(parts) == 1 and len(self.relation.order) == 1 and self.reader.indexed(parts[0])

    def _output(self, group: list[Row]) -> Row:
        values: list[Any] = []
        for item in self.relation.select.expressions:
            if isinstance(item, exp.Star):
                values.extend(group[0])
            else:
                values.append(self.reader.value(item, group))
        return tuple(values)

    def _order(self, group: list[Row]) -> tuple[tuple[bool, Any], ...]:
        order: exp.Expr | None = self.relation.select.args.get("order")
        parts = order.expressions if order is not None else []
        return tuple(order_key(self.reader.value(part.this, group)) for part in parts)

    def _sorted(self, keyed: list[tuple[Any, Row]]) -> list[tuple[Any, Row]]:
        parts: list[exp.Ordered] = self.relation.select.args["order"].expressions
        for index in reversed(range(len(parts))):
            keyed = sorted(keyed, key=lambda item: item[0][index], reverse=bool(parts[index].args.get("desc")))
        return keyed

    def _kind(self, keyed: list[tuple[Any, Row]]) -> str:
        select = self.relation.select
        if len(keyed) <= 1:
            return "one"
        if select.args.get("order") is not None:
            orders = [order for order, _ in keyed]
            tied = len(set(orders)) < len(orders) and len({row for _, row in keyed}) > 1
            return ("tied" if self.relation.limit is None else "tied top") if tied else "sorted"
        group: exp.Expr | None = select.args.get("group")
        if group is not None:
            kind, parts = "groups", group.expressions
        elif select.args.get("distinct") is not None:
            kind, parts = "distinct", select.expressions
        else:
            kind, parts = "as read", self._filters()
        by_index = any(self.reader.indexed(part) for part in parts)
        if self.fact.ordered and not self._by_index(parts):
            raise UnclearError
        return f"{kind} by index" if by_index else kind

    def _filters(self) -> list[exp.Expr]:
        """The columns of conditions that the other query did not have."""
        extra = [node for text, node in self.relation.conditions.items() if text not in self.fact.conditions]
        return [column for node in extra for column in node.find_all(exp.Column)]


def _distinct(keyed: list[tuple[Any, Row]]) -> list[tuple[Any, Row]]:
    first: dict[tuple[Any, ...], tuple[Any, Row]] = {}
    for item in keyed:
        first.setdefault(tuple(map(loose_key, item[1])), item)
    return list(first.values())


def _literal(text: str) -> int | float | Decimal:
    return int(text) if text.isdigit() else Decimal(text) if "e" not in text.lower() else float(text)


def _test(order: int | None, sign: str) -> bool | None:
    if order is None:
        return None
    return {"eq": order == 0, "ne": order != 0, "lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0}[
        sign
    ]


def _and(first: bool | None, second: bool | None) -> bool | None:
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value
