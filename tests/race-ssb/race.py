"""Star Schema Benchmark on Entresol and on other databases: the same files, the same threads, the same results.

    race.py --entresol BIN --dir DIR [--sf 1 | --tbl TBL_DIR] [--threads 2] [--rounds 3] [--repeat 7] [--peers LIST]

Files are generated into DIR/tbl unless --tbl names others, loaded once into each database, and the 13 queries are run on
one database after another, in as many rounds: each round is a new process of each, which runs a query once and then
--repeat times. `first` is the median of the first runs of a round (a new process; the system's page cache is warm), `hot`
that of all others. Results are compared value by value; the exit status is 1 if one is different. `processor` is the
processor time of all threads for the 13 queries once, hot: that of a round, without that of a process which runs each
query only once, divided by the repeats. On a machine with other work it says more than the times do.

Peers: duckdb (its database file), datafusion (Parquet files without compression, as DuckDB writes them).
DIR/race.json, race.md and race.svg have the times; files and databases are left for the next run.
"""

import argparse
import csv
import json
import math
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
QUERIES = HERE.parents[1] / "crates" / "ssb" / "queries"
SCHEMA = HERE.parents[1] / "crates" / "ssb" / "schema.sql"
TABLES = ["customer", "supplier", "part", "date", "lineorder"]
OURS = "entresol"
# Told apart by people who do not see red and green, too (Paul Tol's bright scheme).
COLOURS = ["#4477aa", "#ee6677", "#ccbb44", "#aa3377"]


def queries():
    """Texts of the queries by their numbers."""
    return {path.stem[1:]: path.read_text().strip().rstrip(";") for path in sorted(QUERIES.glob("q*.sql"))}


def run(*command):
    """Runs a program, which has to succeed; returns its output."""
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class DuckDb:
    """DuckDB on a database file."""

    def __init__(self, directory, threads):
        import duckdb

        self.path = directory / "ssb.duckdb"
        self.connection = duckdb.connect(str(self.path), config={"threads": threads})

    def load(self, tbl):
        self.connection.execute(SCHEMA.read_text())
        for table in TABLES:
            self.connection.execute(f"COPY \"{table}\" FROM '{tbl / table}.tbl' (DELIMITER '|', HEADER false)")
        self.connection.execute("CHECKPOINT")

    def bytes(self):
        return self.path.stat().st_size

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()


class DataFusion:
    """DataFusion on Parquet files."""

    def __init__(self, directory, threads):
        import datafusion

        self.directory = directory
        config = datafusion.SessionConfig().with_target_partitions(threads)
        self.context = datafusion.SessionContext(config)
        for table in TABLES:
            path = directory / f"{table}.parquet"
            if path.exists():
                self.context.register_parquet(table, str(path))

    def load(self, tbl):
        import duckdb

        connection = duckdb.connect()
        connection.execute(SCHEMA.read_text())
        for table in TABLES:
            connection.execute(f"COPY \"{table}\" FROM '{tbl / table}.tbl' (DELIMITER '|', HEADER false)")
            path = self.directory / f"{table}.parquet"
            connection.execute(f"COPY \"{table}\" TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")

    def bytes(self):
        return sum(path.stat().st_size for path in self.directory.glob("*.parquet"))

    def rows(self, sql):
        batches = self.context.sql(sql).collect()
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


PEERS = {"duckdb": DuckDb, "datafusion": DataFusion}


def peer_process(arguments):
    """Loads a peer, or runs the queries on it, in a process of its own; prints what `main` reads, as JSON."""
    directory = arguments.dir / arguments.peer
    peer = PEERS[arguments.peer](directory, arguments.threads)
    if arguments.load:
        begin = time.perf_counter()
        peer.load(arguments.tbl)
        return print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": peer.bytes()}))
    report = {}
    for name, sql in queries().items():
        times = []
        for _ in range(1 + arguments.repeat):
            begin = time.perf_counter()
            rows = peer.rows(sql)
            times.append(1000 * (time.perf_counter() - begin))
        values = [["" if value is None else str(value) for value in row] for row in rows]
        report[name] = {"first_ms": times[0], "repeated_ms": times[1:], "rows": values}
    print(json.dumps(report))


def processor_seconds():
    """Processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def load(arguments):
    """Loads all databases that are not there; returns seconds and bytes of those that were loaded."""
    loaded = {}
    ours = arguments.dir / OURS
    if not ours.exists():
        begin = time.perf_counter()
        run(arguments.entresol, "ssb", "load", arguments.tbl, "--dir", ours)
        loaded[OURS] = {"seconds": time.perf_counter() - begin, "bytes": (ours / "pool.entresol").stat().st_blocks * 512}
    for peer in arguments.peers:
        directory = arguments.dir / peer
        if (directory / "loaded").exists():
            continue
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        loaded[peer] = json.loads(peer_call(arguments, peer, "--load"))
        (directory / "loaded").touch()
    return loaded


def peer_call(arguments, peer, *more):
    return run(
        sys.executable, __file__, "--dir", arguments.dir, "--tbl", arguments.tbl, "--threads", arguments.threads,
        "--peer", peer, *more,
    )


def round_of(arguments, database, repeat):
    """Times and results of one round on a database, and its processor time."""
    before = processor_seconds()
    if database == OURS:
        report = ours_once(arguments, repeat)
    else:
        report = json.loads(peer_call(arguments, database, "--repeat", repeat))
    return report, processor_seconds() - before


def ours_once(arguments, repeat):
    """Times and results of one round on Entresol."""
    report, saved = arguments.dir / "entresol.json", arguments.dir / "entresol-results"
    run(
        arguments.entresol, "ssb", "run", "--dir", arguments.dir / OURS, "--threads", arguments.threads,
        "--repeat", repeat, "--json", report, "--save", saved,
    )
    times = {query["query"]: query for query in json.loads(report.read_text())["queries"]}
    for name, query in times.items():
        with open(saved / f"q{name}.csv", newline="") as file:
            query["columns"], *query["rows"] = csv.reader(file)
    return times


def difference(name, sql, columns, rows, others):
    """Describes the first difference of two results; none if they are equal but for the order of rows that ORDER BY
    does not tell apart."""
    if len(rows) != len(others):
        return f"q{name}: {len(rows)} rows, not {len(others)}"
    ordered = re.search(r"ORDER BY (.*)$", sql, re.DOTALL)
    names = [part.split()[0] for part in ordered.group(1).split(",")] if ordered else []
    keys = [columns.index(key) for key in names]
    for row, other in zip(rows, others):
        if [row[key] for key in keys] != [other[key] for key in keys]:
            return f"q{name}: {row} where the other has {other}"
    for row, other in zip(sorted(rows), sorted(others)):
        if row != other:
            return f"q{name}: {row}, not {other}"
    return None


def race(arguments):
    """Runs all rounds; returns the times of each database and query, the processor times of each database, and the
    differences of results."""
    databases = [OURS, *arguments.peers]
    times, processor = {database: {} for database in databases}, {database: [] for database in databases}
    started = {database: round_of(arguments, database, 0)[1] for database in databases}
    differences = []
    for number in range(arguments.rounds):
        ours = None
        for database in databases:
            report, seconds = round_of(arguments, database, arguments.repeat)
            processor[database].append(1000 * (seconds - started[database]) / arguments.repeat)
            for name, query in report.items():
                known = times[database].setdefault(name, {"first_ms": [], "hot_ms": []})
                known["first_ms"].append(query["first_ms"])
                known["hot_ms"].append(query["repeated_ms"])
            ours = ours or report
            for name, sql in queries().items():
                found = difference(name, sql, ours[name]["columns"], ours[name]["rows"], report[name]["rows"])
                if found:
                    differences.append(f"{OURS} and {database}, {found}")
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    return times, processor, differences


def hot(query):
    return statistics.median([ms for of_round in query["hot_ms"] for ms in of_round])


def first(query):
    return statistics.median(query["first_ms"])


def sums_of_rounds(queries_of):
    """Sum over the queries of the medians of each round."""
    rounds = zip(*(query["hot_ms"] for query in queries_of.values()))
    return [sum(statistics.median(ms) for ms in of_round) for of_round in rounds]


def table(times, processor):
    """Markdown table of the times."""
    databases = list(times)
    header = [f"{database} {kind}" for kind in ["hot", "first"] for database in databases]
    lines = ["| query | " + " | ".join(header) + " |", "| --- |" + " ---: |" * len(header)]
    for name in queries():
        cells = [f"{of(times[database][name]):.1f}" for of in [hot, first] for database in databases]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    sums = [sum(of(query) for query in times[database].values()) for of in [hot, first] for database in databases]
    lines.append("| sum | " + " | ".join(f"{ms:.0f}" for ms in sums) + " |")
    cells = [f"{statistics.median(processor[database]):.0f}" for database in databases]
    lines.append("| processor | " + " | ".join(cells + [""] * len(databases)) + " |")
    return "\n".join(lines) + "\n"


def ratios(times, processor):
    """Lines that say how many times as long as ours the others take, by the sums of each round."""
    ours = sums_of_rounds(times[OURS])
    lines = []
    for peer in list(times)[1:]:
        of_rounds = [theirs / own for theirs, own in zip(sums_of_rounds(times[peer]), ours)]
        slower = [name for name in times[peer] if hot(times[OURS][name]) > hot(times[peer][name])]
        lines.append(
            f"{peer}: {statistics.median(of_rounds):.2f} times the time of {OURS} (rounds "
            f"{min(of_rounds):.2f} to {max(of_rounds):.2f}), "
            f"{statistics.median(processor[peer]) / statistics.median(processor[OURS]):.2f} times its processor time; "
            f"{OURS} is slower in {', '.join(slower) or 'no query'}"
        )
    return lines


def plot(times):
    """Bars of the hot times as SVG."""
    names, databases = list(queries()), list(times)
    greatest = max(hot(query) for of in times.values() for query in of.values())
    step = 10 ** math.floor(math.log10(greatest))
    step = step / 2 if greatest / step < 4 else step
    bar, left, height = 14, 60, 260
    group = bar * len(databases) + 16
    width = left + group * len(names) + 20
    y = lambda ms: 40 + height * (1 - ms / greatest)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 80}" font-family="sans-serif" '
             'font-size="11">', f'<rect width="{width}" height="{height + 80}" fill="white"/>']
    for at in range(int(greatest / step) + 1):
        parts.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(at * step):.1f}" y2="{y(at * step):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(at * step) + 4:.1f}" text-anchor="end">{at * step:g} ms</text>')
    for at, name in enumerate(names):
        x = left + at * group + 8
        parts.append(f'<text x="{x + bar * len(databases) / 2}" y="{height + 56}" text-anchor="middle">{name}</text>')
        for number, database in enumerate(databases):
            top = y(hot(times[database][name]))
            parts.append(f'<rect x="{x + number * bar}" y="{top:.1f}" width="{bar - 2}" height="{40 + height - top:.1f}" '
                         f'fill="{COLOURS[number % len(COLOURS)]}"/>')
    for number, database in enumerate(databases):
        x = left + 110 * number
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 16}" y="22">{database}</text>')
    return "\n".join([*parts, "</svg>\n"])


def arguments_of(command_line):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entresol", type=pathlib.Path, help="program of Entresol")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="directory of files, databases and times")
    parser.add_argument("--sf", default="1", help="scale factor of the files that are generated")
    parser.add_argument("--tbl", type=pathlib.Path, help="directory of .tbl files of any generator")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--peers", default=",".join(PEERS), help="databases to race against, with commas between")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(command_line)
    arguments.peers = [peer for peer in arguments.peers.split(",") if peer]
    unknown = [peer for peer in arguments.peers if peer not in PEERS]
    if unknown:
        parser.error(f"no peers {', '.join(unknown)}: there are {', '.join(PEERS)}")
    # A process of a peer may run each query once.
    repeat_min = 0 if arguments.peer else 1
    if min(arguments.threads, arguments.rounds) < 1 or arguments.repeat < repeat_min:
        parser.error("--threads, --rounds and --repeat are at least 1")
    if not arguments.peer and not arguments.entresol:
        parser.error("--entresol names the program")
    return arguments


def main(command_line):
    arguments = arguments_of(command_line)
    if arguments.peer:
        return peer_process(arguments)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    if arguments.tbl is None:
        arguments.tbl = arguments.dir / "tbl"
        if not (arguments.tbl / "lineorder.tbl").exists():
            run(arguments.entresol, "ssb", "generate", "--sf", arguments.sf, "--out", arguments.tbl)
    loaded = load(arguments)
    times, processor, differences = race(arguments)
    lines = [f"{database}: loaded in {of['seconds']:.1f} s, {of['bytes'] / 1e6:.0f} MB" for database, of in loaded.items()]
    text = "\n".join([table(times, processor), *ratios(times, processor), *lines]) + "\n"
    (arguments.dir / "race.md").write_text(text)
    (arguments.dir / "race.svg").write_text(plot(times))
    report = {"times": times, "processor_ms": processor, "loaded": loaded, "threads": arguments.threads, "differences": differences}
    (arguments.dir / "race.json").write_text(json.dumps(report, indent=1))
    print(text, end="")
    for found in differences:
        print(f"DIFFERENT: {found}")
    if differences:
        sys.exit(1)
    print(f"all results are equal; times are in {arguments.dir}/race.md, race.json and race.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
