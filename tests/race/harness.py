"""Race of databases on the queries of a benchmark: the same files, the same threads, the same results.

Files are generated into DIR/files unless --files names others, loaded once into each database, and the queries are run on
one database after another, in as many rounds: each round is a new process of each, which runs a query once and then
--repeat times. `first` is the median of the first runs of a round (a new process; the system's page cache is warm), `hot`
that of all others. Results are compared value by value; the exit status is 1 if one is different, or a query fails, and 2 if a
figure misses what is asked of it.
`processor` is the processor time of all threads for all queries once, hot: that of a round, without that of a process
which runs each query only once, divided by the repeats. On a machine with other work it says more than the times do.

A peer that is not installed is left out, with the reason. DIR/race.json, race.md and race.svg have the times; files and
databases are left for the next run.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import time

import asked
import compare
import databases
import report

def run(*command):
    """Runs a program, which has to succeed; returns its output."""
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Race:
    """What a benchmark has: its files, and the databases that it runs on; the first ones are ours.

    A subclass has `name`, `schema`, `tables`, `duckdb_format`, and `ours` and `peers`: databases by their names, each
    made of a race, a directory and a number of threads. `beside` is the peer that all others are compared with.
    """

    beside = "duckdb"
    # Name of the files with the times.
    stem = "race"
    # Databases that answer a part of the queries alone: they are in no sum.
    partial = ()
    peers = {"duckdb": databases.DuckDb, "datafusion": databases.DataFusion}

    def __init__(self, arguments):
        self.arguments, self.entresol = arguments, arguments.entresol

    @staticmethod
    def add_options(parser):
        """Adds options of its own, which `own_options` gives to its processes."""

    def own_options(self):
        return []

    def prepared(self, files):
        """Directory of the files that databases are loaded from."""
        return files

    def directory(self, database):
        """Directory of a database."""
        return self.arguments.dir / database

    def order_of(self, table):
        """Column by which a table without a key is sorted; none if it comes in any order."""
        return None

    def queries_of(self, database):
        """Queries that a database answers."""
        return self.queries()

    def judged(self, times):
        """Lines about figures that are asked, which end with MISSED where one is missed; none if nothing is asked."""
        return []

    def load(self, database):
        """Loads a database; returns seconds and bytes."""
        databases.begin_anew(self.directory(database))
        return json.loads(self.call(database, "--load"))

    def round(self, database, repeat):
        """Times and results of each query on a database, by a process of its own."""
        return json.loads(self.call(database, "--repeat", repeat))

    def call(self, database, *more):
        arguments = self.arguments
        return run(
            sys.executable, sys.argv[0], "--entresol", arguments.entresol, "--dir", arguments.dir, "--sf", arguments.sf,
            "--files", arguments.files, "--threads", arguments.threads, "--queries", ",".join(arguments.queries),
            "--database", database, *self.own_options(), *more,
        )


def within(race):
    """Loads a database, or runs the queries on it, as a process of its own; prints what `Race` reads, as JSON."""
    arguments = race.arguments
    make = {**race.ours, **race.peers}[arguments.database]
    database = make(race, race.directory(arguments.database), arguments.threads)
    begin = time.perf_counter()
    try:
        if arguments.load:
            database.load(arguments.files)
            said = {"seconds": time.perf_counter() - begin, "bytes": database.bytes()}
        else:
            said = {name: run_query(database, sql, arguments.repeat) for name, sql in race.queries_of(arguments.database).items()}
    finally:
        database.close()
    print(json.dumps(said))


def run_query(database, sql, repeat):
    times = []
    try:
        for _ in range(1 + repeat):
            begin = time.perf_counter()
            columns, rows = database.rows(sql)
            times.append(1000 * (time.perf_counter() - begin))
    except Exception as error:  # Whatever a driver calls it: the race goes on, and says so at its end.
        return {"failed": f"{type(error).__name__}: {error}"}
    rows = [[compare.plain(value) for value in row] for row in rows]
    return {"first_ms": times[0], "repeated_ms": times[1:], "columns": columns, "rows": rows}


def processor_seconds():
    """Processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def round_of(race, database, repeat):
    """Times and results of one round on a database, and its processor time."""
    before = processor_seconds()
    said = race.round(database, repeat)
    return said, processor_seconds() - before


def absence(race, database):
    """Says why a peer cannot run; none if it can."""
    make = race.peers.get(database)
    needs = getattr(getattr(make, "func", make), "needs", ())
    done = subprocess.run([sys.executable, "-c", "".join(f"import {name}\n" for name in needs)], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode != 0 else None


def load(race):
    """Loads all databases that are not there; returns seconds and bytes of those that were loaded."""
    loaded = {}
    for database in race.arguments.databases:
        mark = race.directory(database) / "loaded"
        if mark.exists():
            continue
        loaded[database] = race.load(database)
        mark.touch()
        print(f"{database} is loaded", file=sys.stderr)
    return loaded


def rounds(race):
    """Runs all rounds; returns the times of each database and query, the processor times of each database, and what
    failed or was different."""
    arguments, names = race.arguments, race.arguments.databases
    times, processor = {database: {} for database in names}, {database: [] for database in names}
    started = {database: round_of(race, database, 0)[1] for database in names}
    wrong = []
    for number in range(arguments.rounds):
        by_database = {}
        for database in names:
            said, seconds = round_of(race, database, arguments.repeat)
            by_database[database] = said
            processor[database].append(1000 * (seconds - started[database]) / arguments.repeat)
            for name, query in said.items():
                if "failed" in query:
                    wrong.append(f"{database}, q{name}: {query['failed']}")
                    continue
                known = times[database].setdefault(name, {"first_ms": [], "hot_ms": []})
                known["first_ms"].append(query["first_ms"])
                known["hot_ms"].append(query["repeated_ms"])
        wrong += differences(race, by_database)
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    return times, processor, wrong


def differences(race, by_database):
    """Differences between the results of the first database and those of the others."""
    (first, firsts), *others = by_database.items()
    found = []
    for database, theirs in others:
        for name, sql in race.queries().items():
            one, other = firsts.get(name), theirs.get(name)
            if one is None or other is None or "failed" in one or "failed" in other:
                continue
            different = compare.difference(name, sql, one["columns"], one["rows"], other["rows"])
            if different:
                found.append(f"{first} and {database}, {different}")
    return found


def arguments_of(race, command_line):
    known = [*race.ours, *race.peers]
    description = race.__doc__ + "\n\n" + __doc__
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entresol", type=pathlib.Path, required=True, help="program of Entresol")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="directory of files, databases and times")
    parser.add_argument("--sf", default="1", help="scale factor of the files that are generated")
    parser.add_argument("--files", "--tbl", type=pathlib.Path, help="directory of files of any generator")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--queries", default="", help="queries to run, with commas between; all if empty")
    parser.add_argument("--databases", default=",".join(known), help="databases to race, with commas between")
    parser.add_argument("--database", choices=known, help=argparse.SUPPRESS)
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    race.add_options(parser)
    arguments = parser.parse_args(command_line)
    arguments.queries = [name for name in arguments.queries.split(",") if name]
    arguments.databases = [name for name in arguments.databases.split(",") if name]
    unknown = [name for name in arguments.databases if name not in known]
    if unknown:
        parser.error(f"no databases {', '.join(unknown)}: there are {', '.join(known)}")
    # A process of one database may run each query once.
    repeat_min = 0 if arguments.database else 1
    if min(arguments.threads, arguments.rounds) < 1 or arguments.repeat < repeat_min:
        parser.error("--threads, --rounds and --repeat are at least 1")
    return arguments


def main(race_of, command_line):
    """Runs a race of a class of `Race`, or its part within a process of its own."""
    race = race_of(arguments_of(race_of, command_line))
    arguments = race.arguments
    if arguments.database:
        return within(race)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    absent = {database: why for database in arguments.databases if (why := absence(race, database))}
    for database, why in absent.items():
        print(f"{database} is left out: {why}", file=sys.stderr)
    arguments.databases = [database for database in arguments.databases if database not in absent]
    if arguments.files is None:
        arguments.files = arguments.dir / "files"
        if not (arguments.dir / "generated").exists():
            race.generate(arguments.files)
            (arguments.dir / "generated").touch()
    arguments.files = race.prepared(arguments.files)
    loaded = load(race)
    times, processor, wrong = rounds(race)
    text = report.text(race, times, processor, loaded)
    (arguments.dir / f"{race.stem}.md").write_text(text)
    (arguments.dir / f"{race.stem}.svg").write_text(report.plot(race, times))
    kept = {
        "times": times, "processor_ms": processor, "loaded": loaded, "threads": arguments.threads, "absent": absent,
        "wrong": wrong, "judged": race.judged(times),
    }
    (arguments.dir / f"{race.stem}.json").write_text(json.dumps(kept, indent=1))
    print(text, end="")
    for found in wrong:
        print(f"WRONG: {found}")
    if wrong:
        sys.exit(1)
    compared = "all results are equal" if len(arguments.databases) > 1 else "no other database was there to compare with"
    print(f"{compared}; times are in {arguments.dir}/{race.stem}.md, {race.stem}.json and {race.stem}.svg")
    missed = [line for line in kept["judged"] if line.endswith(asked.MISSED)]
    if missed:
        print(f"{len(missed)} of {len(kept['judged'])} figures miss what is asked of them")
        sys.exit(2)
