"""Which rollouts talk to the same database, and what is known of each."""

from __future__ import annotations

from obsspec.world.tools.sql.canonical import canonical
from obsspec.world.tools.sql.messages import Complaint, Fault, read_fault
from obsspec.world.tools.sql.relations import relation_of
from obsspec.world.tools.sql.rows import read_rows
from obsspec.world.tools.sql.schema import Schema, Table, columns_of
from obsspec.world.tools.sql.scopes import ColumnName, Name, TableName, names_of
from obsspec.world.tools.sql.statement import Kind, Statement

_MAX_IMAGES = 50_000
_MAX_WITNESSES = 200_000
_TELLING = 40  # characters of an answer that only equal databases give


class Databases:
    """Schemas by image.

    Images share one if their errors name the same database, or if one of yet unknown name answers like only one other.
    """

    def __init__(self) -> None:
        self._by_image: dict[str, Schema] = {}
        self._by_name: dict[str, Schema] = {}
        self._witnesses: dict[tuple[str, int], set[str]] = {}  # databases by what they answered to what

    def of(self, image: str) -> Schema:
        """What is known of the database of an image."""
        if image not in self._by_image and len(self._by_image) >= _MAX_IMAGES:
            del self._by_image[next(iter(self._by_image))]
        return self._by_image.setdefault(image, Schema())

    def learn(self, image: str, statement: Statement, text: str) -> None:
        """Takes in the answer to a statement on the unchanged database."""
        read = read_fault(text)
        if read is not None:
            self._complaint(image, statement, read[1])
            return
        rows = read_rows(text)
        if not rows and text != "[]":
            return
        self._compare(image, statement, text)
        schema = self.of(image)
        if statement.kind is Kind.TABLES and rows:
            schema.list(text, frozenset(str(row[0]).lower() for row in rows))
        elif statement.kind is Kind.COLUMNS and rows and len({len(row) for row in rows}) == 1:
            if "." not in statement.table:
                schema.table(statement.table).describe(rows)
        elif statement.kind is Kind.QUERY and rows is not None:
            _confirm(schema, names_of(statement) or ())
            relation = relation_of(statement)
            if relation is not None:
                schema.facts.learn(relation, rows, columns_of(relation, schema))

    def _complaint(self, image: str, statement: Statement, fault: Fault) -> None:
        if fault.complaint is Complaint.TABLE:
            if fault.database and f"{fault.database}." not in statement.text.lower().replace("`", ""):
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

    def _compare(self, image: str, statement: Statement, text: str) -> None:
        """Finds the one database that gave this answer before."""
        if len(text) < _TELLING or statement.kind is Kind.LOOK or "_schema" in statement.text.lower():
            return
        asked = statement.kind + statement.table if statement.tree is None else canonical(statement)
        witness = (asked, hash(text.replace("b'", "'")))
        names = self._witnesses.setdefault(witness, set())
        if len(self._witnesses) > _MAX_WITNESSES:
            del self._witnesses[next(iter(self._witnesses))]
        schema = self.of(image)
        if schema.name:
            names.add(schema.name)
        elif len(names) == 1:
            self._join(image, self._by_name[next(iter(names))])

    def _call(self, image: str, name: str) -> None:
        """The database of this image is called `name`."""
        schema = self.of(image)
        if schema.name:
            return
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
