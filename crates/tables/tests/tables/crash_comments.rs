//! Comments under power failures: in every remaining state an object has its comment or none, and an object that was created
//! behind a drop has none of the one before.
use entresol_memory::Pool;
use entresol_memory::crash::{CrashOptions, check as check_crashes, check_seeds};
use entresol_tables::{
    Catalog, Column, CommentTarget, DataType, ReadColumn, RelationKind, Schema, TableOptions, ViewDefinition,
    ViewRead,
};
use entresol_transactions::StateContext;
use std::sync::Arc;

const TABLE: CommentTarget<'static> = CommentTarget::Relation(RelationKind::Table, "t");
const VIEW: CommentTarget<'static> = CommentTarget::Relation(RelationKind::View, "v");
const COLUMN: CommentTarget<'static> = CommentTarget::Column("t", "b");

fn open(pool: &Arc<Pool>) -> Result<Arc<Catalog>, String> {
    let context = StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
    Catalog::open_or_create(context).map_err(|error| error.to_string())
}

/// Table `t` with the columns `a`, `b` and another, and the view `v` over it.
fn create(catalog: &Catalog, last: &str) {
    let columns = ["a", "b", last].map(|name| Column::new(name, DataType::Int)).to_vec();
    catalog.create_table("t", Schema::new(columns, &["a"]).unwrap(), TableOptions::default()).unwrap();
    let columns = vec![ReadColumn { name: "a".into(), used: true }];
    let reads = vec![ViewRead { relation: "t".into(), columns }];
    let view = ViewDefinition { query: "SELECT a FROM t".into(), columns: vec!["a".into()], reads };
    catalog.create_view("v", view, None).unwrap();
}

fn history(pool: &Arc<Pool>) {
    let catalog = open(pool).unwrap();
    create(&catalog, "old");
    catalog.set_comment(&TABLE, Some("first")).unwrap();
    catalog.set_comment(&COLUMN, Some("of b")).unwrap();
    catalog.set_comment(&VIEW, Some("of v")).unwrap();
    catalog.set_comment(&TABLE, Some("second")).unwrap();
    catalog.set_comment(&COLUMN, None).unwrap();
    catalog.set_comment(&COLUMN, Some("again")).unwrap();
    catalog.drop_relations(&[(RelationKind::Table, "t")], true).unwrap();
    create(&catalog, "new");
}

fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let catalog = open(pool)?;
    let Ok(table) = catalog.table("t") else { return Ok(()) };
    let comment = |target: &CommentTarget<'_>| catalog.comment(target).map_err(|error| error.to_string());
    let (of_table, of_column) = (comment(&TABLE)?, comment(&COLUMN)?);
    let of_view = if catalog.view("v").is_ok() { comment(&VIEW)? } else { None };
    let found = [&of_table, &of_column, &of_view].map(|text| text.as_deref());
    let is_new = table.schema().visible_columns().iter().any(|column| column.name == "new");
    let is_valid = match found {
        [None, None, None] => true,
        [Some("first"), None | Some("of b"), None] | [Some("first"), Some("of b"), Some("of v")] => !is_new,
        [Some("second"), None | Some("of b" | "again"), Some("of v")] => !is_new,
        _ => false,
    };
    if !is_valid {
        return Err(format!("comments {found:?} of a table, which is new: {is_new}"));
    }
    catalog.set_comment(&TABLE, Some("later")).map_err(|error| error.to_string())?;
    let later = comment(&TABLE)?;
    if later.as_deref() == Some("later") { Ok(()) } else { Err(format!("{later:?} in place of \"later\"")) }
}

#[test]
fn no_crash_gives_an_object_the_comment_of_another() {
    let report = check_seeds("comments", 1, |seed| {
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        let history = |pool: &Arc<Pool>| {
            history(pool);
            Ok(())
        };
        check_crashes(&options, history, verify)
    });
    let report = report.unwrap();
    assert!(report.explored(500), "{report:?}");
}
