//! Cost of statements on single rows: prepared and as SQL text, on the fast path and on the planned path,
//! beside the table's own interface without any SQL.
//!
//! `cargo run -p entresol-query --example point`. Medians of rounds, in turns; durability none, one session,
//! one thread; on a volatile pool and on the journal.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_query::datafusion::common::ScalarValue;
use entresol_query::{Outcome, PreparedStatement, Result, Session, SessionOptions};
use entresol_tables::{Catalog, Table, Value};
use entresol_transactions::StateContext;
use futures::TryStreamExt;
use std::sync::Arc;
use std::time::Instant;

const ROWS: i32 = 100_000;
const ROUNDS: usize = 15;

/// Execution path to measure, with its number of runs per round.
struct Way {
    name: &'static str,
    runs: i32,
    times_ns: Vec<u64>,
}

struct Bench {
    session: Session,
    catalog: Arc<Catalog>,
    table: Arc<Table>,
    next: u64,
}

impl Bench {
    async fn new(pool: Arc<Pool>) -> Result<Bench> {
        let context = StateContext::open_or_create(pool)?;
        let catalog = Catalog::open_or_create(context)?;
        let options = SessionOptions {
            durability: Durability::None,
            target_partitions: Some(1),
            ..SessionOptions::default()
        };
        let mut session = Session::new(Arc::clone(&catalog), options);
        session.execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, s VARCHAR)").await?;
        let fill = format!(
            "INSERT INTO t SELECT value AS a, value AS b, 'row ' || value FROM generate_series(1, {ROWS})"
        );
        session.execute(&fill).await?;
        let table = catalog.table("t")?;
        Ok(Bench { session, catalog, table, next: 1 })
    }

    /// Returns some key.
    fn key(&mut self) -> i32 {
        self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.next >> 33) as i32 % ROWS + 1
    }

    async fn prepared(&mut self, statement: &PreparedStatement, runs: i32) -> Result<()> {
        for _ in 0..runs {
            let key = ScalarValue::from(self.key());
            match self.session.run_prepared(statement, &[key]).await? {
                Outcome::Rows(stream) => {
                    let batches: Vec<_> = stream.try_collect().await?;
                    assert_eq!(batches[0].num_rows(), 1);
                }
                Outcome::Count { rows, .. } => assert_eq!(rows, 1),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    async fn text(&mut self, before: &str, after: &str, runs: i32) -> Result<()> {
        for _ in 0..runs {
            let sql = format!("{before}{}{after}", self.key());
            assert_eq!(self.session.execute(&sql).await?.len(), 1);
        }
        Ok(())
    }

    fn table_read(&mut self, runs: i32) -> Result<()> {
        for _ in 0..runs {
            let key = [Value::Int(self.key())];
            let tx = self.catalog.begin()?;
            assert!(self.table.get_with(&tx, &key, |row| row.bigint(1))?.is_some());
        }
        Ok(())
    }

    fn table_update(&mut self, runs: i32) -> Result<()> {
        for _ in 0..runs {
            let key = [Value::Int(self.key())];
            let tx = self.catalog.begin()?;
            let mut row = self.table.get(&tx, &key)?.expect("all keys are there");
            row[1] = Value::BigInt(1);
            self.table.upsert(&tx, &row)?;
            tx.commit(Durability::None)?;
        }
        Ok(())
    }
}

async fn measure(title: &str, pool: Arc<Pool>) -> Result<()> {
    let mut bench = Bench::new(pool).await?;
    const LONG: &str = " AND (v IS NULL OR v IS NOT NULL)";
    let mut statements = Vec::new();
    for sql in [
        "SELECT v, s FROM t WHERE id = $1".to_owned(),
        format!("SELECT v, s FROM t WHERE id = $1{LONG}"),
        "UPDATE t SET v = v + 1 WHERE id = $1".to_owned(),
        format!("UPDATE t SET v = v + 1 WHERE id = $1{LONG}"),
    ] {
        statements.push(bench.session.prepare(&sql, &[]).await?);
    }
    let names = [
        ("read: table", 2000),
        ("read: prepared, short", 2000),
        ("read: text, short", 500),
        ("read: prepared, planned", 20),
        ("read: text, planned", 20),
        ("update: table", 2000),
        ("update: prepared, short", 2000),
        ("update: text, short", 500),
        ("update: prepared, planned", 20),
    ];
    let mut ways: Vec<Way> =
        names.into_iter().map(|(name, runs)| Way { name, runs, times_ns: Vec::new() }).collect();
    for _ in 0..ROUNDS {
        for (at, way) in ways.iter_mut().enumerate() {
            let started = Instant::now();
            match at {
                0 => bench.table_read(way.runs)?,
                1 => bench.prepared(&statements[0], way.runs).await?,
                2 => bench.text("SELECT v, s FROM t WHERE id = ", "", way.runs).await?,
                3 => bench.prepared(&statements[1], way.runs).await?,
                4 => bench.text("SELECT v, s FROM t WHERE id = ", LONG, way.runs).await?,
                5 => bench.table_update(way.runs)?,
                6 => bench.prepared(&statements[2], way.runs).await?,
                7 => bench.text("UPDATE t SET v = v + 1 WHERE id = ", "", way.runs).await?,
                _ => bench.prepared(&statements[3], way.runs).await?,
            }
            way.times_ns.push(started.elapsed().as_nanos() as u64 / way.runs as u64);
        }
    }
    println!("{title}");
    for way in &mut ways {
        way.times_ns.sort_unstable();
        let (median, least) = (way.times_ns[ROUNDS / 2], way.times_ns[0]);
        println!("  {:<28} {:>9.2} us (least {:.2})", way.name, median as f64 / 1e3, least as f64 / 1e3);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        measure("volatile", Pool::volatile(&PoolOptions::default())?).await?;
        let directory = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
        measure("journal", Pool::open_or_create(directory.path(), &options)?).await?;
        Ok(())
    })
}
