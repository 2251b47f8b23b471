"""The queries of the race on bytewax: with_bytewax.py QUERY INPUT_DIR OUTPUT_CSV STATE_DIR

One worker, a snapshot of state each second, as its documentation has it for recovery.
"""

import csv
import pathlib
import sys
from datetime import datetime, timedelta, timezone

import bytewax.operators as op
import bytewax.operators.windowing as windowing
from bytewax.connectors.files import CSVSource, FileSink
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

WINDOW_US = 10_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def at(row):
    """Event time of a row: the last of its fields."""
    return EPOCH + timedelta(microseconds=row[-1])


def rows(flow, directory, name, columns):
    """Rows of a file as tuples of integers, the event time last."""
    read = op.input(name, flow, CSVSource(directory / f"{name}.csv", batch_size=10_000))
    return op.map(f"parse_{name}", read, lambda row: tuple(int(row[column]) for column in columns))


def tumbling():
    """Clock and windows of ten seconds; rows come at most four seconds late. The clock of the system stands still: it would
    close windows whose rows are yet to be read."""
    clock = EventClock(
        ts_getter=at, wait_for_system_duration=timedelta(seconds=4), now_getter=lambda: EPOCH, to_system_utc=lambda _: None
    )
    return clock, TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)


def from_us(window):
    return window * WINDOW_US


def q0(flow, directory):
    return rows(flow, directory, "bid", ["auction", "bidder", "price", "at_us"])


def q1(flow, directory):
    bids = rows(flow, directory, "bid", ["auction", "bidder", "price", "at_us"])
    return op.map("euro", bids, lambda bid: (bid[0], bid[1], 908 * bid[2], bid[3]))


def q2(flow, directory):
    bids = rows(flow, directory, "bid", ["auction", "price"])
    return op.filter("chosen", bids, lambda bid: bid[0] % 123 == 0)


def q7(flow, directory):
    bids = op.key_on("all", rows(flow, directory, "bid", ["price", "at_us"]), lambda _: "all")
    clock, windows = tumbling()
    highest = windowing.max_window("highest", bids, clock, windows, by=lambda bid: bid[0])
    return op.map("row", highest.down, lambda keyed: (from_us(keyed[1][0]), keyed[1][1][0]))


def q8(flow, directory):
    people = op.key_on("by_person", rows(flow, directory, "person", ["person", "at_us"]), lambda row: str(row[0]))
    auctions = op.key_on("by_seller", rows(flow, directory, "auction", ["seller", "at_us"]), lambda row: str(row[0]))
    clock, windows = tumbling()
    joined = windowing.join_window("join", clock, windows, people, auctions)
    both = op.filter("both", joined.down, lambda keyed: None not in keyed[1][1])
    return op.map("row", both, lambda keyed: (int(keyed[0]), from_us(keyed[1][0])))


def q12(flow, directory):
    bids = op.key_on("by_bidder", rows(flow, directory, "bid", ["bidder", "price", "at_us"]), lambda bid: str(bid[0]))
    clock, windows = tumbling()
    counted = windowing.fold_window(
        "count", bids, clock, windows, lambda: (0, 0), lambda sums, bid: (sums[0] + 1, sums[1] + bid[1]),
        lambda sums, others: (sums[0] + others[0], sums[1] + others[1]),
    )
    return op.map("row", counted.down, lambda keyed: (int(keyed[0]), from_us(keyed[1][0]), *keyed[1][1]))


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q7": q7, "q8": q8, "q12": q12}


def main(query, directory, output, state):
    flow = Dataflow("race")
    found = QUERIES[query](flow, pathlib.Path(directory))
    lines = op.map("line", found, lambda row: ("", ",".join(map(str, row))))
    op.output("file", lines, FileSink(pathlib.Path(output)))
    pathlib.Path(state).mkdir(parents=True)
    init_db_dir(pathlib.Path(state), 1)
    cluster_main(flow, [], 0, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(state))


if __name__ == "__main__":
    main(*sys.argv[1:])
