"""Hypotheses about SQL: complaints about names, descriptions of tables, and answers of equal queries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from obsspec.world.tools.hypothesis import Hypothesis
from obsspec.world.tools.seen import Asked
from obsspec.world.tools.sql.canonical import canonical
from obsspec.world.tools.sql.databases import Databases
from obsspec.world.tools.sql.messages import Complaint, Fault, Style, read_fault, write_fault
from obsspec.world.tools.sql.rows import Row, read_rows, write_rows
from obsspec.world.tools.sql.schema import Schema, fault_of
from obsspec.world.tools.sql.scopes import TableName, names_of
from obsspec.world.tools.sql.statement import Kind, Statement, statement_of
from obsspec.world.tools.trust import Claim


class Sql:
    """Databases behind tools that take SQL. Nothing is said or learnt once a rollout has changed its database."""

    def __init__(self) -> None:
        self._databases = Databases()
        self._styles: dict[str, Style] = {}
        self._bytes: dict[str, bool] = {}

    def claims(self, asked: Asked) -> Iterable[Claim]:
        statement = statement_of(asked.call)
        if statement is None or _changed(asked):
            return
        schema = self._databases.of(asked.image)
        yield from self._fault(asked, statement, schema)
        yield from self._answer(asked, statement, schema)

    def learn(self, asked: Asked, text: str) -> None:
        statement = statement_of(asked.call)
        if statement is None or _changed(asked):
            return
        read = read_fault(text)
        if read is not None:
            self._styles[asked.call.name] = read[0]
        self._databases.learn(asked.image, statement, text)
        rows = read_rows(text)
        if rows is not None:
            if statement.kind is Kind.COLUMNS:
                self._bytes[asked.call.name] = _has_bytes(rows)
            if statement.kind in (Kind.QUERY, Kind.LOOK):
                self._databases.of(asked.image).keep(canonical(statement), text)

    def _fault(self, asked: Asked, statement: Statement, schema: Schema) -> Iterable[Claim]:
        style = self._styles.get(asked.call.name)
        if style is None:
            return
        fault: Fault | None | bool = None
        if statement.kind is Kind.QUERY:
            names = names_of(statement)
            fault = fault_of(names, schema) if names is not None else None
        elif statement.kind is Kind.COLUMNS:
            fault = fault_of((TableName(statement.table),), schema)
        if isinstance(fault, Fault):
            text = write_fault(style, fault)
            if text is not None:
                yield Claim(text, f"tools/sql/{fault.complaint}", _classes(fault), 0.8)

    def _answer(self, asked: Asked, statement: Statement, schema: Schema) -> Iterable[Claim]:
        match statement.kind:
            case Kind.TABLES if schema.listing is not None:
                yield Claim(schema.listing, "tools/sql/tables", (("sql", "tables"),), 0.8)
            case Kind.COLUMNS if statement.table in schema.tables:
                columns = schema.tables[statement.table].columns
                if columns is not None:
                    text = write_rows([_spell(row, self._bytes.get(asked.call.name, False)) for row in columns])
                    yield Claim(text, "tools/sql/columns", (("sql", "columns"),), 0.8)
            case Kind.QUERY | Kind.LOOK if (text := schema.answers.get(canonical(statement))) is not None:
                yield Claim(text, "tools/sql/equal", (("sql", "equal"),), 0.8)
            case _:
                return


def _classes(fault: Fault) -> tuple[Hashable, ...]:
    kind = ("sql", fault.complaint)
    return (kind,) if fault.complaint is Complaint.TABLE else (kind, (*kind, fault.clause))


def _changed(asked: Asked) -> bool:
    statements = (statement_of(seen.call) for seen in asked.before)
    return any(statement is not None and statement.kind is Kind.WRITE for statement in statements)


def _has_bytes(rows: tuple[Row, ...]) -> bool:
    return any(isinstance(value, bytes) for row in rows for value in row)


def _spell(row: Row, as_bytes: bool) -> Row:
    """Some connectors give the type of a column as bytes, others the same as text."""
    if len(row) < 2 or not isinstance(row[1], bytes | str):
        return row
    kind = row[1].decode(errors="replace") if isinstance(row[1], bytes) else row[1]
    return (row[0], kind.encode() if as_bytes else kind, *row[2:])


def sql_hypotheses() -> tuple[Hypothesis, ...]:
    """All hypotheses of this package."""
    return (Sql(),)
