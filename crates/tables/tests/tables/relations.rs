//! Views and sequences of the catalog: names, dependencies, reopening, damage.
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_tables::{
    Alteration, BLOCK_VALUES, Catalog, Column, DataType, Error, IndexDefinition, NewSequence, Position,
    ReadColumn, RelationKind, Schema, SequenceDefinition, SequenceType, TableDefinition, TableOptions,
    Verify, ViewDefinition, ViewRead,
};
use entresol_transactions::StateContext;
use std::path::Path;
use std::sync::Arc;

const NONE: Option<Verify<'static, Error>> = None;

fn volatile() -> Arc<Catalog> {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn open(directory: &Path) -> Arc<Catalog> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open_or_create(directory, &options).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn definition() -> TableDefinition {
    let columns = vec![Column::new("a", DataType::Int), Column::new("b", DataType::Int)];
    TableDefinition::plain(Schema::new(columns, &["a"]).unwrap())
}

fn sequence(name: &str, column: usize) -> NewSequence {
    let definition = SequenceDefinition::ascending(SequenceType::Int);
    NewSequence { name: name.into(), definition, column, identity: None }
}

/// View that uses column `a` of the relation, and reads but does not use `b`.
fn view_of(relation: &str) -> ViewDefinition {
    let column = |name: &str, used| ReadColumn { name: name.into(), used };
    let columns = vec![column("a", true), column("b", false)];
    let reads = vec![ViewRead { relation: relation.into(), columns }];
    ViewDefinition {
        query: format!("SELECT a, b FROM {relation}"),
        columns: vec!["a".into(), "b".into()],
        reads,
    }
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn relations_share_one_space_of_names() {
    let catalog = volatile();
    let mut with_index = definition();
    let index = IndexDefinition {
        name: "i".into(),
        columns: vec![1],
        unique: false,
        constraint: false,
        primary: false,
        ..IndexDefinition::plain("", Vec::new())
    };
    with_index.indexes.push(index.clone());
    catalog.create_table_with("t", with_index, TableOptions::default(), vec![sequence("s", 0)]).unwrap();
    catalog.create_view("v", view_of("t"), None).unwrap();
    let ascending = SequenceDefinition::ascending(SequenceType::BigInt);
    for name in ["t", "i", "s", "v"] {
        let taken = format!("\"{name}\" already exists");
        assert!(message(catalog.create_view(name, view_of("t"), None)).contains(&taken));
        assert!(message(catalog.create_sequence(name, ascending)).contains(&taken));
        assert!(message(catalog.rename_table("t", name)).contains(&taken));
        let error = message(catalog.create_table_as(name, definition(), TableOptions::default()));
        assert!(error.contains("already exists") || error.contains(&taken), "{error}");
        let index = IndexDefinition { name: name.into(), ..index.clone() };
        assert!(message(catalog.create_index("t", index)).contains(&taken));
        let owned = vec![sequence(name, 0)];
        assert!(
            message(catalog.create_table_with("x", definition(), TableOptions::default(), owned))
                .contains(&taken)
        );
    }
    let twice = vec![sequence("y", 0), sequence("y", 1)];
    assert!(
        message(catalog.create_table_with("x", definition(), TableOptions::default(), twice))
            .contains("\"y\"")
    );
    let same = vec![sequence("x", 0)];
    assert!(
        message(catalog.create_table_with("x", definition(), TableOptions::default(), same))
            .contains("\"x\"")
    );
    assert_eq!(catalog.context().states().len(), 3, "what was not made left no state");
    assert_eq!(message(catalog.table("v")), "\"v\" is not a table");
    assert_eq!(message(catalog.view("t")), "\"t\" is not a view");
    assert_eq!(message(catalog.sequence("i")), "\"i\" is not a sequence");
    assert_eq!(message(catalog.view("nothing")), "relation \"nothing\" does not exist");
    assert_eq!(message(catalog.drop_table("v")), "\"v\" is not a table");
    assert_eq!(message(catalog.drop_relations(&[(RelationKind::View, "t")], true)), "\"t\" is not a view");
}

#[test]
fn nothing_is_taken_away_from_under_a_view() {
    let catalog = volatile();
    catalog.create_table_as("t", definition(), TableOptions::default()).unwrap();
    catalog.create_view("v", view_of("t"), None).unwrap();
    catalog.create_view("w", view_of("v"), None).unwrap();
    let rename = |from: &'static str| {
        catalog.redefine("t", NONE, move |definition| {
            let at = definition.schema.column_index(from).unwrap();
            definition.schema = Arc::new(definition.schema.with_changed(at, "new", true)?);
            Ok(())
        })
    };
    let drop = |column: &'static str, cascade| {
        let alteration = Alteration { cascade, sequences: Vec::new() };
        catalog.redefine_with("t", NONE, alteration, move |definition| {
            let at = definition.schema.column_index(column).unwrap();
            definition.schema = Arc::new(definition.schema.without_column(at)?);
            definition.defaults.remove(at);
            Ok(())
        })
    };
    let dependent = "because other objects depend on it: view v depends on";
    assert_eq!(message(catalog.drop_table("t")), format!("cannot drop table t {dependent} table t"));
    assert_eq!(message(catalog.rename_table("t", "u")), format!("cannot rename table t {dependent} table t"));
    let column = "column a of table t";
    assert_eq!(message(rename("a")), format!("cannot rename {column} {dependent} {column}"));
    let error = message(catalog.drop_relations(&[(RelationKind::View, "v")], false));
    assert_eq!(error, "cannot drop view v because other objects depend on it: view w depends on view v");
    // A column that no view uses can be dropped.
    drop("b", false).unwrap();
    let recursive = message(catalog.create_view("v", view_of("w"), Some(&catalog.view("v").unwrap())));
    assert_eq!(recursive, "infinite recursion detected in rules for relation \"v\"");
    // A view was created while the relation that it reads was changed.
    assert!(message(catalog.create_view("x", view_of("t"), None)).contains("\"t\" was changed"));
    let stale = catalog.view("w").unwrap();
    catalog.create_view("w", view_of("v"), Some(&stale)).unwrap();
    assert!(message(catalog.create_view("w", view_of("v"), Some(&stale))).contains("\"w\" was changed"));
    let version = catalog.version();
    catalog.drop_relations(&[(RelationKind::Table, "t")], true).unwrap();
    assert!(catalog.version() > version);
    assert!(catalog.views().is_empty() && catalog.tables().is_empty());
}

#[test]
fn sequences_follow_their_columns() {
    let catalog = volatile();
    let owned = vec![sequence("s", 0), sequence("r", 1)];
    catalog.create_table_with("t", definition(), TableOptions::default(), owned).unwrap();
    let owner = |name: &str| {
        let (table, column) = catalog.owner_of(&catalog.sequence(name).unwrap().definition()).unwrap();
        (table.name().to_owned(), table.schema().columns()[column].name.clone())
    };
    catalog.rename_table("t", "u").unwrap();
    catalog
        .redefine("u", NONE, |definition| {
            definition.schema = Arc::new(definition.schema.with_changed(0, "id", false)?);
            Ok(())
        })
        .unwrap();
    assert_eq!(owner("s"), ("u".into(), "id".into()));
    let old = catalog.sequence("r").unwrap();
    catalog
        .redefine("u", NONE, |definition| {
            definition.schema = Arc::new(definition.schema.without_column(1)?);
            definition.defaults.remove(1);
            Ok(())
        })
        .unwrap();
    assert_eq!(message(catalog.sequence("r")), "relation \"r\" does not exist");
    assert!(catalog.next_values(&old, 1, Durability::Sync).is_err(), "a dropped sequence hands out no value");
    catalog.drop_table("u").unwrap();
    assert!(catalog.sequences().is_empty());
}

#[test]
fn what_was_made_is_there_after_opening_again() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(directory.path());
    catalog.create_table_with("t", definition(), TableOptions::default(), vec![sequence("s", 0)]).unwrap();
    let view = catalog.create_view("v", view_of("t"), None).unwrap();
    let s = catalog.sequence("s").unwrap();
    assert_eq!(catalog.next_values(&s, 3, Durability::Sync).unwrap(), [1, 2, 3]);
    catalog
        .alter_sequence("s", |definition, _| {
            definition.increment = 10;
            Ok(())
        })
        .unwrap();
    catalog.release_cached_sequences();
    catalog.context().pool().close().unwrap();
    drop((catalog, s));

    let catalog = open(directory.path());
    assert_eq!(catalog.view("v").unwrap(), view);
    let s = catalog.sequence("s").unwrap();
    assert_eq!(catalog.owner_of(&s.definition()).unwrap().0.name(), "t");
    assert_eq!(catalog.next_values(&s, 2, Durability::Sync).unwrap(), [13, 23]);
    catalog.set_position(&s, Position { last: 5, called: false }, Durability::Sync).unwrap();
    assert_eq!(catalog.next_values(&s, 1, Durability::None).unwrap(), [5]);
    // Reserved values are not released: as after a crash.
    catalog.context().pool().close().unwrap();
    drop((catalog, s));

    let catalog = open(directory.path());
    let s = catalog.sequence("s").unwrap();
    let next = catalog.next_values(&s, 1, Durability::Sync).unwrap()[0];
    assert_eq!(next, 5 + 10 * BLOCK_VALUES as i64);
    assert!(
        message(catalog.alter_sequence("s", |definition, _| {
            definition.max_value = next - 1;
            Ok(())
        }))
        .contains("RESTART value")
    );
}

#[test]
fn sessions_never_get_the_same_value() {
    let catalog = volatile();
    let definition = SequenceDefinition::ascending(SequenceType::BigInt);
    let sequence = catalog.create_sequence("s", definition).unwrap();
    let mut drawn: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|count| {
                let (catalog, sequence) = (&catalog, &sequence);
                let draw = move || catalog.next_values(sequence, count % 3 + 1, Durability::None).unwrap();
                scope.spawn(move || (0..300).flat_map(|_| draw()).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    drawn.sort_unstable();
    assert_eq!(drawn, (1..=drawn.len() as i64).collect::<Vec<_>>());
}

#[test]
fn a_damaged_row_harms_no_other_relation() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(directory.path());
    catalog.create_table_with("t", definition(), TableOptions::default(), vec![sequence("s", 0)]).unwrap();
    catalog.create_view("v", view_of("t"), None).unwrap();
    catalog.create_view("w", view_of("t"), None).unwrap();
    // The catalog's state is the first that was created.
    let context = catalog.context();
    let state = context.states().into_iter().min_by_key(|state| state.id()).unwrap();
    for key in ["\u{1}view/v", "\u{1}sequence/s"] {
        let tx = context.begin().unwrap();
        let mut value = tx.read(&state, key.as_bytes(), <[u8]>::to_vec).unwrap().unwrap();
        *value.last_mut().unwrap() ^= 1;
        tx.write(&state, key.as_bytes(), Some(&value)).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
    context.pool().close().unwrap();
    drop((state, catalog));

    let catalog = open(directory.path());
    assert!(message(catalog.view("v")).contains("corrupt view v"));
    assert!(message(catalog.sequence("s")).contains("corrupt sequence s"));
    assert_eq!(catalog.damaged_relations().len(), 2);
    let report = entresol_tables::check(&catalog, |_| {}).unwrap();
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
    assert_eq!(message(catalog.create_view("v", view_of("t"), None)), "relation \"v\" already exists");
    assert_eq!((catalog.views().len(), catalog.sequences().len()), (1, 0));
    catalog.table("t").unwrap();
    catalog.drop_relations(&[(RelationKind::View, "v"), (RelationKind::Sequence, "s")], false).unwrap();
    assert!(catalog.damaged_relations().is_empty());
    catalog.create_view("v", view_of("w"), None).unwrap();
}
