//! Tables over each structure: random work against a model, with restarts, time travel, vacuum and a check; and
//! under power failures.
use entresol_memory::budget::{MemoryBudget, MemoryConsumer};
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, Durability, Env, JournalOptions, Pool, PoolOptions};
use entresol_structures::IndexStructure;
use entresol_tables::{
    Catalog, Column, DataType, Direction, Error, IndexDefinition, Retention, Row, ScanRange, Schema,
    TableDefinition, TableLayout, TableOptions, UniqueKey, Value, check,
};
use entresol_transactions::{Cancellation, ContextOptions, Protocol, StateContext, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// DRAM for the hot entries of some of the tables.
const HOT_BYTES: u64 = 1 << 20;
/// Keys of the random work: several leaves of any structure.
const KEYS: u64 = 900;

type Model = BTreeMap<i64, String>;

fn catalog_of(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

fn open(directory: &Path) -> Arc<Catalog> {
    let options = PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 4 << 20,
        journal: JournalOptions { slot_bytes: 1 << 20, ..JournalOptions::default() },
        ..PoolOptions::default()
    };
    catalog_of(&Pool::open_or_create(directory, &options).unwrap()).unwrap()
}

/// Columns `id` and `v`, with a unique index of `v`.
fn definition(structure: IndexStructure) -> TableDefinition {
    let columns = vec![Column::new("id", DataType::BigInt), Column::new("v", DataType::Varchar)];
    let plain = TableDefinition::plain(Schema::new(columns, &["id"]).unwrap());
    let indexes = vec![IndexDefinition {
        name: "u".into(),
        columns: vec![1],
        unique: true,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }];
    TableDefinition { structure, indexes, ..plain }
}

fn row(id: i64, text: &str) -> Row {
    vec![Value::BigInt(id), Value::from(text)]
}

fn content(catalog: &Catalog, at: Option<Timestamp>, direction: Direction) -> Vec<Row> {
    let tx = match at {
        Some(at) => catalog.begin_as_of(at).unwrap(),
        None => catalog.begin().unwrap(),
    };
    catalog.table("t").unwrap().scan(ScanRange::full()).directed(direction).rows(&tx).unwrap()
}

fn rows_of(model: &Model) -> Vec<Row> {
    model.iter().map(|(id, text)| row(*id, text)).collect()
}

/// Changes some rows in one transaction.
fn work(catalog: &Catalog, random: &Env, round: u64, model: &mut Model) -> Timestamp {
    let table = catalog.table("t").unwrap();
    let tx = catalog.begin().unwrap();
    let deletes_of_ten = if round.is_multiple_of(7) { 8 } else { 2 };
    for step in 0..random.random_u64() % 120 {
        let id = (random.random_u64() % KEYS) as i64 - 300;
        if random.random_u64() % 10 < deletes_of_ten {
            let deleted = table.delete(&tx, &[Value::BigInt(id)]).unwrap();
            assert_eq!(deleted, model.remove(&id).is_some());
        } else {
            let text = format!("{id} in step {step} of {round}");
            table.upsert(&tx, &row(id, &text)).unwrap();
            model.insert(id, text);
        }
    }
    tx.commit(Durability::Sync).unwrap().cts
}

#[test]
fn tables_over_each_structure_behave_as_a_map() {
    for structure in IndexStructure::ALL {
        let directory = tempfile::TempDir::new().unwrap();
        let random = Env::simulated(u64::from(structure.number()) + 1);
        let mut model = Model::new();
        let mut earlier: Vec<(Timestamp, Model)> = Vec::new();
        let mut catalog = open(directory.path());
        let options = TableOptions {
            history: Some(Retention::Forever),
            hot_bytes: structure.number().is_multiple_of(2).then_some(HOT_BYTES),
            ..TableOptions::default()
        };
        catalog.create_table_as("t", definition(structure), options).unwrap();
        for round in 0..40 {
            let at = work(&catalog, &random, round, &mut model);
            // Often enough to be hot, between changes.
            let (table, tx) = (catalog.table("t").unwrap(), catalog.begin().unwrap());
            for id in (0..40).chain(0..40).chain(0..40) {
                let found = table.get(&tx, &[Value::BigInt(id)]).unwrap();
                assert_eq!(found, model.get(&id).map(|text| row(id, text)), "{structure}: {id}");
            }
            drop((table, tx));
            if round % 8 == 3 {
                earlier.push((at, model.clone()));
                let pool = Arc::clone(catalog.context().pool());
                drop(catalog);
                if round.is_multiple_of(2) {
                    pool.close().unwrap();
                }
                drop(pool);
                catalog = open(directory.path());
            }
            if round % 10 == 9 {
                catalog.context().vacuum().unwrap();
            }
        }
        let table = catalog.table("t").unwrap();
        assert_eq!((table.state().structure(), table.definition().structure), (structure, structure));
        assert_eq!(content(&catalog, None, Direction::Forward), rows_of(&model), "{structure}");
        let backward: Vec<Row> = rows_of(&model).into_iter().rev().collect();
        assert_eq!(content(&catalog, None, Direction::Backward), backward, "{structure}");
        for (at, then) in &earlier {
            assert_eq!(
                content(&catalog, Some(*at), Direction::Forward),
                rows_of(then),
                "{structure} at {at}"
            );
        }
        let tx = catalog.begin().unwrap();
        let (id, text) = model.first_key_value().unwrap();
        assert_eq!(table.get(&tx, &[Value::BigInt(*id)]).unwrap(), Some(row(*id, text)));
        let twice = table.insert(&tx, &row(KEYS as i64 + 1, text)).unwrap_err();
        assert!(matches!(twice, Error::UniqueViolation { .. }), "{structure}: {twice}");
        drop(tx);
        assert!(check(&catalog, |_| {}).unwrap().problems.is_empty(), "{structure}");
        catalog.drop_table("t").unwrap();
        catalog.context().vacuum().unwrap();
        let report = check(&catalog, |_| {}).unwrap();
        assert!(report.problems.is_empty() && report.tables.is_empty(), "{structure}: {report:?}");
        // Its space is free again, its number is used again, by another structure.
        let next = IndexStructure::from_number((structure.number() + 1) % 9).unwrap();
        catalog.create_table_as("t", definition(next), TableOptions::default()).unwrap();
        assert_eq!(catalog.table("t").unwrap().state().structure(), next);
    }
}

#[test]
fn tables_and_indexes_have_nodes_of_the_size_that_they_were_created_with() {
    let structures = IndexStructure::ALL.into_iter().filter(|structure| structure.node_sizes().len() > 1);
    for structure in structures {
        for bytes in structure.node_sizes().iter().skip(1) {
            let directory = tempfile::TempDir::new().unwrap();
            let (random, mut model) = (Env::simulated(u64::from(*bytes)), Model::new());
            let mut catalog = open(directory.path());
            let mut sized = TableDefinition { node_bytes: Some(*bytes), ..definition(structure) };
            sized.indexes.clear();
            catalog.create_table_as("t", sized, TableOptions::default()).unwrap();
            for round in 0..12 {
                work(&catalog, &random, round, &mut model);
                if round % 4 == 3 {
                    let pool = Arc::clone(catalog.context().pool());
                    drop(catalog);
                    drop(pool);
                    catalog = open(directory.path());
                }
            }
            let table = catalog.table("t").unwrap();
            assert_eq!(
                (table.state().node_bytes(), table.definition().node_bytes),
                (Some(*bytes), Some(*bytes))
            );
            assert_eq!(content(&catalog, None, Direction::Forward), rows_of(&model), "{structure}, {bytes}");
            assert!(check(&catalog, |_| {}).unwrap().problems.is_empty(), "{structure}, {bytes}");
            drop(table);
            catalog.drop_table("t").unwrap();
            catalog.context().vacuum().unwrap();
            let report = check(&catalog, |_| {}).unwrap();
            assert!(report.problems.is_empty() && report.tables.is_empty(), "{structure}: {report:?}");
        }
    }
    let catalog = catalog_of(&Pool::volatile(&PoolOptions::default()).unwrap()).unwrap();
    let refused = TableDefinition { node_bytes: Some(512), ..definition(IndexStructure::FpTree) };
    let error = catalog.create_table_as("t", refused, TableOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("fptree has nodes of 1024 bytes, not 512") && error.contains("pbptree"),
        "{error}"
    );
}

#[test]
fn hot_entries_are_in_the_memory_budget_and_asked_for_again_at_each_open() {
    let directory = tempfile::TempDir::new().unwrap();
    let open_within = |bytes: u64| {
        let memory = MemoryBudget::new(bytes).unwrap();
        let options = PoolOptions {
            domain: DomainChoice::Journal,
            memory: Some(Arc::clone(&memory)),
            ..PoolOptions::default()
        };
        (catalog_of(&Pool::open_or_create(directory.path(), &options).unwrap()).unwrap(), memory)
    };
    let used =
        |memory: &MemoryBudget| memory.usage().consumers[MemoryConsumer::HotEntries as usize].used_bytes;
    let (catalog, memory) = open_within(256 << 20);
    let create = |name: &str, hot_bytes| {
        let options = TableOptions { hot_bytes: Some(hot_bytes), ..TableOptions::default() };
        let mut plain = definition(IndexStructure::WbTree);
        plain.indexes.clear();
        catalog.create_table_as(name, plain, options)
    };
    create("t", 8 << 20).unwrap();
    assert_eq!(used(&memory), 8 << 20);
    let states = catalog.context().states().len();
    let refused = create("u", 1 << 30).unwrap_err().to_string();
    assert!(refused.contains("hot entries"), "{refused}");
    let refused = create("u", 1000).unwrap_err().to_string();
    assert!(refused.contains("table u: 1000 bytes for hot entries: they need at least"), "{refused}");
    assert_eq!(catalog.context().states().len(), states, "what was refused leaves nothing");
    drop(catalog);
    assert_eq!(used(&memory), 0);
    let (catalog, memory) = open_within(256 << 20);
    assert_eq!((used(&memory), catalog.table("t").unwrap().state().hot_bytes()), (8 << 20, 8 << 20));
    catalog.drop_table("t").unwrap();
    catalog.context().vacuum().unwrap();
    assert_eq!(used(&memory), 0);
}

#[test]
fn tables_have_protocols_of_their_own_in_one_database() {
    let directory = tempfile::TempDir::new().unwrap();
    let mut catalog = open(directory.path());
    let create = |catalog: &Catalog, protocol, version_slots| {
        let options = TableOptions { protocol, ..TableOptions::default() };
        let definition = TableDefinition { version_slots, ..definition(IndexStructure::FastFair) };
        catalog.create_table_as("t", TableDefinition { indexes: Vec::new(), ..definition }, options)
    };
    for protocol in Protocol::ALL {
        let slots = (protocol == Protocol::MvccInPlace).then_some(5);
        let group = create(&catalog, Some(protocol), slots).unwrap().group();
        let mut model = Model::new();
        for round in 0..6 {
            work(&catalog, &Env::simulated(round), round, &mut model);
            drop(catalog);
            catalog = open(directory.path());
            let state = Arc::clone(catalog.table("t").unwrap().state());
            let options = catalog.context().options();
            assert_eq!(
                (state.protocol(), state.version_slots(options)),
                (protocol, slots.map_or(2, usize::from))
            );
            assert_eq!(content(&catalog, None, Direction::Forward), rows_of(&model), "{protocol}");
        }
        assert!(check(&catalog, |_| {}).unwrap().problems.is_empty(), "{protocol}");
        catalog.drop_table("t").unwrap();
        catalog.context().vacuum().unwrap();
        if protocol != Protocol::MvccInPlace {
            let refused = create(&catalog, Some(protocol), Some(4)).unwrap_err().to_string();
            assert!(refused.contains("4 versions"), "{refused}");
        }
        assert_eq!(create(&catalog, Some(protocol), None).unwrap().group(), group, "it is used again");
        catalog.drop_table("t").unwrap();
    }
    let by_columns = TableDefinition { layout: TableLayout::Columns, ..definition(IndexStructure::FpTree) };
    let options = TableOptions { protocol: Some(Protocol::S2pl), ..TableOptions::default() };
    let refused = catalog.create_table_as("c", by_columns, options).unwrap_err().to_string();
    assert!(refused.contains("protocol 's2pl' is for the layout 'rows'"), "{refused}");
}

/// Sets the layout of table `t`, then lets it follow the workload: both are errors.
fn row_groups_are_refused(catalog: &Catalog, why: &str) {
    let statement = Cancellation::default();
    let states = catalog.context().states().len();
    let changed = catalog.set_layout(&statement, "t", TableLayout::Columns, &mut |_| Ok(()));
    let follow = |definition: &mut TableDefinition| {
        definition.auto_layout = true;
        Ok(())
    };
    for refused in [changed.unwrap_err(), catalog.redefine("t", None, follow).unwrap_err()] {
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let table = catalog.table("t").unwrap();
    let (layout, is_auto) = (table.definition().layout, table.definition().auto_layout);
    assert_eq!((layout, is_auto, table.has_row_groups()), (TableLayout::Rows, false, false));
    assert_eq!(catalog.context().states().len(), states, "what was refused leaves nothing");
}

#[test]
fn what_row_groups_cannot_have_is_refused_when_the_layout_changes() {
    let catalog = open(tempfile::TempDir::new().unwrap().path());
    for protocol in [Protocol::S2pl, Protocol::Bocc] {
        let options = TableOptions { protocol: Some(protocol), ..TableOptions::default() };
        catalog.create_table_as("t", definition(IndexStructure::FpTree), options).unwrap();
        let why = format!("table t: protocol '{}' is for the layout 'rows'", protocol.name());
        row_groups_are_refused(&catalog, &why);
        catalog.drop_table("t").unwrap();
    }
    let options = TableOptions { hot_bytes: Some(HOT_BYTES), ..TableOptions::default() };
    catalog.create_table_as("t", definition(IndexStructure::FpTree), options).unwrap();
    row_groups_are_refused(&catalog, "bytes for hot entries: they are for the layout 'rows'");
}

#[test]
fn the_protocol_of_a_database_and_that_of_a_named_group_refuse_row_groups() {
    let layout_of =
        |layout, auto_layout| TableDefinition { layout, auto_layout, ..definition(IndexStructure::FpTree) };
    let row_groups = [
        (layout_of(TableLayout::Columns, false), "layout 'columns' merges"),
        (layout_of(TableLayout::Rows, true), "layout 'auto' merges"),
    ];
    for protocol in [Protocol::S2pl, Protocol::Bocc] {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let default = ContextOptions { protocol, ..ContextOptions::default() };
        let catalog =
            Catalog::open_or_create(StateContext::open_or_create_with(pool, default).unwrap()).unwrap();
        for (definition, why) in &row_groups {
            let options = TableOptions::default();
            let refused = catalog.create_table_as("t", definition.clone(), options).unwrap_err().to_string();
            assert!(refused.contains(protocol.name()) && refused.contains(why), "{refused}");
        }
        let of_its_own = TableOptions { protocol: Some(Protocol::default()), ..TableOptions::default() };
        catalog.create_table_as("t", row_groups[0].0.clone(), of_its_own).unwrap();
    }
    let catalog = open(tempfile::TempDir::new().unwrap().path());
    let group = catalog.context().create_group_with(Protocol::Bocc).unwrap();
    let named = TableOptions { group: Some(group), ..TableOptions::default() };
    let refused = catalog.create_table_as("t", row_groups[0].0.clone(), named).unwrap_err().to_string();
    assert!(refused.contains("protocol 'bocc' is for the layout 'rows'"), "{refused}");
}

/// Versions of the table of the crash histories: the ids that its rows have after each commit.
fn commits() -> Vec<Vec<i64>> {
    let first: Vec<i64> = (0..66).map(|n| n * 37 % 66).collect();
    let mut second: Vec<i64> = first.iter().copied().filter(|id| id % 9 != 0).collect();
    second.extend(100..112);
    vec![Vec::new(), sorted(first), sorted(second), (100..104).collect()]
}

fn sorted(mut ids: Vec<i64>) -> Vec<i64> {
    ids.sort_unstable();
    ids
}

/// A table is created, gets rows that split its leaves, loses most of them again, and is dropped.
fn history(structure: IndexStructure, pool: &Arc<Pool>) {
    let catalog = catalog_of(pool).unwrap();
    let mut plain = definition(structure);
    plain.indexes.clear();
    let table = catalog.create_table_as("t", plain, TableOptions::default()).unwrap();
    for pair in commits().windows(2) {
        let tx = catalog.begin().unwrap();
        for id in pair[0].iter().filter(|id| !pair[1].contains(id)) {
            assert!(table.delete(&tx, &[Value::BigInt(*id)]).unwrap());
        }
        for id in pair[1].iter().filter(|id| !pair[0].contains(id)) {
            table.insert(&tx, &row(*id, "x")).unwrap();
        }
        tx.commit(Durability::Sync).unwrap();
    }
    catalog.context().vacuum().unwrap();
    drop(table);
    catalog.drop_table("t").unwrap();
    catalog.context().vacuum().unwrap();
}

fn verify(structure: IndexStructure, pool: &Arc<Pool>) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let catalog = catalog_of(pool)?;
    // What is in destruction is checked, too.
    let report = check(&catalog, |_| {}).map_err(text)?;
    if !report.problems.is_empty() {
        return Err(format!("{:?}", report.problems));
    }
    let tx = catalog.begin().map_err(text)?;
    if let Ok(table) = catalog.table("t") {
        let rows = table.scan(ScanRange::full()).rows(&tx).map_err(text)?;
        let mut ids: Vec<i64> =
            rows.iter().map(|row| if let Value::BigInt(id) = row[0] { id } else { -1 }).collect();
        // Rows of a probe that crashed itself: all or none.
        let probed = ids.split_off(ids.partition_point(|id| *id < 1000));
        if !probed.is_empty() && probed != (1000..1070).collect::<Vec<_>>() {
            return Err(format!("rows of a probe {probed:?}"));
        }
        if !commits().contains(&ids) {
            return Err(format!("rows {ids:?}"));
        }
        if table.state().structure() != structure {
            return Err(format!("the structure is {}", table.state().structure()));
        }
    }
    // And it goes on.
    let name = if catalog.table("t").is_ok() { "t" } else { "u" };
    let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
    let mut plain = definition(structure);
    plain.indexes.clear();
    let table = catalog.create_table_as(name, plain, options).map_err(text)?;
    let tx = catalog.begin().map_err(text)?;
    let more: Vec<Row> = (1000..1070).map(|id| row(id, "y")).collect();
    table.upsert_many(&tx, &more).map_err(text)?;
    tx.commit(Durability::Sync).map_err(|error| error.to_string())?;
    let tx = catalog.begin().map_err(text)?;
    let found = table.get(&tx, &[Value::BigInt(1069)]).map_err(text)?;
    if found.is_some() { Ok(()) } else { Err("a new row is missing".into()) }
}

#[test]
fn every_crash_leaves_a_table_over_each_structure_at_one_commit() {
    for structure in IndexStructure::ALL {
        let report = check_seeds(&format!("table over {structure}"), 1, |seed| {
            // One structure with inner nodes in the pool, and one with inner nodes in DRAM.
            let recovers = matches!(structure, IndexStructure::WbTree | IndexStructure::HybridPbpTree);
            let options = CrashOptions {
                crash_recovery_every: if recovers { 311 } else { 0 },
                random_states: 1,
                ..CrashOptions::with_seed(seed)
            };
            let history = move |pool: &Arc<Pool>| {
                history(structure, pool);
                Ok(())
            };
            check_crashes(&options, history, move |pool| verify(structure, pool))
        });
        let report = report.unwrap();
        println!("{structure}: {report:?}");
        assert!(report.explored(1_000), "{structure}: {report:?}");
    }
}

/// Definition of a table with a key of some columns, whose structure is to be chosen.
fn chosen_for(columns: &[(&str, DataType)], key: &[&str]) -> TableDefinition {
    let columns = columns.iter().map(|(name, data_type)| Column::new(*name, *data_type)).collect();
    TableDefinition::plain(Schema::new(columns, key).unwrap())
}

#[test]
fn the_structure_of_a_table_is_chosen_by_schema_placement_and_workload() {
    let number = [("id", DataType::BigInt), ("v", DataType::Int)];
    let plain = chosen_for(&number, &["id"]);
    let dram = catalog_of(&Pool::volatile(&PoolOptions::default()).unwrap()).unwrap();
    // What cannot be another one.
    let named = dram.choose_structure(&chosen_for(&[("name", DataType::Varchar)], &["name"])).unwrap();
    assert_eq!(named.structure, IndexStructure::FpTree);
    assert!(named.why.contains("(name)"), "{named:?}");
    let by_columns = TableDefinition { layout: TableLayout::Columns, ..plain.clone() };
    let by_columns = dram.choose_structure(&by_columns).unwrap();
    assert!(by_columns.why.contains("'columns' has a structure of its own"), "{by_columns:?}");
    // The model's figures stand in the reason, of the workload that is assumed or recorded.
    let unknown = dram.choose_structure(&plain).unwrap();
    assert!(
        unknown.why.contains("an unknown workload") && unknown.why.contains("1000000 rows"),
        "{unknown:?}"
    );
    let optane = Profile::embedded("optane-dcpmm").unwrap();
    let pmem = catalog_of(&Pool::modelled(&PoolOptions::default(), &optane).unwrap()).unwrap();
    let on_pmem = pmem.choose_structure(&plain).unwrap();
    assert_ne!(on_pmem.why, unknown.why, "the medium's times are others");
    let table = dram.create_table_as("t", plain.clone(), TableOptions::default()).unwrap();
    let tx = dram.begin().unwrap();
    (0..500).for_each(|id| table.insert(&tx, &[Value::BigInt(id), Value::Int(1)]).unwrap());
    tx.commit(Durability::None).unwrap();
    let recorded = dram.choose_structure(&plain).unwrap();
    let is_recorded = recorded.why.contains("recorded") && !recorded.why.contains("1000000 rows");
    assert!(is_recorded, "{recorded:?}");
}

#[test]
fn a_chosen_structure_and_its_reason_are_there_after_a_restart() {
    let directory = tempfile::TempDir::new().unwrap();
    let catalog = open(directory.path());
    let plain = chosen_for(&[("id", DataType::BigInt)], &["id"]);
    let choice = catalog.choose_structure(&plain).unwrap();
    let definition =
        TableDefinition { structure: choice.structure, structure_reason: Some(choice.why.clone()), ..plain };
    catalog.create_table_as("t", definition, TableOptions::default()).unwrap();
    drop(catalog);
    let catalog = open(directory.path());
    let table = catalog.table("t").unwrap();
    assert_eq!(table.definition().structure_reason, Some(choice.why));
    assert_eq!(
        (table.definition().structure, table.state().structure()),
        (choice.structure, choice.structure)
    );
}

#[test]
fn an_index_keeps_its_chosen_structure_and_hot_entries_over_a_restart() {
    let directory = tempfile::TempDir::new().unwrap();
    let catalog = open(directory.path());
    let columns = [("id", DataType::BigInt), ("serial", DataType::Int), ("name", DataType::Varchar)];
    let table = catalog.create_table_as("t", chosen_for(&columns, &["id"]), TableOptions::default()).unwrap();
    let row = |id: i64| vec![Value::BigInt(id), Value::Int(id as i32 * 3), Value::from("x")];
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, &(0..700).map(row).collect::<Vec<_>>()).unwrap();
    tx.commit(Durability::None).unwrap();
    let mut by_serial = IndexDefinition { unique: true, ..IndexDefinition::plain("by_serial", vec![1]) };
    let choice = catalog.choose_index_structure(&table, &by_serial).unwrap();
    assert!(choice.why.ends_with(" rows, keys of 16 bytes"), "{choice:?}");
    (by_serial.structure, by_serial.structure_reason) = (choice.structure, Some(choice.why));
    let create = |definition: &IndexDefinition, hot_bytes| {
        catalog.create_index_for(&Cancellation::default(), "t", definition.clone(), hot_bytes)
    };
    let too_few = create(&by_serial, Some(1)).unwrap_err().to_string();
    assert!(too_few.contains("index by_serial: 1 bytes for hot entries: they need at least"), "{too_few}");
    let by_name = IndexDefinition { unique: true, ..IndexDefinition::plain("by_name", vec![2]) };
    let too_long = create(&by_name, Some(HOT_BYTES)).unwrap_err().to_string();
    assert!(too_long.contains("entries of up to 16 bytes"), "{too_long}");
    create(&by_serial, Some(HOT_BYTES)).unwrap();
    drop((tx, table, catalog));
    let catalog = open(directory.path());
    let table = catalog.table("t").unwrap();
    let index = &table.indexes()[0];
    assert_eq!((index.definition(), index.hot_bytes()), (&by_serial, HOT_BYTES));
    let unique_key = UniqueKey::Index(Arc::clone(index));
    // Twice: the second time hot entries may answer. Then they follow a change.
    for _ in 0..2 {
        let tx = catalog.begin().unwrap();
        let rows: Vec<Row> = (0..1_000).map(row).collect();
        let keys = table.unique_keys(&unique_key, &rows).unwrap();
        let found = table.rows_with_unique_keys(&tx, &unique_key, &keys).unwrap();
        for (id, found) in found.iter().enumerate() {
            assert_eq!(found.as_ref(), (id < 700).then(|| &rows[id]), "{id}");
        }
    }
    let tx = catalog.begin().unwrap();
    table.update(&tx, &[Value::BigInt(5)], &[Value::BigInt(5), Value::Int(1), Value::from("x")]).unwrap();
    tx.commit(Durability::None).unwrap();
    let tx = catalog.begin().unwrap();
    let wanted = [row(5), vec![Value::Null, Value::Int(1), Value::Null]];
    let keys = table.unique_keys(&unique_key, &wanted).unwrap();
    let found = table.rows_with_unique_keys(&tx, &unique_key, &keys).unwrap();
    assert_eq!(found[0], None);
    assert_eq!(found[1].as_ref().map(|row| &row[0]), Some(&Value::BigInt(5)));
    drop(tx);
    let report = check(&catalog, |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}
