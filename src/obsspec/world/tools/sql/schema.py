"""What is known of one database: names that exist, names that do not, and answers of its queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from obsspec.world.tools.sql.messages import Complaint, Fault
from obsspec.world.tools.sql.relations import Facts, Relation
from obsspec.world.tools.sql.rows import Row
from obsspec.world.tools.sql.scopes import ColumnName, Name, Source, TableName

_MAX_ANSWERS = 5_000


@dataclass(slots=True)
class Table:
    """`columns`: the rows that describe the table, once they were seen."""

    columns: tuple[Row, ...] | None = None
    present: set[str] = field(default_factory=set[str])
    absent: set[str] = field(default_factory=set[str])

    def confirm(self, column: str) -> None:
        """The column exists."""
        self.present.add(column)
        self.absent.discard(column)
        if self.has(column) is False:
            self.columns = None

    def deny(self, column: str) -> None:
        """The column does not exist."""
        self.absent.add(column)
        self.present.discard(column)
        if self.has(column) is True:
            self.columns = None

    def describe(self, rows: tuple[Row, ...]) -> None:
        """These are all columns."""
        self.columns = rows
        self.present.clear()
        self.absent.clear()

    def has(self, column: str) -> bool | None:
        if self.columns is not None:
            return any(str(row[0]).lower() == column for row in self.columns)
        return True if column in self.present else False if column in self.absent else None


@dataclass(slots=True)
class Schema:
    """`listing`: the answer to SHOW TABLES, and `listed` its tables. `answers`: rows by canonical query."""

    name: str = ""
    listing: str | None = None
    listed: frozenset[str] | None = None
    tables: dict[str, Table] = field(default_factory=dict[str, Table])
    missing: set[str] = field(default_factory=set[str])
    answers: dict[str, str] = field(default_factory=dict[str, str])
    facts: Facts = field(default_factory=Facts)

    def table(self, name: str) -> Table:
        """The table of this name, which exists."""
        self.missing.discard(name)
        return self.tables.setdefault(name, Table())

    def miss(self, name: str) -> None:
        """There is no such table (any more)."""
        self.missing.add(name)
        if self.tables.pop(name, None) is not None or (self.listed and name in self.listed):
            self.listing = self.listed = None

    def list(self, text: str, tables: frozenset[str]) -> None:
        """These are all tables; of others nothing that was known holds."""
        self.listing, self.listed = text, tables
        self.tables = {name: table for name, table in self.tables.items() if name in tables}
        self.missing -= tables

    def has_table(self, table: TableName) -> bool | None:
        if table.database and table.database != self.name.lower():
            return None
        if table.name in self.tables:
            return True
        if table.name in self.missing:
            return False
        return None if self.listed is None else table.name in self.listed

    def keep(self, query: str, answer: str) -> None:
        """Remembers an answer; the oldest ones are forgotten."""
        self.answers.pop(query, None)
        self.answers[query] = answer
        if len(self.answers) > _MAX_ANSWERS:
            del self.answers[next(iter(self.answers))]

    def absorb(self, other: Schema) -> None:
        """Takes over what was learnt of the same database under another identity."""
        if self.listing is None:
            self.listing, self.listed = other.listing, other.listed
        for name, table in other.tables.items():
            own = self.table(name)
            own.columns = own.columns or table.columns
            own.present |= table.present
            own.absent |= table.absent
        self.missing |= other.missing - self.tables.keys()
        for query, answer in other.answers.items():
            self.keep(query, answer)
        self.facts.absorb(other.facts)


def fault_of(names: Sequence[Name], schema: Schema) -> Fault | bool | None:
    """The first name that the database will complain about; True if all are fine, None if that is not known."""
    for name in names:
        if isinstance(name, TableName):
            found = schema.has_table(name)
            if found is False and schema.name:
                return Fault(Complaint.TABLE, name.name, database=schema.name)
            if not found:
                return None
        else:
            owners = count_owners(name, schema)
            if owners is None:
                return None
            if owners != 1:
                complaint = Complaint.AMBIGUOUS if owners else Complaint.COLUMN
                return Fault(complaint, name.shown, name.clause)
    return True


def count_owners(column: ColumnName, schema: Schema) -> int | None:
    """In how many sources of the innermost scope that has any a column exists; None if that is not known."""
    for scope in column.scopes:
        sources = [source for source in scope if column.qualifier in ("", source.alias)]
        found = [_source_has(source, column.name, schema) for source in sources]
        if None in found:
            return None
        if any(found):
            return sum(map(bool, found))
    return 0


def _source_has(source: Source, column: str, schema: Schema) -> bool | None:
    if not source.table:
        return None if source.columns is None else column in source.columns
    table = schema.tables.get(source.table)
    return None if table is None else table.has(column)


def columns_of(relation: Relation, schema: Schema) -> tuple[str, ...] | None:
    """The columns that a query selects as "table.column"; None if it selects anything else or they are not known."""
    names: list[str] = []
    for item in relation.select.expressions:
        if isinstance(item, exp.Star):
            tables = [schema.tables.get(name) for name in relation.order]
            if any(table is None or table.columns is None for table in tables):
                return None
            for name, table in zip(relation.order, tables, strict=True):
                described = table.columns if table is not None and table.columns is not None else ()
                names.extend(f"{name}.{str(row[0]).lower()}" for row in described)
        elif isinstance(item, exp.Column) and (name := owner_of(item, relation, schema)) is not None:
            names.append(f"{name}.{item.name}")
        else:
            return None
    return tuple(names)


def owner_of(column: exp.Column, relation: Relation, schema: Schema) -> str | None:
    """The table of the relation that a column belongs to, if that is known."""
    if column.table:
        return column.table if column.table in relation.tables else None
    if len(relation.order) == 1:
        return relation.order[0]
    tables = {name: schema.tables.get(name) for name in relation.order}
    has = {name: None if table is None else table.has(column.name) for name, table in tables.items()}
    owners = [name for name, found in has.items() if found]
    return owners[0] if len(owners) == 1 and None not in has.values() else None


def describe(column: exp.Column, relation: Relation, schema: Schema) -> tuple[str, Row]:
    """The table that a column belongs to ("" if not known), and the row that describes the column, if it was seen."""
    owner = owner_of(column, relation, schema)
    table = schema.tables.get(owner) if owner is not None else None
    for row in table.columns or () if table is not None else ():
        if str(row[0]).lower() == column.name:
            return owner or "", tuple(item.decode() if isinstance(item, bytes) else item for item in row)
    return owner or "", ()
