"""Questions of the benchmark NEXMark on Entresol and on other stream processors: the same files, the same results.

    race.py --entresol BIN --dir DIR [--dbsp BIN] [--events 1000000] [--rounds 3] [--queries LIST] [--peers LIST]

Events are made once, by Entresol's generator, and written to CSV files, which each of them reads: bids, auctions and
people. Each query runs on one after another, in as many rounds, each time as a new process with no state. It runs over a
twentieth of the events and over all; the rate is of the rows between the two, so that what starting costs is not in it.
State is durable where it can be: Entresol commits each 10,000 rows, with a sync at least each 10 ms, into a table;
bytewax and pathway keep a snapshot each second and append to a file, dbsp takes a checkpoint each second and appends to one.
All run on one thread of their own choice, with their background threads: `processor` is the processor time of all of them
for a million rows.

Results are compared as sets of rows; the exit status is 1 if they differ. A peer that is not installed is left out, with the
reason. DIR/race.json and race.md have the rates.
"""

import argparse
import csv
import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
QUERIES = {path.stem: path.read_text() for path in sorted((HERE / "queries").glob("q*.sql"), key=lambda path: int(path.stem[1:]))}
SOURCES = {"q3": ["auction", "person"], "q4": ["auction", "bid"], "q6": ["auction", "bid"], "q8": ["auction", "person"]}
OURS = "entresol"
PEERS = ["bytewax", "pathway", "dbsp"]
# Queries that a peer does not run.
LACKS = {"bytewax": ("q3", "q4", "q5", "q6"), "pathway": ("q6",)}
# Peers whose file has changes of the result, not its rows.
WRITES_CHANGES = ("pathway", "dbsp")
SMALL_PART = 20
PATIENCE_S = 1800


class Shell:
    """Shell of Entresol, which runs statements one by one."""

    def __init__(self, program, directory):
        self.errors = open(directory.with_suffix(".errors"), "w+")
        self.process = subprocess.Popen(
            [program, "shell", "--no-history", "--format", "csv", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True,
        )

    def execute(self, sql):
        self.process.stdin.write(sql if sql.endswith("\n") else sql + "\n")
        self.process.stdin.flush()

    def value(self, sql):
        """Value of a query of one row and column."""
        self.execute(f"SELECT ({sql}) AS value_of_race;")
        while True:
            line = self.process.stdout.readline()
            if not line:
                self.errors.seek(0)
                sys.exit(f"the shell ended at {sql}:\n{self.errors.read()}")
            if line.strip() == "value_of_race":
                return self.process.stdout.readline().strip()

    def wait_for_topologies(self):
        """Waits until no topology runs; one that failed ends the race with its reason."""
        begin = time.monotonic()
        while self.value("SELECT count(*) FROM entresol.topologies WHERE state = 'running'") != "0":
            if time.monotonic() - begin > PATIENCE_S:
                sys.exit(f"a topology has not ended after {PATIENCE_S} s")
            time.sleep(0.005)
        failed = self.value("SELECT coalesce(min(name || ': ' || error), '') FROM entresol.topologies WHERE state = 'failed'")
        if failed.strip('"'):
            sys.exit(failed)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.read()
        status = self.process.wait()
        self.errors.close()
        if status != 0:
            sys.exit(f"the shell ended with status {status}")


def make_input(arguments, directory, events):
    """Writes the files of so many events; returns the rows of each."""
    script = (HERE / "queries" / "make_input.sql").read_text()
    made = directory / "made"
    if not made.exists() or made.read_text() != script:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        shell = Shell(arguments.entresol, directory / "db")
        shell.execute(script.replace("{events}", str(events)).replace("{input}", str(directory)))
        shell.wait_for_topologies()
        shell.close()
        shutil.rmtree(directory / "db")
        made.write_text(script)
    counts = {}
    for path in directory.glob("*.csv"):
        with open(path) as file:
            counts[path.stem] = sum(1 for _ in file) - 1
    return counts


def ours_once(arguments, query, directory, work):
    """Seconds of a query on Entresol, from CREATE TOPOLOGY to its end, and its rows."""
    shell = Shell(arguments.entresol, work / "db")
    shell.execute((HERE / "queries" / "sources.sql").read_text().replace("{input}", str(directory)))
    tables, _, topology = QUERIES[query].partition("CREATE TOPOLOGY")
    shell.execute(tables)
    shell.value("SELECT 1")
    begin = time.perf_counter()
    shell.execute("CREATE TOPOLOGY" + topology)
    shell.wait_for_topologies()
    seconds = time.perf_counter() - begin
    shell.close()
    result = subprocess.run(
        [arguments.entresol, "shell", "--no-topologies", "--format", "csv", work / "db", "-c", "SELECT * FROM result"],
        capture_output=True, text=True, check=True,
    )
    names, *rows = csv.reader(result.stdout.splitlines())
    return seconds, sorted(tuple(map(int, row)) for row in rows)


def command_of(arguments, peer):
    """Program that runs a query on a peer."""
    return [arguments.dbsp] if peer == "dbsp" else [sys.executable, HERE / f"with_{peer}.py"]


def absence(arguments, peer):
    """Says why a peer cannot run; none if it can."""
    if peer == "dbsp":
        is_there = arguments.dbsp is not None and arguments.dbsp.exists()
        return None if is_there else f"there is no program {arguments.dbsp or 'of --dbsp'}"
    done = subprocess.run([sys.executable, "-c", f"import {peer}"], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode != 0 else None


def peer_once(arguments, query, peer, directory, work):
    """Seconds of a query on a peer, of its whole process, and its rows."""
    output = work / "result.csv"
    begin = time.perf_counter()
    done = subprocess.run(
        [*command_of(arguments, peer), query, directory, output, work / "state"], capture_output=True, text=True
    )
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"{peer}, {query}, failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    # A result of no rows may have no file.
    rows = []
    if output.exists():
        with open(output, newline="") as file:
            rows = list(csv.reader(file))
    if peer in WRITES_CHANGES:
        rows = net_rows(rows)
    return seconds, sorted(tuple(map(int, row)) for row in rows)


def net_rows(rows):
    """Rows that are left of a file of changes, whose last columns are a time and 1 or -1."""
    counts = {}
    for *row, _, change in rows[1:]:
        counts[tuple(row)] = counts.get(tuple(row), 0) + int(change)
    return [row for row, count in counts.items() for _ in range(count)]


def processor_seconds():
    """Processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def once(arguments, engine, query, directory):
    """Seconds, processor seconds and rows of one run."""
    work = arguments.dir / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    before = processor_seconds()
    if engine == OURS:
        seconds, rows = ours_once(arguments, query, directory, work)
    else:
        seconds, rows = peer_once(arguments, query, engine, directory, work)
    return seconds, processor_seconds() - before, rows


def difference(query, peer, ours, theirs):
    """Describes how the rows of a peer differ from ours; none if they do not."""
    only_ours, only_theirs = set(ours) - set(theirs), set(theirs) - set(ours)
    if len(ours) == len(theirs) and not only_ours and not only_theirs:
        return None
    examples = f"as {sorted(only_ours)[:3]} and {sorted(only_theirs)[:3]}"
    return f"{query}: {len(ours)} rows of {OURS}, {len(theirs)} of {peer}; {len(only_ours)} and {len(only_theirs)} of one only, {examples}"


def race(arguments, inputs):
    """Runs all; returns rates in million rows a second and processor seconds of a million rows, by query and engine, and
    the differences of results."""
    found, differences = {}, []
    (small, small_counts), (whole, whole_counts) = inputs
    for query in arguments.queries:
        names = SOURCES.get(query, ["bid"])
        between = sum(whole_counts[name] - small_counts[name] for name in names) / 1e6
        peers = [peer for peer in arguments.peers if query not in LACKS.get(peer, ())]
        of_query = {engine: {"rates": [], "processor_s": []} for engine in [OURS, *peers]}
        for _ in range(arguments.rounds):
            ours = None
            for engine, of in of_query.items():
                small_s, small_processor_s, _ = once(arguments, engine, query, small)
                whole_s, whole_processor_s, rows = once(arguments, engine, query, whole)
                # Few events may take no longer than a twentieth of them: they have no rate.
                if whole_s > small_s:
                    of["rates"].append(between / (whole_s - small_s))
                of["processor_s"].append((whole_processor_s - small_processor_s) / between)
                ours = rows if ours is None else ours
                different = difference(query, engine, ours, rows)
                if different and different not in differences:
                    differences.append(different)
        found[query] = of_query
        print(f"{query} done", file=sys.stderr)
    return found, differences


def table(found):
    """Markdown table of the medians."""
    engines = list(dict.fromkeys(engine for of in found.values() for engine in of))
    header = [f"{engine} M rows/s" for engine in engines] + [f"{engine} processor" for engine in engines]
    best = ["times the best"] if len(engines) > 1 else []
    lines = ["| query | " + " | ".join(header + best) + " |", "| --- |" + " ---: |" * len(header + best)]
    for query, of in found.items():
        rates = {engine: statistics.median(of[engine]["rates"]) for engine in of if of[engine]["rates"]}
        cells = [f"{rates[engine]:.3f}" if engine in rates else "-" for engine in engines]
        cells += [f"{statistics.median(of[engine]['processor_s']):.2f} s" if engine in of else "-" for engine in engines]
        if best:
            peers = [rate for engine, rate in rates.items() if engine != OURS]
            cells.append(f"{rates[OURS] / max(peers):.2f}" if peers and OURS in rates else "-")
        lines.append(f"| {query} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def arguments_of(command_line):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entresol", type=pathlib.Path, required=True, help="program of Entresol")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="directory of files and rates")
    parser.add_argument("--dbsp", type=pathlib.Path, help="program of tests/race-streams/with_dbsp")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of NEXMark; 46 of 50 are bids")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", default=",".join(QUERIES), help="queries, with commas between")
    parser.add_argument("--peers", default=",".join(PEERS), help="processors to race against, with commas between")
    arguments = parser.parse_args(command_line)
    for name, known in [("queries", QUERIES), ("peers", PEERS)]:
        chosen = [one for one in getattr(arguments, name).split(",") if one]
        unknown = [one for one in chosen if one not in known]
        if unknown:
            parser.error(f"no {name} {', '.join(unknown)}: there are {', '.join(known)}")
        setattr(arguments, name, chosen)
    if arguments.rounds < 1 or arguments.events < 1000 * SMALL_PART or not arguments.queries:
        parser.error(f"--rounds is at least 1, --events at least {1000 * SMALL_PART}, and --queries names one")
    arguments.dir = arguments.dir.resolve()
    arguments.entresol = arguments.entresol.resolve()
    arguments.dbsp = arguments.dbsp and arguments.dbsp.resolve()
    return arguments


def main(command_line):
    arguments = arguments_of(command_line)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    absent = {peer: why for peer in arguments.peers if (why := absence(arguments, peer))}
    for peer, why in absent.items():
        print(f"{peer} is left out: {why}", file=sys.stderr)
    arguments.peers = [peer for peer in arguments.peers if peer not in absent]
    inputs = []
    for events in [arguments.events // SMALL_PART, arguments.events]:
        directory = arguments.dir / f"events-{events}"
        inputs.append((directory, make_input(arguments, directory, events)))
    found, differences = race(arguments, inputs)
    shutil.rmtree(arguments.dir / "work", ignore_errors=True)
    text = table(found)
    (arguments.dir / "race.md").write_text(text)
    report = {"events": arguments.events, "found": found, "absent": absent, "differences": differences}
    (arguments.dir / "race.json").write_text(json.dumps(report, indent=1))
    print(text, end="")
    for different in differences:
        print(f"DIFFERENT: {different}")
    if differences:
        sys.exit(1)
    raced = f"the results of {OURS}, {', '.join(arguments.peers)} are equal" if arguments.peers else "no peer was there to compare with"
    print(f"{raced}; rates are in {arguments.dir}/race.md and race.json")


if __name__ == "__main__":
    main(sys.argv[1:])
