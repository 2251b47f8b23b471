//! The scripts of the folder `examples`: what their topologies write equals the queries over all events.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::time::{Duration, Instant};

const NEXMARK: &str = include_str!("../../../../examples/nexmark.sql");
/// All bids in a table, and a view of the rows that each target has.
const CHECK: &str = include_str!("../../../../examples/nexmark_check.sql");
/// Topologies and their targets.
const NEXMARK_TARGETS: [(&str, &str); 18] = [
    ("q0", "passed_bid"),
    ("q1", "euro_bid"),
    ("q2", "chosen_bid"),
    ("q3", "local_offer"),
    ("q5", "hot_auction"),
    ("q7", "highest_bid"),
    ("q8", "new_seller"),
    ("q11", "bidding_session"),
    ("q12", "bidder_activity"),
    ("q13", "enriched_bid"),
    ("q14", "computed_bid"),
    ("q15", "daily_statistics"),
    ("q16", "channel_statistics"),
    ("q17", "auction_statistics"),
    ("q18", "last_bid"),
    ("q19", "top_bid"),
    ("q21", "channel_bid"),
    ("q22", "folder_bid"),
];

/// The script with fewer events, 1,000 in a second, some of which come before eight o'clock.
fn nexmark(events: u64) -> String {
    let options = format!("events = {events}, events_per_second = 1000, start = '2026-01-01 07:59:48'");
    let script = NEXMARK.replace("events = 1000000", &options);
    assert_ne!(script, NEXMARK);
    script + CHECK
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

/// Waits for the end of all topologies, and compares each target with the query over all events.
fn check_nexmark(session: &mut Session, events: u64) {
    for all in ["all_bids", "all_auctions", "all_people"] {
        wait_for_end(session, all);
    }
    let bids = (events / 50 * 46).to_string();
    assert_eq!(rows(session, "SELECT count(*) FROM bids")[0], [bids]);
    for (topology, target) in NEXMARK_TARGETS {
        wait_for_end(session, topology);
        let (held, expected) =
            (format!("SELECT * FROM {target}"), format!("SELECT * FROM {target}_expected"));
        compare(session, topology, &held, &expected);
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
    let accepted = "SELECT p.card, (p.amount * 100)::bigint, extract(epoch FROM p.at)::bigint
        FROM payments p JOIN accepted a ON a.at = p.at ORDER BY p.card, p.at";
    let mut probes = probes(&numbers(rows(&mut session, accepted)));
    probes.sort_unstable();
    let found = "SELECT card, extract(epoch FROM tried)::bigint, extract(epoch FROM taken)::bigint, payments,
        (small * 100)::bigint, (large * 100)::bigint FROM probe ORDER BY card, tried";
    assert_eq!(numbers(rows(&mut session, found)), probes);
    assert!(probes.len() > 10, "{probes:?}");
}

/// Small payments of a card, each with the first large one behind it, within ten minutes; from payments (card, cents,
/// second) in order.
fn probes(payments: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let mut found = Vec::new();
    for of_card in payments.chunk_by(|one, other| one[0] == other[0]) {
        let mut at = 0;
        while at < of_card.len() {
            let small = &of_card[at];
            let mut behind = of_card[at + 1..].iter().take_while(|payment| payment[2] - small[2] <= 600);
            let is_large = |payment: &&Vec<i64>| payment[1] > 30_000 && payment[1] > 20 * small[1];
            let large = behind.position(|payment| small[1] < 2_000 && is_large(&payment));
            let Some(distance) = large else {
                at += 1;
                continue;
            };
            let large = &of_card[at + 1 + distance];
            found.push(vec![small[0], small[2], large[2], distance as i64 + 2, small[1], large[1]]);
            at += distance + 2;
        }
    }
    found
}
