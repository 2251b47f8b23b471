"""asyncpg, which speaks binary and prepares everything. Arguments: host and port of a server with an empty database."""

import asyncio
import datetime
import decimal
import io
import sys

import asyncpg

HOST, PORT = sys.argv[1], int(sys.argv[2])

ROWS = [
    (1, 2**40, True, 1.5, decimal.Decimal("12.34"), datetime.date(2024, 2, 29),
     datetime.datetime(2024, 2, 29, 12, 30, 0, 123456), "plain"),
    (2, -5, False, -2.25, decimal.Decimal("-0.01"), datetime.date(1969, 12, 31),
     datetime.datetime(1900, 1, 1), "\u00e4\u4e16"),
    (3, None, None, None, None, None, None, None),
]


async def expect(exception, awaitable):
    try:
        await awaitable
    except exception as error:
        return error
    raise AssertionError(f"{exception} was expected")


async def main():
    connection = await asyncpg.connect(host=HOST, port=PORT, user="tester", database="entresol")
    assert connection.get_server_version().major >= 14
    await connection.execute(
        "CREATE TABLE every (id INT PRIMARY KEY, big BIGINT, flag BOOLEAN, ratio DOUBLE PRECISION,"
        " price DECIMAL(10,2), day DATE, at TIMESTAMP, note VARCHAR)")
    await connection.executemany("INSERT INTO every VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", ROWS)
    found = await connection.fetch("SELECT * FROM every ORDER BY id")
    assert [tuple(row) for row in found] == ROWS, found
    for column, value in zip(found[0].keys(), ROWS[0]):
        assert await connection.fetchval(f"SELECT id FROM every WHERE {column} = $1", value) == 1, column
    assert await connection.fetchval("SELECT count(*) FROM every WHERE id = ANY($1::int[])", [1, 2, 9]) == 2
    assert await connection.fetchval("SELECT $1::text || $2", "a", "b") == "ab"
    assert await connection.fetchval("SELECT $1::bytea", b"\x00\xff") == b"\x00\xff"
    assert await connection.fetchval("SELECT NULL::int") is None

    statement = await connection.prepare("SELECT note FROM every WHERE id = $1")
    assert [str(kind.name) for kind in statement.get_parameters()] == ["int4"], statement.get_parameters()
    assert [column.name for column in statement.get_attributes()] == ["note"]
    for _ in range(10):
        assert await statement.fetchval(1) == "plain"

    status = await connection.execute("UPDATE every SET note = $1 WHERE id < $2", "changed", 3)
    assert status == "UPDATE 2", status
    row = await connection.fetchrow("INSERT INTO every (id) VALUES ($1) RETURNING id, note", 9)
    assert tuple(row) == (9, None), row
    assert await connection.execute("DELETE FROM every WHERE id = 9") == "DELETE 1"

    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("DELETE FROM every")
    await transaction.rollback()
    assert await connection.fetchval("SELECT count(*) FROM every") == 3
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO every (id) VALUES (50)")
            await connection.execute("INSERT INTO every (id) VALUES (1)")
    except asyncpg.UniqueViolationError as error:
        assert error.sqlstate == "23505"
    else:
        raise AssertionError("a unique violation was expected")
    async with connection.transaction():
        await connection.execute("INSERT INTO every (id) VALUES (50)")
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO every (id) VALUES (51)")
                raise KeyError
        except KeyError:
            pass
    assert [row[0] for row in await connection.fetch("SELECT id FROM every WHERE id >= 50")] == [50]
    await expect(asyncpg.UndefinedTableError, connection.fetch("SELECT * FROM nothing"))
    await expect(asyncpg.PostgresSyntaxError, connection.fetch("SELEKT 1"))
    await expect(asyncpg.InvalidTextRepresentationError, connection.fetch("SELECT 'x'::int"))

    await connection.execute("CREATE TABLE many (id INT PRIMARY KEY, half DOUBLE PRECISION)")
    await connection.executemany("INSERT INTO many VALUES ($1, $2)", [(number, number / 2) for number in range(500)])
    async with connection.transaction():
        seen = [row["id"] async for row in connection.cursor("SELECT id FROM many ORDER BY id", prefetch=50)]
        assert seen == list(range(500)), len(seen)
        cursor = await connection.cursor("SELECT id FROM many WHERE id >= $1 ORDER BY id", 10)
        assert [row[0] for row in await cursor.fetch(3)] == [10, 11, 12]
        assert (await cursor.fetchrow())[0] == 13
        # MOVE in SQL of what was bound by message, before and after its first rows.
        cursor = await connection.cursor("SELECT id FROM many WHERE id >= $1 ORDER BY id", 10)
        assert await cursor.forward(5) == 5
        assert [row[0] for row in await cursor.fetch(3)] == [15, 16, 17]
        assert await cursor.forward(100) == 100
        assert (await cursor.fetchrow())[0] == 118
        assert await cursor.forward(1000) == 381
        assert await cursor.fetchrow() is None

    await connection.execute("CREATE TABLE moment (at TIMESTAMPTZ PRIMARY KEY, name TEXT)")
    at = datetime.datetime(2024, 7, 1, 10, 30, 0, 250000, tzinfo=datetime.timezone.utc)
    await connection.executemany(
        "INSERT INTO moment VALUES ($1, $2)", [(at, "first"), (at + datetime.timedelta(days=1), "second")])
    assert await connection.fetchval("SELECT at FROM moment WHERE name = $1", "first") == at
    west = at.astimezone(datetime.timezone(datetime.timedelta(hours=-3)))
    assert await connection.fetchval("SELECT name FROM moment WHERE at = $1", west) == "first"
    third = (at + datetime.timedelta(days=2), "third")
    assert await connection.copy_records_to_table("moment", records=[third]) == "COPY 1"
    assert await connection.fetchval("SELECT max(at) FROM moment") == third[0]

    # COPY, which it knows in the binary format only for records.
    columns = ["id", "big", "flag", "ratio", "price", "day", "at", "note"]
    records = [(100 + row[0], *row[1:]) for row in ROWS]
    assert await connection.copy_records_to_table("every", records=records, columns=columns) == "COPY 3"
    copied = await connection.fetch("SELECT * FROM every WHERE id > 100 ORDER BY id")
    assert [tuple(row) for row in copied] == records, copied
    out = io.BytesIO()
    assert await connection.copy_from_query("SELECT id, half FROM many", output=out, format="binary") == "COPY 500"
    assert out.getvalue().startswith(b"PGCOPY\n\xff\r\n\0"), out.getvalue()[:20]
    await connection.execute("CREATE TABLE again (id INT PRIMARY KEY, half DOUBLE PRECISION)")
    out.seek(0)
    assert await connection.copy_to_table("again", source=out, format="binary") == "COPY 500"
    await expect(asyncpg.UniqueViolationError, connection.copy_records_to_table("again", records=[(1, 0.0)]))
    assert await connection.fetchval("SELECT sum(half) FROM again") == sum(number / 2 for number in range(500))

    slow = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3"
    await expect(asyncio.TimeoutError, connection.fetch(slow, timeout=0.3))
    assert await connection.fetchval("SELECT 1") == 1

    pool = await asyncpg.create_pool(host=HOST, port=PORT, user="tester", database="entresol", min_size=2, max_size=4)

    async def one(number):
        async with pool.acquire() as own:
            return await own.fetchval("SELECT half FROM many WHERE id = $1", number)

    halves = await asyncio.gather(*(one(number) for number in range(20)))
    assert halves == [number / 2 for number in range(20)], halves
    await pool.close()
    await connection.close()
    print("asyncpg: all is well")


asyncio.run(main())
