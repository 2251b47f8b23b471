"""Selections on several attributes on Entresol and on other databases.

    race.py --entresol BIN --dir DIR [--sf 1] [--threads 2] [--rounds 3] [--repeat 7] [--queries LIST] [--databases LIST]

Conjunctions of ranges over one to six attributes with selectivities from 0.001% to 100%, of five million uniform tuples
times the scale factor, with ten attributes of a hundred values, and of TPC-H's lineitem; and two hundred points by key.

Databases: elf (Entresol by columns, with an Elf of six attributes), columns (without), clustered (by three of them), auto (the
layout that the selections ask for), rows (points alone); duckdb, duckdb-sorted (by the attributes), plain-scan (numpy on plain
columns in memory, one thread), rocksdb (points alone). Those of Entresol are a server, with the way to it in their times; the
others are within the process. `judged` has the ratios that are asked, and says which are met; a wrong result is exit status 1, a
ratio that misses what is asked exit status 2.
"""

import functools
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "race"))
sys.path.insert(0, str(HERE))

import asked
import databases
import harness
import peers
import report
import selections

UNIFORM_ROWS = 5_000_000
BATCH_ROWS = 500_000
POINTS_ALONE = ("rows", "rocksdb")
# Asked beside DuckDB: database, number of attributes, least and greatest share, times as fast.
ASKED = [
    ("elf", range(3, 7), 0.0, 0.00099, 20.0),
    ("elf", range(3, 7), 0.0099, 0.0101, 4.0),
    ("elf", range(1, 7), 0.0, 1.0, 1 / 1.2),
    ("auto", range(1, 7), 0.0, 1.0, 1 / 1.2),
]


class SelectionRace(harness.Race):
    __doc__ = __doc__
    schema = HERE / "schema.sql"
    tables = ["uniform", "lineitem"]
    duckdb_format = "HEADER true"
    partial = POINTS_ALONE
    ours = {
        "elf": peers.WithElf,
        "columns": functools.partial(databases.Served, layout="columns"),
        "clustered": peers.Clustered,
        "auto": peers.Auto,
        "rows": functools.partial(databases.Served, layout="rows"),
    }
    peers = {
        "duckdb": databases.DuckDb, "duckdb-sorted": peers.DuckDbSorted, "plain-scan": peers.PlainScan,
        "rocksdb": peers.RocksDb,
    }

    def __init__(self, arguments):
        super().__init__(arguments)
        self.scale = float(arguments.sf)
        self.uniform_rows = max(1_000, int(UNIFORM_ROWS * self.scale))
        named = selections.selections(self.scale, self.uniform_rows)
        self.named = {name: of for name, of in named.items() if name in (arguments.queries or named)}
        self.by_sql = {of.sql(): of for of in self.named.values()}

    def selection(self, sql):
        return self.by_sql[sql]

    def queries(self):
        return {name: of.sql() for name, of in self.named.items()}

    def queries_of(self, database):
        """Queries that a database answers: some know points alone, a scan of plain columns has no keys."""
        is_point = lambda of: bool(of.keys)
        answers = {name: True for name in self.named}
        if database in POINTS_ALONE:
            answers = {name: is_point(of) for name, of in self.named.items()}
        elif database == "plain-scan":
            answers = {name: not is_point(of) for name, of in self.named.items()}
        return {name: sql for name, sql in self.queries().items() if answers[name]}

    def file(self, files, table):
        return files / f"{table}.csv"

    def generate(self, files):
        import pyarrow.csv

        whole = files / "whole"
        whole.mkdir(parents=True, exist_ok=True)
        generator = pathlib.Path(sys.executable).parent / "tpchgen-cli"
        harness.run(generator, "csv", "-s", self.arguments.sf, "--tables", "lineitem", "--output-dir", whole)
        names = [
            "l_shipdate", "l_discount", "l_quantity", "l_suppkey", "l_tax", "l_partkey", "l_extendedprice",
        ]
        convert = pyarrow.csv.ConvertOptions(include_columns=names)
        reader = pyarrow.csv.open_csv(whole / "lineitem.csv", convert_options=convert)
        write(self.file(files, "lineitem"), (with_whole_quantity(batch) for batch in reader))
        (whole / "lineitem.csv").unlink()
        write(self.file(files, "uniform"), uniform(self.uniform_rows))

    def judged(self, times):
        """Figures that are asked, each with its verdict."""
        lines = []
        for database, attributes, least, greatest, speed in ASKED:
            if database not in times or "duckdb" not in times:
                continue
            ours, ratios = times[database], {}
            for name, of in self.named.items():
                is_asked = of.ranges and len(of.ranges) in attributes and least <= of.share <= greatest
                if is_asked and name in ours and name in times["duckdb"]:
                    ratios[name] = report.hot(times["duckdb"][name]) / report.hot(ours[name])
            if not ratios:
                continue
            worst = min(ratios, key=ratios.get)
            verdict = "met" if ratios[worst] >= speed else asked.MISSED
            lines.append(
                f"{attributes[0]} to {attributes[-1]} attributes, {100 * least:g}% to {100 * greatest:g}%: {database} is "
                f"{statistics.median(ratios.values()):.2f} times as fast as duckdb in the median, {ratios[worst]:.2f} at worst "
                f"({worst}); asked {speed:.2f}: {verdict}"
            )
        return lines


def with_whole_quantity(batch):
    """The batch with its quantity, which is a whole number, as an integer."""
    import pyarrow

    at = batch.schema.get_field_index("l_quantity")
    return batch.set_column(at, "l_quantity", batch.column(at).cast(pyarrow.int32()))


def uniform(rows):
    """Batches of uniform tuples: a key, ten attributes, a value."""
    import numpy
    import pyarrow

    drawn = numpy.random.default_rng(selections.SEED)
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        columns = {"id": numpy.arange(first, first + count)}
        columns |= {f"a{number}": drawn.integers(0, 100, count, dtype=numpy.int32) for number in range(10)}
        columns["value"] = drawn.integers(0, 1 << 40, count)
        yield pyarrow.RecordBatch.from_pydict(columns)


def write(path, batches):
    """Writes batches as CSV."""
    import pyarrow.csv

    writer = None
    for batch in batches:
        writer = writer or pyarrow.csv.CSVWriter(path, batch.schema)
        writer.write_batch(batch)
    writer.close()


if __name__ == "__main__":
    harness.main(SelectionRace, sys.argv[1:])
