//! Star joins over tables of the database: the Star Schema Benchmark, keys that are no keys, cancellation.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};
use std::time::{Duration, Instant};

/// Tables of the specification, and rows of each.
const TABLES: [(&str, &str); 5] = [
    (
        "CREATE TABLE date (d_datekey INT PRIMARY KEY, d_date VARCHAR(18), d_dayofweek VARCHAR(9), d_month VARCHAR(9), \
         d_year INT, d_yearmonthnum INT, d_yearmonth VARCHAR(7), d_daynuminweek INT, d_daynuminmonth INT, \
         d_daynuminyear INT, d_monthnuminyear INT, d_weeknuminyear INT, d_sellingseason VARCHAR(12), \
         d_lastdayinweekfl BOOLEAN, d_lastdayinmonthfl BOOLEAN, d_holidayfl BOOLEAN, d_weekdayfl BOOLEAN)",
        "INSERT INTO date SELECT (1992 + y) * 10000 + m * 100 + 1, 'day', 'Monday', 'Dec', 1992 + y, \
         (1992 + y) * 100 + m, CASE WHEN m = 12 THEN 'Dec' ELSE 'Jan' END || (1992 + y), 1, 1, 1, m, m * 4, \
         'Winter', false, false, false, true \
         FROM generate_series(0, 6) a(y), generate_series(1, 12) b(m)",
    ),
    (
        "CREATE TABLE supplier (s_suppkey INT PRIMARY KEY, s_name VARCHAR(25), s_address VARCHAR(25), \
         s_city VARCHAR(10), s_nation VARCHAR(15), s_region VARCHAR(12), s_phone VARCHAR(15))",
        "INSERT INTO supplier SELECT i, 's' || i, 'here', \
         CASE WHEN i % 3 = 0 THEN 'UNITED KI' ELSE 'UNITED ST' END || (i % 6), \
         CASE WHEN i % 3 = 0 THEN 'UNITED KINGDOM' ELSE 'UNITED STATES' END, \
         CASE WHEN i % 4 = 0 THEN 'ASIA' WHEN i % 4 = 1 THEN 'EUROPE' ELSE 'AMERICA' END, '1' \
         FROM generate_series(1, 30) g(i)",
    ),
    (
        "CREATE TABLE customer (c_custkey INT PRIMARY KEY, c_name VARCHAR(25), c_address VARCHAR(25), \
         c_city VARCHAR(10), c_nation VARCHAR(15), c_region VARCHAR(12), c_phone VARCHAR(15), \
         c_mktsegment VARCHAR(10))",
        "INSERT INTO customer SELECT i, 'c' || i, 'there', \
         CASE WHEN i % 3 = 0 THEN 'UNITED KI' ELSE 'UNITED ST' END || (i % 6), \
         CASE WHEN i % 3 = 0 THEN 'UNITED KINGDOM' ELSE 'UNITED STATES' END, \
         CASE WHEN i % 4 = 0 THEN 'ASIA' ELSE 'AMERICA' END, '1', 'BUILDING' FROM generate_series(1, 60) g(i)",
    ),
    (
        "CREATE TABLE part (p_partkey INT PRIMARY KEY, p_name VARCHAR(22), p_mfgr VARCHAR(6), p_category VARCHAR(7), \
         p_brand1 VARCHAR(9), p_color VARCHAR(11), p_type VARCHAR(25), p_size INT, p_container VARCHAR(10))",
        "INSERT INTO part SELECT i, 'p' || i, 'MFGR#' || (1 + i % 2), 'MFGR#' || (1 + i % 2) || (2 + i % 3), \
         'MFGR#22' || (20 + i % 25), 'red', 'tin', i, 'box' FROM generate_series(1, 100) g(i)",
    ),
    (
        "CREATE TABLE lineorder (lo_orderkey BIGINT, lo_linenumber INT, lo_custkey INT, lo_partkey INT, \
         lo_suppkey INT, lo_orderdate INT, lo_orderpriority VARCHAR(15), lo_shippriority VARCHAR(1), lo_quantity INT, \
         lo_extendedprice INT, lo_ordtotalprice INT, lo_discount INT, lo_revenue INT, lo_supplycost INT, lo_tax INT, \
         lo_commitdate INT, lo_shipmode VARCHAR(10), PRIMARY KEY (lo_orderkey, lo_linenumber))",
        "INSERT INTO lineorder SELECT i / 4, i % 4, 1 + i * 7 % 61, 1 + i * 13 % 101, 1 + i * 11 % 31, \
         (1992 + i * 17 % 7) * 10000 + (1 + i * 5 % 12) * 100 + 1, 'HIGH', '0', 1 + i % 50, 1000 + i % 977, 2000, \
         i % 11, 500 + i % 613, 100 + i % 91, 1, 19920101, 'RAIL' FROM generate_series(0, 7999) g(i)",
    ),
];

/// Queries of the specification, flight by flight.
const QUERIES: [&str; 13] = [
    "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date WHERE lo_orderdate = d_datekey \
     AND d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25",
    "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date WHERE lo_orderdate = d_datekey \
     AND d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35",
    "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date WHERE lo_orderdate = d_datekey \
     AND d_weeknuminyear = 8 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
    "SELECT sum(lo_revenue), d_year, p_brand1 FROM lineorder, date, part, supplier WHERE lo_orderdate = d_datekey \
     AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_category = 'MFGR#12' AND s_region = 'AMERICA' \
     GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "SELECT sum(lo_revenue), d_year, p_brand1 FROM lineorder, date, part, supplier WHERE lo_orderdate = d_datekey \
     AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_brand1 BETWEEN 'MFGR#2221' AND 'MFGR#2228' \
     AND s_region = 'ASIA' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "SELECT sum(lo_revenue), d_year, p_brand1 FROM lineorder, date, part, supplier WHERE lo_orderdate = d_datekey \
     AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_brand1 = 'MFGR#2239' AND s_region = 'EUROPE' \
     GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "SELECT c_nation, s_nation, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
     WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_region = 'ASIA' \
     AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year \
     ORDER BY d_year ASC, revenue DESC",
    "SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
     WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
     AND c_nation = 'UNITED STATES' AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997 \
     GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC",
    "SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
     WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
     AND (c_city = 'UNITED KI3' OR c_city = 'UNITED KI0') AND (s_city = 'UNITED KI3' OR s_city = 'UNITED KI0') \
     AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC",
    "SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
     WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
     AND (c_city = 'UNITED KI3' OR c_city = 'UNITED KI0') AND (s_city = 'UNITED KI3' OR s_city = 'UNITED KI0') \
     AND d_yearmonth = 'Dec1997' GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC",
    "SELECT d_year, c_nation, sum(lo_revenue - lo_supplycost) AS profit FROM date, customer, supplier, part, lineorder \
     WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey \
     AND c_region = 'AMERICA' AND s_region = 'AMERICA' AND (p_mfgr = 'MFGR#1' OR p_mfgr = 'MFGR#2') \
     GROUP BY d_year, c_nation ORDER BY d_year, c_nation",
    "SELECT d_year, s_nation, p_category, sum(lo_revenue - lo_supplycost) AS profit \
     FROM date, customer, supplier, part, lineorder WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey \
     AND lo_partkey = p_partkey AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_region = 'AMERICA' \
     AND (d_year = 1997 OR d_year = 1998) AND (p_mfgr = 'MFGR#1' OR p_mfgr = 'MFGR#2') \
     GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category",
    "SELECT d_year, s_city, p_brand1, sum(lo_revenue - lo_supplycost) AS profit \
     FROM date, customer, supplier, part, lineorder WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey \
     AND lo_partkey = p_partkey AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_nation = 'UNITED STATES' \
     AND (d_year = 1997 OR d_year = 1998) AND p_category = 'MFGR#12' GROUP BY d_year, s_city, p_brand1 \
     ORDER BY d_year, s_city, p_brand1",
];

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn read(session: &mut Session, sql: &str) -> Vec<String> {
    let mut results = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    match results.pop().unwrap() {
        StatementResult::Rows(found) => rows(&found.batches),
        other => panic!("{sql}: {other:?}"),
    }
}

async fn plan(session: &mut Session, sql: &str) -> String {
    read(session, &format!("EXPLAIN {sql}")).await.join("\n")
}

/// The same query with equalities of strings, which no star join takes.
fn without_star(sql: &str) -> String {
    let joins = [
        "lo_orderdate = d_datekey",
        "lo_partkey = p_partkey",
        "lo_suppkey = s_suppkey",
        "lo_custkey = c_custkey",
    ];
    joins.iter().fold(sql.to_owned(), |sql, join| {
        let (of_fact, key) = join.split_once(" = ").unwrap();
        sql.replace(join, &format!("CAST({of_fact} AS VARCHAR) = CAST({key} AS VARCHAR)"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_star_schema_benchmark_is_star_joins() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    for (table, rows) in TABLES {
        run(&mut session, table).await;
        run(&mut session, rows).await;
    }
    let mut found = 0;
    for (at, sql) in QUERIES.iter().enumerate() {
        let shown = plan(&mut session, sql).await;
        assert!(shown.contains("StarJoinExec: fact=lineorder, dimensions=["), "{sql}\n{shown}");
        assert!(shown.contains(", group by=[") && !shown.contains("HashJoinExec"), "{sql}\n{shown}");
        let other = without_star(sql);
        let shown = plan(&mut session, &other).await;
        assert!(!shown.contains("StarJoinExec"), "{other}\n{shown}");
        let rows = read(&mut session, sql).await;
        assert_eq!(rows, read(&mut session, &other).await, "query {at}: {sql}");
        found += usize::from(!rows.is_empty() && rows != ["NULL"]);
    }
    assert!(found >= 11, "{found} queries have rows");
    let analyzed = read(&mut session, &format!("EXPLAIN ANALYZE {}", QUERIES[3])).await.join("\n");
    for part in ["date_rows=84", "part_probed=", "supplier_matched=", "build_time=", "probe_time="] {
        assert!(analyzed.contains(part), "{part}: {analyzed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_occur_several_times_join_several_times() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE d (n INT PRIMARY KEY, k SMALLINT, name VARCHAR(9))").await;
    run(
        &mut session,
        "INSERT INTO d VALUES (1, 1, 'a'), (2, 1, 'b'), (3, NULL, 'c'), (4, 2, 'a'), (5, 9, 'z')",
    )
    .await;
    run(&mut session, "CREATE TABLE f (id INT PRIMARY KEY, k BIGINT, v INT)").await;
    run(&mut session, "INSERT INTO f SELECT i, nullif(i % 4, 3), i FROM generate_series(0, 399) g(i)").await;
    let sql = "SELECT name, count(*), sum(v) FROM f JOIN d ON f.k = d.k GROUP BY name ORDER BY name";
    let shown = plan(&mut session, sql).await;
    assert!(shown.contains("StarJoinExec: fact=f, dimensions=[d on k = k], group by=[name]"), "{shown}");
    // 1, 5, .. 397 join with two rows each, 2, 6, .. 398 with one.
    assert_eq!(read(&mut session, sql).await, ["a 200 39900", "b 100 19900"]);
    let sql = "SELECT count(*), sum(v * 2000000000) FROM f JOIN d ON f.k = d.k WHERE name = 'b'";
    assert!(plan(&mut session, sql).await.contains("StarJoinExec"));
    let error = session.execute(sql).await.unwrap_err().to_string();
    assert!(error.contains("out of range") || error.contains("verflow"), "{error}");
    // No row that joins overflows.
    let sql = "SELECT count(*), sum(2000000000 + d.k) FROM f JOIN d ON f.k = d.k WHERE f.k = 2";
    assert!(plan(&mut session, sql).await.contains("StarJoinExec"));
    assert_eq!(read(&mut session, sql).await, ["100 200000000200"]);
    run(&mut session, "DELETE FROM d").await;
    let sql = "SELECT count(*), sum(v) FROM f JOIN d ON f.k = d.k";
    assert_eq!(read(&mut session, sql).await, ["0 NULL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_star_join_that_makes_many_rows_is_cancelled_soon() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE f (id INT PRIMARY KEY, k INT)").await;
    run(&mut session, "INSERT INTO f SELECT i, 1 FROM generate_series(1, 30000) g(i)").await;
    for table in ["d", "e", "g"] {
        run(&mut session, &format!("CREATE TABLE {table} (id INT PRIMARY KEY, {table}k INT)")).await;
        run(&mut session, &format!("INSERT INTO {table} SELECT i, 1 FROM generate_series(1, 1000) g(i)"))
            .await;
    }
    // 3 * 10^13 joined rows.
    for sql in [
        "SELECT count(*) FROM f, d, e, g WHERE k = dk AND k = ek AND k = gk",
        "SELECT k, count(*) FROM f, d, e, g WHERE k = dk AND k = ek AND k = gk GROUP BY k",
    ] {
        let shown = plan(&mut session, sql).await;
        assert!(shown.contains("StarJoinExec"), "{shown}");
        let canceller = session.canceller();
        let cancelling = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            (canceller.cancel(), Instant::now())
        });
        let error = session.execute(sql).await.unwrap_err();
        let (is_cancelled, at) = cancelling.join().unwrap();
        assert!(is_cancelled && error.interrupt().is_some(), "{error}");
        assert!(at.elapsed() < Duration::from_secs(5), "{:?}", at.elapsed());
    }
}
