"""TPC-H on Entresol and on other databases.

    race.py --entresol BIN --dir DIR [--sf 1] [--threads 2] [--rounds 3] [--repeat 7] [--queries LIST] [--databases LIST]

The 22 queries with the parameters that the specification validates by. Databases: columns and rows (Entresol's server, with
tables of that layout), duckdb (its database file), datafusion (Parquet files).
"""

import decimal
import functools
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "race"))

import databases
import harness


class TpchRace(harness.Race):
    __doc__ = __doc__
    schema = HERE / "schema.sql"
    tables = ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"]
    duckdb_format = "HEADER true"
    ours = {layout: functools.partial(databases.Served, layout=layout) for layout in ["columns", "rows"]}

    def queries(self):
        """Texts of the queries by their numbers."""
        fraction = str(decimal.Decimal("0.0001") / decimal.Decimal(self.arguments.sf))
        texts = {path.stem[1:]: path.read_text().replace(":FRACTION", fraction) for path in (HERE / "queries").glob("q*.sql")}
        return {name: texts[name].strip() for name in sorted(texts) if name in (self.arguments.queries or texts)}

    def file(self, files, table):
        return files / f"{table}.csv"

    def generate(self, files):
        harness.run(pathlib.Path(sys.executable).parent / "tpchgen-cli", "csv", "-s", self.arguments.sf, "--output-dir", files)


if __name__ == "__main__":
    harness.main(TpchRace, sys.argv[1:])
