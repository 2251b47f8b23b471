"""Databases that a race runs its queries on, each within a process of its own: load, size, and the rows of a query."""

import json
import os
import shutil
import signal
import subprocess


class DuckDb:
    """DuckDB on a database file."""

    # Modules of Python without which a database is left out of a race.
    needs = ("duckdb",)

    def __init__(self, race, directory, threads):
        import duckdb

        self.race, self.path = race, directory / "race.duckdb"
        self.connection = duckdb.connect(str(self.path), config={"threads": threads})

    def load(self, files):
        self.connection.execute(self.race.schema.read_text())
        for table in self.race.tables:
            self.connection.execute(f"COPY \"{table}\" FROM '{self.race.file(files, table)}' ({self.race.duckdb_format})")
        self.connection.execute("CHECKPOINT")

    def bytes(self):
        return self.path.stat().st_size

    def rows(self, sql):
        result = self.connection.execute(sql)
        return [column[0] for column in result.description], result.fetchall()

    def close(self):
        self.connection.close()


def write_parquet(race, directory, files):
    """Writes the tables to Parquet files without compression, by DuckDB."""
    duckdb = DuckDb(race, directory, 1)
    duckdb.load(files)
    for table in race.tables:
        path = directory / f"{table}.parquet"
        duckdb.connection.execute(f"COPY \"{table}\" TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")
    duckdb.close()
    duckdb.path.unlink()


def parquet_bytes(directory):
    return sum(path.stat().st_size for path in directory.glob("*.parquet"))


class DuckDbParquet:
    """DuckDB on Parquet files without compression."""

    needs = ("duckdb",)

    def __init__(self, race, directory, threads):
        import duckdb

        self.race, self.directory = race, directory
        self.connection = duckdb.connect(config={"threads": threads})
        for table in race.tables:
            path = directory / f"{table}.parquet"
            if path.exists():
                self.connection.execute(f"CREATE VIEW \"{table}\" AS SELECT * FROM read_parquet('{path}')")

    def load(self, files):
        write_parquet(self.race, self.directory, files)

    def bytes(self):
        return parquet_bytes(self.directory)

    def rows(self, sql):
        result = self.connection.execute(sql)
        return [column[0] for column in result.description], result.fetchall()

    def close(self):
        self.connection.close()


class DataFusion:
    """DataFusion on Parquet files without compression, as DuckDB writes them."""

    needs = ("datafusion", "duckdb")

    def __init__(self, race, directory, threads):
        import datafusion

        self.race, self.directory = race, directory
        config = datafusion.SessionConfig().with_target_partitions(threads)
        self.context = datafusion.SessionContext(config)
        for table in race.tables:
            path = directory / f"{table}.parquet"
            if path.exists():
                self.context.register_parquet(table, str(path))

    def load(self, files):
        write_parquet(self.race, self.directory, files)

    def bytes(self):
        return parquet_bytes(self.directory)

    def rows(self, sql):
        frame = self.context.sql(sql)
        batches = frame.collect()
        return frame.schema().names, [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def close(self):
        pass


class ClickHouse:
    """ClickHouse within the process (chdb), on tables of MergeTree."""

    needs = ("chdb",)
    # As SQL has it: the sum of no rows is NULL.
    settings = "aggregate_functions_null_for_empty = 1"

    def __init__(self, race, directory, threads):
        import chdb.session

        self.race, self.directory, self.threads = race, directory, threads
        self.session = chdb.session.Session(str(directory / "database"))

    def load(self, files):
        for statement in self.race.schema.read_text().split(";"):
            lines = [line for line in statement.splitlines() if line.strip() and not line.lstrip().startswith("--")]
            if not lines:
                continue
            # MergeTree has a primary key by its order, and no constraint of that name.
            keys = [line for line in lines if "PRIMARY KEY" in line]
            columns = "\n".join(line for line in lines if line not in keys).rstrip(" )\n,")
            table = columns.split("CREATE TABLE ")[1].split()[0]
            order = keys[0].split("PRIMARY KEY")[1].strip(" ,") if keys else self.race.order_of(table) or "tuple()"
            self.session.query(f"{columns}) ENGINE = MergeTree ORDER BY {order}")
        for table in self.race.tables:
            described = json.loads(self.session.query(f"DESCRIBE TABLE `{table}`", "JSONCompact").bytes())["data"]
            structure = ", ".join(f"{name} {kind}" for name, kind, *_ in described)
            # A generator may write a separator at the end of a line.
            self.session.query(
                f"INSERT INTO `{table}` SELECT * FROM file('{self.race.file(files, table)}', 'CSV', '{structure}') "
                "SETTINGS format_csv_delimiter = '|', input_format_csv_allow_variable_number_of_columns = 1"
            )
            self.session.query(f"OPTIMIZE TABLE `{table}` FINAL")

    def bytes(self):
        sizes = self.session.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE active", "CSV")
        return int(sizes.bytes())

    def rows(self, sql):
        result = self.session.query(f"{sql} SETTINGS max_threads = {self.threads}, {self.settings}", "JSONCompact")
        result = json.loads(result.bytes())
        return [column["name"] for column in result["meta"]], [tuple(row) for row in result["data"]]

    def close(self):
        self.session.close()


class Served:
    """Entresol as a server, to which this process is a client; tables have one layout."""

    def __init__(self, race, directory, threads, layout, memory="12GB"):
        import psycopg

        self.race, self.directory, self.layout = race, directory, layout
        # The server has a thread for each processor that it may run on.
        processors = sorted(os.sched_getaffinity(0))[:threads]
        self.server = subprocess.Popen(
            [race.entresol, "serve", directory / "database", "--listen", "127.0.0.1:0", "--memory-max", memory,
             "--statement-memory", "4GB", "--query-memory", "4GB"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        )
        try:
            self.connection = psycopg.connect(f"postgresql://{self.address()}", autocommit=True)
        except BaseException:
            self.server.kill()
            raise

    def address(self):
        """Address on which the server listens, as it says."""
        said = ""
        for line in self.server.stdout:
            said += line
            if "listening on " in line:
                return line.split("listening on ")[1].split()[0]
        raise SystemExit(f"the server did not start:\n{said}")

    def options_of(self, table):
        """Options of CREATE TABLE."""
        return f"layout = '{self.layout}'"

    def load(self, files):
        statements = [statement for statement in self.race.schema.read_text().split(";") if statement.strip()]
        for statement in statements:
            table = statement.split("CREATE TABLE ")[1].split()[0]
            self.connection.execute(f"{statement} WITH ({self.options_of(table)})")
        cursor = self.connection.cursor()
        for table in self.race.tables:
            with open(self.race.file(files, table), "rb") as file:
                with cursor.copy(f"COPY \"{table}\" FROM STDIN WITH (FORMAT csv, HEADER true, COMMIT_ROWS 131072)") as copy:
                    while block := file.read(1 << 20):
                        copy.write(block)
        self.connection.execute("VACUUM")
        self.connection.execute("ANALYZE")

    def bytes(self):
        return (self.directory / "database" / "pool.entresol").stat().st_blocks * 512

    def rows(self, sql):
        cursor = self.connection.execute(sql)
        return [column.name for column in cursor.description], cursor.fetchall()

    def close(self):
        self.connection.close()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait()


def begin_anew(directory):
    """Empty directory for a database."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
