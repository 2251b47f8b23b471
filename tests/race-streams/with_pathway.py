"""The queries of the race on pathway: with_pathway.py QUERY INPUT_DIR OUTPUT_CSV STATE_DIR

One worker, the input read as a stream, the state of operators kept in files each second.
"""

import os
import pathlib
import sys

os.environ.setdefault("PATHWAY_THREADS", "1")

import pathway as pw

WINDOW_US = 10_000_000
STEP_US = 2_000_000
LATE_US = 4_000_000


class Bid(pw.Schema):
    auction: int
    bidder: int
    price: int
    at_us: int


class Auction(pw.Schema):
    auction: int
    seller: int
    category: int
    at_us: int
    expires_us: int


class Person(pw.Schema):
    person: int
    state: str
    at_us: int


def rows(directory, name, schema):
    """Rows of a file."""
    return pw.io.csv.read(str(directory / f"{name}.csv"), schema=schema, mode="static", name=name)


def tumbling(table, instance=None):
    """Windows of ten seconds, which give their rows when they are closed."""
    return pw.temporal.windowby(
        table, table.at_us, window=pw.temporal.tumbling(duration=WINDOW_US, origin=0), instance=instance,
        behavior=pw.temporal.exactly_once_behavior(shift=LATE_US),
    )


def q0(directory):
    return rows(directory, "bid", Bid)


def q1(directory):
    bids = rows(directory, "bid", Bid)
    return bids.select(pw.this.auction, pw.this.bidder, thousandths=908 * pw.this.price, at_us=pw.this.at_us)


def q2(directory):
    bids = rows(directory, "bid", Bid)
    return bids.filter(pw.this.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def q3(directory):
    people = rows(directory, "person", Person)
    near = people.filter((pw.this.state == "OR") | (pw.this.state == "ID") | (pw.this.state == "CA"))
    offers = rows(directory, "auction", Auction).filter(pw.this.category == 10)
    joined = offers.join(near, offers.seller == near.person)
    return joined.select(auction=offers.auction, person=near.person)


def q4(directory):
    auctions = rows(directory, "auction", Auction)
    bids = rows(directory, "bid", Bid)
    joined = auctions.join(bids, auctions.auction == bids.auction).select(
        auctions.auction, auctions.category, bids.price, from_us=auctions.at_us, to_us=auctions.expires_us, at_us=bids.at_us
    )
    valid = joined.filter((pw.this.at_us >= pw.this.from_us) & (pw.this.at_us <= pw.this.to_us))
    winning = valid.groupby(pw.this.auction, pw.this.category).reduce(pw.this.category, price=pw.reducers.max(pw.this.price))
    return winning.groupby(pw.this.category).reduce(
        pw.this.category, auctions=pw.reducers.count(), prices=pw.reducers.sum(pw.this.price)
    )


def q5(directory):
    bids = rows(directory, "bid", Bid)
    windows = pw.temporal.windowby(
        bids, bids.at_us, window=pw.temporal.sliding(hop=STEP_US, duration=WINDOW_US, origin=0), instance=bids.auction,
        behavior=pw.temporal.exactly_once_behavior(shift=LATE_US),
    )
    counted = windows.reduce(
        from_us=pw.this._pw_window_start, auction=pw.this._pw_instance, bids=pw.reducers.count()
    )
    # Of pairs the greatest: the older of auctions with the same number.
    hot = counted.groupby(pw.this.from_us).reduce(
        pw.this.from_us, most=pw.reducers.max(pw.make_tuple(pw.this.bids, -pw.this.auction))
    )
    return hot.select(pw.this.from_us, auction=-pw.this.most[1], bids=pw.this.most[0])


def q7(directory):
    windows = tumbling(rows(directory, "bid", Bid))
    return windows.reduce(from_us=pw.this._pw_window_start, price=pw.reducers.max(pw.this.price))


def q8(directory):
    people = rows(directory, "person", Person)
    auctions = rows(directory, "auction", Auction)
    new = tumbling(people, people.person).reduce(person=pw.this._pw_instance, from_us=pw.this._pw_window_start)
    selling = tumbling(auctions, auctions.seller).reduce(seller=pw.this._pw_instance, from_us=pw.this._pw_window_start)
    joined = new.join(selling, new.person == selling.seller, new.from_us == selling.from_us)
    return joined.select(person=new.person, from_us=new.from_us)


def q12(directory):
    bids = rows(directory, "bid", Bid)
    return tumbling(bids, bids.bidder).reduce(
        bidder=pw.this._pw_instance, from_us=pw.this._pw_window_start, bids=pw.reducers.count(),
        prices=pw.reducers.sum(pw.this.price),
    )


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q7": q7, "q8": q8, "q12": q12}


def main(query, directory, output, state):
    pw.io.csv.write(QUERIES[query](pathlib.Path(directory)), output)
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(pw.persistence.Backend.filesystem(state), snapshot_interval_ms=1000),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
