//! The connector of NEXMark's events.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options};
use std::time::{Duration, Instant};

const SOURCES: &str = "
    CREATE SOURCE person (id BIGINT NOT NULL, name VARCHAR, state VARCHAR NOT NULL, date_time TIMESTAMP NOT NULL)
        WITH (connector = 'nexmark', entity = 'person', events = 20000, seed = 7);
    CREATE SOURCE auction (date_time TIMESTAMP NOT NULL, id BIGINT NOT NULL, seller BIGINT, category BIGINT)
        WITH (connector = 'nexmark', entity = 'auction', events = 20000, seed = 7);
    CREATE SOURCE bid (auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel VARCHAR,
            url VARCHAR, date_time TIMESTAMP NOT NULL, extra VARCHAR,
            WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
        WITH (connector = 'nexmark', entity = 'bid', events = 20000, seed = 7);
    CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR, state VARCHAR, date_time TIMESTAMP);
    CREATE TABLE auctions (id BIGINT PRIMARY KEY, date_time TIMESTAMP, seller BIGINT, category BIGINT);
    CREATE TABLE bids (date_time TIMESTAMP PRIMARY KEY, auction BIGINT, bidder BIGINT, price BIGINT,
        channel VARCHAR, url VARCHAR, extra VARCHAR);
    CREATE TOPOLOGY events COMMIT EVERY 100 ROWS WITH (durability = 'none') AS (
        INSERT INTO people SELECT * FROM person;
        INSERT INTO auctions SELECT id, date_time, seller, category FROM auction;
        INSERT INTO bids SELECT date_time, auction, bidder, price, channel, url, extra FROM bid;
    )";
const SUMS: &str = "SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM auctions),
    (SELECT sum(category * seller) FROM auctions), count(*), sum(price), sum(auction * bidder), sum(length(url)),
    sum(length(extra)) FROM bids";

#[test]
fn events_come_once_over_restarts() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCES).unwrap();
    wait_for_end(&mut session, "events");
    let expected = rows(&mut session, SUMS);
    assert_eq!(expected[0][..2], ["400", "1200"]);
    assert_eq!(expected[0][3], "18400");
    // The first bid is event 4, the last one event 19,999, each 100 microseconds after another.
    let times = "SELECT min(date_time)::text, max(date_time)::text FROM bids";
    assert_eq!(rows(&mut session, times)[0], ["2026-01-01 00:00:00.0004", "2026-01-01 00:00:01.9999"]);

    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session.execute(SOURCES).unwrap();
        }
        if round == 2 {
            wait_for_end(&mut session, "events");
            assert_eq!(rows(&mut session, SUMS), expected);
            break;
        }
        let begin = Instant::now();
        while rows(&mut session, "SELECT count(*) FROM bids")[0][0].parse::<u64>().unwrap()
            < 500 + round * 3000
        {
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
    }
}

#[test]
fn options_and_columns_are_checked() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let create = |columns: &str, options: &str| {
        format!("CREATE SOURCE s ({columns}) WITH (connector = 'nexmark', {options})")
    };
    for (statement, expected) in [
        (create("price BIGINT", "events = 10"), "source \"s\" needs the option \"entity\""),
        (create("price BIGINT", "entity = 'offer'"), "there are person, auction and bid"),
        (create("prize BIGINT", "entity = 'bid'"), "price BIGINT, channel VARCHAR, url VARCHAR"),
        (create("price INT", "entity = 'bid'"), "column price INT is none of the entity bid"),
        (create("extra VARCHAR(5)", "entity = 'bid'"), "whose columns are"),
        (create("price BIGINT", "entity = 'bid', events_per_second = 0"), "\"events_per_second\": \"0\""),
        (create("price BIGINT", "entity = 'bid', rows = 7"), "unrecognized option \"rows\""),
        (
            create("price BIGINT", "entity = 'bid'") + " FORMAT PLAIN ENCODE CSV",
            "FORMAT of a source with the connector \"nexmark\"",
        ),
    ] {
        let error = session.execute(&statement).unwrap_err();
        assert!(error.to_string().contains(expected), "{statement}: {error}");
    }
    session
        .execute(&create(
            "date_time TIMESTAMP",
            "entity = 'person', start = '2015-07-15 00:00:00', events = 101, events_per_second = 50",
        ))
        .unwrap();
    session
        .execute(
            "CREATE TABLE times (at TIMESTAMP PRIMARY KEY);
             CREATE TOPOLOGY t AS (INSERT INTO times SELECT date_time FROM s)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM times", "3");
    assert_eq!(rows(&mut session, "SELECT max(at)::text FROM times")[0], ["2015-07-15 00:00:02"]);
}
