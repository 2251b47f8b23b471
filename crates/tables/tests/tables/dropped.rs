//! Dropped tables whose space is freed over several runs: a check finds no problem in any intermediate state.
use entresol_memory::env::{Env, OverlayFiles};
use entresol_memory::{DomainChoice, Durability, JournalOptions, Pool, PoolOptions};
use entresol_tables::{Catalog, Column, DataType, Schema, TableOptions, Value, check};
use entresol_transactions::StateContext;
use std::path::Path;
use std::sync::Arc;

/// Enough rows that a dropped table is freed in several steps, and the rest has more than one inner node.
const ROWS: i32 = 30_000;

fn options(files: bool) -> PoolOptions {
    let env = if files { Env::real() } else { Env::real().with_files(Arc::new(OverlayFiles::new())) };
    let journal = JournalOptions { slot_bytes: 1 << 20, ..JournalOptions::default() };
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 4 << 20,
        journal,
        env,
        ..PoolOptions::default()
    }
}

fn open(directory: &Path) -> (Arc<Pool>, Arc<Catalog>) {
    let pool = Pool::open_or_create(directory, &options(true)).unwrap();
    let catalog = Catalog::open_or_create(StateContext::open_or_create(Arc::clone(&pool)).unwrap()).unwrap();
    (pool, catalog)
}

/// Problems found by a check; changes nothing.
fn problems(directory: &Path) -> Vec<String> {
    let pool = Pool::open(directory, &options(false)).unwrap();
    let catalog = Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap();
    check(&catalog, |_| {}).unwrap().problems.iter().map(ToString::to_string).collect()
}

fn create(catalog: &Arc<Catalog>, name: &str, rows: std::ops::Range<i32>, keys: Keys) {
    let (kind, key) = keys;
    let columns = vec![Column::new("id", kind), Column::new("n", DataType::Int)];
    let table =
        catalog.create_table(name, Schema::new(columns, &["id"]).unwrap(), TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    for row in rows {
        table.insert(&tx, &[key(row), Value::Int(row)]).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
}

type Keys = (DataType, fn(i32) -> Value);

const NUMBERS: Keys = (DataType::Int, number);
const TEXTS: Keys = (DataType::Varchar, text);

fn number(row: i32) -> Value {
    Value::Int(row)
}

fn text(row: i32) -> Value {
    Value::from(format!("the key of row {row:06}").as_str())
}

/// Closes it, or ends as a crash would: with the present content of the journal.
fn end(pool: &Pool, closed: bool) {
    if closed {
        pool.close().unwrap();
    }
}

fn comes_and_goes(keys: Keys, closed: bool) {
    let directory = tempfile::TempDir::new().unwrap();
    let (pool, catalog) = open(directory.path());
    create(&catalog, "t", 0..ROWS, keys);
    end(&pool, closed);
    drop((pool, catalog));
    assert_eq!(problems(directory.path()), [""; 0]);

    let (pool, catalog) = open(directory.path());
    catalog.drop_table("t").unwrap();
    end(&pool, closed);
    drop((pool, catalog));
    assert_eq!(problems(directory.path()), [""; 0]);

    // Each run frees some more of it.
    for run in 0..5 {
        let (pool, catalog) = open(directory.path());
        create(&catalog, &format!("u{run}"), 0..10, keys);
        end(&pool, closed);
        drop((pool, catalog));
        assert_eq!(problems(directory.path()), [""; 0], "after run {run}");
    }
    let (pool, catalog) = open(directory.path());
    catalog.context().vacuum().unwrap();
    end(&pool, closed);
    drop((pool, catalog));
    assert_eq!(problems(directory.path()), [""; 0]);
}

#[test]
fn what_is_left_of_a_dropped_table_is_sound_between_orderly_runs() {
    comes_and_goes(NUMBERS, true);
}

#[test]
fn what_is_left_of_a_dropped_table_is_sound_between_crashes() {
    comes_and_goes(NUMBERS, false);
}

#[test]
fn what_is_left_of_a_dropped_table_of_texts_is_sound() {
    comes_and_goes(TEXTS, true);
}
