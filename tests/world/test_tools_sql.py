"""Databases behind tools: what they complain about and what they answer, from what they showed."""

from __future__ import annotations

from decimal import Decimal

import pytest

from obsspec.values import ToolCall
from obsspec.world.tools import Tools
from obsspec.world.tools.sql.canonical import canonical
from obsspec.world.tools.sql.hypotheses import sql_hypotheses
from obsspec.world.tools.sql.messages import Complaint, Fault, Style, read_fault, write_fault
from obsspec.world.tools.sql.rows import read_rows, write_rows
from obsspec.world.tools.sql.scopes import ColumnName, names_of
from obsspec.world.tools.sql.statement import Kind, read_statement
from obsspec.world.tools.sql.syntax import syntax_fault
from tests.world.tools_support import ask, play, sql, text

ID = "('id', 'int', 'NO', 'PRI', None, '')"
BOATS = f"[{ID}, ('name', 'text', 'YES', '', None, ''), ('tons', 'int', 'YES', '', None, '')]"
CREW = f"[{ID}, ('boat_id', 'int', 'YES', 'MUL', None, ''), ('age', 'int', 'YES', '', None, '')]"
SCHEMA = [
    sql("SELECT * FROM harbours", "Error: Table 'sea.harbours' doesn't exist"),
    sql("SHOW TABLES", "[('boats',), ('crew',)]"),
    sql("DESC boats", BOATS),
    sql("DESC crew", CREW),
]


def taught(*more) -> Tools:
    """A source whose claims about SQL have been right often enough."""
    tools = Tools(floor=0.75)
    for _ in range(3):
        play(tools, [*SCHEMA, *more])
    return tools


def answer(tools: Tools, query: str, image: str = "task") -> str | None:
    return text(ask(tools, (ToolCall("db", {"statement": query}),), image=image))


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("SELECT name FROM ports", "Table 'sea.ports' doesn't exist"),
        ("SELECT x FROM boats JOIN Ports p ON 1 = 1", "Table 'sea.ports' doesn't exist"),
        ("DESCRIBE ports", "Table 'sea.ports' doesn't exist"),
        ("SELECT length FROM boats", "Unknown column 'length' in 'field list'"),
        ("SELECT b.Length FROM boats AS b", "Unknown column 'b.Length' in 'field list'"),
        ("SELECT name FROM boats WHERE length > 3", "Unknown column 'length' in 'where clause'"),
        ("SELECT name FROM boats b JOIN crew c ON b.id = c.boat", "Unknown column 'c.boat' in 'on clause'"),
        ("SELECT name FROM boats b JOIN crew c ON b.no = c.boat WHERE x = 1", "Unknown column 'x' in 'where clause'"),
        ("SELECT name FROM boats ORDER BY length", "Unknown column 'length' in 'order clause'"),
        ("SELECT name FROM boats WHERE id IN (SELECT ship FROM crew)", "Unknown column 'ship' in 'field list'"),
        ("SELECT id FROM boats JOIN crew ON boats.id = boat_id", "Column 'id' in field list is ambiguous"),
        ("SELECT name FROM boats GROUP BY name HAVING tons > 2", "Unknown column 'tons' in 'having clause'"),
    ],
)
def test_complaints_about_names(query: str, complaint: str) -> None:
    assert answer(taught(), query) == f"Error: {complaint}"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name AS n FROM boats ORDER BY n",
        "SELECT name, COUNT(*) AS c FROM boats GROUP BY name HAVING c > 1",
        "SELECT name FROM boats b WHERE EXISTS (SELECT 1 FROM crew WHERE boat_id = b.id)",
        "SELECT t.n FROM (SELECT name AS n FROM boats) t",
        "WITH heavy AS (SELECT id FROM boats) SELECT id FROM heavy",
        "SELECT something FROM other.boats",
    ],
)
def test_names_that_exist_or_are_not_known_give_no_complaint(query: str) -> None:
    assert answer(taught(), query) is None


def test_an_unknown_column_is_remembered_without_a_description() -> None:
    tools = Tools(floor=0.75)
    for n in range(4):
        query = "SELECT speed FROM planes"
        play(tools, [sql(query, "Error: Unknown column 'speed' in 'field list'")], image=f"task{n}")
    assert answer(tools, "SELECT id FROM planes p WHERE speed > 3", "task0") is None  # whether id exists is not known
    assert answer(tools, "SELECT speed + 1 FROM planes", "task0") == "Error: Unknown column 'speed' in 'field list'"


def test_tasks_whose_errors_name_the_same_database_share_what_is_known() -> None:
    tools = taught()
    assert answer(tools, "SHOW TABLES", "another") is None
    play(tools, [sql("SELECT 1 FROM nothing", "Error: Table 'sea.nothing' doesn't exist")], image="another")
    assert answer(tools, "SHOW TABLES", "another") == "[('boats',), ('crew',)]"
    assert answer(tools, "DESC crew", "another") == CREW


def test_a_database_is_recognised_by_its_answers() -> None:
    tools = taught()
    play(tools, [sql("DESCRIBE boats", BOATS)], image="another")
    assert answer(tools, "SHOW TABLES", "another") == "[('boats',), ('crew',)]"
    play(tools, [sql("DESCRIBE boats", CREW)], image="different")
    assert answer(tools, "SHOW TABLES", "different") is None


def test_a_qualified_name_does_not_name_the_database() -> None:
    tools = taught()
    play(tools, [sql("SELECT 1 FROM sea.nothing", "Error: Table 'sea.nothing' doesn't exist")], image="another")
    assert answer(tools, "SHOW TABLES", "another") is None


def test_a_dropped_table_is_forgotten() -> None:
    tools = taught()
    play(tools, [sql("SELECT age FROM crew", "Error: Table 'sea.crew' doesn't exist")])
    assert answer(tools, "SHOW TABLES") is None
    assert answer(tools, "DESC crew") == "Error: Table 'sea.crew' doesn't exist"


def test_nothing_is_said_after_the_rollout_changed_its_database() -> None:
    tools = taught()
    found = play(tools, [sql("ALTER TABLE boats ADD length INT", "[]"), sql("DESC boats", "[('id', 'int')]")])
    assert found[1] is None
    assert answer(tools, "DESC boats") == BOATS  # nor was anything learnt from it


def test_bytes_in_descriptions_follow_the_connector() -> None:
    tools = taught()
    as_bytes = BOATS.replace("'int'", "b'int'").replace("'text'", "b'text'")
    play(tools, [sql("DESC boats", as_bytes)])
    assert answer(tools, "DESC crew") == CREW.replace("'int'", "b'int'")


def test_equal_queries_have_equal_answers() -> None:
    tools = taught(sql("SELECT b.name FROM boats AS b WHERE b.tons > 3", "[('Ann',)]"))
    for query in ("select name from boats where tons > 3;", "SELECT `name` AS n FROM boats WHERE boats.tons > 3"):
        assert answer(tools, query) == "[('Ann',)]"
    assert answer(tools, "SELECT name FROM boats WHERE tons > 4") is None


def test_answers_in_another_form_than_rows_are_remembered_too() -> None:
    tools = taught(*[sql(f"SELECT tons FROM boats WHERE id = {n}", f'{{"rows": [[{n}]]}}') for n in range(6)])
    assert answer(tools, "select boats.tons from boats where id = 4") == '{"rows": [[4]]}'


def test_narrower_conditions_on_nothing_find_nothing() -> None:
    tools = taught(sql("SELECT name FROM boats WHERE name = 'Zoe'", "[]"))
    play(tools, [sql(f"SELECT id FROM boats WHERE name = 'Zoe' AND tons = {n}", "[]") for n in range(4)])
    assert answer(tools, "SELECT id, tons FROM boats WHERE tons > 5 AND name = 'zoe'") == "[]"
    assert answer(tools, "SELECT COUNT(*), MAX(tons) FROM boats WHERE name = 'Zoe'") == "[(0, None)]"
    assert answer(tools, "SELECT c.age FROM boats b JOIN crew c ON b.id = c.boat_id WHERE b.name = 'Zoe'") == "[]"
    assert answer(tools, "SELECT id FROM boats WHERE name = 'Zoe' OR tons > 5") is None
    assert answer(tools, "SELECT b.id FROM boats b LEFT JOIN crew c ON b.name = 'Zoe'") is None


ROWS = "[(1, 'Ann', 30), (2, 'bob', 10), (3, 'Cid', None), (4, 'Ann', 20)]"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT name FROM boats WHERE tons >= 20", "[('Ann',), ('Ann',)]"),
        ("SELECT COUNT(*) FROM boats", "[(4,)]"),
        (
            "SELECT COUNT(tons), SUM(tons), AVG(tons), MIN(tons) FROM boats",
            "[(3, Decimal('60'), Decimal('20.0000'), 10)]",
        ),
        ("SELECT name FROM boats ORDER BY tons DESC LIMIT 2", "[('Ann',), ('Ann',)]"),
        ("SELECT name FROM boats ORDER BY tons", "[('Cid',), ('bob',), ('Ann',), ('Ann',)]"),
        ("SELECT name FROM boats WHERE name LIKE '%B'", "[('bob',)]"),
        ("SELECT name FROM boats WHERE name NOT LIKE '%B' AND tons IS NOT NULL", "[('Ann',), ('Ann',)]"),
        ("SELECT name FROM boats WHERE tons BETWEEN 10 AND 20 OR name IN ('cid')", "[('bob',), ('Cid',), ('Ann',)]"),
        ("SELECT name, COUNT(*) AS n FROM boats GROUP BY name HAVING n > 1", "[('Ann', 2)]"),
        ("SELECT COUNT(DISTINCT name) FROM boats WHERE id <> 2", "[(2,)]"),
        ("SELECT DISTINCT name FROM boats", "[('Ann',), ('bob',), ('Cid',)]"),
    ],
)
def test_queries_over_rows_that_were_seen(query: str, rows: str) -> None:
    tools = Tools(sql_hypotheses(), floor=0.0)
    play(tools, [*SCHEMA, sql("SELECT * FROM boats", ROWS)])
    found = ask(tools, (ToolCall("db", {"statement": query}),))
    assert text(found) == rows
    assert found is not None
    assert found.source == "tools/sql/rows"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name, tons FROM boats GROUP BY name",  # which tons is an error or a matter of chance
        "SELECT name, age FROM boats JOIN crew ON boats.id = boat_id",
        "SELECT UPPER(name) FROM boats",
        "SELECT name FROM boats WHERE id IN (SELECT boat_id FROM crew)",
        "SELECT name FROM boats UNION SELECT name FROM boats",
    ],
)
def test_what_the_rows_do_not_tell_is_not_said(query: str) -> None:
    tools = Tools(sql_hypotheses(), floor=0.0)
    play(tools, [*SCHEMA, sql("SELECT * FROM boats", ROWS)])
    assert answer(tools, query) is None


def test_a_limited_result_is_not_the_whole_table() -> None:
    tools = Tools(sql_hypotheses(), floor=0.0)
    play(tools, [*SCHEMA, sql("SELECT * FROM boats LIMIT 4", ROWS)])
    assert answer(tools, "SELECT COUNT(*) FROM boats") is None


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("SELECT AVG(rank) AS r FROM boats", ") AS r FROM boats"),
        ("SELECT name FROM show", "show"),
        ("SELECT name FROM <table> WHERE x = 1", "<table> WHERE x = 1"),
        ("SELECT name FROM boats WHERE name = 'x", "'x"),
        ("DESCRIBE show", "show"),
        ("SELECT AVG(tons) FROM boats ) SELECT 1", ") SELECT 1"),
    ],
)
def test_where_reading_stops(query: str, rest: str) -> None:
    statement = read_statement(query)
    assert statement is not None
    assert syntax_fault(statement) == Fault(Complaint.SYNTAX, rest, "1")


def test_quoted_words_are_names() -> None:
    statement = read_statement("SELECT `rank` FROM `show`")
    assert statement is not None
    assert syntax_fault(statement) is None


@pytest.mark.parametrize(
    "message",
    [
        "Error 42: Table 'a.b' doesn't exist",
        "Unknown column 't.x' in 'IN/ALL/ANY subquery'!",
        "no such table: boats",
        "Failed (no such column: b.x)",
        "ERROR: Column 'id' in field list is ambiguous.",
    ],
)
def test_messages_are_read_and_written_in_the_same_style(message: str) -> None:
    read = read_fault(message)
    assert read is not None
    assert write_fault(*read) == message


def test_other_texts_are_no_complaints() -> None:
    assert read_fault("[('no such table',)]") is None
    assert read_fault("") is None
    assert write_fault(Style("sqlite"), Fault(Complaint.DATABASE, "x")) is None


@pytest.mark.parametrize(
    "printed",
    [
        "[]",
        "[(1, 'a\\nb', None, -2.5, b'x', True)]",
        "[(Decimal('1.50'), datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 4))]",
    ],
)
def test_rows_are_read_as_they_are_printed(printed: str) -> None:
    rows = read_rows(printed)
    assert rows is not None
    assert write_rows(list(rows)) == printed


@pytest.mark.parametrize("printed", ["[1, 2]", "[(1,)", "[(f(1),)]", "[(__import__('os'),)]", "rows", "[(1,)] more"])
def test_anything_else_is_no_rows(printed: str) -> None:
    assert read_rows(printed) is None


def test_decimals_keep_their_digits() -> None:
    assert read_rows("[(Decimal('3.10'),)]") == ((Decimal("3.10"),),)


def test_wrapped_statements_are_found_and_prose_is_not() -> None:
    wrapped = read_statement("run[SELECT a FROM b]\nObservation")
    assert wrapped is not None
    assert wrapped.text == "SELECT a FROM b"
    assert read_statement("Can you show me the tables?") is None
    assert read_statement("USE sea").kind is Kind.WRITE  # type: ignore[union-attr]


def test_canonical_spelling_keeps_what_matters() -> None:
    def spell(query: str) -> str:
        statement = read_statement(query)
        assert statement is not None
        return canonical(statement)

    plain = "select t.a from t join u on t.y = u.x"
    assert spell("SELECT T1.A FROM t AS T1 INNER JOIN u ON u.x = T1.y") == spell(plain)
    assert spell("SELECT a FROM t LIMIT 1") != spell("SELECT a FROM t")
    assert spell("SELECT a FROM t WHERE b = 'X'") != spell("SELECT a FROM t WHERE b = 'Y'")
    assert spell("SELECT a.x FROM t a JOIN t b ON a.i = b.j") != spell("SELECT b.x FROM t a JOIN t b ON a.i = b.j")


def test_outer_tables_are_searched_after_inner_ones() -> None:
    statement = read_statement("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.y)")
    assert statement is not None
    columns = [name for name in names_of(statement) or () if isinstance(name, ColumnName)]
    assert [len(column.scopes) for column in columns] == [1, 2, 2]
