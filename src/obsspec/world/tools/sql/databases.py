"""Which rollouts talk to the same database, and what is known of each."""

from __future__ import annotations

from obsspec.world.tools.sql.messages import Complaint, Fault, read_fault
from obsspec.world.tools.sql.relations import relation_of
from obsspec.world.tools.sql.rows import read_rows
from obsspec.world.tools.sql.schema import Schema, Table, columns_of
from obsspec.world.tools.sql.scopes import ColumnName, Name, TableName, names_of
from obsspec.world.tools.sql.statement import Kind, Statement


class Databases:
    """Schemas by image; images whose errors name the same database, or that list the same tables, share one."""

    def __init__(self) -> None:
        self._by_image: dict[str, Schema] = {}
        self._by_name: dict[str, Schema] = {}

    def of(self, image: str) -> Schema:
        """What is known of the database of an image."""
        return self._by_image.setdefault(image, Schema())

    def learn(self, image: str, statement: Statement, text: str) -> None:
        """Takes in the answer to a statement on the unchanged database."""
        read = read_fault(text)
        if read is not None:
            self._complaint(image, statement, read[1])
        elif statement.kind is Kind.TABLES:
            self._listing(image, text)
        elif statement.kind is Kind.COLUMNS:
            self._columns(image, statement.table, text)
        elif statement.kind is Kind.QUERY and (rows := read_rows(text)) is not None:
            schema = self.of(image)
            _confirm(schema, names_of(statement) or ())
            relation = relation_of(statement)
            if relation is not None:
                schema.facts.learn(relation, rows, columns_of(relation, schema))

    def _complaint(self, image: str, statement: Statement, fault: Fault) -> None:
        if fault.complaint is Complaint.TABLE:
            if fault.database:
                self._call(image, fault.database)
            self.of(image).miss(fault.name.lower())
        names = names_of(statement) or () if statement.kind is Kind.QUERY else ()
        index = _index(names, fault)
        if index is None:
            return
        schema = self.of(image)
        _confirm(schema, names[:index])
        name = names[index]
        if fault.complaint is Complaint.COLUMN and isinstance(name, ColumnName):
            _deny(schema, name)

    def _listing(self, image: str, text: str) -> None:
        rows = read_rows(text)
        if not rows:
            return
        tables = frozenset(str(row[0]).lower() for row in rows)
        known = [schema for schema in self._by_name.values() if schema.listing == text]
        if not self.of(image).name and len(known) == 1 and len(tables) > 1:
            self._join(image, known[0])
        self.of(image).list(text, tables)

    def _columns(self, image: str, table: str, text: str) -> None:
        rows = read_rows(text)
        if rows and len({len(row) for row in rows}) == 1 and "." not in table:
            self.of(image).table(table).describe(rows)

    def _call(self, image: str, name: str) -> None:
        """The database of this image is called `name`."""
        schema = self.of(image)
        if not schema.name:
            schema.name = name
        if name in self._by_name:
            self._join(image, self._by_name[name])
        else:
            self._by_name[name] = schema

    def _join(self, image: str, schema: Schema) -> None:
        own = self.of(image)
        if own is not schema:
            schema.absorb(own)
            self._by_image[image] = schema


def _index(names: tuple[Name, ...], fault: Fault) -> int | None:
    """Which of the names a message means."""
    for index, name in enumerate(names):
        match name, fault.complaint:
            case TableName(), Complaint.TABLE if name.name == fault.name.lower():
                return index
            case ColumnName(), Complaint.COLUMN | Complaint.AMBIGUOUS if name.shown == fault.name:
                if fault.clause in ("", name.clause):
                    return index
            case _:
                continue
    return None


def _confirm(schema: Schema, names: tuple[Name, ...]) -> None:
    """These names were resolved without a complaint."""
    for name in names:
        if isinstance(name, TableName):
            if not name.database or name.database == schema.name:
                schema.table(name.name)
        elif len(name.scopes) == 1:
            sources = [source for source in name.scopes[0] if name.qualifier in ("", source.alias)]
            if len(sources) == 1 and sources[0].table:
                schema.tables.setdefault(sources[0].table, Table()).confirm(name.name)


def _deny(schema: Schema, column: ColumnName) -> None:
    for scope in column.scopes:
        for source in scope:
            if column.qualifier in ("", source.alias) and source.table:
                schema.tables.setdefault(source.table, Table()).deny(column.name)
