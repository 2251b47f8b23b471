//! Rows about the tables: `pg_class`, `pg_attribute`, `pg_index`, `pg_constraint`, `pg_attrdef` and views on
//! them.

use crate::catalog::cell::Cell;
use crate::catalog::relation::Rows;
use crate::catalog::rows::constraints::{self, Constraint};
use crate::catalog::rows::named;
use crate::catalog::view::schema_oid;
use crate::catalog::view::{
    Attribute, IndexView, View, attribute, attributes_of, described_attributes, indexes_of,
};
use crate::catalog::{definitions, oids};
use crate::privileges::{Privileges, Role};
use crate::schema_names::{CATALOG, PG_CATALOG, SCHEMA};
use crate::session::materialized::held_by;
use datafusion::common::Result as DFResult;
use entresol_structures::IndexStructure;
use entresol_tables::{Table, TableLayout};

const PERMANENT: &str = "p";
const UNLOGGED: &str = "u";

/// Properties in `pg_class` that differ between relations.
struct Class {
    oid: i64,
    name: String,
    schema: i64,
    access_method: i64,
    persistence: &'static str,
    kind: &'static str,
    columns: usize,
    checks: usize,
    has_index: bool,
    privileges: Option<Vec<String>>,
    /// `reloptions`: what a clustered table was created with.
    options: Option<Vec<String>>,
    /// `reltuples`: counted, or of the last ANALYZE; none before that.
    rows: Option<f64>,
}

pub(crate) fn classes(view: &View) -> DFResult<Rows> {
    let roles = view.roles()?;
    let tables = view.tables.iter().map(|table| Class {
        oid: oids::state(table.state().id()),
        name: table.name().to_owned(),
        schema: oids::PUBLIC,
        access_method: oids::structure(table.definition().structure),
        persistence: persistence(table),
        kind: if held_by(table).is_some() { "m" } else { "r" },
        columns: table.schema().visible_columns().len(),
        checks: table.definition().checks.len(),
        has_index: !indexes_of(table).is_empty(),
        privileges: access_list(&roles, table.name()),
        options: table_options(table),
        rows: table.analyzed().map(|analyzed| table.newest_rows().map_or(analyzed.rows, |rows| rows as f64)),
    });
    let indexes = view.indexes().map(|index| Class {
        oid: index.oid,
        name: index.name.clone(),
        schema: oids::PUBLIC,
        access_method: match index.structure {
            _ if index.elf.is_some() => oids::ELF,
            _ if index.hashed => oids::HASH,
            structure if structure == IndexStructure::default() => oids::BTREE,
            structure => oids::structure(structure),
        },
        persistence: persistence(index.table),
        kind: "i",
        columns: index.columns.len(),
        checks: 0,
        has_index: false,
        privileges: None,
        options: None,
        rows: None,
    });
    let described = view.registry.all().map(|(schema, relation)| Class {
        oid: view.registry.oid(relation),
        name: relation.name.to_owned(),
        schema: schema_oid(schema),
        access_method: if schema == PG_CATALOG { oids::HEAP } else { 0 },
        persistence: PERMANENT,
        kind: if schema == PG_CATALOG { "r" } else { "v" },
        columns: relation.columns().count(),
        checks: 0,
        has_index: false,
        privileges: None,
        options: None,
        rows: None,
    });
    let named = named::all(view).into_iter().map(|named| Class {
        oid: named.oid,
        schema: oids::PUBLIC,
        access_method: 0,
        persistence: PERMANENT,
        kind: if named.kind == 'v' { "v" } else { "S" },
        columns: named::attributes_of(view, &named).len(),
        checks: 0,
        has_index: false,
        privileges: access_list(&roles, &named.name),
        options: None,
        rows: None,
        name: named.name,
    });
    Ok(tables.chain(indexes).chain(named).chain(described).map(class_row).collect())
}

fn class_row(class: Class) -> Vec<Cell> {
    vec![
        class.oid.into(),
        class.name.into(),
        class.schema.into(),
        Cell::Int(0),
        Cell::Int(0),
        oids::OWNER.into(),
        class.access_method.into(),
        class.oid.into(),
        Cell::Int(0),
        Cell::Int(0),
        // Unknown, as of a table that was never analyzed.
        Cell::Real(class.rows.unwrap_or(-1.0)),
        Cell::Int(0),
        Cell::Int(0),
        class.has_index.into(),
        false.into(),
        class.persistence.into(),
        class.kind.into(),
        class.columns.into(),
        class.checks.into(),
        false.into(),
        false.into(),
        false.into(),
        false.into(),
        false.into(),
        true.into(),
        if class.kind == "r" { "d".into() } else { "n".into() },
        false.into(),
        Cell::Int(0),
        Cell::Int(0),
        Cell::Int(0),
        class.privileges.map_or(Cell::Null, Cell::Texts),
        class.options.map_or(Cell::Null, Cell::Texts),
        Cell::Null,
    ]
}

/// Options of a table that are not plain, as CREATE TABLE takes them.
fn table_options(table: &Table) -> Option<Vec<String>> {
    let mut options = cluster_options(table).or_else(|| elf_options(table)).unwrap_or_default();
    if table.definition().structure_reason.is_some() {
        options.push("structure=auto".to_owned());
    }
    options.extend(table.object_store().map(|url| format!("object_store={url}")));
    options.extend(table.definition().node_bytes.map(|bytes| format!("node_bytes={bytes}")));
    (!options.is_empty()).then_some(options)
}

/// Options of a table with the layout `clustered`, or that may get it by its workload.
fn cluster_options(table: &Table) -> Option<Vec<String>> {
    let clustering = table.definition().clustering.as_ref()?;
    let is_auto = table.definition().auto_layout;
    Some(vec![
        format!("layout={}", if is_auto { "auto" } else { table.definition().layout.name() }),
        format!("cluster_by={}", clustering.cluster_by(table.schema())),
        format!("interleave={}", clustering.interleave.name()),
        format!("split={}", clustering.split.name()),
        format!("block_bytes={}", clustering.block_bytes),
    ])
}

/// Options of a table with the layout `elf`.
fn elf_options(table: &Table) -> Option<Vec<String>> {
    let definition = table.definition();
    if definition.layout != TableLayout::Elf {
        return None;
    }
    let layout = if definition.auto_layout { "auto" } else { definition.layout.name() };
    let mut options = vec![format!("layout={layout}")];
    let elf = &definition.elf_layout;
    options.extend(elf.elf_by(table.schema()).map(|names| format!("elf_by={names}")));
    options.extend(elf.caching.parameters().iter().map(|(name, value)| format!("{name}={value}")));
    Some(options)
}

/// `relpersistence`, as in PostgreSQL, whose unlogged tables are empty after a crash.
fn persistence(table: &Table) -> &'static str {
    if table.is_volatile() { UNLOGGED } else { PERMANENT }
}

/// Access list of a table: `role=arwd/owner`; `None` if only administrators have privileges.
fn access_list(roles: &[Role], table: &str) -> Option<Vec<String>> {
    let of = |role: &Role| {
        let granted = role.privileges(table);
        let letters = Privileges::NAMES.iter().filter(|(privilege, ..)| granted.contains(*privilege));
        let letters: String = letters.map(|(.., letter)| letter).collect();
        (!role.administrator && !letters.is_empty()).then(|| format!("{}={letters}/{CATALOG}", role.name))
    };
    let list: Vec<String> = roles.iter().filter_map(of).collect();
    (!list.is_empty()).then_some(list)
}

pub(crate) fn attributes(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for table in &view.tables {
        let oid = oids::state(table.state().id());
        let columns = attributes_of(table);
        rows.extend(columns.iter().enumerate().map(|(at, column)| attribute_row(oid, at, column)));
    }
    for index in view.indexes() {
        let columns = (0..index.columns.len()).filter_map(|at| index.column(at));
        let columns = columns.map(|column| Attribute { not_null: false, ..attribute(column, None) });
        rows.extend(columns.enumerate().map(|(at, column)| attribute_row(index.oid, at, &column)));
    }
    for named in named::all(view) {
        let columns = named::attributes_of(view, &named);
        rows.extend(columns.iter().enumerate().map(|(at, column)| attribute_row(named.oid, at, column)));
    }
    for (_, relation) in view.registry.all() {
        let (oid, columns) = (view.registry.oid(relation), described_attributes(relation));
        rows.extend(columns.iter().enumerate().map(|(at, column)| attribute_row(oid, at, column)));
    }
    Ok(rows)
}

fn attribute_row(relation: i64, at: usize, column: &Attribute) -> Vec<Cell> {
    let of = column.data_type;
    let by_value = matches!(of.length, 1 | 2 | 4 | 8);
    vec![
        relation.into(),
        column.name.as_str().into(),
        of.oid.into(),
        of.length.into(),
        (at + 1).into(),
        Cell::Int(-1),
        column.modifier.into(),
        Cell::Int((of.category == "A").into()),
        by_value.into(),
        alignment(of.length).into(),
        if of.length < 0 { "x".into() } else { "p".into() },
        "".into(),
        column.not_null.into(),
        column.default.is_some().into(),
        false.into(),
        "".into(),
        "".into(),
        false.into(),
        true.into(),
        Cell::Int(0),
        Cell::Int(-1),
        collation_of(of.category).into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
    ]
}

/// `typalign` of a length.
pub(crate) fn alignment(length: i64) -> &'static str {
    match length {
        1 | 64 => "c",
        2 => "s",
        8 | 16 => "d",
        _ => "i",
    }
}

/// Collation of a type category: strings have one.
pub(crate) fn collation_of(category: &str) -> i64 {
    if category == "S" { oids::COLLATION } else { 0 }
}

/// Positions of columns, from 1.
fn places(columns: &[usize]) -> Cell {
    Cell::Ints(columns.iter().map(|&column| column as i64 + 1).collect())
}

pub(crate) fn indexes(view: &View) -> DFResult<Rows> {
    let row = |index: IndexView<'_>| {
        let columns = index.columns.len();
        let types =
            (0..columns).filter_map(|at| index.column(at)).map(|column| attribute(column, None).data_type);
        let collations = Cell::Ints(types.map(|of| collation_of(of.category)).collect());
        vec![
            index.oid.into(),
            oids::state(index.table.state().id()).into(),
            columns.into(),
            columns.into(),
            index.unique.into(),
            false.into(),
            index.primary.into(),
            false.into(),
            true.into(),
            false.into(),
            index.valid.into(),
            false.into(),
            index.valid.into(),
            true.into(),
            false.into(),
            places(&index.columns),
            collations,
            Cell::Ints(vec![oids::OPERATOR_CLASS; columns]),
            Cell::Ints(vec![0; columns]),
            Cell::Null,
            Cell::Null,
        ]
    };
    Ok(view.indexes().map(row).collect())
}

pub(crate) fn constraints(view: &View) -> DFResult<Rows> {
    let all = constraints::all(view)?;
    let row = |constraint: Constraint<'_>| {
        vec![
            constraint.oid.into(),
            constraint.name.into(),
            oids::PUBLIC.into(),
            constraint.kind.into(),
            false.into(),
            false.into(),
            true.into(),
            oids::state(constraint.table.state().id()).into(),
            Cell::Int(0),
            constraint.index.into(),
            Cell::Int(0),
            Cell::Int(0),
            " ".into(),
            " ".into(),
            " ".into(),
            true.into(),
            Cell::Int(0),
            (constraint.kind != "c").into(),
            places(&constraint.columns),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
            constraint.condition.into(),
        ]
    };
    Ok(all.into_iter().map(row).collect())
}

pub(crate) fn defaults(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for table in &view.tables {
        let state = table.state().id();
        for (at, default) in table.definition().defaults.iter().enumerate() {
            if let Some(default) = default {
                rows.push(vec![
                    oids::default(state, at).into(),
                    oids::state(state).into(),
                    (at + 1).into(),
                    default.as_str().into(),
                ]);
            }
        }
    }
    Ok(rows)
}

pub(crate) fn tables(view: &View) -> DFResult<Rows> {
    let own = view.tables.iter().filter(|table| held_by(table).is_none());
    let own = own.map(|table| (SCHEMA, table.name(), !indexes_of(table).is_empty()));
    let described =
        view.registry.of_schema(PG_CATALOG).iter().map(|relation| (PG_CATALOG, relation.name, false));
    let row = |(schema, name, has_index): (&str, &str, bool)| {
        vec![
            schema.into(),
            name.into(),
            CATALOG.into(),
            Cell::Null,
            has_index.into(),
            false.into(),
            false.into(),
            false.into(),
        ]
    };
    Ok(own.chain(described).map(row).collect())
}

pub(crate) fn index_definitions(view: &View) -> DFResult<Rows> {
    let row = |index: IndexView<'_>| {
        vec![
            SCHEMA.into(),
            index.table.name().into(),
            index.name.as_str().into(),
            Cell::Null,
            definitions::index(&index).into(),
        ]
    };
    Ok(view.indexes().map(row).collect())
}

pub(crate) fn user_tables(view: &View) -> DFResult<Rows> {
    let row = |table: &std::sync::Arc<Table>| {
        let mut row = vec![oids::state(table.state().id()).into(), SCHEMA.into(), table.name().into()];
        let analyzed = table.analyzed();
        // Scans are not counted here, nor dead rows.
        row.extend([Cell::Null, Cell::Null]);
        let of_sample = || analyzed.as_ref().map(|analyzed| analyzed.rows as i64);
        row.push(table.newest_rows().map(u64::cast_signed).or_else(of_sample).into());
        row.extend([Cell::Null, Cell::Null]);
        row.push(analyzed.as_ref().map(|analyzed| analyzed.analyzed_at).into());
        row
    };
    Ok(view.tables.iter().map(row).collect())
}
