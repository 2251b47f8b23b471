//! The cache of tables by column as a user sets it and sees it: policies, limits, `entresol.cache`.
#![allow(clippy::unwrap_used)]

use entresol::arrow::util::display::array_value_to_string;
use entresol::{CachePolicy, Database, DomainChoice, Options, Session};

const ROWS: i64 = 700_000;

fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let batches = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let row = |batch: &entresol::arrow::array::RecordBatch, row| {
        let text = |column| array_value_to_string(batch.column(column), row).unwrap();
        (0..batch.num_columns()).map(text).collect::<Vec<_>>().join(" ")
    };
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|at| row(batch, at)).collect::<Vec<_>>())
        .collect()
}

/// Database with a table of several row groups.
fn database(options: Options) -> Database {
    let database = Database::volatile(options).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE measure (id BIGINT, kw BIGINT) WITH (layout = 'columns')").unwrap();
    let insert =
        format!("INSERT INTO measure SELECT i, i * 7919 % 100003 FROM generate_series(1, {ROWS}) g(i)");
    session.execute(&insert).unwrap();
    // Full row groups, which no merge in the background reads or replaces.
    session.execute("VACUUM measure").unwrap();
    drop(session);
    database
}

fn expected() -> String {
    let (sum, odd) = (1..=ROWS).fold((0, 0), |(sum, odd), i| (sum + i * 7919 % 100_003, odd + i % 2));
    format!("{sum} {odd}")
}

const SUM: &str = "SELECT sum(kw), sum(id % 2) FROM measure";

fn use_of(session: &mut Session, columns: &str) -> Vec<String> {
    let sql =
        format!("SELECT {columns} FROM entresol.cache WHERE \"column\" IN ('id', 'kw') ORDER BY \"column\"");
    rows(session, &sql)
}

#[test]
fn any_policy_and_any_limit_gives_the_same_rows_within_its_memory() {
    let policies = ["lru", "mru", "lfu", "2q", "s3-fifo", "hpcache", "hpcache:10%"];
    for (policy, bytes_max) in policies.iter().flat_map(|policy| [(policy, 0), (policy, 700_000)]) {
        let parsed: CachePolicy = policy.parse().unwrap();
        let database = database(Options::default().cache_policy(parsed).cache_bytes_max(bytes_max));
        let mut session = database.session().unwrap();
        let settings = "SELECT value FROM entresol.database WHERE property LIKE 'cache%' ORDER BY property";
        assert_eq!(rows(&mut session, settings), [bytes_max.to_string(), (*policy).to_owned()]);
        for _ in 0..3 {
            assert_eq!(rows(&mut session, SUM), [expected()], "{policy}, {bytes_max} bytes");
        }
        let used =
            rows(&mut session, "SELECT used_bytes FROM entresol.memory WHERE consumer = 'column pages'");
        assert!(used[0].parse::<u64>().unwrap() <= bytes_max, "{policy}: {used:?} of {bytes_max}");
        let cached = "SELECT count(*) > 0 FROM entresol.cache WHERE pages > 0";
        // A pool in memory is fast enough without a cache, so the least memory may be none.
        if *policy != "hpcache:10%" {
            assert_eq!(rows(&mut session, cached), [(bytes_max > 0).to_string()], "{policy}");
        }
    }
}

#[test]
fn a_page_is_loaded_once_by_a_scan_though_nothing_is_cached() {
    let database = database(Options::default().cache_bytes_max(0).worker_threads(2));
    let mut session = database.session().unwrap();
    let misses = |session: &mut Session| -> Vec<i64> {
        let sql = "SELECT misses FROM entresol.cache WHERE \"column\" IN ('id', 'kw')";
        rows(session, sql).iter().map(|misses| misses.parse().unwrap()).collect()
    };
    let groups = (ROWS + 131_071) / 131_072;
    for _ in 0..4 {
        let before = misses(&mut session);
        assert_eq!(rows(&mut session, SUM), [expected()]);
        let loaded: Vec<i64> =
            misses(&mut session).iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(loaded, [groups, groups]);
    }
    assert!(use_of(&mut session, "hits = 0 AND pages = 0").iter().all(|none| none == "true"));
}

#[test]
fn shares_are_shown_once_they_are_known_and_only_for_hpcache() {
    let database = database(Options::default());
    let mut session = database.session().unwrap();
    let shares = "target_share BETWEEN 0 AND 1, expected_gain_ms >= 0";
    let began = std::time::Instant::now();
    loop {
        rows(&mut session, SUM);
        if use_of(&mut session, shares) == ["true true", "true true"] {
            break;
        }
        assert!(began.elapsed().as_secs() < 30, "{:?}", use_of(&mut session, shares));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    database.catalog().set_cache_policy(CachePolicy::S3Fifo);
    rows(&mut session, SUM);
    let without = "target_share IS NULL AND expected_gain_ms IS NULL, hits > 0";
    assert_eq!(use_of(&mut session, without), ["true true", "true true"]);
}

#[test]
fn lists_of_an_elf_gain_what_a_line_of_persistent_memory_takes_longer() {
    for (domain, gain) in
        [(DomainChoice::DaxEmulated, "expected_gain_ms > 0"), (DomainChoice::Journal, "expected_gain_ms = 0")]
    {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Options::default().domain(domain)).unwrap();
        let mut session = database.session().unwrap();
        for sql in [
            "CREATE TABLE measure (id BIGINT, day INT, meter INT) WITH (layout = 'columns')",
            "INSERT INTO measure SELECT i, i % 365, i % 1009 FROM generate_series(1, 140000) g(i)",
            "CREATE INDEX by_day ON measure USING elf (day, meter) WITH (cache = 'lists', cache_policy = 'levels:1+lru')",
            "VACUUM measure",
        ] {
            session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        for _ in 0..40 {
            rows(&mut session, "SELECT id FROM measure WHERE day = 17 AND meter = 300");
        }
        let shown = format!("SELECT hits > 0, {gain} FROM entresol.cache WHERE \"column\" = 'by_day'");
        assert_eq!(rows(&mut session, &shown), ["true true"], "{domain:?}");
    }
}
