"""Star Schema Benchmark on Entresol and on other databases.

    race.py --entresol BIN --dir DIR [--sf 1 | --files TBL_DIR] [--threads 2] [--rounds 3] [--repeat 7] [--databases LIST]

Databases: entresol (tables by column, `entresol ssb run`), duckdb (its database file), datafusion (Parquet files),
clickhouse (chdb, tables of MergeTree).
"""

import csv
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "race"))

import databases
import harness

CRATE = HERE.parents[1] / "crates" / "ssb"
OURS = "entresol"


class SsbRace(harness.Race):
    __doc__ = __doc__
    schema = CRATE / "schema.sql"
    tables = ["customer", "supplier", "part", "date", "lineorder"]
    duckdb_format = "DELIMITER '|', HEADER false"
    ours = {OURS: None}
    peers = {**harness.Race.peers, "clickhouse": databases.ClickHouse}

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
        ours = self.arguments.dir / OURS
        begin = time.perf_counter()
        harness.run(self.entresol, "ssb", "load", self.arguments.files, "--dir", ours, "--force")
        return {"seconds": time.perf_counter() - begin, "bytes": (ours / "pool.entresol").stat().st_blocks * 512}

    def round(self, database, repeat):
        if database != OURS:
            return super().round(database, repeat)
        arguments = self.arguments
        report, saved = arguments.dir / "entresol.json", arguments.dir / "entresol-results"
        harness.run(
            self.entresol, "ssb", "run", "--dir", arguments.dir / OURS, "--threads", arguments.threads,
            "--queries", ",".join(self.queries()), "--repeat", repeat, "--json", report, "--save", saved,
        )
        times = {query["query"]: query for query in json.loads(report.read_text())["queries"]}
        for name, query in times.items():
            with open(saved / f"q{name}.csv", newline="") as file:
                query["columns"], *query["rows"] = csv.reader(file)
        return times


if __name__ == "__main__":
    harness.main(SsbRace, sys.argv[1:])
