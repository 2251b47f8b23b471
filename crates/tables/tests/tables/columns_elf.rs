//! Elf indexes of tables with the layout `columns`, and the layout `elf`: scans with one beside a model, under merges,
//! over restarts, beside writers; and indexes that come and go.
use arrow_array::RecordBatch;
use entresol_memory::budget::MemoryBudget;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, Column, ColumnCondition, ColumnFilter, DataType, DimensionOrder, ElfCaching,
    ElfLayout, Error, IntegerSet, NewLayout, Retention, Row, ScanRange, Schema, Table, TableDefinition,
    TableLayout, TableOptions, Value, arrow_schema, batch_to_rows, check,
};
use entresol_transactions::{Cancellation, Interrupt, KeyRange, StateContext, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

type Model = BTreeMap<i64, Row>;

fn open(pool: &Arc<Pool>) -> Arc<Catalog> {
    Catalog::open_or_create(StateContext::open_or_create(Arc::clone(pool)).unwrap()).unwrap()
}

fn options() -> PoolOptions {
    PoolOptions { memory: Some(MemoryBudget::new(256 << 20).unwrap()), ..PoolOptions::default() }
}

const TYPES: [DataType; 8] = [
    DataType::SmallInt,
    DataType::Int,
    DataType::BigInt,
    DataType::Boolean,
    DataType::Date,
    DataType::Decimal { precision: 12, scale: 2 },
    DataType::Double,
    DataType::Varchar,
];

/// Columns of a random schema: an id and some others, each with the number of its different values.
fn schema(random: &mut Random) -> (Vec<Column>, Vec<u64>) {
    let count = 2 + random.below(8) as usize;
    let mut columns = vec![Column::new("id", DataType::BigInt)];
    let mut different = vec![0];
    for at in 0..count {
        columns.push(Column::new(format!("c{at}"), TYPES[random.below(8) as usize]));
        different.push([1, 2, 5, 30, 1000, 1_000_000][random.below(6) as usize]);
    }
    (columns, different)
}

fn value(data_type: DataType, number: i64) -> Value {
    match data_type {
        DataType::SmallInt => Value::Int((number % 30_000) as i32),
        DataType::Int => Value::Int(number as i32 * 3 - 50),
        DataType::BigInt => Value::BigInt(number << 43),
        DataType::Boolean => Value::Boolean(number % 2 == 0),
        DataType::Date => Value::Date(number as i32),
        DataType::Decimal { .. } => Value::Decimal(i128::from(number) * 7 - 100),
        DataType::Double => Value::Double(number as f64 / 8.0 - 1.0),
        _ => Value::from(format!("text {number}").as_str()),
    }
}

fn row(id: i64, (columns, different): (&[Column], &[u64]), random: &mut Random) -> Row {
    let of = |(at, column): (usize, &Column)| match at {
        0 => Value::BigInt(id),
        _ if random.below(9) == 0 => Value::Null,
        _ => value(column.data_type, random.below(different[at]) as i64),
    };
    columns.iter().enumerate().map(of).collect()
}

/// Condition on a column, and the same on values.
type Wanted = (ColumnFilter, Box<dyn Fn(&Row) -> bool>);

fn integer(value: &Value) -> i64 {
    match value {
        Value::Boolean(value) => (*value).into(),
        Value::Int(value) | Value::Date(value) => (*value).into(),
        Value::BigInt(value) => *value,
        Value::Decimal(value) => i64::try_from(*value).unwrap(),
        other => panic!("{other:?} is no integer"),
    }
}

fn condition(column: usize, of: &Column, different: u64, random: &mut Random) -> Wanted {
    let any = |random: &mut Random| value(of.data_type, random.below(different) as i64);
    let (least, mut greatest) = (any(random), any(random));
    if random.below(2) == 0 || least > greatest {
        greatest = least.clone();
    }
    let filter = |condition| ColumnFilter { column, condition };
    match (random.below(8), of.data_type) {
        (0, _) => (filter(ColumnCondition::Null), Box::new(move |row| row[column] == Value::Null)),
        (1, _) => (filter(ColumnCondition::NotNull), Box::new(move |row| row[column] != Value::Null)),
        (_, DataType::Varchar) => {
            let (low, high) = (least.clone(), greatest.clone());
            let is_met = move |text: &str| (&low..=&high).contains(&&Value::from(text));
            let within =
                move |row: &Row| row[column] != Value::Null && (&least..=&greatest).contains(&&row[column]);
            (filter(ColumnCondition::Texts(Arc::new(is_met))), Box::new(within))
        }
        (_, DataType::Double) => {
            let (Value::Double(low), Value::Double(high)) = (least, greatest) else { panic!("doubles") };
            let within = move |row: &Row| matches!(row[column], Value::Double(of) if low <= of && of <= high);
            (filter(ColumnCondition::Doubles { least: low, greatest: high }), Box::new(within))
        }
        (2 | 3, _) if of.data_type != DataType::BigInt => {
            let values: Vec<i64> = (0..5).map(|_| integer(&any(random))).collect();
            let set = ColumnCondition::Among(Arc::new(IntegerSet::new(&values, 1 << 30).unwrap()));
            let among =
                move |row: &Row| row[column] != Value::Null && values.contains(&integer(&row[column]));
            (filter(set), Box::new(among))
        }
        _ => {
            let (low, high) = (integer(&least), integer(&greatest));
            let within =
                move |row: &Row| row[column] != Value::Null && (low..=high).contains(&integer(&row[column]));
            (filter(ColumnCondition::Between { least: low, greatest: high }), Box::new(within))
        }
    }
}

/// Rows of a scan, sorted, and the number of searches of Elfs.
fn scanned(table: &Arc<Table>, tx: &Transaction, filters: Vec<ColumnFilter>) -> (Vec<Row>, u64) {
    let visible = table.schema().visible_columns();
    let arrow = arrow_schema(visible, "UTC");
    let scan = table.column_scan(tx, (0..visible.len()).collect(), arrow, filters).unwrap().unwrap();
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |batch: RecordBatch| rows.extend(batch_to_rows("t", visible, &batch).unwrap());
    for morsel in scan.morsels() {
        scan.read(tx, morsel).unwrap().into_iter().for_each(&mut add);
    }
    let mut delta = scan.delta();
    while let Some(batch) = delta.next(tx).unwrap() {
        add(batch);
    }
    rows.sort_by_key(|row| integer(&row[0]));
    (rows, scan.stats().elf_searches.load(Ordering::Relaxed))
}

/// Compares scans under random conjunctions with a model; returns the number of searches of Elfs.
fn compare(
    table: &Arc<Table>,
    tx: &Transaction,
    model: &Model,
    (columns, different): (&[Column], &[u64]),
    random: &mut Random,
) -> u64 {
    let mut searches = 0;
    for _ in 0..6 {
        let count = 1 + random.below(4);
        let wanted: Vec<Wanted> = (0..count)
            .map(|_| {
                let column = 1 + random.below(columns.len() as u64 - 1) as usize;
                condition(column, &columns[column], different[column], random)
            })
            .collect();
        let is_met = |row: &&Row| wanted.iter().all(|(_, is_met)| is_met(row));
        let expected: Vec<Row> = model.values().filter(is_met).cloned().collect();
        let filters: Vec<ColumnFilter> = wanted.iter().map(|(filter, _)| filter.clone()).collect();
        for _ in 0..3 {
            let (rows, searched) = scanned(table, tx, filters.clone());
            assert_eq!(rows, expected, "{filters:?}");
            searches += searched;
        }
    }
    searches
}

/// Creates an Elf of some columns.
fn create(catalog: &Catalog, name: &str, columns: &[usize], order: DimensionOrder) {
    create_as(catalog, name, columns, order, ElfCaching::Whole);
}

fn create_as(catalog: &Catalog, name: &str, columns: &[usize], order: DimensionOrder, caching: ElfCaching) {
    catalog.create_elf(&Cancellation::default(), "t", name, (columns.to_vec(), order, caching)).unwrap();
}

/// Caching of lists under a policy.
fn lists(policy: &str, percent: u8) -> ElfCaching {
    ElfCaching::Lists { policy: policy.parse().unwrap(), percent, mono_lists: percent % 2 == 1 }
}

/// Changes some rows, and the model alike.
fn change(
    table: &Arc<Table>,
    tx: &Transaction,
    model: &mut Model,
    of: (&[Column], &[u64]),
    random: &mut Random,
) {
    let first = random.below(20_000) as i64;
    let ids: Vec<i64> = (first..first + [20, 900, 9000][random.below(3) as usize]).collect();
    if random.below(3) == 0 {
        let keys: Vec<Row> = ids.iter().map(|id| vec![Value::BigInt(*id)]).collect();
        table.delete_many(tx, &keys).unwrap();
        ids.iter().for_each(|id| drop(model.remove(id)));
        return;
    }
    let rows: Vec<Row> = ids.iter().map(|id| row(*id, of, random)).collect();
    let mut builder = BatchBuilder::new(of.0, rows.len());
    rows.iter().for_each(|row| builder.push(row).unwrap());
    table.upsert_batch(tx, &builder.finish()).unwrap();
    model.extend(ids.into_iter().zip(rows));
}

/// Some layout with row groups, most often `elf` with some dimensions.
fn some_form(columns: usize, random: &mut Random) -> NewLayout {
    if random.below(4) == 0 {
        return TableLayout::Columns.into();
    }
    let mut dimensions: Vec<usize> = (0..columns).filter(|_| random.below(2) == 0).collect();
    let by = random.below(dimensions.len().max(1) as u64) as usize;
    dimensions.rotate_left(by);
    if random.below(3) == 0 {
        dimensions.clear();
    }
    let caching = if random.below(2) == 0 { ElfCaching::Whole } else { lists("levels:1+lla", 8) };
    ElfLayout { dimensions, caching }.into()
}

/// Rows by their keys beside the model.
fn expect_keys(table: &Arc<Table>, tx: &Transaction, model: &Model) {
    let keys: Vec<Row> = (0..150).map(|at| vec![Value::BigInt(at * 131)]).collect();
    for (at, found) in table.get_many(tx, &keys).unwrap().iter().enumerate() {
        assert_eq!(found.as_ref(), model.get(&(at as i64 * 131)), "key {}", at * 131);
    }
    assert!(table.scan(ScanRange::full()).rows(tx).unwrap().iter().eq(model.values()), "rows by key");
}

/// Random changes, merges, restarts, indexes that come and go, and scans beside them, of a table with the layout
/// `columns`, or with `elf` and other ones in turn; the number of searches.
fn run_model(seed: u64, layout: TableLayout) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    let mut random = Random(seed);
    let (columns, different) = schema(&mut random);
    let of = (&columns[..], &different[..]);
    let (mut model, mut searches) = (Model::new(), 0);
    for run in 0..3 {
        let pool = Pool::open_or_create(&path, &options()).unwrap();
        let catalog = open(&pool);
        if run == 0 {
            let mut definition = TableDefinition::plain(Schema::new(columns.clone(), &["id"]).unwrap());
            definition.layout = layout;
            catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
        }
        for _ in 0..6 {
            let table = catalog.table("t").unwrap();
            let tx = catalog.begin().unwrap();
            let mut changed = model.clone();
            change(&table, &tx, &mut changed, of, &mut random);
            searches += compare(&table, &tx, &changed, of, &mut random);
            if random.below(5) > 0 {
                tx.commit(Durability::Sync).unwrap();
                model = changed;
            } else {
                drop(tx);
            }
            if random.below(2) == 0 {
                table.merge(|_| Ok(())).unwrap();
            }
            if layout == TableLayout::Elf && random.below(3) == 0 {
                let form = some_form(columns.len(), &mut random);
                catalog.set_layout(&Cancellation::default(), "t", form, &mut |_| Ok(())).unwrap();
            }
            let name = format!("e{}", random.below(if layout == TableLayout::Elf { 1 } else { 3 }));
            if table.elf(&name).is_none() {
                let order = DimensionOrder::ALL[random.below(2) as usize];
                let mut chosen: Vec<usize> = (1..columns.len()).filter(|_| random.below(3) > 0).collect();
                chosen.push(0);
                let by = random.below(chosen.len() as u64) as usize;
                chosen.rotate_left(by);
                let policies = ["lru", "probability", "levels:2+lla", "2q", "naive"];
                let policy = policies[random.below(5) as usize];
                let caching = if random.below(2) == 0 {
                    ElfCaching::Whole
                } else {
                    lists(policy, 1 + random.below(20) as u8)
                };
                create_as(&catalog, &name, &chosen, order, caching);
            } else if random.below(3) == 0 {
                catalog.drop_index(&name).unwrap();
            }
            let tx = catalog.begin().unwrap();
            let table = catalog.table("t").unwrap();
            searches += compare(&table, &tx, &model, of, &mut random);
            expect_keys(&table, &tx, &model);
        }
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, [], "seed {seed}, run {run}");
    }
    searches
}

#[test]
fn rows_are_those_of_a_model_under_merges_and_restarts() {
    let searches: u64 = (1..=4).map(|seed| run_model(seed, TableLayout::Columns)).sum();
    assert!(searches > 100, "{searches} searches of Elfs");
}

#[test]
fn rows_that_elfs_hold_are_those_of_a_model_under_merges_restarts_and_other_layouts() {
    let searches: u64 = (11..=14).map(|seed| run_model(seed, TableLayout::Elf)).sum();
    assert!(searches > 200, "{searches} searches of Elfs");
}

/// Gives table `t` a layout and merges it.
fn set(catalog: &Catalog, layout: impl Into<NewLayout>) -> Arc<Table> {
    catalog.set_layout(&Cancellation::default(), "t", layout, &mut |_| Ok(())).unwrap();
    catalog.table("t").unwrap()
}

/// Number of entries of the row groups of a table that are pages of columns.
fn stored_pages(catalog: &Catalog, table: &Table) -> usize {
    let (tx, state) = (catalog.begin().unwrap(), table.row_group_state().unwrap());
    let (mut pages, mut from) = (0, None);
    while tx
        .scan_batch(state, &KeyRange::full(), &mut from, |key, _| {
            pages += usize::from(key[0] == 3 && key[7] == 0);
        })
        .unwrap()
    {}
    pages
}

#[test]
fn dimensions_have_no_pages_and_are_searched_and_read_out_of_the_elf() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    let expected = |id: i64| [id, id % 100, id * 7 % 1000].map(Value::BigInt).to_vec();
    {
        let pool = Pool::open_or_create(&path, &options()).unwrap();
        let catalog = open(&pool);
        let table = numbers(&catalog, 50_000);
        assert_eq!(stored_pages(&catalog, &table), 3);
        let chosen = set(&catalog, TableLayout::Elf);
        assert_eq!(stored_pages(&catalog, &chosen), 1, "the key has no value twice: it stays a page");
        assert!(!chosen.is_merge_due());
        let named = ElfLayout { dimensions: vec![2, 1, 0], caching: ElfCaching::Whole };
        let table = set(&catalog, named.clone());
        assert_eq!(stored_pages(&catalog, &table), 0);
        assert_eq!(table.merge(|_| Ok(())).unwrap().rows, 0, "all have its dimensions");
        let lists = ElfLayout { caching: lists("lru", 20), ..named };
        let table = set(&catalog, lists);
        assert_eq!(table.merge(|_| Ok(())).unwrap().rows, 0, "what is cached moves nothing");
        let table = set(&catalog, ElfLayout::default());
        assert!(!table.is_merge_due(), "any dimensions will do where they are chosen");
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
    }
    let pool = Pool::open_or_create(&path, &options()).unwrap();
    let catalog = open(&pool);
    let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
    let (rows, searches) = scanned(&table, &tx, vec![equal(1, 5), equal(2, 35)]);
    assert_eq!((rows.len(), searches), (50, 1), "no page is there that a scan could read for less");
    assert!(rows.iter().all(|row| matches!(row[0], Value::BigInt(id) if *row == expected(id))));
    let all = ColumnCondition::Between { least: 1, greatest: 99 };
    let (rows, searches) = scanned(&table, &tx, vec![ColumnFilter { column: 1, condition: all }]);
    assert_eq!((rows.len(), searches), (49_500, 0), "a scan of pages costs less than most of the lists");
    let found = table.get(&tx, &[Value::BigInt(777)]).unwrap();
    assert_eq!(found, Some(expected(777)));
    let cached = catalog.cached_columns();
    assert!(cached.iter().any(|column| column.column == ElfLayout::NAME), "{cached:?}");
    drop(tx);
    let table = set(&catalog, TableLayout::Columns);
    assert_eq!(stored_pages(&catalog, &table), 3);
    set(&catalog, ElfLayout { dimensions: vec![1], caching: ElfCaching::Whole });
    let table = set(&catalog, TableLayout::Rows);
    let tx = catalog.begin().unwrap();
    assert_eq!(table.scan(ScanRange::full()).rows(&tx).unwrap().len(), 50_000);
    assert_eq!(table.definition().elf_layout, ElfLayout::default());
}

#[test]
fn a_damaged_elf_of_rows_is_found_and_nothing_wrong_is_returned() {
    let pool = Pool::volatile(&options()).unwrap();
    let catalog = open(&pool);
    numbers(&catalog, 20_000);
    let table = set(&catalog, ElfLayout { dimensions: vec![1, 2], caching: ElfCaching::Whole });
    let (tx, state) = (catalog.begin().unwrap(), table.row_group_state().unwrap());
    let (mut from, mut pieces) = (None, Vec::new());
    while tx
        .scan_batch(state, &KeyRange::full(), &mut from, |key, bytes| {
            if key[0] == 3 && key[7] == 2 {
                pieces.push((key.to_vec(), bytes.to_vec()));
            }
        })
        .unwrap()
    {}
    let [(key, mut bytes)] = <[_; 1]>::try_from(pieces).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    tx.write(state, &key, Some(&bytes)).unwrap();
    tx.commit(Durability::None).unwrap();
    drop((table, catalog));
    let catalog = open(&pool);
    let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
    let arrow = arrow_schema(table.schema().visible_columns(), "UTC");
    let scan = table.column_scan(&tx, vec![0, 1, 2], arrow, Vec::new()).unwrap().unwrap();
    let error = scan.read(&tx, scan.morsels()[0]).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains("of its Elf"), "{error}");
    let problems = check(&catalog, |_| {}).unwrap().problems;
    assert!(format!("{problems:?}").contains("Elf"), "{problems:?}");
}

/// Table of numbers with an index, of which the rows are in row groups.
fn numbers(catalog: &Catalog, rows: i64) -> Arc<Table> {
    numbers_with(catalog, rows, TableOptions::default())
}

fn numbers_with(catalog: &Catalog, rows: i64, options: TableOptions) -> Arc<Table> {
    let columns = ["id", "a", "b"].map(|name| Column::new(name, DataType::BigInt)).to_vec();
    let mut definition = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("t", definition, options).unwrap();
    let tx = catalog.begin().unwrap();
    insert(&table, &tx, 0..rows);
    tx.commit(Durability::None).unwrap();
    table.merge(|_| Ok(())).unwrap();
    table
}

fn insert(table: &Arc<Table>, tx: &Transaction, ids: std::ops::Range<i64>) {
    let mut builder = BatchBuilder::new(table.schema().columns(), ids.clone().count());
    let row = |id: i64| [id, id % 100, id * 7 % 1000].map(Value::BigInt).to_vec();
    ids.for_each(|id| builder.push(&row(id)).unwrap());
    table.upsert_batch(tx, &builder.finish()).unwrap();
}

fn equal(column: usize, value: i64) -> ColumnFilter {
    ColumnFilter { column, condition: ColumnCondition::Between { least: value, greatest: value } }
}

/// Number of rows with a value of `a` and of `b`, and of searches, once the index is read.
fn selected(table: &Arc<Table>, tx: &Transaction, a: i64, b: i64) -> (usize, u64) {
    let scan = || scanned(table, tx, vec![equal(1, a), equal(2, b)]);
    (0..60).for_each(|_| drop(scan()));
    let (rows, searches) = scan();
    (rows.len(), searches)
}

#[test]
fn an_index_is_read_once_scans_without_it_have_cost_as_much() {
    let pool = Pool::volatile(&options()).unwrap();
    let catalog = open(&pool);
    numbers(&catalog, 50_000);
    create(&catalog, "e", &[1, 2], DimensionOrder::Written);
    let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
    let scan = |a: i64| scanned(&table, &tx, vec![equal(1, a), equal(2, 7 * a % 1000)]).1;
    assert_eq!(scan(5), 0, "reading it for one scan does not pay");
    let needed = (0..200).take_while(|a| scan(a % 100) == 0).count();
    assert!((3..100).contains(&needed), "{needed} scans without it");
    assert_eq!(scan(77), 1);
    // Most rows meet this.
    let all = ColumnCondition::Between { least: 1, greatest: 99 };
    let (rows, searches) = scanned(&table, &tx, vec![ColumnFilter { column: 1, condition: all }]);
    assert_eq!((rows.len(), searches), (49_500, 0), "a scan costs less");
    let nothing = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = open(&nothing);
    numbers(&catalog, 50_000);
    create(&catalog, "e", &[1, 2], DimensionOrder::Written);
    let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
    assert_eq!(selected(&table, &tx, 5, 35), (50, 0), "without a cache it is read never");
}

#[test]
fn lists_are_cached_in_front_of_an_index_that_stays_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.entresol");
    for run in 0..2 {
        let pool = Pool::open_or_create(&path, &options()).unwrap();
        let catalog = open(&pool);
        if run == 0 {
            numbers(&catalog, 50_000);
            create_as(&catalog, "e", &[1, 2], DimensionOrder::Written, lists("levels:1+lla", 5));
        }
        let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
        let of_index = || catalog.cached_columns().into_iter().find(|of| of.column == "e");
        assert_eq!(selected(&table, &tx, 5, 35), (50, 1), "run {run}");
        let cached = of_index().unwrap();
        let body = 4 * 2 * 50_000;
        assert!(cached.counts.bytes <= body / 20 && cached.counts.hits > 0, "{cached:?}");
        let dimensions = cached.lists.unwrap();
        assert_eq!((dimensions.len(), dimensions[0]), (2, 1), "the first dimension is one list");
        // A transaction that has written reads its rows, and does not ask the index.
        insert(&table, &tx, 60_005..60_006);
        let (rows, searches) = scanned(&table, &tx, vec![equal(1, 5), equal(2, 35)]);
        assert_eq!((rows.len(), searches), (51, 0));
        // Room for no lists: the index is searched without.
        catalog.limit_cache(8 << 10);
        let tx = catalog.begin().unwrap();
        assert_eq!(selected(&table, &tx, 5, 35).0, 50);
        catalog.limit_cache(u64::MAX);
        assert_eq!(selected(&table, &tx, 7, 49), (50, 1));
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
    }
}

#[test]
fn an_older_snapshot_and_time_travel_see_the_rows_of_theirs() {
    let pool = Pool::volatile(&options()).unwrap();
    let catalog = open(&pool);
    let history = TableOptions { history: Some(Retention::Forever), ..TableOptions::default() };
    numbers_with(&catalog, 50_000, history);
    let before = catalog.begin().unwrap();
    create(&catalog, "e", &[1, 2], DimensionOrder::Written);
    let table = catalog.table("t").unwrap();
    let tx = catalog.begin().unwrap();
    let gone: Vec<Row> = (0..50_000).step_by(1000).map(|id| vec![Value::BigInt(id + 5)]).collect();
    assert_eq!(table.delete_many(&tx, &gone).unwrap(), 50);
    let at = tx.commit(Durability::None).unwrap().cts;
    table.merge(|_| Ok(())).unwrap();
    let now = catalog.begin().unwrap();
    assert_eq!(selected(&table, &now, 5, 35), (0, 1));
    assert_eq!(selected(&table, &before, 5, 35).0, 50, "a snapshot from before the index");
    let past = catalog.begin_as_of(at.previous()).unwrap();
    assert_eq!(selected(&table, &past, 5, 35), (50, 0), "time travel takes no index");
    drop((before, now, past));
    catalog.drop_index("e").unwrap();
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn indexes_are_complete_beside_writers_and_merges() {
    let pool = Pool::volatile(&options()).unwrap();
    let catalog = open(&pool);
    numbers(&catalog, 20_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = 20_000;
            while !stop.load(Ordering::Relaxed) {
                let table = catalog.table("t").unwrap();
                let tx = catalog.begin().unwrap();
                insert(&table, &tx, next..next + 500);
                // An index may have come in between.
                if tx.commit(Durability::None).is_ok() {
                    next += 500;
                }
            }
            next
        });
        let merger = scope.spawn(|| {
            // An object of the table that may be older than an index.
            while !stop.load(Ordering::Relaxed) {
                let table = catalog.table("t").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(3));
                match table.merge(|_| Ok(())) {
                    Ok(_) | Err(Error::TableChanged { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for round in 0..12 {
            create(&catalog, &format!("e{round}"), &[2, 1], DimensionOrder::ALL[round % 2]);
            if round % 3 == 2 {
                catalog.drop_index(&format!("e{}", round - 1)).unwrap();
                catalog.drop_index(&format!("e{}", round - 2)).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        let rows = writer.join().unwrap();
        merger.join().unwrap();
        let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
        assert_eq!(table.definition().elves.len(), 4);
        assert_eq!(selected(&table, &tx, 5, 35).0, (rows as usize).div_ceil(1000), "{rows} rows");
    });
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

/// Writes bytes in place of a piece of the Elf with the number 0 of each row group.
fn damage(catalog: &Catalog, table: &Arc<Table>, piece: u8, bytes: &[u8]) {
    let (tx, state) = (catalog.begin().unwrap(), table.row_group_state().unwrap());
    let (mut keys, mut from) = (Vec::new(), None);
    while tx
        .scan_batch(state, &KeyRange::full(), &mut from, |key, _| {
            if key[0] == 3 && key[5..] == [128, 0, piece + 1] {
                keys.push(key.to_vec());
            }
        })
        .unwrap()
    {}
    assert!(!keys.is_empty(), "there is a piece {piece}");
    keys.iter().for_each(|key| tx.write(state, key, Some(bytes)).unwrap());
    tx.commit(Durability::None).unwrap();
}

#[test]
fn a_damaged_index_is_named_and_can_be_dropped() {
    for piece in [0, 1] {
        let pool = Pool::volatile(&options()).unwrap();
        let catalog = open(&pool);
        numbers(&catalog, 20_000);
        create(&catalog, "e", &[1, 2], DimensionOrder::Written);
        let table = catalog.table("t").unwrap();
        damage(&catalog, &table, piece, b"no Elf");
        let problems = check(&catalog, |_| {}).unwrap().problems;
        assert!(problems.iter().any(|problem| problem.message.contains("index e")), "{problems:?}");
        let tx = catalog.begin().unwrap();
        let arrow = arrow_schema(table.schema().columns(), "UTC");
        let filters = vec![equal(1, 5), equal(2, 35)];
        let mut failed = None;
        for _ in 0..100 {
            let scan =
                table.column_scan(&tx, vec![0, 1, 2], arrow.clone(), filters.clone()).unwrap().unwrap();
            let mut read = scan.morsels().into_iter().map(|morsel| scan.read(&tx, morsel));
            failed = read.find_map(Result::err);
            if failed.is_some() {
                break;
            }
        }
        let error = failed.expect("the damage is seen").to_string();
        assert!(error.contains("index e") && error.contains("drop the index"), "{error}");
        catalog.drop_index("e").unwrap();
        let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
        assert_eq!(selected(&table, &tx, 5, 35), (20, 0));
        assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
    }
}

#[test]
fn a_cancelled_or_refused_index_leaves_nothing() {
    let pool = Pool::volatile(&options()).unwrap();
    let catalog = open(&pool);
    let table = numbers(&catalog, 20_000);
    let keys = || {
        let (tx, mut count, mut from) = (catalog.begin().unwrap(), 0, None);
        let state = table.row_group_state().unwrap();
        while tx.scan_batch(state, &KeyRange::full(), &mut from, |_, _| count += 1).unwrap() {}
        count
    };
    let before = keys();
    let cancelled = Cancellation::default();
    cancelled.interrupt(Interrupt::Requested);
    let of = || (vec![1, 2], DimensionOrder::Written, ElfCaching::Whole);
    catalog.create_elf(&cancelled, "t", "e", of()).unwrap_err();
    assert!(catalog.table("t").unwrap().elf("e").is_none());
    assert_eq!(keys(), before);
    let refused = |columns: Vec<usize>| {
        let of = (columns, DimensionOrder::Written, ElfCaching::Whole);
        catalog.create_elf(&Cancellation::default(), "t", "e", of).unwrap_err().to_string()
    };
    assert!(refused(vec![]).contains("1 to 64 columns, not 0"));
    assert!(refused(vec![1, 7]).contains("column 7 does not exist"));
    create(&catalog, "e", &[1, 2], DimensionOrder::Written);
    assert!(refused(vec![1]).contains("e"), "the name is taken");
    assert!(keys() > before);
    catalog.drop_index("e").unwrap();
    assert_eq!(keys(), before);
    let tx = catalog.begin().unwrap();
    assert_eq!(selected(&catalog.table("t").unwrap(), &tx, 5, 35), (20, 0));
    let plain = TableDefinition::plain(Schema::new(vec![Column::new("a", DataType::Int)], &["a"]).unwrap());
    catalog.create_table_as("by_rows", plain, TableOptions::default()).unwrap();
    let of = (vec![0], DimensionOrder::Auto, ElfCaching::Whole);
    let error = catalog.create_elf(&Cancellation::default(), "by_rows", "f", of);
    assert!(matches!(error, Err(Error::ElfOfRows { .. })), "{error:?}");
}

#[test]
fn an_index_of_many_columns_is_found_by_any_of_them() {
    let pool = Pool::volatile(&options()).unwrap();
    let catalog = open(&pool);
    let columns: Vec<Column> = (0..64).map(|at| Column::new(format!("c{at}"), DataType::Int)).collect();
    let mut definition = TableDefinition::plain(Schema::new(columns.clone(), &["c0"]).unwrap());
    definition.layout = TableLayout::Columns;
    let table = catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    create(&catalog, "e", &(0..64).rev().collect::<Vec<_>>(), DimensionOrder::Written);
    let tx = catalog.begin().unwrap();
    let mut builder = BatchBuilder::new(&columns, 5000);
    for id in 0..5000 {
        let value = |at: i32| Value::Int(if at == 0 { id } else { id % (at + 1) });
        builder.push(&(0..64).map(value).collect::<Row>()).unwrap();
    }
    table.upsert_batch(&tx, &builder.finish()).unwrap();
    tx.commit(Durability::None).unwrap();
    catalog.table("t").unwrap().merge(|_| Ok(())).unwrap();
    let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
    for column in [1_usize, 30, 63] {
        let expected = (0..5000).filter(|id| id % (column as i32 + 1) == 1).count();
        assert_eq!(scanned(&table, &tx, vec![equal(column, 1)]).0.len(), expected);
    }
    let wanted: Vec<ColumnFilter> = (40..64).map(|column| equal(column, 17)).collect();
    (0..2000).for_each(|_| drop(scanned(&table, &tx, wanted.clone())));
    let (rows, searches) = scanned(&table, &tx, wanted);
    assert_eq!((rows.len(), searches), (1, 1), "row 17 only");
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}
