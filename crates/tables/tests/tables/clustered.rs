//! Tables with the layout `clustered`: beside a model, with random schemas, conditions and changes, under merges, over
//! restarts; what pruning leaves; histories, loads and definitions.
use arrow_array::RecordBatch;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, Column, ColumnCondition, ColumnFilter, DataType, Dimension,
    Direction, Error, IntegerSet, Interleave, Retention, Row, ScanRange, Schema, SplitPolicy, Table,
    TableDefinition, TableLayout, TableOptions, Value, arrow_schema, batch_to_rows, check,
};
use entresol_transactions::{StateContext, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

type Model = BTreeMap<i64, Row>;

const TYPES: [DataType; 9] = [
    DataType::Boolean,
    DataType::Int,
    DataType::BigInt,
    DataType::Date,
    DataType::Timestamp,
    DataType::Double,
    DataType::Decimal { precision: 12, scale: 2 },
    DataType::Decimal { precision: 38, scale: 0 },
    DataType::Varchar,
];

/// Random schema and clustering.
fn random_definition(random: &mut Random) -> TableDefinition {
    let mut columns = vec![Column::new("id", DataType::BigInt)];
    for number in 0..2 + random.below(4) {
        columns.push(Column::new(format!("c{number}"), random.of(&TYPES)));
    }
    let mut dimensions: Vec<Dimension> = Vec::new();
    while dimensions.is_empty() {
        for column in 0..columns.len() {
            if random.below(2) == 0 {
                let bits = (random.below(2) == 0).then(|| 1 + random.below(6) as u8);
                dimensions.push(Dimension { column, bits });
            }
        }
    }
    let mut definition = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    definition.layout = TableLayout::Clustered;
    definition.clustering = Some(ClusteringDefinition {
        dimensions,
        interleave: random.of(&Interleave::ALL),
        split: random.of(&SplitPolicy::ALL),
        block_bytes: random.of(&[4096, 20_000]),
    });
    definition
}

/// Value of a column, whose range moves with the round.
fn value(data_type: DataType, round: i64, random: &mut Random) -> Value {
    if random.below(12) == 0 {
        return Value::Null;
    }
    let wide = random.below(1 << 30) as i64 - (1 << 29);
    let number = random.of(&[random.0 as i64 >> 60, wide % 100, wide % 1000 + 700 * round, wide]);
    match data_type {
        DataType::Boolean => Value::Boolean(number % 3 == 0),
        DataType::Int => Value::Int(number as i32),
        DataType::BigInt => Value::BigInt(number << 20),
        DataType::Date => Value::Date(number as i32 % 30_000),
        DataType::Timestamp => Value::Timestamp(number * 1_000_000),
        DataType::Double => match number % 50 {
            0 => Value::Double(f64::NAN),
            1 => Value::Double(f64::NEG_INFINITY),
            _ => Value::Double(number as f64 / 7.0),
        },
        DataType::Decimal { precision: 12, .. } => Value::Decimal(number.into()),
        DataType::Decimal { .. } => Value::Decimal(i128::from(number) << random.of(&[0, 40, 80])),
        _ => Value::from(
            format!("{} {}", ["long common beginning", "a", "b"][number as usize % 3], number % 400).as_str(),
        ),
    }
}

fn row(id: i64, table: &Table, round: i64, random: &mut Random) -> Row {
    let columns = &table.schema().visible_columns()[1..];
    let values = columns.iter().map(|column| value(column.data_type, round, random));
    std::iter::once(Value::BigInt(id)).chain(values).collect()
}

/// Condition, and what it says of a value.
type Checked = (ColumnFilter, Box<dyn Fn(&Value) -> bool>);

fn integer(value: &Value) -> Option<i128> {
    Some(match value {
        Value::Boolean(value) => (*value).into(),
        Value::Int(value) | Value::Date(value) => (*value).into(),
        Value::BigInt(value) | Value::Timestamp(value) => (*value).into(),
        Value::Decimal(value) => *value,
        _ => return None,
    })
}

/// Random condition on a column, made of values as rows have them.
fn random_condition(table: &Table, random: &mut Random) -> Option<Checked> {
    let columns = table.schema().visible_columns();
    let column = random.below(columns.len() as u64) as usize;
    let condition = |condition: ColumnCondition| ColumnFilter { column, condition };
    match random.below(8) {
        0 => return Some((condition(ColumnCondition::Null), Box::new(Value::is_null))),
        1 => return Some((condition(ColumnCondition::NotNull), Box::new(|value| !value.is_null()))),
        _ => {}
    }
    let data_type = columns[column].data_type;
    let (first, second) = match column {
        0 => (Value::BigInt(random.below(9000) as i64), Value::BigInt(random.below(9000) as i64)),
        _ => {
            let round = random.below(6) as i64;
            (value(data_type, round, random), value(data_type, round, random))
        }
    };
    if let (Some(first), Some(second)) = (integer(&first), integer(&second)) {
        let least = i64::try_from(first.min(second)).ok()?;
        let greatest = i64::try_from(first.max(second)).ok()?;
        if random.below(3) == 0
            && let Some(set) = IntegerSet::new(&[least, greatest], 1 << 24)
        {
            let is_met = move |value: &Value| {
                integer(value).is_some_and(|value| value == least.into() || value == greatest.into())
            };
            return Some((condition(ColumnCondition::Among(Arc::new(set))), Box::new(is_met)));
        }
        let is_met = move |value: &Value| {
            integer(value).is_some_and(|value| (i128::from(least)..=i128::from(greatest)).contains(&value))
        };
        return Some((condition(ColumnCondition::Between { least, greatest }), Box::new(is_met)));
    }
    match (first, second) {
        (Value::Double(first), Value::Double(second)) if !first.is_nan() && !second.is_nan() => {
            let (least, greatest) = (first.min(second), first.max(second));
            let is_met = move |value: &Value| matches!(value, Value::Double(value) if value.is_nan() || (least..=greatest).contains(value));
            Some((condition(ColumnCondition::Doubles { least, greatest }), Box::new(is_met)))
        }
        (Value::Varchar(first), Value::Varchar(second)) => {
            let (least, greatest) = (first.clone().min(second.clone()), first.max(second));
            let within = {
                let (least, greatest) = (least.clone(), greatest.clone());
                Arc::new(move |text: &str| *least <= *text && *text <= *greatest)
            };
            let texts = ColumnCondition::TextsWithin {
                least: Some(least),
                greatest: Some(greatest),
                is_met: within.clone(),
            };
            let is_met = move |value: &Value| matches!(value, Value::Varchar(text) if within(text));
            Some((condition(texts), Box::new(is_met)))
        }
        _ => None,
    }
}

/// Rows of a scan by columns, sorted.
fn scanned(table: &Arc<Table>, tx: &Transaction, filters: Vec<ColumnFilter>) -> Vec<Row> {
    let visible = table.schema().visible_columns();
    let arrow = arrow_schema(visible, "UTC");
    let scan = table.column_scan(tx, (0..visible.len()).collect(), arrow, filters).unwrap().unwrap();
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |batch: RecordBatch| rows.extend(batch_to_rows("facts", visible, &batch).unwrap());
    for morsel in scan.morsels() {
        scan.read(tx, morsel).unwrap().into_iter().for_each(&mut add);
    }
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(tx).unwrap() {
        add(batch);
    }
    rows.sort_by_key(id_of);
    rows
}

fn id_of(row: &Row) -> i64 {
    if let Value::BigInt(id) = row[0] { id } else { panic!("an id") }
}

/// Equal, NaN too.
fn is_same(left: &[Row], right: &[Row]) -> bool {
    format!("{left:?}") == format!("{right:?}")
}

/// Compares all ways of reading with a model.
fn compare(table: &Arc<Table>, tx: &Transaction, model: &Model, random: &mut Random, what: &str) {
    let expected: Vec<Row> = model.values().cloned().collect();
    assert!(is_same(&scanned(table, tx, Vec::new()), &expected), "a scan by columns: {what}");
    assert!(is_same(&table.scan(ScanRange::full()).rows(tx).unwrap(), &expected), "a cursor: {what}");
    let (low, width) = (random.below(9000) as i64, random.below(3000) as i64);
    let (from, to) = ([Value::BigInt(low)], [Value::BigInt(low + width)]);
    let range = ScanRange::between(Bound::Included(&from), Bound::Excluded(&to));
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = table.scan(range.clone()).directed(direction).rows(tx).unwrap();
        if direction == Direction::Backward {
            rows.reverse();
        }
        let expected: Vec<Row> = model.range(low..low + width).map(|(_, row)| row.clone()).collect();
        assert!(is_same(&rows, &expected), "{direction:?} from {low} to {}: {what}", low + width);
    }
    let keys: Vec<Row> = (0..50).map(|_| vec![Value::BigInt(random.below(9000) as i64)]).collect();
    let found = table.get_many(tx, &keys).unwrap();
    for (key, found) in keys.iter().zip(found) {
        let expected = model.get(&id_of(key));
        assert_eq!(format!("{:?}", found.as_ref()), format!("{expected:?}"), "key {key:?}: {what}");
    }
    for _ in 0..12 {
        let count = 1 + random.below(3);
        let all: Vec<Checked> = (0..count).filter_map(|_| random_condition(table, random)).collect();
        let is_met = |row: &&Row| all.iter().all(|(filter, is_met)| is_met(&row[filter.column]));
        let expected: Vec<Row> = model.values().filter(is_met).cloned().collect();
        let filters: Vec<ColumnFilter> = all.iter().map(|(filter, _)| filter.clone()).collect();
        let rows = scanned(table, tx, filters.clone());
        assert!(is_same(&rows, &expected), "{} rows of {}, {filters:?}: {what}", rows.len(), expected.len());
    }
}

/// Changes some rows, and the model alike.
fn change(table: &Arc<Table>, tx: &Transaction, model: &mut Model, round: i64, random: &mut Random) {
    let first = random.below(8000) as i64;
    let count = random.of(&[1, 30, 700, 2500]);
    let ids: Vec<i64> = (first..first + count).filter(|id| (id * 7) % 5 < 3).collect();
    let rows: Vec<Row> = ids.iter().map(|id| row(*id, table, round, random)).collect();
    let there: Vec<i64> = ids.iter().copied().filter(|id| model.contains_key(id)).collect();
    let keys: Vec<Row> = there.iter().map(|id| vec![Value::BigInt(*id)]).collect();
    match random.below(6) {
        0 if there.is_empty() => {
            table.insert_many(tx, &rows).unwrap();
            model.extend(ids.iter().copied().zip(rows));
        }
        0 => assert!(matches!(table.insert_many(tx, &rows), Err(Error::DuplicateKey { .. }))),
        1 => {
            assert_eq!(table.delete_many(tx, &keys).unwrap(), there.len());
            there.iter().for_each(|id| drop(model.remove(id)));
        }
        2 => {
            let new: Vec<Row> = there.iter().map(|id| row(*id, table, round, random)).collect();
            table.update_many(tx, &keys, &new).unwrap();
            model.extend(there.iter().copied().zip(new));
        }
        3 => {
            let mut builder = BatchBuilder::new(table.schema().visible_columns(), rows.len());
            rows.iter().for_each(|row| builder.push(row).unwrap());
            table.upsert_batch(tx, &builder.finish()).unwrap();
            model.extend(ids.iter().copied().zip(rows));
        }
        _ => {
            table.upsert_many(tx, &rows).unwrap();
            model.extend(ids.iter().copied().zip(rows));
        }
    }
}

#[test]
fn rows_are_those_of_a_model_whatever_the_schema() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.entresol");
        let (mut model, mut round) = (Model::new(), 0);
        let definition = random_definition(&mut random);
        for run in 0..3 {
            let pool = Pool::open_or_create(&path, &PoolOptions::default()).unwrap();
            let catalog = open(&pool);
            let table = catalog.table("facts").unwrap_or_else(|_| {
                catalog.create_table_as("facts", definition.clone(), TableOptions::default()).unwrap()
            });
            assert_eq!(table.definition(), &definition, "as it was created");
            for _ in 0..6 {
                round += 1;
                let what = format!("seed {seed}, run {run}, round {round}, {definition:?}");
                let tx = catalog.begin().unwrap();
                let mut changed = model.clone();
                for _ in 0..random.below(4) + 1 {
                    change(&table, &tx, &mut changed, round, &mut random);
                }
                if round % 3 == 0 {
                    compare(&table, &tx, &changed, &mut random, &what);
                }
                if random.below(5) > 0 {
                    tx.commit(Durability::Sync).unwrap();
                    model = changed;
                } else {
                    drop(tx);
                }
                if random.below(3) > 0 {
                    let before = catalog.begin().unwrap();
                    let stats = table.merge(|_| Ok(())).unwrap();
                    assert_eq!(stats.conflicts, 0, "{what}");
                    compare(&table, &before, &model, &mut random, &what);
                }
                compare(&table, &catalog.begin().unwrap(), &model, &mut random, &what);
            }
            assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "seed {seed}, run {run}");
        }
        assert!(model.len() > 500, "seed {seed}: {} rows", model.len());
    }
}

fn grid_columns() -> Vec<Column> {
    ["x", "y", "z", "w"].map(|name| Column::new(name, DataType::Int)).to_vec()
}

/// Table of four columns with random numbers below 1,024, clustered by `x` and `y`.
fn grid(catalog: &Catalog, key: &[&str], change: impl FnOnce(&mut ClusteringDefinition)) -> Arc<Table> {
    let mut definition = TableDefinition::plain(Schema::new(grid_columns(), key).unwrap());
    definition.layout = TableLayout::Clustered;
    let dimension = |column| Dimension { column, bits: Some(5) };
    let mut clustering = ClusteringDefinition::new(vec![dimension(0), dimension(1)]);
    clustering.block_bytes = 16 << 10;
    change(&mut clustering);
    definition.clustering = Some(clustering);
    catalog.create_table_as("grid", definition, TableOptions::default()).unwrap()
}

fn grid_batch(rows: usize, random: &mut Random) -> RecordBatch {
    let mut builder = BatchBuilder::new(&grid_columns(), rows);
    for _ in 0..rows {
        let row: Vec<Value> = (0..4).map(|_| Value::Int(random.below(1024) as i32)).collect();
        builder.push(&row).unwrap();
    }
    builder.finish()
}

/// Rows, and blocks that were pruned by keys, by summaries, and read, of a scan of ranges of some columns.
fn pruned(catalog: &Catalog, table: &Arc<Table>, ranges: &[(usize, i64, i64)]) -> (usize, [u64; 3]) {
    let tx = catalog.begin().unwrap();
    let filters = ranges.iter().map(|&(column, least, greatest)| ColumnFilter {
        column,
        condition: ColumnCondition::Between { least, greatest },
    });
    let arrow = arrow_schema(&grid_columns(), "UTC");
    let scan = table.column_scan(&tx, vec![0, 1, 2, 3], arrow, filters.collect()).unwrap().unwrap();
    let morsels = scan.morsels();
    let rows =
        morsels.iter().map(|morsel| scan.read(&tx, *morsel).unwrap().map_or(0, |batch| batch.num_rows()));
    let rows = rows.sum();
    let stats = scan.stats();
    let [by_key, by_summary] =
        [&stats.key_pruned, &stats.summary_pruned].map(|count| count.load(Ordering::Relaxed));
    (rows, [by_key, by_summary, morsels.len() as u64])
}

#[test]
fn scans_read_the_blocks_that_conditions_on_dimensions_leave() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    for interleave in Interleave::ALL {
        let table = grid(&catalog, &[], |clustering| clustering.interleave = interleave);
        let mut random = Random(7);
        for _ in 0..4 {
            let tx = catalog.begin().unwrap();
            table.append(&tx, &grid_batch(50_000, &mut random)).unwrap();
            tx.commit(Durability::None).unwrap();
        }
        table.merge(|_| Ok(())).unwrap();
        let (rows, [_, _, all]) = pruned(&catalog, &table, &[]);
        assert!(rows == 200_000 && all > 190, "{all} blocks");
        // A sixteenth of both dimensions: a 256th of the blocks, and those at the edges.
        let (rows, [by_key, by_summary, read]) = pruned(&catalog, &table, &[(0, 512, 575), (1, 512, 575)]);
        assert!((600..1000).contains(&rows), "{rows} rows");
        assert!(
            by_key + by_summary + read == all && read <= 14,
            "{interleave:?}: {by_key} {by_summary} {read}"
        );
        assert!(by_key >= all - 14, "by keys: {by_key} of {all}");
        let (_, [_, _, read]) = pruned(&catalog, &table, &[(0, 100, 107)]);
        let most = if interleave == Interleave::MajorMinor { all / 16 } else { all / 10 };
        assert!(read <= most, "{interleave:?}: {read} of {all} for one dimension");
        // Of no dimension.
        let (_, [by_key, _, read]) = pruned(&catalog, &table, &[(2, 100, 107)]);
        assert_eq!((by_key, read), (0, all));
        let (rows, [_, _, read]) = pruned(&catalog, &table, &[(0, 5000, 6000)]);
        assert!(rows == 0 && read == 0, "beyond all values: {read}");
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
        catalog.drop_table("grid").unwrap();
    }
}

#[test]
fn splits_divide_blocks_by_each_policy_and_merges_come_to_rest() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    for split in SplitPolicy::ALL {
        let table = grid(&catalog, &[], |clustering| clustering.split = split);
        let mut random = Random(3);
        for round in 0..6 {
            let tx = catalog.begin().unwrap();
            table.append(&tx, &grid_batch(20_000, &mut random)).unwrap();
            tx.commit(Durability::None).unwrap();
            table.merge(|_| Ok(())).unwrap();
            let (rows, _) = pruned(&catalog, &table, &[]);
            assert_eq!(rows, 20_000 * (round + 1), "{split:?}");
        }
        let mut last = u64::MAX;
        for _ in 0..6 {
            last = table.merge(|_| Ok(())).unwrap().rows;
        }
        assert_eq!(last, 0, "{split:?}: nothing is left to do");
        let (_, [_, _, all]) = pruned(&catalog, &table, &[]);
        let (_, [_, _, read]) = pruned(&catalog, &table, &[(0, 512, 575), (1, 512, 575)]);
        assert!(read * 10 < all, "{split:?}: {read} of {all}");
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
        catalog.drop_table("grid").unwrap();
    }
}

#[test]
fn a_snapshot_of_the_past_has_its_blocks_and_places() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let mut definition = TableDefinition::plain(Schema::new(grid_columns(), &["x"]).unwrap());
    definition.layout = TableLayout::Clustered;
    definition.clustering = Some(ClusteringDefinition::new(vec![Dimension { column: 1, bits: None }]));
    let options = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    let table = catalog.create_table_as("grid", definition, options).unwrap();
    let put = |shift: i32| {
        let tx = catalog.begin().unwrap();
        let row = |x: i32| [x, (x * 7 + shift) % 100, 0, shift].map(Value::Int).to_vec();
        table.upsert_many(&tx, &(0..5000).map(row).collect::<Vec<Row>>()).unwrap();
        let at = tx.commit(Durability::Sync).unwrap().cts;
        table.merge(|_| Ok(())).unwrap();
        at
    };
    let first = put(1);
    put(2);
    let tx = catalog.begin_as_of(first).unwrap();
    let (rows, key) = (table.scan(ScanRange::full()).rows(&tx).unwrap(), [Value::Int(77)]);
    assert!(rows.len() == 5000 && rows.iter().all(|row| row[3] == Value::Int(1)));
    assert_eq!(table.get(&tx, &key).unwrap().unwrap()[3], Value::Int(1));
    let now = catalog.begin().unwrap();
    assert_eq!(table.get(&now, &key).unwrap().unwrap()[3], Value::Int(2));
}

#[test]
fn a_clustering_is_checked_with_names() {
    let columns: Vec<Column> = (0..70).map(|at| Column::new(format!("c{at}"), DataType::Int)).collect();
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let create = |dimensions: Vec<(usize, Option<u8>)>, block_bytes: u32, layout: TableLayout| {
        let mut definition = TableDefinition::plain(Schema::new(columns.clone(), &["c0"]).unwrap());
        definition.layout = layout;
        let dimensions = dimensions.into_iter().map(|(column, bits)| Dimension { column, bits }).collect();
        let clustering = ClusteringDefinition { block_bytes, ..ClusteringDefinition::new(dimensions) };
        definition.clustering = Some(clustering);
        catalog.create_table_as("t", definition, TableOptions::default())
    };
    let refused = |dimensions: Vec<(usize, Option<u8>)>, block_bytes: u32, layout| {
        create(dimensions, block_bytes, layout).unwrap_err().to_string()
    };
    let clustered = TableLayout::Clustered;
    assert!(
        refused(vec![(0, Some(32)), (1, Some(33))], 8192, clustered).contains("c1 has 1 to 32 bits, not 33")
    );
    let many = vec![(0, Some(30)), (1, Some(30)), (2, Some(5))];
    assert!(refused(many, 8192, clustered).contains("65 bits, at most 64"));
    assert!(refused(vec![(0, None), (0, None)], 8192, clustered).contains("column c0 appears twice"));
    assert!(refused(vec![(99, None)], 8192, clustered).contains("column 99 does not exist"));
    assert!(refused(Vec::new(), 8192, clustered).contains("1 to 64 dimensions, not 0"));
    assert!(refused((0..65).map(|at| (at, None)).collect(), 8192, clustered).contains("not 65"));
    assert!(refused(vec![(0, None)], 100, clustered).contains("block_bytes of table t"));
    assert!(refused(vec![(0, None)], 8192, TableLayout::Columns).contains("'columns' has cluster_by"));
    // Forty dimensions, most of them of one value.
    let table = create((0..40).map(|at| (at, None)).collect(), 8192, clustered).unwrap();
    let tx = catalog.begin().unwrap();
    let row = |id: i32| (0..70).map(|at| Value::Int(if at < 3 { id } else { 5 })).collect::<Row>();
    table.insert_many(&tx, &(0..3000).map(row).collect::<Vec<Row>>()).unwrap();
    tx.commit(Durability::None).unwrap();
    table.merge(|_| Ok(())).unwrap();
    let tx = catalog.begin().unwrap();
    assert_eq!(table.scan(ScanRange::full()).rows(&tx).unwrap().len(), 3000);
    assert_eq!(table.get(&tx, &[Value::Int(2999)]).unwrap(), Some(row(2999)));
}

/// A look-up of a key that there is not reads no directory, once all row groups are blocks: whatever was there before.
#[test]
fn blocks_are_read_beside_row_groups_in_key_order() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let schema = Schema::new(grid_columns(), &["x"]).unwrap();
    let definition = TableDefinition { layout: TableLayout::Columns, ..TableDefinition::plain(schema) };
    catalog.create_table_as("grid", definition, TableOptions::default()).unwrap();
    let put = |from: i32, z: i32| {
        let tx = catalog.begin().unwrap();
        let rows: Vec<Row> =
            (from..from + 4000).map(|x| [x, x * 31 % 977, z, 0].map(Value::Int).to_vec()).collect();
        catalog.table("grid").unwrap().upsert_many(&tx, &rows).unwrap();
        tx.commit(Durability::None).unwrap();
        catalog.table("grid").unwrap().merge(|_| Ok(())).unwrap();
    };
    put(0, 1);
    let before = catalog.begin().unwrap();
    let by_y = ClusteringDefinition::new(vec![Dimension { column: 1, bits: Some(6) }]);
    let statement = entresol_transactions::Cancellation::default();
    // The change takes place, and no row group is written anew.
    let stop = |_: &_| Err(Error::TableChanged { table: "a test".to_owned() });
    assert!(catalog.set_layout(&statement, "grid", by_y, &mut { stop }).is_err());
    let table = catalog.table("grid").unwrap();
    assert!(table.definition().clustered_by().is_some() && table.is_merge_due());
    let values = |tx: &Transaction, keys: std::ops::Range<i32>| {
        let keys: Vec<Row> = keys.map(|x| vec![Value::Int(x)]).collect();
        let found = table.get_many(tx, &keys).unwrap();
        found.into_iter().flatten().map(|row| row[2].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(values(&catalog.begin().unwrap(), 0..5000), vec![Value::Int(1); 4000]);
    put(2000, 2);
    assert!(!table.is_merge_due(), "all are blocks");
    let now = catalog.begin().unwrap();
    assert_eq!(
        values(&before, 0..7000),
        vec![Value::Int(1); 4000],
        "an old snapshot finds them in key order"
    );
    assert_eq!(values(&now, 0..2000), vec![Value::Int(1); 2000]);
    assert_eq!(values(&now, 2000..9000), vec![Value::Int(2); 4000]);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn dimensions_are_changed_and_dropped() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    let table = grid(&catalog, &[], |_| ());
    let tx = catalog.begin().unwrap();
    table.append(&tx, &grid_batch(20_000, &mut Random(3))).unwrap();
    tx.commit(Durability::None).unwrap();
    let statement = entresol_transactions::Cancellation::default();
    let by = |columns: &[usize]| {
        let dimension = |column: &usize| Dimension { column: *column, bits: None };
        let clustering = ClusteringDefinition::new(columns.iter().map(dimension).collect());
        ClusteringDefinition { block_bytes: 16 << 10, ..clustering }
    };
    catalog.set_layout(&statement, "grid", by(&[2, 3]), &mut |_| Ok(())).unwrap();
    let table = catalog.table("grid").unwrap();
    let (_, [_, _, all]) = pruned(&catalog, &table, &[]);
    let (_, [_, _, read]) = pruned(&catalog, &table, &[(2, 512, 575), (3, 512, 575)]);
    assert!(read * 5 < all, "{read} of {all} by the new dimensions");
    let (_, [_, _, read]) = pruned(&catalog, &table, &[(0, 512, 575), (1, 512, 575)]);
    assert!(read * 2 > all, "{read} of {all} by the old ones");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_scheme_is_written_beside_definitions() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&pool);
    for round in 0..40 {
        let table = grid(&catalog, &[], |_| ());
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let same = |_: &mut TableDefinition| Ok::<(), Error>(());
                    catalog.redefine("grid", None, same).unwrap();
                }
            });
            let tx = catalog.begin().unwrap();
            let written = table.append(&tx, &grid_batch(5000, &mut Random(round)));
            // A definition may come between; the table can be written after it in any case.
            drop((written, tx));
            stop.store(true, Ordering::Relaxed);
        });
        let table = catalog.table("grid").unwrap();
        let tx = catalog.begin().unwrap();
        table.append(&tx, &grid_batch(5000, &mut Random(round))).unwrap();
        tx.commit(Durability::None).unwrap();
        catalog.drop_table("grid").unwrap();
    }
}
