"""Random queries against Entresol and DuckDB: the same rows, or an error of both.

    run.py --queries 1000 [--seed N]        a seed N:INDEX runs one query again

Entresol is behind the pipes: a test of the crate `query` starts this, see crates/query/tests/query/random.rs. The seed is
printed; a query that differs is printed with its seed, its tables, both results, and made smaller.
"""

import argparse
import collections
import datetime
import decimal
import math
import random
import sys
import time

import duckdb

from generate import Generator, tables
from tree import minimised

# Queries that may run while one is made smaller.
MINIMISING = 400
# Differences that are shown before it is given up.
SHOWN_MAX = 10
# Queries on the same tables.
TABLES = 50
PARSERS = {
    "integer": int,
    "double": float,
    "decimal": decimal.Decimal,
    "boolean": lambda text: text == "true",
    "date": datetime.date.fromisoformat,
    "text": str,
}


class Refused(Exception):
    """An error of ours."""


def ask(sql):
    """The rows that Entresol gives."""
    print(sql.replace("\n", " "), flush=True)
    rows, types = [], None
    while True:
        line = sys.stdin.readline()
        if not line:
            raise EOFError("Entresol is not there any more")
        line = line.rstrip("\n")
        if line.startswith("!"):
            raise Refused(line[1:])
        if line == "." :
            return rows
        if types is None:
            types = [PARSERS[name] for name in line.split(",")]
            continue
        values = line.split("\x1f")
        rows.append(tuple(None if value == "\0" else parse(value) for parse, value in zip(types, values)))


def say(text):
    print(text, file=sys.stderr, flush=True)


def plain(value):
    """A value of either engine in a form that can be sorted: integers and decimals of all widths are numbers."""
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, (int, decimal.Decimal, float)):
        number = float(value)
        return (2, 0.0 if number == 0 else float(f"{number:.9g}"))
    if isinstance(value, datetime.date):
        return (3, value.isoformat())
    return (4, str(value))


def same(left, right, ordered):
    left, right = ([tuple(plain(value) for value in row) for row in rows] for rows in (left, right))
    if not ordered:
        left.sort()
        right.sort()
    if len(left) != len(right):
        return False
    # DuckDB's quotients are DOUBLEs, ours exact: the last digits may differ.
    close = lambda one, two: one == two or (
        one[0] == two[0] == 2 and math.isclose(one[1], two[1], rel_tol=1e-8, abs_tol=1e-12))
    return all(len(a) == len(b) and all(map(close, a, b)) for a, b in zip(left, right))


class Engines:
    """The two, with the same tables."""

    # The tables that were printed last.
    shown = None

    def fill(self, statements, by_columns):
        self.peer = duckdb.connect()
        self.peer.execute("SET threads = 1")
        # As PostgreSQL has them.
        self.peer.execute("SET integer_division = true")
        self.peer.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        for name in ("t1", "t2", "t3"):
            ask(f"DROP TABLE IF EXISTS {name}")
        for statement in statements:
            is_table = by_columns and statement.startswith("CREATE TABLE")
            ask(f"{statement} WITH (layout = 'columns')" if is_table else statement)
            self.peer.execute(statement)
        if by_columns:
            # Rows become row groups.
            ask("VACUUM")

    def run(self, sql):
        """Rows or the error of each."""
        try:
            ours = ask(sql)
        except Refused as error:
            ours = error
        try:
            peer = self.peer.execute(sql).fetchall()
        except duckdb.Error as error:
            peer = error
        return ours, peer

    def verdict(self, sql, order):
        """How the answers compare; `order` is the clause that the rows are ordered by, if it is still there."""
        ours, peer = self.run(sql)
        ordered = order != "" and order in sql
        failed = isinstance(ours, Exception), isinstance(peer, Exception)
        if failed == (False, False):
            return "the same" if same(ours, peer, ordered) else "other rows"
        if failed == (True, True) and "nternal error" not in str(ours):
            return "an error of both"
        return "an error of ours" if failed[0] else "an error of the peer"


def shown(result):
    if isinstance(result, Exception):
        return f"  {type(result).__name__}: {str(result).strip()[:600]}"
    rows = sorted(result, key=lambda row: [plain(value) for value in row])
    lines = [f"  {row}" for row in rows[:15]]
    return "\n".join(lines + [f"  and {len(rows) - 15} more"] * (len(rows) > 15)) or "  no rows"


def report(engines, at, statements, query, order, verdict):
    original = query.sql()
    # An error of ours is to stay the same error.
    text = lambda sql: str(engines.run(sql)[0])[:40] if verdict == "an error of ours" else ""
    first = text(original)
    fails = lambda sql: engines.verdict(sql, order) == verdict and text(sql) == first
    small = minimised(query, fails, MINIMISING)
    say(f"\n== {verdict}: seed {at}")
    if engines.shown != statements:
        say(";\n".join(statements) + ";")
        engines.shown = statements
    say(f"-- as generated:\n{original};\n-- smaller:\n{small};")
    ours, peer = engines.run(small)
    say(f"-- Entresol:\n{shown(ours)}\n-- DuckDB:\n{shown(peer)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", default="")
    arguments = parser.parse_args()
    seed, _, only = (arguments.seed or str(random.SystemRandom().randrange(10**9))).partition(":")
    first, last = (int(only), int(only) + 1) if only else (0, arguments.queries)
    say(f"random queries, seed {seed}")
    engines, counts, refused = Engines(), collections.Counter(), collections.Counter()
    started, differences, filled = time.monotonic(), 0, None
    for index in range(first, last):
        if filled != index // TABLES:
            filled = index // TABLES
            statements, made = tables(random.Random(f"{seed}/{filled}"))
            # Every other set of tables is stored by columns.
            engines.fill(statements, filled % 2 == 1)
        query, order = Generator(random.Random(f"{seed}:{index}"), made).query()
        verdict = engines.verdict(query.sql(), order)
        counts[verdict] += 1
        if verdict in ("an error of the peer", "an error of both"):
            ours, peer = engines.run(query.sql())
            refused[str(peer if verdict.endswith("peer") else ours).split("\n")[0][:70]] += 1
        if verdict in ("other rows", "an error of ours"):
            differences += 1
            report(engines, f"{seed}:{index}", statements, query, order, verdict)
            if differences >= SHOWN_MAX:
                break
        if (index + 1) % 1000 == 0:
            rate = (index + 1 - first) / (time.monotonic() - started)
            say(f"{index + 1} queries, {rate:.0f} a second: {dict(counts)}")
    say(f"seed {seed}: {dict(counts)}")
    for message, count in refused.most_common(8):
        say(f"  {count} times not compared: {message}")
    # What is compared must be most of what was asked.
    compared = counts["the same"] + counts["other rows"]
    sys.exit(differences > 0 or compared * 10 < 9 * sum(counts.values()))


main()
