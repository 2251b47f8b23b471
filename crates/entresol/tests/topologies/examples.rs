//! The scripts of the folder `examples`: what their topologies write equals the queries over all events.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::time::{Duration, Instant};

const NEXMARK: &str = include_str!("../../../../examples/nexmark.sql");
/// All bids in a table, by a topology that reads the source of the script.
const ALL: &str = "
    CREATE TABLE bids (date_time TIMESTAMP PRIMARY KEY, auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR,
        url VARCHAR, extra VARCHAR);
    CREATE TOPOLOGY all_bids AS (
        INSERT INTO bids SELECT date_time, auction, bidder, price, channel, url, extra FROM bid
    )";
const STATISTICS: &str = "count(*), count(*) FILTER (WHERE price < 10000),
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000), count(*) FILTER (WHERE price >= 1000000)";
const DISTINCT: &str = "count(DISTINCT bidder), count(DISTINCT CASE WHEN price < 10000 THEN bidder END),
    count(DISTINCT CASE WHEN price BETWEEN 10000 AND 999999 THEN bidder END),
    count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END),
    count(DISTINCT auction), count(DISTINCT CASE WHEN price < 10000 THEN auction END),
    count(DISTINCT CASE WHEN price BETWEEN 10000 AND 999999 THEN auction END),
    count(DISTINCT CASE WHEN price >= 1000000 THEN auction END)";
const TEN_SECONDS: &str = "date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01 00:00:00')";

/// Topology, query of its target, and the same over all bids.
type Compared = (&'static str, &'static str, String);

/// Topologies of single bids.
fn of_bids() -> Vec<Compared> {
    vec![
        ("q0", "SELECT * FROM passed_bid", "SELECT auction, bidder, price, date_time, extra FROM bids".to_owned()),
        (
            "q1",
            "SELECT * FROM euro_bid",
            "SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)), date_time, extra FROM bids".to_owned(),
        ),
        ("q2", "SELECT * FROM chosen_bid", "SELECT auction, price FROM bids WHERE auction % 123 = 0".to_owned()),
        (
            "q13",
            "SELECT * FROM enriched_bid",
            "SELECT auction, bidder, price, date_time, 'value ' || (auction % 10000) FROM bids".to_owned(),
        ),
        (
            "q14",
            "SELECT * FROM computed_bid",
            "SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)),
                CASE WHEN date_time < '2026-01-01 08:00:00' THEN 'other' ELSE 'day' END, date_time, extra,
                length(regexp_replace(extra, '[^c]', '', 'g')) FROM bids
             WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000"
                .to_owned(),
        ),
        (
            "q18",
            "SELECT * FROM last_bid",
            "SELECT b.bidder, b.auction, b.price, b.channel, b.url, b.date_time, b.extra FROM bids b
             JOIN (SELECT bidder, auction, max(date_time) AS last FROM bids GROUP BY 1, 2) l
                ON l.bidder = b.bidder AND l.auction = b.auction AND l.last = b.date_time"
                .to_owned(),
        ),
        (
            "q21",
            "SELECT * FROM channel_bid",
            "SELECT auction, bidder, price, channel, coalesce(
                CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2' WHEN 'Baidu' THEN '3' END,
                regexp_replace(url, '.*&channel_id=', '')) FROM bids
             WHERE channel NOT LIKE 'channel%' OR url LIKE '%channel_id%'"
                .to_owned(),
        ),
        (
            "q22",
            "SELECT * FROM folder_bid",
            "SELECT auction, bidder, price, channel, substr(url, 25, 5), substr(url, 31, 5), substr(url, 37, 5) FROM bids"
                .to_owned(),
        ),
    ]
}

/// Topologies of windows of seconds.
fn of_windows() -> Vec<Compared> {
    let sessions = "SELECT bidder, min(date_time), max(date_time) + INTERVAL '10 seconds', count(*)
        FROM (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS number
            FROM (SELECT bidder, date_time, CASE WHEN date_time - lag(date_time) OVER
                    (PARTITION BY bidder ORDER BY date_time) < INTERVAL '10 seconds' THEN 0 ELSE 1 END AS begins
                FROM bids) gaps) numbered
        GROUP BY bidder, number";
    let counted = "SELECT auction, w, count(*) AS n FROM (
            SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '1970-01-01 00:00:00')
                - i * INTERVAL '2 seconds' AS w FROM bids CROSS JOIN generate_series(0, 4) g(i)) hops
        GROUP BY auction, w";
    let best = format!(
        "SELECT *, row_number() OVER (PARTITION BY {TEN_SECONDS} ORDER BY price DESC, date_time) AS place,
            {TEN_SECONDS} AS w FROM bids"
    );
    vec![
        (
            "q5",
            "SELECT * FROM hot_auction",
            format!(
                "SELECT w, w + INTERVAL '10 seconds', auction, n FROM (SELECT *,
                    row_number() OVER (PARTITION BY w ORDER BY n DESC, auction) AS place FROM ({counted}) counts) ranked
                 WHERE place = 1"
            ),
        ),
        (
            "q7",
            "SELECT * FROM highest_bid",
            format!("SELECT w, price, auction, bidder, date_time FROM ({best}) best WHERE place = 1"),
        ),
        ("q11", "SELECT * FROM bidding_session", sessions.to_owned()),
        (
            "q12",
            "SELECT * FROM bidder_activity",
            format!(
                "SELECT bidder, {TEN_SECONDS}, {TEN_SECONDS} + INTERVAL '10 seconds', count(*) FROM bids
                 GROUP BY bidder, {TEN_SECONDS}"
            ),
        ),
    ]
}

/// Topologies of days, channels and auctions.
fn of_groups() -> Vec<Compared> {
    vec![
        (
            "q15",
            "SELECT * FROM daily_statistics",
            format!("SELECT date_trunc('day', date_time), {STATISTICS}, {DISTINCT} FROM bids GROUP BY 1"),
        ),
        (
            "q16",
            "SELECT * FROM channel_statistics",
            format!(
                "SELECT channel, date_trunc('day', date_time), to_char(max(date_time), 'HH24:MI'), {STATISTICS}, {DISTINCT}
                 FROM bids GROUP BY 1, 2"
            ),
        ),
        (
            "q17",
            "SELECT auction, day, bids, rank1_bids, rank2_bids, rank3_bids, least, most, round(mean::numeric, 3), total
             FROM auction_statistics",
            format!(
                "SELECT auction, date_trunc('day', date_time), {STATISTICS}, min(price), max(price), round(avg(price)::numeric, 3), sum(price)
                 FROM bids GROUP BY 1, 2"
            ),
        ),
        (
            "q19",
            "SELECT auction, place, bidder, price, date_time FROM top_bid",
            "SELECT auction, place, bidder, price, date_time FROM (SELECT *,
                row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bids) b
             WHERE place <= 10"
                .to_owned(),
        ),
    ]
}

/// The script with fewer events, 1,000 in a second, some of which come before eight o'clock.
fn nexmark(events: u64) -> String {
    let options = format!("events = {events}, events_per_second = 1000, start = '2026-01-01 07:59:48'");
    let script = NEXMARK.replace("events = 1000000", &options);
    assert_ne!(script, NEXMARK);
    script + ALL
}

/// Compares the rows of a target, which are some, with those of a query.
fn compare(session: &mut Session, topology: &str, target: &str, batch: &str) {
    let count = |session: &mut Session, of: &str| rows(session, &format!("SELECT count(*) FROM ({of}) t"));
    let (of_target, of_batch) = (count(session, target), count(session, batch));
    assert_eq!(of_target, of_batch, "{topology}: {target}");
    assert_ne!(of_target[0], ["0"], "{topology}: {target}");
    for (one, other) in [(target, batch), (batch, target)] {
        let differ = rows(session, &format!("{one} EXCEPT {other} LIMIT 3"));
        assert!(differ.is_empty(), "{topology}: {differ:?} of {one} are not in {other}");
    }
}

/// Waits for the end of all topologies, and compares each target with the query over all bids.
fn check_nexmark(session: &mut Session, events: u64) {
    wait_for_end(session, "all_bids");
    let bids = (events / 50 * 46).to_string();
    assert_eq!(rows(session, "SELECT count(*) FROM bids")[0], [bids]);
    for (topology, target, batch) in of_bids().into_iter().chain(of_windows()).chain(of_groups()) {
        wait_for_end(session, topology);
        compare(session, topology, target, &batch);
    }
    assert_eq!(rows(session, "SELECT count(*) FROM entresol.topologies WHERE late > 0")[0], ["0"]);
}

#[test]
fn nexmark_topologies_equal_the_queries_over_all_bids() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(&nexmark(60_000)).unwrap();
    check_nexmark(&mut session, 60_000);
    drop(session);
    database.close().unwrap();
}

#[test]
fn nexmark_topologies_go_on_where_they_were() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session.execute(&nexmark(20_000)).unwrap();
        }
        if round == 2 {
            check_nexmark(&mut session, 20_000);
            break;
        }
        let begin = Instant::now();
        let read = "SELECT count(*) FROM bids";
        while rows(&mut session, read)[0][0].parse::<u64>().unwrap() < 2_000 + round * 5_000 {
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
        // Left as by a crash, or closed.
        if round == 1 {
            drop(session);
            database.close().unwrap();
        }
    }
}

#[test]
fn visits_and_pages_are_those_of_all_clicks() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(include_str!("../../../../examples/clickstream.sql")).unwrap();
    session
        .execute(
            "CREATE TABLE clicks (at TIMESTAMP PRIMARY KEY, visitor INT, page VARCHAR);
             CREATE TOPOLOGY all_clicks AS (INSERT INTO clicks SELECT at, visitor, page FROM click)",
        )
        .unwrap();
    wait_for_end(&mut session, "clickstream");
    wait_for_end(&mut session, "all_clicks");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM clicks")[0], ["100000"]);
    let hours =
        "SELECT page, date_trunc('hour', at), count(*), count(DISTINCT visitor) FROM clicks GROUP BY 1, 2";
    let numbered = "SELECT *, sum(begins) OVER (PARTITION BY visitor ORDER BY at) AS number FROM (SELECT *,
        CASE WHEN at - lag(at) OVER (PARTITION BY visitor ORDER BY at) < INTERVAL '10 minutes' THEN 0 ELSE 1 END AS begins
        FROM clicks) c";
    let visits = format!(
        "SELECT visitor, min(at), max(at) + INTERVAL '10 minutes', count(*), count(DISTINCT page),
            first_value(page ORDER BY at), last_value(page ORDER BY at) FROM ({numbered}) n GROUP BY visitor, number"
    );
    let totals = "SELECT page, count(*), count(DISTINCT date_trunc('hour', at)) FROM clicks GROUP BY page";
    for (target, batch) in [
        ("SELECT * FROM page_hour", hours),
        ("SELECT * FROM visit", &visits),
        ("SELECT page, clicks::bigint, hours FROM page_total", totals),
    ] {
        compare(&mut session, "clickstream", target, batch);
    }
}

#[test]
fn payments_beyond_the_credit_leave_nothing() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let script = include_str!("../../../../examples/fraud.sql");
    let fewer = script
        .replace("rows = 20000", "rows = 2000")
        .replace("card.cardinality = 200", "card.cardinality = 20");
    session.execute(&fewer).unwrap();
    session
        .execute(
            "CREATE TABLE payments (at TIMESTAMP PRIMARY KEY, card INT, amount DECIMAL(9, 2), country VARCHAR);
             CREATE TABLE accepted (at TIMESTAMP PRIMARY KEY);
             CREATE TOPOLOGY all_payments AS (INSERT INTO payments SELECT * FROM payment)",
        )
        .unwrap();
    wait_for_end(&mut session, "all_payments");
    wait_for_end(&mut session, "fraud");
    // The payments in their order, as a program would accept them.
    let mut accounts: std::collections::BTreeMap<i64, (i64, i64, i64, i64)> =
        std::collections::BTreeMap::new();
    let (mut refused, mut alarms, mut accepted) = (0, Vec::new(), Vec::new());
    for row in rows(&mut session, "SELECT card, (amount * 100)::bigint, at FROM payments ORDER BY at") {
        let (card, amount): (i64, i64) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        let (payments, spent, highest, alarmed) = accounts.get(&card).copied().unwrap_or_default();
        if spent + amount > 2_000_000 {
            refused += 1;
            continue;
        }
        accepted.push(format!("('{}')", row[2]));
        let alarms_now = i64::from(spent + amount > 1_800_000);
        if alarmed == 0 && alarms_now == 1 {
            alarms.push([card, payments + 1, spent + amount]);
        }
        accounts.insert(card, (payments + 1, spent + amount, highest.max(amount), alarmed.max(alarms_now)));
    }
    let numbers = |found: Vec<Vec<String>>| -> Vec<Vec<i64>> {
        found.iter().map(|row| row.iter().map(|text| text.parse().unwrap()).collect()).collect()
    };
    let found =
        "SELECT card, payments, (spent * 100)::bigint, (highest * 100)::bigint FROM account ORDER BY card";
    let expected: Vec<Vec<i64>> =
        accounts.iter().map(|(card, account)| vec![*card, account.0, account.1, account.2]).collect();
    assert_eq!(numbers(rows(&mut session, found)), expected);
    assert!(refused > 10, "{refused}");
    alarms.sort_unstable();
    let found = "SELECT card, payments, (spent * 100)::bigint FROM alarm ORDER BY card";
    assert_eq!(numbers(rows(&mut session, found)), alarms);
    let aborts = "SELECT aborts::text FROM entresol.topologies WHERE name = 'fraud'";
    wait_for(&mut session, aborts, &refused.to_string());
    session.execute(&format!("INSERT INTO accepted VALUES {}", accepted.join(", "))).unwrap();
    let sprees = "SELECT card, min(at), max(at) + INTERVAL '3 minutes', count(*), sum(amount), count(DISTINCT country)
        FROM (SELECT *, sum(begins) OVER (PARTITION BY card ORDER BY at) AS number FROM (SELECT p.*, CASE WHEN
                p.at - lag(p.at) OVER (PARTITION BY card ORDER BY p.at) < INTERVAL '3 minutes' THEN 0 ELSE 1 END AS begins
            FROM payments p JOIN accepted a ON a.at = p.at) gaps) numbered
        GROUP BY card, number HAVING count(DISTINCT country) > 2";
    compare(&mut session, "fraud", "SELECT * FROM spree", sprees);
}
