"""psycopg 3 as a user uses it. Arguments: host and port of a server with an empty database."""

import datetime
import decimal
import sys
import threading
import time

import psycopg
from psycopg import errors
from psycopg.rows import dict_row, namedtuple_row

HOST, PORT = sys.argv[1], sys.argv[2]
DSN = f"host={HOST} port={PORT} user=tester dbname=entresol"

ROWS = [
    (1, 2**40, True, 1.5, decimal.Decimal("12.34"), datetime.date(2024, 2, 29),
     datetime.datetime(2024, 2, 29, 12, 30, 0, 123456), "plain"),
    (2, -(2**62), False, -2.25e-7, decimal.Decimal("-99999999.99"), datetime.date(1969, 12, 31),
     datetime.datetime(1900, 1, 1, 0, 0), "it's \u00e4 \"quoted\" \\ text"),
    (3, None, None, None, None, None, None, None),
    (4, 0, True, float("inf"), decimal.Decimal("0.00"), datetime.date(9999, 12, 31),
     datetime.datetime(2262, 4, 11, 23, 47, 16), ""),
]
COLUMNS = "id, big, flag, ratio, price, day, at, note"


def expect(exception, function):
    try:
        function()
    except exception as error:
        return error
    raise AssertionError(f"{exception} was expected")


def values_go_in_and_come_back(connection):
    connection.execute(
        "CREATE TABLE every (id INT PRIMARY KEY, big BIGINT, flag BOOLEAN, ratio DOUBLE PRECISION,"
        " price DECIMAL(10,2), day DATE, at TIMESTAMP, note VARCHAR)")
    insert = f"INSERT INTO every ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
    with connection.cursor() as cursor:
        cursor.executemany(insert, ROWS)
        assert cursor.rowcount == len(ROWS), cursor.rowcount
    connection.commit()
    for binary in (False, True):
        cursor = connection.cursor(binary=binary)
        found = cursor.execute(f"SELECT {COLUMNS} FROM every ORDER BY id").fetchall()
        assert found == ROWS, (binary, found)
        names = [column.name for column in cursor.description]
        assert names == COLUMNS.split(", "), names
        # Each as a parameter, in text and binary.
        mark = "%b" if binary else "%t"
        for column, value in zip(COLUMNS.split(", "), ROWS[0]):
            found = cursor.execute(f"SELECT id FROM every WHERE {column} = {mark}", (value,)).fetchall()
            assert (1,) in found, (column, binary, found)
    connection.commit()
    count = connection.execute("SELECT count(*) FROM every WHERE note IS NULL").fetchone()
    assert count == (1,), count
    found = connection.execute("SELECT id FROM every WHERE id = ANY(%s) ORDER BY id", ([1, 3, 7],)).fetchall()
    assert found == [(1,), (3,)], found
    found = connection.execute("SELECT id FROM every WHERE note = ANY(%s)", (["plain", "other"],)).fetchall()
    assert found == [(1,)], found
    # What is returned.
    row = connection.execute("INSERT INTO every (id, note) VALUES (%s, %s) RETURNING id, note", (5, "five")).fetchone()
    assert row == (5, "five"), row
    row = connection.execute("UPDATE every SET note = %s WHERE id = %s RETURNING note", ("V", 5)).fetchone()
    assert row == ("V",), row
    assert connection.execute("DELETE FROM every WHERE id = %s", (5,)).rowcount == 1
    # Values without a table.
    row = connection.execute("SELECT %s::int + 1, %s::text, %s::date", (41, "x", datetime.date(2020, 1, 1))).fetchone()
    assert row == (42, "x", datetime.date(2020, 1, 1)), row
    # `bytea` has no column type, but is a value.
    for binary in (False, True):
        row = connection.cursor(binary=binary).execute("SELECT %s::bytea", (b"\x00\xff'\\",)).fetchone()
        assert row == (b"\x00\xff'\\",), row
    connection.commit()


def moments_have_the_sessions_zone(connection):
    connection.execute("SET TIME ZONE 'Europe/Berlin'")
    connection.execute("CREATE TABLE moment (at TIMESTAMPTZ PRIMARY KEY, until TIMESTAMPTZ)")
    utc = datetime.timezone.utc
    east = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    at = datetime.datetime(2024, 7, 1, 10, 30, 0, 250000, tzinfo=utc)
    until = datetime.datetime(2024, 7, 1, 18, 0, tzinfo=east)
    for binary in (False, True):
        cursor = connection.cursor(binary=binary)
        mark = "%b" if binary else "%t"
        cursor.execute(f"INSERT INTO moment VALUES ({mark}, {mark})", (at, until))
        row = cursor.execute(f"SELECT at, until FROM moment WHERE at = {mark}", (at.astimezone(east),)).fetchone()
        assert row == (at, until), row
        assert row[0].utcoffset() == datetime.timedelta(hours=2), row
        # What has no zone is in the session's.
        row = cursor.execute(f"SELECT until FROM moment WHERE at > {mark}", (datetime.datetime(2024, 7, 1, 12, 30),))
        assert row.fetchone() == (until,)
        assert cursor.execute(f"DELETE FROM moment WHERE until = {mark}", (until,)).rowcount == 1
    out = b""
    connection.execute("INSERT INTO moment VALUES (%s, NULL)", (at,))
    with connection.cursor().copy("COPY moment TO STDOUT") as copy:
        out = b"".join(bytes(piece) for piece in copy)
    assert out == b"2024-07-01 12:30:00.25+02\t\\N\n", out
    with connection.cursor().copy("COPY moment FROM STDIN") as copy:
        copy.write(b"2024-07-01 12:30:00\t2024-01-01 00:00:00-03:30\n")
    row = connection.execute("SELECT until FROM moment WHERE at = '2024-07-01 10:30:00Z'").fetchone()
    assert row == (datetime.datetime(2024, 1, 1, 3, 30, tzinfo=utc),), row
    connection.execute("RESET TIME ZONE")


def columns_have_the_names_of_postgresql(connection):
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT count(*), max(id), 1 + 1, min(day)::text FROM every").fetchone()
        assert row == {"count": 4, "max": 4, "?column?": 2, "min": "1969-12-31"}, row
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        row = cursor.execute("SELECT id::text, upper(note) FROM every WHERE id = 1").fetchone()
        assert (row.id, row.upper) == ("1", "PLAIN"), row


def prepared_statements_are_used_again(connection):
    for number in range(20):
        row = connection.execute("SELECT note FROM every WHERE id = %s", (number % 4 + 1,), prepare=True).fetchone()
        assert row == (ROWS[number % 4][7],), row
    names = connection.execute("SELECT count(*) FROM every WHERE big > %s", (0,), prepare=True).fetchone()
    assert names == (1,), names
    connection.commit()


def transactions_and_their_errors(connection):
    connection.execute("INSERT INTO every (id) VALUES (100)")
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM every").fetchone() == (4,)
    error = expect(errors.UniqueViolation, lambda: connection.execute("INSERT INTO every (id) VALUES (1)"))
    assert error.sqlstate == "23505", error.sqlstate
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
    expect(errors.InFailedSqlTransaction, lambda: connection.execute("SELECT 1"))
    connection.rollback()
    expect(errors.UndefinedTable, lambda: connection.execute("SELECT * FROM nothing"))
    connection.rollback()
    expect(errors.UndefinedColumn, lambda: connection.execute("SELECT nothing FROM every"))
    connection.rollback()
    expect(errors.DivisionByZero, lambda: connection.execute("SELECT 1 / 0"))
    connection.rollback()
    with connection.transaction():
        connection.execute("INSERT INTO every (id) VALUES (101)")
        try:
            with connection.transaction():
                connection.execute("INSERT INTO every (id) VALUES (102)")
                connection.execute("INSERT INTO every (id) VALUES (1)")
        except errors.UniqueViolation:
            pass
    found = connection.execute("SELECT id FROM every WHERE id > 100").fetchall()
    assert found == [(101,)], found
    connection.execute("DELETE FROM every WHERE id > 100")
    connection.commit()


def cursors_with_names(connection):
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO many VALUES (%s, %s)", [(number, number / 2) for number in range(1000)])
    connection.commit()
    with connection.cursor(name="part") as cursor:
        cursor.itersize = 100
        cursor.execute("SELECT id, half FROM many ORDER BY id")
        first = cursor.fetchone()
        assert first == (0, 0.0), first
        some = cursor.fetchmany(50)
        assert [row[0] for row in some] == list(range(1, 51)), some
        rest = [row[0] for row in cursor]
        assert rest == list(range(51, 1000)), len(rest)
    connection.commit()


def statements_are_cancelled(connection):
    timer = threading.Timer(0.3, connection.cancel)
    timer.start()
    began = time.monotonic()
    slow = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3"
    expect(errors.QueryCanceled, lambda: connection.execute(slow))
    assert time.monotonic() - began < 20
    timer.join()
    connection.rollback()
    assert connection.execute("SELECT 1").fetchone() == (1,)
    connection.commit()


def pipelines(connection):
    with connection.pipeline():
        cursors = [connection.execute("SELECT id FROM every WHERE id = %s", (number,)) for number in (1, 2, 3)]
        found = [cursor.fetchone() for cursor in cursors]
    assert found == [(1,), (2,), (3,)], found
    connection.commit()


def rows_are_copied(connection):
    with connection.cursor() as cursor:
        with cursor.copy("COPY every (id, price, day, note) FROM STDIN") as copy:
            copy.write_row((201, decimal.Decimal("1.25"), datetime.date(2021, 5, 6), "tab\there"))
            copy.write_row((202, None, None, None))
        with cursor.copy("COPY every (id, price, day, note) TO STDOUT") as copy:
            copy.set_types(["int4", "numeric", "date", "text"])
            rows = sorted(row for row in copy.rows() if row[0] > 200)
    expected = [(201, decimal.Decimal("1.25"), datetime.date(2021, 5, 6), "tab\there"), (202, None, None, None)]
    assert rows == expected, rows
    types = ["int4", "numeric", "date", "text"]
    with connection.cursor() as cursor:
        with cursor.copy("COPY every (id, price, day, note) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(types)
            copy.write_row((203, decimal.Decimal("-7.5"), None, "\u00e4"))
        with cursor.copy("COPY every (id, price, day, note) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types(types)
            rows = sorted(row for row in copy.rows() if row[0] > 200)
    assert rows == [*expected, (203, decimal.Decimal("-7.50"), None, "\u00e4")], rows
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM every WHERE id > 200").fetchone() == (0,)
    connection.commit()


def main():
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute("CREATE TABLE many (id INT PRIMARY KEY, half DOUBLE PRECISION)")
    with psycopg.connect(DSN) as connection:
        # Definitions are not part of a transaction.
        connection.autocommit = True
        values_go_in_and_come_back(connection)
        moments_have_the_sessions_zone(connection)
        columns_have_the_names_of_postgresql(connection)
        connection.autocommit = False
        prepared_statements_are_used_again(connection)
        transactions_and_their_errors(connection)
        cursors_with_names(connection)
        statements_are_cancelled(connection)
        pipelines(connection)
        rows_are_copied(connection)
    print("psycopg: all is well")


main()
