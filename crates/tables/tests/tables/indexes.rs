//! Secondary indexes: look-ups, violations, concurrent writers, and agreement with their table.
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    Catalog, Column, DataType, Error, IndexBounds, IndexDefinition, Schema, Table, TableDefinition,
    TableOptions, Value, check,
};
use entresol_transactions::{Isolation, StateContext, Transaction};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn catalog() -> Arc<Catalog> {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn definition() -> TableDefinition {
    let columns = vec![
        Column::new("id", DataType::Int),
        Column::new("mail", DataType::Varchar),
        Column::new("age", DataType::Int),
    ];
    TableDefinition::plain(Schema::new(columns, &["id"]).unwrap())
}

fn index(name: &str, columns: &[usize], unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.into(),
        columns: columns.to_vec(),
        unique,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    }
}

fn people(catalog: &Catalog) -> Arc<Table> {
    let mut definition = definition();
    definition.indexes = vec![index("by_mail", &[1], true), index("by_age", &[2], false)];
    catalog.create_table_as("people", definition, TableOptions::default()).unwrap()
}

fn person(id: i32, mail: Option<&str>, age: Option<i32>) -> Vec<Value> {
    vec![Value::Int(id), mail.map_or(Value::Null, Value::from), age.map_or(Value::Null, Value::Int)]
}

fn commit(tx: &Transaction) -> entresol_transactions::Result<()> {
    tx.commit(Durability::Sync).map(drop)
}

fn ids(table: &Arc<Table>, tx: &Transaction, index: &str, ranges: Vec<IndexBounds>) -> Vec<i32> {
    let mut cursor = table.index_scan(tx, table.index(index).unwrap(), ranges).unwrap();
    let mut ids = Vec::new();
    while cursor.next_batch(tx, 7, |row| ids.push(row.int(0))).unwrap() {}
    ids
}

fn all() -> Vec<IndexBounds> {
    vec![(Bound::Unbounded, Bound::Unbounded)]
}

fn assert_sound(catalog: &Arc<Catalog>) {
    let report = check(catalog, |_| {}).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn an_index_finds_rows_by_value_with_nulls_last() {
    let catalog = catalog();
    let table = people(&catalog);
    let tx = catalog.begin().unwrap();
    let rows = [
        person(1, Some("a@x"), Some(30)),
        person(2, None, Some(20)),
        person(3, None, None),
        person(4, Some("b\0"), Some(30)),
        person(5, Some("b"), Some(-1)),
    ];
    table.insert_many(&tx, &rows).unwrap();
    // Also before the commit.
    assert_eq!(ids(&table, &tx, "by_age", all()), [5, 2, 1, 4, 3]);
    commit(&tx).unwrap();
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&table, &tx, "by_age", all()), [5, 2, 1, 4, 3]);
    assert_eq!(ids(&table, &tx, "by_mail", all()), [1, 5, 4, 2, 3]);
    let int = |value: i32| vec![Value::Int(value)];
    let over = |low: i32| vec![(Bound::Excluded(int(low)), Bound::Unbounded)];
    assert_eq!(ids(&table, &tx, "by_age", over(20)), [1, 4], "NULL is not above 20");
    let up_to = |high: i32| vec![(Bound::Unbounded, Bound::Included(int(high)))];
    assert_eq!(ids(&table, &tx, "by_age", up_to(20)), [5, 2]);
    let null = vec![(Bound::Included(vec![Value::Null]), Bound::Included(vec![Value::Null]))];
    assert_eq!(ids(&table, &tx, "by_age", null.clone()), [3]);
    assert_eq!(ids(&table, &tx, "by_mail", null), [2, 3]);
    assert_sound(&catalog);
}

#[test]
fn unique_values_are_refused_with_their_names() {
    let catalog = catalog();
    let table = people(&catalog);
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &person(1, Some("a"), None)).unwrap();
    table.insert(&tx, &person(2, None, None)).unwrap();
    table.insert(&tx, &person(3, None, None)).unwrap();
    let message =
        "duplicate key value violates unique constraint \"by_mail\": Key (mail)=(a) already exists.";
    let error = table.insert(&tx, &person(4, Some("a"), None)).unwrap_err();
    assert!(matches!(error, Error::UniqueViolation { .. }));
    assert_eq!(error.to_string(), message);
    let error =
        table.insert_many(&tx, &[person(4, Some("z"), None), person(5, Some("z"), None)]).unwrap_err();
    assert!(error.to_string().contains("(mail)=(z)"), "{error}");
    assert!(table.upsert(&tx, &person(2, Some("a"), None)).is_err());
    assert!(table.update(&tx, &[Value::Int(2)], &person(9, Some("a"), None)).is_err());
    // The failed call has left nothing: the row is unchanged.
    assert_eq!(table.get(&tx, &[Value::Int(2)]).unwrap(), Some(person(2, None, None)));
    commit(&tx).unwrap();
    assert_sound(&catalog);
    // The value is free once its row is deleted or has another.
    let tx = catalog.begin().unwrap();
    table.upsert(&tx, &person(1, Some("b"), None)).unwrap();
    table.insert(&tx, &person(4, Some("a"), None)).unwrap();
    assert!(table.delete(&tx, &[Value::Int(4)]).unwrap());
    table.update(&tx, &[Value::Int(2)], &person(2, Some("a"), None)).unwrap();
    commit(&tx).unwrap();
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&table, &tx, "by_mail", all()), [2, 1, 3]);
    // Rows of one call may swap unique values, and keys as well.
    let key = |id: i32| vec![Value::Int(id)];
    let swapped = [person(1, Some("a"), Some(1)), person(2, Some("b"), Some(2))];
    table.update_many(&tx, &[key(1), key(2)], &swapped).unwrap();
    let swapped = [person(2, Some("a"), Some(1)), person(1, Some("b"), Some(2))];
    table.update_many(&tx, &[key(1), key(2)], &swapped).unwrap();
    commit(&tx).unwrap();
    assert_eq!(ids(&table, &catalog.begin().unwrap(), "by_age", all()), [2, 1, 3]);
    assert_sound(&catalog);
}

#[test]
fn of_two_writers_of_one_unique_value_one_gets_a_conflict() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let catalog = catalog();
        let table = people(&catalog);
        let (a, b) = (catalog.begin_at(isolation).unwrap(), catalog.begin_at(isolation).unwrap());
        table.insert(&a, &person(1, Some("x"), None)).unwrap();
        table.insert(&b, &person(2, Some("x"), None)).unwrap();
        commit(&a).unwrap();
        assert!(commit(&b).is_err_and(|error| error.is_retryable()), "{isolation:?}");
        let again = catalog.begin_at(isolation).unwrap();
        let refused = table.insert(&again, &person(2, Some("x"), None));
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })));
        assert_sound(&catalog);
    }
}

/// Threads insert the same unique values: every value exists once, whichever thread inserted it.
#[test]
fn concurrent_writers_never_share_a_unique_value() {
    let catalog = catalog();
    let table = people(&catalog);
    const VALUES: i32 = 40;
    thread::scope(|scope| {
        for writer in 0..4 {
            let (catalog, table) = (&catalog, &table);
            scope.spawn(move || {
                for value in 0..VALUES {
                    let tx = catalog.begin().unwrap();
                    let row = person(writer * VALUES + value, Some(&format!("m{value}")), Some(writer));
                    if table.insert(&tx, &row).is_ok() {
                        let _ = commit(&tx);
                    }
                }
            });
        }
    });
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&table, &tx, "by_mail", all()).len() as i32, VALUES);
    assert_sound(&catalog);
}

#[test]
fn an_index_is_built_while_others_write() {
    let catalog = catalog();
    let table = catalog.create_table_as("people", definition(), TableOptions::default()).unwrap();
    const ROWS: i32 = 5_000;
    let tx = catalog.begin().unwrap();
    let rows: Vec<_> = (0..ROWS).map(|id| person(id, Some(&format!("m{id}")), Some(id % 10))).collect();
    table.insert_many(&tx, &rows).unwrap();
    commit(&tx).unwrap();
    let stop = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut written, mut seed) = (0, 1u64);
            while !stop.load(Ordering::Relaxed) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let id = ((seed >> 33) % (2 * ROWS as u64)) as i32;
                let tx = catalog.begin().unwrap();
                let table = catalog.table("people").unwrap();
                let row = person(id, Some(&format!("n{id}")), Some((seed >> 40) as i32 % 10));
                let done = match seed % 3 {
                    0 => table.delete(&tx, &[Value::Int(id)]).map(drop),
                    _ => table.upsert(&tx, &row),
                };
                if done.is_ok() && commit(&tx).is_ok() {
                    written += 1;
                }
            }
            written
        });
        for name in ["i", "j"] {
            catalog.create_index("people", index(name, &[2, 1], name == "j")).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(written > 0);
    let table = catalog.table("people").unwrap();
    assert_eq!(table.indexes().len(), 2);
    assert_sound(&catalog);
}

#[test]
fn an_index_that_cannot_be_unique_leaves_nothing() {
    let catalog = catalog();
    let table = catalog.create_table_as("people", definition(), TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, &[person(1, Some("a"), None), person(2, Some("a"), None)]).unwrap();
    commit(&tx).unwrap();
    let writer = catalog.begin().unwrap();
    table.insert(&writer, &person(3, None, None)).unwrap();
    let states = catalog.context().states().len();
    let error = catalog.create_index("people", index("u", &[1], true)).unwrap_err();
    assert!(matches!(error, Error::UniqueViolation { .. }), "{error}");
    assert_eq!(catalog.context().states().len(), states);
    // It began before the attempt.
    assert!(matches!(commit(&writer), Err(entresol_transactions::Error::Conflict { .. })));
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &person(3, Some("a"), None)).unwrap();
    commit(&tx).unwrap();
    assert_sound(&catalog);
}

#[test]
fn old_transactions_neither_write_past_an_index_nor_read_it() {
    let catalog = catalog();
    let old = catalog.create_table_as("people", definition(), TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    old.insert(&tx, &person(1, Some("a"), Some(1))).unwrap();
    commit(&tx).unwrap();
    let (reader, writer) = (catalog.begin().unwrap(), catalog.begin().unwrap());
    old.upsert(&writer, &person(1, Some("b"), Some(1))).unwrap();
    catalog.create_index("people", index("i", &[1], false)).unwrap();
    assert!(matches!(commit(&writer), Err(entresol_transactions::Error::Conflict { .. })));
    let new = catalog.table("people").unwrap();
    assert!(!new.index("i").unwrap().is_readable(&reader));
    assert!(new.index_scan(&reader, new.index("i").unwrap(), all()).is_err());
    assert_eq!(old.get(&reader, &[Value::Int(1)]).unwrap(), Some(person(1, Some("a"), Some(1))));
    assert!(matches!(new.insert(&reader, &person(2, None, None)), Err(Error::TableChanged { .. })));
    // A holder of the old object, such as a topology, writes on through the new one.
    let tx = catalog.begin().unwrap();
    old.insert(&tx, &person(2, Some("c"), None)).unwrap();
    assert!(old.delete(&tx, &[Value::Int(1)]).unwrap());
    commit(&tx).unwrap();
    assert_eq!(ids(&new, &catalog.begin().unwrap(), "i", all()), [2]);
    assert_sound(&catalog);
    let states = catalog.context().states().len();
    catalog.drop_index("i").unwrap();
    assert_eq!(catalog.context().states().len(), states - 1);
    let tx = catalog.begin().unwrap();
    old.insert(&tx, &person(3, Some("c"), None)).unwrap();
    new.insert(&tx, &person(4, Some("c"), None)).unwrap();
    commit(&tx).unwrap();
    assert!(matches!(catalog.drop_index("i"), Err(Error::NoSuchIndex { .. })));
    assert_sound(&catalog);
}

#[derive(Debug, Clone)]
enum Step {
    Upsert(i32, Option<u8>, Option<i32>),
    Update(i32, i32, Option<u8>),
    Delete(i32),
    Commit(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..12i32;
    prop_oneof![
        4 => (id.clone(), proptest::option::of(0..6u8), proptest::option::of(-2..3i32))
            .prop_map(|(id, mail, age)| Step::Upsert(id, mail, age)),
        2 => (id.clone(), id.clone(), proptest::option::of(0..6u8)).prop_map(|(a, b, mail)| Step::Update(a, b, mail)),
        2 => id.prop_map(Step::Delete),
        1 => any::<bool>().prop_map(Step::Commit),
    ]
}

type Model = BTreeMap<i32, (Option<u8>, Option<i32>)>;

fn taken(model: &Model, id: i32, mail: Option<u8>) -> bool {
    mail.is_some() && model.iter().any(|(other, (used, _))| *other != id && *used == mail)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Against a map: the same rows are refused, and the indexes return the rows in their order.
    #[test]
    fn indexes_follow_their_table(steps in proptest::collection::vec(step(), 1..60)) {
        let catalog = catalog();
        let table = people(&catalog);
        let text = |mail: Option<u8>| mail.map(|mail| format!("m{mail}"));
        let row = |id, mail: Option<u8>, age| person(id, text(mail).as_deref(), age);
        let (mut model, mut committed) = (Model::new(), Model::new());
        let mut tx = catalog.begin().unwrap();
        for step in steps {
            match step {
                Step::Upsert(id, mail, age) => {
                    let fits = !taken(&model, id, mail);
                    prop_assert_eq!(table.upsert(&tx, &row(id, mail, age)).is_ok(), fits);
                    if fits {
                        model.insert(id, (mail, age));
                    }
                }
                Step::Update(from, to, mail) => {
                    let mut rest = model.clone();
                    let there = rest.remove(&from).is_some();
                    let fits = there && !rest.contains_key(&to) && !taken(&rest, to, mail);
                    let updated = table.update(&tx, &[Value::Int(from)], &row(to, mail, Some(7)));
                    prop_assert_eq!(updated.is_ok(), fits);
                    if fits {
                        rest.insert(to, (mail, Some(7)));
                        model = rest;
                    }
                }
                Step::Delete(id) => {
                    prop_assert_eq!(table.delete(&tx, &[Value::Int(id)]).unwrap(), model.remove(&id).is_some());
                }
                Step::Commit(keep) => {
                    if keep {
                        commit(&tx).unwrap();
                        committed = model.clone();
                    } else {
                        tx.abort();
                        model = committed.clone();
                    }
                    tx = catalog.begin().unwrap();
                }
            }
            let mut by_age: Vec<_> = model.iter().map(|(id, (_, age))| (age.is_none(), *age, *id)).collect();
            by_age.sort_unstable();
            let expected: Vec<i32> = by_age.into_iter().map(|(_, _, id)| id).collect();
            prop_assert_eq!(ids(&table, &tx, "by_age", all()), expected);
            let mut by_mail: Vec<_> = model.iter().map(|(id, (mail, _))| (mail.is_none(), *mail, *id)).collect();
            by_mail.sort_unstable();
            let expected: Vec<i32> = by_mail.into_iter().map(|(_, _, id)| id).collect();
            prop_assert_eq!(ids(&table, &tx, "by_mail", all()), expected);
        }
        commit(&tx).unwrap();
        assert_sound(&catalog);
    }
}

/// People of whom one is written over the one with his key.
fn overwritten(row: &[Value]) -> (Arc<Table>, Arc<Catalog>) {
    let catalog = catalog();
    let mut definition = definition();
    definition.indexes = vec![index("by_mail", &[1], true)];
    let table = catalog.create_table_as("people", definition, TableOptions::default()).unwrap();
    let tx = catalog.begin().unwrap();
    table.insert_many(&tx, &[person(1, Some("a"), Some(30)), person(2, Some("b"), Some(40))]).unwrap();
    commit(&tx).unwrap();
    let tx = catalog.begin().unwrap();
    table.overwrite_many(&tx, &[row]).unwrap();
    commit(&tx).unwrap();
    (table, catalog)
}

#[test]
fn rows_with_the_same_entries_are_written_over() {
    let (table, catalog) = overwritten(&person(2, Some("b"), Some(41)));
    let tx = catalog.begin().unwrap();
    assert_eq!(table.get(&tx, &[Value::Int(2)]).unwrap(), Some(person(2, Some("b"), Some(41))));
    assert_eq!(ids(&table, &tx, "by_mail", all()), [1, 2]);
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
#[should_panic(expected = "is written over one with other entries")]
fn rows_with_other_entries_are_not_written_over() {
    overwritten(&person(2, Some("c"), Some(41)));
}
