"""Star Schema Benchmark on Entresol and on other databases.

    race.py --entresol BIN --dir DIR [--sf 1 | --files TBL_DIR] [--sorted] [--threads 2] [--rounds 3] [--repeat 7]
            [--databases LIST]

Databases: entresol (tables by column, `entresol ssb run`), duckdb (its database file), duckdb-parquet and datafusion (Parquet
files), clickhouse (chdb, tables of MergeTree). With --sorted, all are loaded from a lineorder that is sorted by lo_orderdate.

Asked are a quarter of the time of duckdb, a third with --sorted, and no query that takes more than 1.2 times as long as on
the best peer. They are judged from scale factor 1 on, with all queries; tests/race/known-misses.toml lists known misses.
"""

import csv
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "race"))

import asked
import databases
import harness
import report

CRATE = HERE.parents[1] / "crates" / "ssb"
OURS = "entresol"
FILE_ASKED, SORTED_ASKED, WORST_ASKED = 1 / 4, 1 / 3, 1.2
ALL_QUERIES, WORST_QUERY = "time of all queries beside duckdb", "time of the worst query beside the best peer"
SORT_COLUMN = "lo_orderdate"
# The same column as a field of the lines of lineorder, from 1 on.
SORT_FIELD = 6


class SsbRace(harness.Race):
    __doc__ = __doc__
    schema = CRATE / "schema.sql"
    tables = ["customer", "supplier", "part", "date", "lineorder"]
    duckdb_format = "DELIMITER '|', HEADER false"
    ours = {OURS: None}
    peers = {
        "duckdb": databases.DuckDb, "duckdb-parquet": databases.DuckDbParquet, "datafusion": databases.DataFusion,
        "clickhouse": databases.ClickHouse,
    }

    @staticmethod
    def add_options(parser):
        parser.add_argument("--sorted", action="store_true", help=f"sort lineorder by {SORT_COLUMN} before it is loaded")

    def __init__(self, arguments):
        super().__init__(arguments)
        self.stem = "race-sorted" if arguments.sorted else "race"

    def own_options(self):
        return ["--sorted"] if self.arguments.sorted else []

    def directory(self, database):
        return self.arguments.dir / (f"{database}-sorted" if self.arguments.sorted else database)

    def order_of(self, table):
        return SORT_COLUMN if self.arguments.sorted and table == "lineorder" else None

    def prepared(self, files):
        """The files, or links to them beside a lineorder that is sorted."""
        if not self.arguments.sorted:
            return files
        directory = self.arguments.dir / "files-sorted"
        if not (directory / "sorted").exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            for table in self.tables:
                if table != "lineorder":
                    self.file(directory, table).symlink_to(self.file(files, table).resolve())
            subprocess.run(
                ["sort", "--stable", "--field-separator=|", f"--key={SORT_FIELD},{SORT_FIELD}n", "--temporary-directory",
                 directory, "--output", self.file(directory, "lineorder"), self.file(files, "lineorder")],
                check=True, env={**os.environ, "LC_ALL": "C"},
            )
            (directory / "sorted").touch()
        return directory

    def judged(self, times):
        name, most = ("race-ssb-sorted", SORTED_ASKED) if self.arguments.sorted else ("race-ssb", FILE_ASKED)
        known = asked.known_misses(name, [ALL_QUERIES, WORST_QUERY])
        is_judged = float(self.arguments.sf) >= 1 and not self.arguments.queries
        figures = []
        if OURS in times and times.get("duckdb"):
            ratios = report.rounds_beside(times, OURS, "duckdb")
            figures.append(asked.AskedFigure(ALL_QUERIES, statistics.median(ratios or [math.nan]), most))
        worst = report.worst_beside_best(times, OURS, [name for name in times if name != OURS]) if OURS in times else None
        if worst:
            figures.append(asked.AskedFigure(WORST_QUERY, worst[0], WORST_ASKED))
        return [figure.line(known, is_judged) for figure in figures]

    def queries(self):
        """Texts of the queries by their numbers."""
        texts = {path.stem[1:]: path.read_text().strip().rstrip(";") for path in sorted((CRATE / "queries").glob("q*.sql"))}
        return {name: sql for name, sql in texts.items() if name in (self.arguments.queries or texts)}

    def file(self, files, table):
        return files / f"{table}.tbl"

    def generate(self, files):
        harness.run(self.entresol, "ssb", "generate", "--sf", self.arguments.sf, "--out", files)

    def load(self, database):
        if database != OURS:
            return super().load(database)
        ours = self.directory(OURS)
        begin = time.perf_counter()
        harness.run(self.entresol, "ssb", "load", self.arguments.files, "--dir", ours, "--force")
        return {"seconds": time.perf_counter() - begin, "bytes": (ours / "pool.entresol").stat().st_blocks * 512}

    def round(self, database, repeat):
        if database != OURS:
            return super().round(database, repeat)
        arguments = self.arguments
        report, saved = arguments.dir / "entresol.json", arguments.dir / "entresol-results"
        harness.run(
            self.entresol, "ssb", "run", "--dir", self.directory(OURS), "--threads", arguments.threads,
            "--queries", ",".join(self.queries()), "--repeat", repeat, "--json", report, "--save", saved,
        )
        times = {query["query"]: query for query in json.loads(report.read_text())["queries"]}
        for name, query in times.items():
            with open(saved / f"q{name}.csv", newline="") as file:
                query["columns"], *query["rows"] = csv.reader(file)
        return times


if __name__ == "__main__":
    harness.main(SsbRace, sys.argv[1:])
