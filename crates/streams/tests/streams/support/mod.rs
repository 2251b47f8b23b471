//! Common parts of the tests: databases, readings, and the batch computation that streams are compared with.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use entresol_memory::{DomainChoice, Pool, PoolOptions};
use entresol_streams::Tuple;
use entresol_tables::{Catalog, Column, DataType, Row, ScanRange, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub const SECOND_US: i64 = 1_000_000;

/// A database in DRAM.
pub fn volatile() -> Arc<Catalog> {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

/// A database on a journal pool. Dropping it without closing is a crash that loses DRAM.
pub fn journal(directory: &Path) -> Arc<Catalog> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

/// All committed rows of a table.
pub fn rows(catalog: &Catalog, table: &str) -> Vec<Row> {
    let table = catalog.table(table).unwrap();
    table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap()
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The seed of this run, from `ENTRESOL_SEED` or fixed; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("ENTRESOL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    println!("ENTRESOL_SEED={seed}");
    seed
}

pub fn reading_columns() -> Vec<Column> {
    vec![
        Column::new("meter", DataType::Int).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("power", DataType::Double),
    ]
}

pub fn reading(meter: i32, second: i64, power: f64) -> Tuple {
    vec![Value::Int(meter), Value::Timestamp(second * SECOND_US), Value::Double(power)]
}

/// The n-th reading of a stream without end: about one a second, up to `disorder` seconds out of order.
pub fn random_reading(seed: u64, n: u64, meters: u64, disorder: u64) -> Tuple {
    let mut random = Random(seed ^ n.wrapping_mul(0xA076_1D64_78BD_642F));
    let second = 1_000_000 + n as i64 - random.below(disorder + 1) as i64;
    let power = random.below(1000) as f64 / 8.0;
    reading(random.below(meters) as i32, second, power)
}

/// Group and window of a reading to count, sum, min, max.
pub type Oracle = BTreeMap<(i32, i64), (i64, f64, f64, f64)>;

/// Recomputes windows from all readings, without late ones; returns the number of late ones too.
pub fn recompute(readings: &[Tuple], size_s: i64, lateness_s: i64) -> (Oracle, u64) {
    let mut oracle = Oracle::new();
    let mut watermark = i64::MIN;
    let mut late = 0;
    for tuple in readings {
        let (Value::Int(meter), Value::Timestamp(at), Value::Double(power)) =
            (&tuple[0], &tuple[1], &tuple[2])
        else {
            panic!("{tuple:?}")
        };
        let start = at.div_euclid(size_s * SECOND_US) * size_s * SECOND_US;
        if start + size_s * SECOND_US <= watermark {
            late += 1;
            continue;
        }
        watermark = watermark.max(at - lateness_s * SECOND_US);
        let entry = oracle.entry((*meter, start)).or_insert((0, 0.0, f64::INFINITY, f64::NEG_INFINITY));
        *entry = (entry.0 + 1, entry.1 + power, entry.2.min(*power), entry.3.max(*power));
    }
    (oracle, late)
}

/// Converts rows (meter, window_start, window_end, count, sum, min, max) to an oracle.
pub fn as_oracle(rows: &[Row]) -> Oracle {
    let mut oracle = Oracle::new();
    for row in rows {
        match row.as_slice() {
            [
                Value::Int(meter),
                Value::Timestamp(start),
                Value::Timestamp(_),
                Value::BigInt(count),
                Value::Double(sum),
                Value::Double(min),
                Value::Double(max),
            ] => {
                let earlier = oracle.insert((*meter, *start), (*count, *sum, *min, *max));
                assert_eq!(earlier, None, "one row per group and window");
            }
            other => panic!("{other:?}"),
        }
    }
    oracle
}
