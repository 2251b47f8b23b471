//! The pages on streams, whose examples run as they stand, one after the other, and have the results that the pages
//! promise.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

/// Pages in the order in which their examples run, each on what those before have made.
const PAGES: [&str; 6] = [
    "streams.md",
    "streams/running.md",
    "streams/sources-and-sinks.md",
    "streams/time-and-transactions.md",
    "streams/changes-and-views.md",
    "streams/steps.md",
];

/// Examples of a page.
fn examples_of(page: &str) -> Vec<String> {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    text.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

/// Result of an example.
struct Promise {
    /// Words of the example.
    example: &'static str,
    /// Topologies that come to their end.
    ends: &'static [&'static str],
    /// Queries of one row, and its values with commas between them.
    queries: &'static [(&'static str, &'static str)],
}

const fn promise(
    example: &'static str,
    ends: &'static [&'static str],
    queries: &'static [(&'static str, &'static str)],
) -> Promise {
    Promise { example, ends, queries }
}

#[test]
fn the_examples_of_the_pages_have_their_results() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let examples: Vec<String> = PAGES.iter().flat_map(|page| examples_of(page)).collect();
    for Promise { example, .. } in PROMISES {
        let count = examples.iter().filter(|text| text.contains(example)).count();
        assert_eq!(count, 1, "examples with {example}");
    }
    for text in examples {
        session.execute(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for promise in PROMISES.iter().filter(|promise| text.contains(promise.example)) {
            check(&mut session, promise);
        }
    }
}

fn check(session: &mut Session, promise: &Promise) {
    promise.ends.iter().for_each(|topology| wait_for_end(session, topology));
    for (query, expected) in promise.queries {
        match query.strip_prefix("until ") {
            Some(query) => wait_for(session, query, expected),
            None => {
                let found: Vec<String> = rows(session, query).iter().map(|row| row.join(", ")).collect();
                assert_eq!(found.join("; "), *expected, "{query}");
            }
        }
    }
}

/// Results of the examples, by their first topology or view. A query behind `until` is asked until it has the result.
const PROMISES: &[Promise] = &[
    promise(
        "CREATE TOPOLOGY metering",
        &["metering"],
        &[
            ("SELECT count(*), sum(readings)::bigint FROM half_hour", "480, 20000"),
            ("SELECT count(*) FROM latest", "40"),
            ("SELECT count(*) > 0, count(*) FILTER (WHERE kw <= kw_max) FROM alarms", "true, 0"),
        ],
    ),
    promise(
        "CREATE TOPOLOGY guarded",
        &["guarded"],
        &[("SELECT count(*) > 0, count(*) FILTER (WHERE kw <= 99.9) FROM flood", "true, 0")],
    ),
    promise(
        "CREATE TOPOLOGY feeders_so_far",
        &["feeders_so_far", "kilowatt_hours"],
        &[
            ("SELECT count(*), sum(readings)::bigint, min(peak) > 99 FROM so_far", "4, 20000, true"),
            ("SELECT count(*), sum(kwh) BETWEEN 250 AND 300 FROM kilowatt_hours", "40, true"),
        ],
    ),
    promise(
        "CREATE MATERIALIZED VIEW alarms_of_meters",
        &[],
        &[("SELECT (SELECT sum(alarms) FROM alarms_of_meters) = count(*) FROM alarms", "true")],
    ),
    promise(
        "CREATE TOPOLOGY feeders AS",
        &["feeders"],
        &[("SELECT count(*) > 1000, sum(kw) > 900000 FROM minutes_of_feeders", "true, true")],
    ),
    promise(
        "CREATE TOPOLOGY heavies",
        &["heavies"],
        &[("SELECT count(*), min(watts) > 90000 FROM heavy_now", "4, true")],
    ),
    promise(
        "CREATE TOPOLOGY ticking",
        &[],
        &[("until SELECT position FROM entresol.sources WHERE name = 'ticks'", "100")],
    ),
    promise(
        "CREATE TOPOLOGY hours_of_minutes",
        &["hours_of_minutes"],
        &[(
            "SELECT count(*), min(latest_minute - hour) >= INTERVAL '0 minutes' FROM hour_of_meter",
            "240, true",
        )],
    ),
    promise(
        "CREATE TOPOLOGY records WITH",
        &["records"],
        &[("SELECT count(*), min(kw) > 95 FROM record_kw", "40, true")],
    ),
    promise(
        "CREATE TOPOLOGY prices WITH",
        &["prices"],
        &[("SELECT count(*), count(*) FILTER (WHERE price_at > at), count(cents) > 10000 FROM priced", "20000, 0, true")],
    ),
    promise(
        "CREATE TOPOLOGY stays",
        &["stays"],
        &[("SELECT sum(readings)::bigint FROM stay", "20000")],
    ),
    promise(
        "CREATE TOPOLOGY minutes AS",
        &["minutes"],
        &[("SELECT sum(readings)::bigint FROM minute", "20000")],
    ),
    promise(
        "CREATE MATERIALIZED VIEW owner_balance",
        &[],
        &[
            ("until SELECT count(*) FROM movement", "4"),
            (
                "SELECT owner, accounts, amount::bigint FROM owner_balance ORDER BY owner",
                "Ada, 2, 77; Alan, 1, 50",
            ),
            (
                "SELECT id, what, amount FROM movement ORDER BY cts, id",
                "1, insert, 100; 2, insert, 50; 1, update, -30; 3, insert, 7",
            ),
        ],
    ),
    promise(
        "CREATE MATERIALIZED VIEW rich",
        &[],
        &[("SELECT owner, amount::bigint FROM rich ORDER BY owner", "Ada, 70; Alan, 50")],
    ),
    promise(
        "CREATE MATERIALIZED VIEW kwh_by_meter",
        &["kwh_by_meter", "peaks"],
        &[
            ("SELECT count(*), sum(readings)::bigint FROM kwh_by_meter", "40, 20000"),
            ("SELECT readings = (SELECT max(readings) FROM kwh_by_meter) FROM most_readings", "true"),
            ("SELECT count(*), min(peak_kw) > 90 FROM peaks", "24, true"),
        ],
    ),
    promise(
        "CREATE TOPOLOGY counting",
        &["counting"],
        &[("SELECT count(*), sum(readings)::bigint FROM seen", "40, 20000")],
    ),
    promise(
        "CREATE TOPOLOGY alerting",
        &["alerting"],
        &[(
            "SELECT count(*) > 0, count(*) = max(number), min(state), min(kw) > 99 FROM alert",
            "true, true, open, true",
        )],
    ),
    promise(
        "CREATE TOPOLOGY highs",
        &["highs"],
        &[(
            "SELECT count(*) FILTER (WHERE what = 'insert') - count(*) FILTER (WHERE what = 'delete') = (SELECT count(*) FROM high),
                count(*) FILTER (WHERE what = 'delete') > 10, bool_and((kw_before IS NULL) = (what = 'insert')) FROM high_event",
            "true, true, true",
        )],
    ),
    promise(
        "CREATE TOPOLOGY costs",
        &["costs"],
        &[
            (
                "SELECT count(DISTINCT at), count(*) > 20000, bool_and(price_at <= at) FROM cost",
                "20000, true, true",
            ),
            ("SELECT count(*) FROM costs_open", "0"),
        ],
    ),
    promise(
        "CREATE TOPOLOGY rankings",
        &["rankings"],
        &[
            ("SELECT count(*), count(DISTINCT meter) FROM highest", "120, 40"),
            (
                "SELECT bool_and(h.kw = l.kw) FROM highest h JOIN (SELECT meter, max(most) AS kw FROM seen GROUP BY meter) l
                    ON l.meter = h.meter WHERE h.place = 1",
                "true",
            ),
            ("SELECT count(DISTINCT hour) FROM busiest", "6"),
            (
                "SELECT count(*), count(*) FILTER (WHERE (meter, readings) IN
                    (SELECT meter, readings FROM seen ORDER BY readings DESC, meter LIMIT 5)) FROM most_read",
                "5, 5",
            ),
        ],
    ),
    promise(
        "CREATE TOPOLOGY averages",
        &["averages"],
        &[
            (
                "SELECT count(*), count(DISTINCT meter), count(*) FILTER (WHERE most_of_hour < kw) FROM moving",
                "20000, 40, 0",
            ),
            ("SELECT count(*), count(change) FROM moving WHERE n = 1", "40, 0"),
            ("SELECT count(*) - count(change), count(DISTINCT hour) FROM by_hour", "40, 6"),
        ],
    ),
    promise(
        "CREATE TOPOLOGY surges",
        &["surges"],
        &[(
            "SELECT count(*) > 100, bool_and(readings >= 3 AND most > 2 * from_kw AND from_kw < 30) FROM surge",
            "true, true",
        )],
    ),
    promise(
        "CREATE TOPOLOGY steps_of_surges",
        &["steps_of_surges"],
        &[(
            "SELECT count(*) > 300, count(*) FILTER (WHERE place = 1) = count(*) FILTER (WHERE step = 'low'), bool_and(at <= ended)
                FROM surge_step",
            "true, true, true",
        )],
    ),
    promise(
        "CREATE TOPOLOGY totals",
        &["totals"],
        &[
            ("SELECT count(*), sum(readings)::bigint FROM meter_total", "40, 20000"),
            ("SELECT sum(readings * meters)::bigint, sum(meters)::bigint FROM spread", "20000, 40"),
            (
                "SELECT count(*) = count(DISTINCT meter || feeder), count(DISTINCT meter) FROM meter_feeder",
                "true, 40",
            ),
        ],
    ),
    promise(
        "CREATE TOPOLOGY owners",
        &["owners"],
        &[
            (
                "SELECT count(*), sum(readings)::bigint, sum(meters) = (SELECT count(*) FROM meter_feeder) FROM owner_total",
                "7, 20000, true",
            ),
            ("SELECT count(*) FROM busiest_meter", "12"),
            ("SELECT count(*), sum(points)::bigint, max(remark) FROM bonus", "40, 21000, from last year"),
        ],
    ),
    promise(
        "CREATE TOPOLOGY bursts",
        &["bursts"],
        &[(
            "SELECT sum(meters)::bigint, bool_and(ended > began), (SELECT sum(count)::bigint FROM bursts_open_2_rows) FROM burst",
            "40, true, 40",
        )],
    ),
    promise(
        "CREATE TOPOLOGY feeders_now",
        &["feeders_now"],
        &[
            (
                "SELECT sum(meters)::bigint, max(kw) = (SELECT max(most) FROM seen), count(busiest) = count(*), max(of_busiest) =
                    (SELECT max(readings) FROM seen) FROM feeder_state",
                "40, true, true, true",
            ),
            ("SELECT sum(meters)::bigint FROM last_hour", "40"),
            ("SELECT count(*) = 2 * (SELECT count(*) FROM feeder_state) FROM feeders_now_open_5", "true"),
        ],
    ),
];
