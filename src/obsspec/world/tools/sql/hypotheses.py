"""Hypotheses about SQL: complaints about names, descriptions of tables, and answers of equal queries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from sqlglot import exp

from obsspec.world.tools.hypothesis import Hypothesis
from obsspec.world.tools.seen import MAX_TEXT, Asked
from obsspec.world.tools.sql.canonical import canonical
from obsspec.world.tools.sql.databases import Databases
from obsspec.world.tools.sql.evaluate import evaluate
from obsspec.world.tools.sql.messages import Complaint, Fault, Style, read_fault, write_fault
from obsspec.world.tools.sql.relations import Relation, answer_of_nothing, relation_of
from obsspec.world.tools.sql.rows import Row, read_rows, write_rows
from obsspec.world.tools.sql.schema import Schema, columns_of, describe, fault_of
from obsspec.world.tools.sql.scopes import Name, TableName, names_of
from obsspec.world.tools.sql.statement import Kind, Statement, statement_of
from obsspec.world.tools.sql.syntax import syntax_fault
from obsspec.world.tools.trust import Claim


class Sql:
    """Databases behind tools that take SQL. Nothing is said or learnt once a rollout has changed its database."""

    def __init__(self) -> None:
        self._databases = Databases()
        self._styles: dict[str, Style] = {}
        self._bytes: dict[str, frozenset[int]] = {}

    def claims(self, asked: Asked) -> Iterable[Claim]:
        statement = statement_of(asked.call)
        if statement is None or _changed(asked):
            return
        schema = self._databases.of(asked.image)
        fault = _fault(statement, schema)
        if not isinstance(fault, Fault):
            yield from self._answer(asked, statement, schema, fault is True)
            return
        style = self._styles.get(asked.call.name)
        text = None if style is None else write_fault(style, fault)
        if text is not None:
            yield Claim(text, f"tools/sql/{fault.complaint}", _classes(fault), 0.9)

    def learn(self, asked: Asked, text: str) -> None:
        statement = statement_of(asked.call)
        if statement is None or _changed(asked):
            return
        read = read_fault(text)
        if read is not None:
            self._styles[asked.call.name] = read[0]
        self._databases.learn(asked.image, statement, text)
        rows = read_rows(text) if statement.kind is Kind.COLUMNS else None
        if rows is not None:
            self._bytes[asked.call.name] = _byte_fields(rows, self._bytes.get(asked.call.name, frozenset()))
        if statement.kind in (Kind.QUERY, Kind.LOOK) and read is None and len(text) <= MAX_TEXT:
            self._databases.of(asked.image).keep(canonical(statement), text)

    def _answer(self, asked: Asked, statement: Statement, schema: Schema, sure: bool) -> Iterable[Claim]:
        match statement.kind:
            case Kind.TABLES if schema.listing is not None:
                yield Claim(schema.listing, "tools/sql/tables", (("sql", "tables"),), 0.95)
            case Kind.COLUMNS if statement.table in schema.tables:
                columns = schema.tables[statement.table].columns
                if columns is not None:
                    fields = self._bytes.get(asked.call.name, frozenset())
                    text = write_rows([_spell(row, fields) for row in columns])
                    yield Claim(text, "tools/sql/columns", (("sql", "columns"),), 0.95)
            case Kind.QUERY | Kind.LOOK if (text := schema.answers.get(canonical(statement))) is not None:
                yield Claim(text, "tools/sql/equal", (("sql", "equal"), ("sql", "equal", text[:1] == "[")), 0.95)
            case Kind.QUERY if (relation := relation_of(statement)) is not None:
                yield from _derived(relation, schema, sure)
            case _:
                return


def _derived(relation: Relation, schema: Schema, sure: bool) -> Iterable[Claim]:
    """Answers that follow from those of other queries; `sure`: all names are known to exist."""
    if schema.facts.is_empty(relation):
        nothing = answer_of_nothing(relation)
        if nothing is not None:
            yield Claim(write_rows(nothing), "tools/sql/empty", (("sql", "empty", sure),), 0.9 if sure else 0.5)

        return
    star = any(isinstance(item, exp.Star) for item in relation.select.expressions)
    for fact in schema.facts.of(relation.tables):
        if star and fact.columns != columns_of(relation, schema):
            continue
        found = evaluate(relation, fact, lambda column: describe(column, relation, schema))
        if found is not None:
            single, joined = not fact.conditions, len(relation.order) > 1
            classes = (("sql", "rows", found.kind), ("sql", "rows", found.kind, joined, single, sure))
            yield Claim(write_rows(found.rows), "tools/sql/rows", classes, 0.8)
            return


def _fault(statement: Statement, schema: Schema) -> Fault | bool | None:
    """What the database will complain about; True if its names are all fine, None if that is not known."""
    fault = syntax_fault(statement)
    if fault is not None:
        return fault
    names: tuple[Name, ...] | None = None
    if statement.kind is Kind.QUERY:
        names = names_of(statement)
    elif statement.kind is Kind.COLUMNS:
        database, _, table = statement.table.rpartition(".")
        names = (TableName(table, database),)
    return fault_of(names, schema) if names is not None else None


def _classes(fault: Fault) -> tuple[Hashable, ...]:
    kind = ("sql", fault.complaint)
    match fault.complaint:
        case Complaint.SYNTAX:
            return (kind, (*kind, fault.name[:1]))
        case _:
            return (kind, (*kind, fault.clause))


def _changed(asked: Asked) -> bool:
    statements = (statement_of(seen.call) for seen in asked.before)
    return any(statement is not None and statement.kind is Kind.WRITE for statement in statements)


def _byte_fields(rows: tuple[Row, ...], known: frozenset[int]) -> frozenset[int]:
    """Some connectors give texts of a description as bytes: in which fields this one does."""
    seen = frozenset(index for row in rows for index, value in enumerate(row) if isinstance(value, bytes))
    return seen | known if seen else frozenset()


def _spell(row: Row, fields: frozenset[int]) -> Row:
    texts = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in row]
    return tuple(
        text.encode() if index in fields and isinstance(text, str) else text for index, text in enumerate(texts)
    )


def sql_hypotheses() -> tuple[Hypothesis, ...]:
    """All hypotheses of this package."""
    return (Sql(),)
