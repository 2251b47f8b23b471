"""Databases of the race beside those that all races have: Entresol with an Elf, clustered, with the layout `auto`; DuckDB on
sorted tables; a scan of plain columns in memory; RocksDB by key."""

import decimal
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "race"))

import databases
import selections

# Runs of each query from which the layout `auto` is chosen.
RECORDED_RUNS = 4


class Clustered(databases.Served):
    """Clustered by the first three attributes."""

    def __init__(self, race, directory, threads):
        super().__init__(race, directory, threads, layout="clustered")

    def options_of(self, table):
        dimensions = ", ".join(of.name for of in selections.attributes(table, self.race.scale)[:3])
        return f"layout = 'clustered', cluster_by = ({dimensions})"


class WithElf(databases.Served):
    """By columns, with an Elf of all attributes of which there are conditions."""

    def __init__(self, race, directory, threads):
        super().__init__(race, directory, threads, layout="columns")

    def load(self, files):
        super().load(files)
        for table in self.race.tables:
            columns = ", ".join(of.name for of in selections.attributes(table, self.race.scale))
            self.connection.execute(f"CREATE INDEX {table}_elf ON {table} USING elf ({columns})")


class Auto(databases.Served):
    """Layout that the recorded selections ask for."""

    def __init__(self, race, directory, threads):
        super().__init__(race, directory, threads, layout="auto")

    def load(self, files):
        super().load(files)
        for sql in self.race.queries_of("auto").values():
            for _ in range(RECORDED_RUNS):
                self.rows(sql)
        self.connection.execute("ANALYZE")
        for table, layout, dimensions in self.rows("SELECT name, layout, cluster_by FROM entresol.tables")[1]:
            print(f"auto: {table} has become {layout} {dimensions}", file=sys.stderr)


class DuckDbSorted(databases.DuckDb):
    """DuckDB with the rows in the order of the attributes, so that its zone maps rule blocks out."""

    def load(self, files):
        super().load(files)
        for table in self.race.tables:
            order = ", ".join(of.name for of in selections.attributes(table, self.race.scale))
            self.connection.execute(f"CREATE TABLE sorted AS SELECT * FROM {table} ORDER BY {order}")
            self.connection.execute(f"DROP TABLE {table}")
            self.connection.execute(f"ALTER TABLE sorted RENAME TO {table}")
        self.connection.execute("CHECKPOINT")


class PlainScan:
    """Scan of plain columns in memory, each of the smallest integers that hold it: the comparisons are vector
    instructions, and nothing is skipped. One thread."""

    needs = ("numpy", "pyarrow")

    def __init__(self, race, directory, threads):
        self.race, self.directory, self.columns = race, directory, {}

    def load(self, files):
        import numpy
        import pyarrow.csv

        for table in self.race.tables:
            read = pyarrow.csv.read_csv(self.race.file(files, table))
            for name in read.column_names:
                numpy.save(self.directory / f"{name}.npy", smallest(self.integers(read[name])))

    def integers(self, column):
        import numpy
        import pyarrow

        if pyarrow.types.is_date(column.type):
            days = column.cast(pyarrow.int32()).to_numpy()
            return days - (selections.FIRST_DAY.toordinal() - 719_163)
        if pyarrow.types.is_floating(column.type):
            return numpy.rint(column.to_numpy() * 100).astype(numpy.int64)
        return column.to_numpy()

    def column(self, name):
        import numpy

        if name not in self.columns:
            self.columns[name] = numpy.load(self.directory / f"{name}.npy")
        return self.columns[name]

    def bytes(self):
        return sum(path.stat().st_size for path in self.directory.glob("*.npy"))

    def rows(self, sql):
        import numpy

        selection = self.race.selection(sql)
        met = None
        for of, low, high in selection.ranges:
            values = self.column(of.name)
            within = (values >= low) & (values <= high)
            met = within if met is None else numpy.logical_and(met, within, out=met)
        count = int(numpy.count_nonzero(met))
        total = int(self.column(selection.summed)[met].sum(dtype=numpy.int64)) if count else None
        if count and selection.table == "lineitem":
            total = decimal.Decimal(total).scaleb(-2)
        return ["rows", "total"], [(count, total)]

    def close(self):
        pass


def smallest(values):
    """The same values as the smallest integers that hold them."""
    import numpy

    return values.astype(numpy.promote_types(numpy.min_scalar_type(values.min()), numpy.min_scalar_type(values.max())))


class RocksDb:
    """RocksDB: the uniform tuples by their key; it answers points alone."""

    needs = ("rocksdict", "pyarrow")

    def __init__(self, race, directory, threads):
        import rocksdict

        self.race = race
        options = rocksdict.Options(raw_mode=True)
        options.set_max_background_jobs(threads)
        options.create_if_missing(True)
        self.database = rocksdict.Rdict(str(directory / "rocksdb"), options)

    def load(self, files):
        import pyarrow.csv
        import rocksdict

        for batch in pyarrow.csv.open_csv(self.race.file(files, "uniform")):
            write = rocksdict.WriteBatch(raw_mode=True)
            for row in zip(*(column.to_pylist() for column in batch.columns)):
                write.put(key_of(row[0]), b"".join(value.to_bytes(8, "big") for value in row[1:]))
            self.database.write(write)
        self.database.flush()
        self.database.compact_range(None, None)

    def bytes(self):
        return sum(file.get("size", 0) for file in self.database.live_files())

    def rows(self, sql):
        keys = self.race.selection(sql).keys
        distinct = sorted(set(keys))
        found = [value for value in self.database.get([key_of(key) for key in distinct]) if value is not None]
        total = sum(int.from_bytes(value[-8:], "big") for value in found) if found else None
        return ["rows", "total"], [(len(found), total)]

    def close(self):
        self.database.close()


def key_of(number):
    return number.to_bytes(8, "big")
