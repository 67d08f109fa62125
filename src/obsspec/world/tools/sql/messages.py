"""The error messages of databases about names: read from answers, and written again in the same style."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Complaint(StrEnum):
    TABLE = "table"  # no such table
    COLUMN = "column"  # no such column
    AMBIGUOUS = "ambiguous"  # a column of several tables
    DATABASE = "database"  # no such database
    SYNTAX = "syntax"  # `name` is the rest that was not read, `clause` the number of its line
    LIMIT = "limit"  # LIMIT directly inside of IN (...)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a query: the name as the message spells it, and where the database says it stands."""

    complaint: Complaint
    name: str
    clause: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """Whose messages these are, and what a tool writes before and after them."""

    dialect: str
    before: str = ""
    after: str = ""


_SYNTAX = (
    "You have an error in your SQL syntax; check the manual that corresponds to your MySQL server version"
    " for the right syntax to use near '{rest}' at line {clause}"
)
_FORMS: tuple[tuple[str, Complaint, str], ...] = (
    ("mysql", Complaint.TABLE, "Table '{database}.{name}' doesn't exist"),
    ("mysql", Complaint.COLUMN, "Unknown column '{name}' in '{clause}'"),
    ("mysql", Complaint.AMBIGUOUS, "Column '{name}' in {clause} is ambiguous"),
    ("mysql", Complaint.DATABASE, "Unknown database '{database}'"),
    ("mysql", Complaint.SYNTAX, _SYNTAX),
    ("mysql", Complaint.LIMIT, "This version of MySQL doesn't yet support 'LIMIT & IN/ALL/ANY/SOME subquery'"),
    ("sqlite", Complaint.TABLE, "no such table: {name}"),
    ("sqlite", Complaint.COLUMN, "no such column: {name}"),
    ("sqlite", Complaint.AMBIGUOUS, "ambiguous column name: {name}"),
)
_FIELDS = {
    "database": r"(?P<database>[^'.]+)",
    "name": r"(?P<name>[^'\n]+?)",
    "rest": r"(?P<name>.*)",
    "clause": r"(?P<clause>[\w /]+)",
}


def _pattern(form: str) -> re.Pattern[str]:
    pattern = re.escape(form).replace(r"\{", "{").replace(r"\}", "}").format(**_FIELDS)
    return re.compile(rf"(?P<before>.{{0,80}}?){pattern}(?P<after>\W{{0,20}})", re.DOTALL)


_PATTERNS = tuple((dialect, complaint, _pattern(form)) for dialect, complaint, form in _FORMS)


def read_fault(text: str) -> tuple[Style, Fault] | None:
    """The complaint that an answer is, with its style; None if it is anything else."""
    if len(text) > 500:
        return None
    for dialect, complaint, pattern in _PATTERNS:
        found = pattern.fullmatch(text)
        if found:
            fields = found.groupdict()
            fault = Fault(complaint, fields.get("name", ""), fields.get("clause", ""), fields.get("database", ""))
            return Style(dialect, fields["before"], fields["after"]), fault
    return None


def write_fault(style: Style, fault: Fault) -> str | None:
    """The answer that says so; None if this dialect has no such message."""
    for dialect, complaint, form in _FORMS:
        if (dialect, complaint) == (style.dialect, fault.complaint):
            text = form.format(name=fault.name, rest=fault.name, clause=fault.clause, database=fault.database)
            return f"{style.before}{text}{style.after}"
    return None
