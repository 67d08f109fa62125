"""Create, fill, change and query small SQLite databases with the sqlite3 command."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs, SqliteQuery
from obsspec.tasks.draft import Draft, Draw, listing, one, text
from obsspec.tasks.task import Step
from obsspec.tasks.words import WORDS

Row = tuple[str, int]
TABLES = ("items", "stock", "sales", "goods", "fruits", "parts", "tools", "books", "orders")


def database(table: str, rows: list[Row]) -> bytes:
    """The bytes of a database with one table (name text, qty integer)."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"create table {table} (name text, qty integer)")
        connection.executemany(f"insert into {table} values (?, ?)", rows)
        connection.commit()
        return connection.serialize()


def _stock(draw: Draw) -> tuple[str, str, list[Row]]:
    path = draw.file("db", "shop", "main", "store", "data", "base", "test", "small", "market")
    names = draw.words(draw.count() - 1, WORDS)
    return path, draw.pick(*TABLES), [(name, draw.number(1, 99)) for name in names]


def _told(draw: Draw, table: str, rows: list[Row]) -> str:
    if not draw.chance(0.5):
        return f" The table {table} has the columns name and qty."
    return f" The table {table} (name, qty) has {listing([f'{name} {qty}' for name, qty in rows])}."


def _all(table: str) -> str:
    return f"select name, qty from {table} order by rowid"


def create(draw: Draw) -> Draft:
    path, table, rows = _stock(draw)
    rows = rows[:2]
    values = ", ".join(f"('{name}', {qty})" for name, qty in rows)
    make = f"sqlite3 {path} 'create table {table} (name text, qty integer);'"
    fill = f'sqlite3 {path} "insert into {table} values {values};"'
    step = Step(
        acts=((make, fill),),
        reviews=(f"sqlite3 {path} 'select * from {table};'",),
        blunders=((fill, make, fill),),
    )
    listed = listing([f"{name} {qty}" for name, qty in rows])
    instruction = draw.pick(
        f"Create a SQLite database {path} with a table {table} (name text, qty integer) that holds {listed}.",
        f"Make {path} with sqlite3. It needs a table {table} with name text and qty integer. Insert {listed}.",
    )
    return Draft(instruction, (step,), (SqliteQuery(path, _all(table), tuple(rows)),))


def insert(draw: Draw) -> Draft:
    path, table, rows = _stock(draw)
    known = {name for name, _ in rows}
    name, qty = draw.pick(*(word for word in WORDS if word not in known)), draw.number(1, 99)
    act = f"sqlite3 {path} \"insert into {table} values ('{name}', {qty});\""
    show = f"sqlite3 {path} 'select * from {table};'"
    step = Step(
        acts=one(act),
        looks=(show,),
        reviews=(show, f"sqlite3 {path} 'select count(*) from {table};'"),
        blunders=((act.replace(f"into {table}", f"into {table[:-1]}"), f"sqlite3 {path} .tables", act),),
    )
    instruction = draw.pick(
        f"Insert {name} with qty {qty} into the table {table} of the SQLite database {path}.",
        f"Add a row for {name} (qty {qty}) to {table} in {path} with sqlite3.",
    ) + _told(draw, table, rows)
    checks = (SqliteQuery(path, _all(table), (*rows, (name, qty))),)
    return Draft(instruction, (step,), checks, (FileSpec(path, database(table, rows)),))


def update(draw: Draw) -> Draft:
    path, table, rows = _stock(draw)
    index = draw.number(0, len(rows) - 1)
    name, qty = rows[index][0], draw.number(100, 199)
    act = f"sqlite3 {path} \"update {table} set qty = {qty} where name = '{name}';\""
    show = f"sqlite3 {path} 'select * from {table};'"
    step = Step(
        acts=one(act),
        looks=(show,),
        reviews=(show,),
        blunders=((act.replace("where name", "where item"), f"sqlite3 {path} .schema", act),),
    )
    instruction = draw.pick(
        f"Set the qty of {name} to {qty} in the table {table} of {path}.",
        f"In the SQLite database {path}, change the qty of {name} in {table} to {qty}.",
    ) + _told(draw, table, rows)
    result = tuple((name, qty) if i == index else row for i, row in enumerate(rows))
    return Draft(
        instruction, (step,), (SqliteQuery(path, _all(table), result),), (FileSpec(path, database(table, rows)),)
    )


def remove(draw: Draw) -> Draft:
    path, table, rows = _stock(draw)
    name = draw.pick(*rows)[0]
    show = f"sqlite3 {path} 'select * from {table};'"
    act = f"sqlite3 {path} \"delete from {table} where name = '{name}';\""
    step = Step(
        acts=one(act),
        looks=(show,),
        reviews=(show,),
        blunders=((act.replace("where name", "where item"), f"sqlite3 {path} .schema", act),),
    )
    instruction = draw.pick(
        f"Delete the row of {name} from the table {table} in {path}.",
        f"Remove {name} from {table} in the SQLite database {path}.",
    ) + _told(draw, table, rows)
    result = tuple(row for row in rows if row[0] != name)
    return Draft(
        instruction, (step,), (SqliteQuery(path, _all(table), result),), (FileSpec(path, database(table, rows)),)
    )


def query(draw: Draw) -> Draft:
    path, table, rows = _stock(draw)
    name, qty = draw.pick(*rows)
    what, sql, value = draw.pick(
        ("the total qty", f"'select sum(qty) from {table};'", sum(row[1] for row in rows)),
        ("the number of rows", f"'select count(*) from {table};'", len(rows)),
        ("the largest qty", f"'select max(qty) from {table};'", max(row[1] for row in rows)),
        (f"the qty of {name}", f"\"select qty from {table} where name = '{name}';\"", qty),
    )
    act = f"sqlite3 {path} {sql}"
    step = Step(
        acts=one(act),
        looks=(f"sqlite3 {path} 'select * from {table};'",),
        blunders=((act.replace(f"from {table}", f"from {table[:-1]}"), f"sqlite3 {path} .tables", act),),
    )
    instruction = draw.pick(
        f"What is {what} in the table {table} of {path}? Answer with the number.",
        f"Use sqlite3 to find {what} in {table} of the database {path}. Answer with the number.",
    ) + _told(draw, table, rows)
    files = (FileSpec(path, database(table, rows)),)
    return Draft(instruction, (step,), (AnswerIs(str(value)),), files, answer=str(value))


def export(draw: Draw) -> Draft:
    path, table, rows = _stock(draw)
    target = draw.file()
    act = f"sqlite3 {path} 'select name from {table} order by name;' > {target}"
    step = Step(
        acts=one(act),
        looks=(f"sqlite3 {path} 'select * from {table};'",),
        reviews=(f"cat {target}", f"wc -l {target}"),
        blunders=((f"sqlite3 {path} 'select * from {table} order by name;' > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Save all names of the table {table} in {path}, sorted by name, to {target}.",
        f"Write the name column of {table} from the SQLite database {path} to {target} in sorted order.",
    ) + _told(draw, table, rows)
    checks = (FileIs(target, text(sorted(name for name, _ in rows))),)
    return Draft(instruction, (step,), checks, (FileSpec(path, database(table, rows)),))


KINDS = (create, insert, update, remove, query, export)
