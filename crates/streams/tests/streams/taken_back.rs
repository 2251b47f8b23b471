//! Rankings, look-ups and MERGE of rows that are taken back: over transactions, restarts, and changes of others in between,
//! they equal what is computed from all readings.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch};
use entresol_memory::Durability;
use entresol_streams::{
    Aggregate, Boundary, ColumnExpression, GeneratorSource, JoinKind, MergeInto, RankChanges, RankEmission,
    RankFunction, RankOrder, Ranking, RunningGroups, Stream, ToTable, Topology,
};
use entresol_tables::{Catalog, Column, DataType, Schema, TableOptions, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

const METERS: u64 = 9;
/// First rows of the ranking that are sent.
const FIRST: usize = 3;

fn create(catalog: &Catalog, table: &str, column: &str) {
    let columns = vec![Column::new("meter", DataType::Int).not_null(), Column::new(column, DataType::BigInt)];
    let schema = Schema::new(columns, &["meter"]).unwrap();
    catalog.create_table(table, schema, TableOptions::default()).unwrap();
}

fn write(catalog: &Catalog, table: &str, rows: impl IntoIterator<Item = (i32, i64)>) {
    let transaction = catalog.begin().unwrap();
    let table = catalog.table(table).unwrap();
    for (meter, number) in rows {
        table.upsert(&transaction, &[Value::Int(meter), Value::BigInt(number)]).unwrap();
    }
    transaction.commit(Durability::None).unwrap();
}

fn counted(groups: Vec<usize>, state_table: &str) -> RunningGroups {
    RunningGroups {
        groups,
        aggregates: vec![Aggregate::count()],
        state_table: state_table.to_owned(),
        life: None,
        interval: None,
        late: None,
        groups_in_dram: 2,
    }
}

/// Counts that are sent: others have no row.
fn is_sent(count: i64) -> bool {
    count % 5 != 2
}

fn merge(counts: &Stream) {
    let number = |rows: &RecordBatch, at: usize, row: usize| {
        let numbers = rows.column(at).as_primitive::<Int64Type>();
        if numbers.is_null(row) { 0 } else { numbers.value(row) }
    };
    counts.merge_into(MergeInto {
        inserts: Vec::new(),
        rules: None,
        table: "merged".to_owned(),
        on: vec!["meter".to_owned()],
        // Columns are meter and count, then meter and number of the table. Counts of 4 delete the row.
        action: Box::new(|rows: &RecordBatch| -> Result<ArrayRef, String> {
            let counts = rows.column(1).as_primitive::<Int64Type>().values().iter();
            let action = |count: &i64| if *count == 4 { MergeInto::DELETE } else { MergeInto::WRITE };
            Ok(Arc::new(Int32Array::from_iter_values(counts.map(action))))
        }),
        state_table: Some("before".to_owned()),
        values: vec![
            Box::new(ColumnExpression(0)),
            Box::new(move |rows: &RecordBatch| -> Result<ArrayRef, String> {
                let sum = |row| number(rows, 1, row) + number(rows, 3, row);
                Ok(Arc::new(Int64Array::from_iter_values((0..rows.num_rows()).map(sum))))
            }),
        ],
    });
}

/// Goes on up to a reading, in transactions of so many.
fn run(catalog: &Arc<Catalog>, end: u64, every: usize) {
    let topology = Topology::builder("t", catalog).boundary(Boundary::Every(every));
    let source =
        GeneratorSource::new(reading_columns(), move |n| (n < end).then(|| random_reading(7, n, METERS, 0)));
    let counts = topology.source("s", source).running(counted(vec![0], "counts_state"));
    let counts = counts.filter(|row| matches!(row[1], Value::BigInt(count) if is_sent(count)));
    let order = |column: usize, descending: bool| RankOrder { column, descending, nulls_first: false };
    let ranked = counts.rank(Ranking {
        function: RankFunction::RowNumber,
        partition: Vec::new(),
        order: vec![order(1, true), order(0, false)],
        limit: Some(FIRST),
        changes: RankChanges::OfRanks,
        emission: RankEmission::Commit,
        rank_column: "place".to_owned(),
        state_table: "ranked".to_owned(),
        late: None,
        partitions_in_dram: 1,
    });
    ranked.to_table(ToTable::upsert("first").key(&["place"]));
    let joined = counts.lookup_join_all("factors", &["meter"], JoinKind::Inner, Some("sent"));
    joined.running(counted(vec![3], "factors_state")).to_table(ToTable::upsert("factored"));
    merge(&counts);
    topology.build().unwrap().run().unwrap();
}

/// Readings so far, and what others have written.
#[derive(Default)]
struct Oracle {
    counts: BTreeMap<i32, i64>,
    /// Factors as they are, and those with which each meter was joined last.
    factors: BTreeMap<i32, i64>,
    joined: BTreeMap<i32, i64>,
    before: BTreeMap<i32, i64>,
    /// Numbers that others have written since the last reading of a meter.
    written: BTreeMap<i32, i64>,
}

impl Oracle {
    fn sent(&self) -> impl Iterator<Item = (i32, i64)> {
        self.counts.iter().map(|(meter, count)| (*meter, *count)).filter(|(_, count)| is_sent(*count))
    }

    fn read(&mut self, readings: std::ops::Range<u64>) {
        for n in readings {
            let Value::Int(meter) = random_reading(7, n, METERS, 0)[0] else { panic!("no meter") };
            *self.counts.entry(meter).or_insert(0) += 1;
            self.written.remove(&meter);
            match self.factors.get(&meter) {
                Some(factor) => drop(self.joined.insert(meter, *factor)),
                None => drop(self.joined.remove(&meter)),
            }
        }
    }

    fn check(&self, catalog: &Catalog) {
        let mut ranked: Vec<(i64, i32)> = self.sent().map(|(meter, count)| (-count, meter)).collect();
        ranked.sort_unstable();
        let first: BTreeMap<i64, (i32, i64)> = rows(catalog, "first")
            .iter()
            .map(|row| match row.as_slice() {
                [Value::Int(meter), Value::BigInt(count), Value::BigInt(place)] => (*place, (*meter, *count)),
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted = (1..).zip(ranked.into_iter().take(FIRST));
        assert_eq!(first, wanted.map(|(place, (count, meter))| (place, (meter, -count))).collect());

        let mut factored: BTreeMap<i64, i64> = BTreeMap::new();
        for factor in self.sent().filter_map(|(meter, _)| self.joined.get(&meter)) {
            *factored.entry(*factor).or_insert(0) += 1;
        }
        let found = rows(catalog, "factored");
        let factored: Vec<Vec<Value>> =
            factored.into_iter().map(|(factor, meters)| vec![factor.into(), meters.into()]).collect();
        assert_eq!(found, factored);

        let mut merged = self.before.clone();
        for (meter, count) in self.sent() {
            if count == 4 {
                merged.remove(&meter);
            } else {
                *merged.entry(meter).or_insert(0) += count;
            }
        }
        merged.extend(&self.written);
        let merged: Vec<Vec<Value>> =
            merged.into_iter().map(|(meter, number)| vec![meter.into(), number.into()]).collect();
        assert_eq!(rows(catalog, "merged"), merged);
        assert_eq!(rows(catalog, "ranked").len(), self.sent().count());
    }
}

#[test]
fn what_follows_from_rows_that_are_taken_back_equals_recomputing() {
    for every in [1, 4, 1000] {
        let directory = tempfile::tempdir().unwrap();
        let mut oracle = Oracle::default();
        oracle.before.extend([(1, 100), (3, 300), (50, 7)]);
        oracle.factors.extend([(0, 10), (1, 11), (2, 10), (3, 11), (4, 10), (5, 12)]);
        let mut catalog = journal(directory.path());
        create(&catalog, "merged", "n");
        create(&catalog, "factors", "factor");
        write(&catalog, "merged", oracle.before.clone());
        write(&catalog, "factors", oracle.factors.clone());
        let mut read = 0;
        for round in 0..12 {
            let end = read + 1 + round * 3;
            run(&catalog, end, every);
            oracle.read(read..end);
            read = end;
            oracle.check(&catalog);
            if round % 3 == 1 {
                // A restart, as behind a crash: commits of this boundary are durable.
                drop(catalog);
                catalog = journal(directory.path());
            }
            if round % 4 == 2 {
                // Others write: what was joined before is taken back as it was; what was merged starts from the new number.
                let factor = 20 + round as i64;
                oracle.factors.extend([(2, factor), (7, 10)]);
                write(&catalog, "factors", oracle.factors.clone());
                if rows(&catalog, "merged").iter().any(|row| row[0] == Value::Int(3)) {
                    let number = 1000 * factor;
                    write(&catalog, "merged", [(3, number)]);
                    oracle.before.insert(3, number);
                    oracle.written.insert(3, number);
                }
            }
        }
        assert!(oracle.counts.values().sum::<i64>() > 200);
    }
}
