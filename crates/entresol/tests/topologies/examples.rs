//! The scripts of the folder `examples`: what their topologies write equals the queries over all events.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const NEXMARK: &str = include_str!("../../../../examples/nexmark.sql");
/// All bids in a table, and a view of the rows that each target has.
const CHECK: &str = include_str!("../../../../examples/nexmark_check.sql");
/// Topologies and their targets.
const NEXMARK_TARGETS: [(&str, &str); 22] = [
    ("q0", "passed_bid"),
    ("q1", "euro_bid"),
    ("q2", "chosen_bid"),
    ("q3", "local_offer"),
    ("q5", "hot_auction"),
    ("q7", "highest_bid"),
    ("q8", "new_seller"),
    ("q9", "winning_bid"),
    ("q9", "category_price"),
    ("q9", "seller_price"),
    ("q11", "bidding_session"),
    ("q12", "bidder_activity"),
    ("q13", "enriched_bid"),
    ("q14", "computed_bid"),
    ("q15", "daily_statistics"),
    ("q16", "channel_statistics"),
    ("q17", "auction_statistics"),
    ("q18", "last_bid"),
    ("q19", "top_bid"),
    ("q20", "category_bid"),
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

/// Revisions behind those of the sample: within a half hour, and at the edge of one.
const REVISIONS: &str = "2025-01-06 12:10:00,transformer-1,oil_temperature,5,55.5,,2
2025-01-06 12:10:00,transformer-1,load,0,1.1,1.01,2
2025-01-06 15:00:00,generator-2,temperature,87.5,90,,2
";

/// Rows of the sample's files, and a view of the rows that each table of smart-metering.sql has.
const SMART_METERING_CHECK: &str = "
    CREATE VIEW meter_expected AS
        SELECT meter, date_bin(INTERVAL '30 minutes', at, TIMESTAMP '2000-01-01') AS window_start, feeder,
            count(*) AS readings, count(kw) AS measured, avg(kw) AS mean_kw, max(kw) AS max_kw,
            min(voltage) AS min_voltage, max(voltage) AS max_voltage
        FROM household_row GROUP BY meter, window_start, feeder;
    CREATE VIEW household_expected AS
        SELECT feeder, window_start, count(*) AS meters, sum(readings)::bigint AS readings, sum(mean_kw) AS demand_kw,
            min(min_voltage) AS min_voltage, max(max_voltage) AS max_voltage
        FROM meter_expected GROUP BY feeder, window_start;
    CREATE VIEW channel_expected AS
        SELECT asset, quantity, date_bin(INTERVAL '30 minutes', at, TIMESTAMP '2000-01-01') AS window_start,
            count(*) AS readings, count(reading) AS measured, avg(reading) AS mean, min(reading) AS minimum,
            max(reading) AS maximum
        FROM infrastructure_row GROUP BY asset, quantity, window_start;
    CREATE VIEW infrastructure_expected AS
        SELECT c.*, s.low, s.high, s.per_demand_max, s.revision
        FROM channel_expected c JOIN specification_row s ON s.asset = c.asset AND s.quantity = c.quantity
        WHERE s.revision = (SELECT max(r.revision) FROM specification_row r WHERE r.asset = c.asset
            AND r.quantity = c.quantity AND r.valid_from < c.window_start + INTERVAL '30 minutes');
    CREATE VIEW latest_expected AS
        SELECT c.* FROM channel_expected c JOIN (SELECT asset, quantity, max(window_start) AS last FROM channel_expected
            GROUP BY asset, quantity) l ON l.asset = c.asset AND l.quantity = c.quantity AND l.last = c.window_start;
    CREATE VIEW feeder_balance_expected AS
        SELECT h.feeder, h.window_start, h.demand_kw, i.mean AS load_kw, i.mean - h.demand_kw AS unexplained_kw
        FROM household_expected h JOIN infrastructure_expected i
            ON i.asset = h.feeder AND i.quantity = 'load' AND i.window_start = h.window_start
        WHERE h.demand_kw IS NOT NULL AND i.mean IS NOT NULL;
    CREATE VIEW alarms_expected AS
        SELECT asset, quantity, window_start, mean, low, high, NULL::double precision AS demand_kw,
            CASE WHEN mean < low THEN 'below' ELSE 'above' END AS reason, revision
        FROM infrastructure_expected WHERE mean < low OR mean > high
        UNION ALL
        SELECT i.asset, i.quantity, i.window_start, i.mean, i.low, i.high, b.demand_kw, 'above demand', i.revision
        FROM infrastructure_expected i JOIN feeder_balance_expected b
            ON i.asset = b.feeder AND i.quantity = 'load' AND i.window_start = b.window_start
        WHERE i.mean > i.per_demand_max * b.demand_kw AND i.mean BETWEEN i.low AND i.high;";

/// Runs the script on a copy of the sample with more revisions; returns the folder of the files.
fn smart_metering(session: &mut Session, directory: &Path) {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/smart-metering");
    for name in ["household.csv", "infrastructure.csv", "specification.csv"] {
        std::fs::copy(sample.join(name), directory.join(name)).unwrap();
    }
    let specification = directory.join("specification.csv");
    File::options().append(true).open(specification).unwrap().write_all(REVISIONS.as_bytes()).unwrap();
    let script = include_str!("../../../../examples/smart-metering.sql");
    let moved = script.replace("'examples/smart-metering/", &format!("'{}/", directory.display()));
    assert_ne!(moved, script);
    session.execute(&moved).unwrap();
    // Once more: what is there stays.
    session.execute(&moved).unwrap();
}

/// Loads the files into tables.
fn load_sample(session: &mut Session, directory: &Path) {
    for (name, columns) in [
        ("household", "at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, voltage DOUBLE"),
        ("infrastructure", "at TIMESTAMP, asset VARCHAR, quantity VARCHAR, reading DOUBLE"),
        (
            "specification",
            "valid_from TIMESTAMP, asset VARCHAR, quantity VARCHAR, low DOUBLE, high DOUBLE, per_demand_max DOUBLE,
                revision INT",
        ),
    ] {
        session.execute(&format!("CREATE TABLE {name}_row ({columns})")).unwrap();
        let mut file = File::open(directory.join(format!("{name}.csv"))).unwrap();
        let copy = format!("COPY {name}_row FROM STDIN WITH (FORMAT csv, HEADER)");
        assert!(session.copy_in(&copy, &mut file).unwrap() > 6, "{name}");
    }
}

#[test]
fn smart_metering_equals_the_queries_over_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    smart_metering(&mut session, directory.path());
    load_sample(&mut session, directory.path());
    session.execute(SMART_METERING_CHECK).unwrap();
    wait_for_end(&mut session, "households");
    wait_for_end(&mut session, "infrastructure");
    let unjudged = "SELECT (SELECT count(*) FROM feeder_balance) - (SELECT max(tuples) FROM streams_positions
        WHERE topology = 'balances')";
    wait_for(&mut session, unjudged, "0");
    // To six digits: the means are summed in another order, and balances are decimals of them.
    let rounded = |columns: &str| -> String {
        let rounded = columns.split(' ').map(|column| match column.strip_prefix('~') {
            Some(number) => format!("round({number}::numeric, 6)"),
            None => column.to_owned(),
        });
        rounded.collect::<Vec<String>>().join(", ")
    };
    for (target, columns) in [
        ("meter", "meter window_start feeder readings measured ~mean_kw ~max_kw ~min_voltage ~max_voltage"),
        ("household", "feeder window_start meters readings ~demand_kw ~min_voltage ~max_voltage"),
        (
            "infrastructure",
            "asset quantity window_start readings measured ~mean ~minimum ~maximum low high per_demand_max revision",
        ),
        ("latest", "asset quantity window_start readings measured ~mean ~minimum ~maximum"),
        ("feeder_balance", "feeder window_start ~demand_kw ~load_kw"),
        ("alarms", "asset quantity window_start ~mean low high ~demand_kw reason revision"),
    ] {
        let columns = rounded(columns);
        let held = format!("SELECT {columns} FROM {target}");
        compare(&mut session, target, &held, &format!("SELECT {columns} FROM {target}_expected"));
    }
    let unexplained = "SELECT count(*) FROM feeder_balance WHERE unexplained_kw <> load_kw - demand_kw";
    assert_eq!(rows(&mut session, unexplained), [["0"]]);
    let reasons = "SELECT DISTINCT reason || ' ' || revision FROM alarms WHERE revision = 2 ORDER BY 1";
    assert_eq!(rows(&mut session, reasons), [["above 2"], ["above demand 2"], ["below 2"]]);
}
