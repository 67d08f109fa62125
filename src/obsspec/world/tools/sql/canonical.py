"""One spelling for queries that must have the same answer."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from obsspec.world.tools.sql.statement import Kind, Statement


@lru_cache(maxsize=2048)
def canonical(statement: Statement) -> str:
    """The query without its aliases and in lower-case names; for other statements their words."""
    tree = canonical_tree(statement)
    if tree is None:
        return " ".join(statement.text.split()) if statement.kind is not Kind.QUERY else statement.text
    return spell(tree)


@lru_cache(maxsize=256)
def canonical_tree(statement: Statement) -> exp.Query | None:
    """The tree of that query, None if there is none. Shared between callers: never to be changed."""
    if statement.tree is None:
        return None
    tree = statement.tree.copy()
    _drop_column_aliases(tree)
    _drop_table_aliases(tree)
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
        identifier.set("quoted", False)
    for join in tree.find_all(exp.Join):
        if join.kind == "INNER":
            join.set("kind", None)
    for equal in list(tree.find_all(exp.EQ)):
        if isinstance(equal.expression, exp.Column) and spell(equal.expression) < spell(equal.this):
            left, right = equal.this, equal.expression
            equal.set("this", right.copy())
            equal.set("expression", left.copy())
    return tree


def spell(tree: exp.Expr) -> str:
    """An expression as text."""
    return tree.sql(dialect="mysql", comments=False, unsupported_level=ErrorLevel.IGNORE)


def _drop_column_aliases(tree: exp.Query) -> None:
    """Names of output columns do not show in the rows; where they are used, what they stand for is put."""
    if not isinstance(tree, exp.Select):
        return
    aliased = {item.alias.lower(): item.this for item in tree.expressions if isinstance(item, exp.Alias)}
    for key in ("group", "having", "order"):
        clause: exp.Expr | None = tree.args.get(key)
        for column in list(clause.find_all(exp.Column)) if clause is not None else []:
            if not column.table and column.name.lower() in aliased:
                column.replace(aliased[column.name.lower()].copy())
    tree.set("expressions", [item.this if isinstance(item, exp.Alias) else item for item in tree.expressions])


def _drop_table_aliases(tree: exp.Query) -> None:
    tables = list(tree.find_all(exp.Table))
    names = [table.name.lower() for table in tables]
    if len(set(names)) < len(names):
        return
    renamed = {table.alias_or_name.lower(): table.name for table in tables}
    if len(renamed) < len(tables):
        return
    single = len(tables) == 1 and not list(tree.find_all(exp.Subquery))
    for table in tables:
        table.set("alias", None)
    for column in tree.find_all(exp.Column):
        if column.table and column.table.lower() in renamed:
            column.set("table", None if single else exp.to_identifier(renamed[column.table.lower()]))
