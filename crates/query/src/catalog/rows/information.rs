//! `information_schema`: the SQL standard's description of the tables.

use crate::catalog::cell::Cell;
use crate::catalog::relation::{Relation, Rows, empty, relation};
use crate::catalog::rows::constraints;
use crate::catalog::rows::named;
use crate::catalog::view::{Attribute, View, attributes_of, described_attributes};
use crate::privileges::Privileges;
use crate::schema_names::{CATALOG, PG_CATALOG, SCHEMA};
use crate::session::materialized::held_by;
use datafusion::common::Result as DFResult;
use entresol_tables::Table;
use std::sync::Arc;

/// The relations of the schema.
pub(crate) static RELATIONS: &[Relation] = &[
    relation(0, "information_schema_catalog_name", "catalog_name text", catalog_name),
    relation(
        0,
        "schemata",
        "catalog_name text, schema_name text, schema_owner text, default_character_set_catalog text, \
         default_character_set_schema text, default_character_set_name text, sql_path text",
        schemata,
    ),
    relation(
        0,
        "tables",
        "table_catalog text, table_schema text, table_name text, table_type text, \
         self_referencing_column_name text, reference_generation text, user_defined_type_catalog text, \
         user_defined_type_schema text, user_defined_type_name text, is_insertable_into text, \
         is_typed text, commit_action text",
        tables,
    ),
    relation(
        0,
        "columns",
        "table_catalog text, table_schema text, table_name text, column_name text, ordinal_position int4, \
         column_default text, is_nullable text, data_type text, character_maximum_length int4, \
         character_octet_length int4, numeric_precision int4, numeric_precision_radix int4, \
         numeric_scale int4, datetime_precision int4, interval_type text, interval_precision int4, \
         character_set_catalog text, character_set_schema text, character_set_name text, \
         collation_catalog text, collation_schema text, collation_name text, domain_catalog text, \
         domain_schema text, domain_name text, udt_catalog text, udt_schema text, udt_name text, \
         scope_catalog text, scope_schema text, scope_name text, maximum_cardinality int4, \
         dtd_identifier text, is_self_referencing text, is_identity text, identity_generation text, \
         identity_start text, identity_increment text, identity_maximum text, identity_minimum text, \
         identity_cycle text, is_generated text, generation_expression text, is_updatable text",
        columns,
    ),
    relation(
        0,
        "table_constraints",
        "constraint_catalog text, constraint_schema text, constraint_name text, table_catalog text, \
         table_schema text, table_name text, constraint_type text, is_deferrable text, \
         initially_deferred text, enforced text, nulls_distinct text",
        table_constraints,
    ),
    relation(
        0,
        "key_column_usage",
        "constraint_catalog text, constraint_schema text, constraint_name text, table_catalog text, \
         table_schema text, table_name text, column_name text, ordinal_position int4, \
         position_in_unique_constraint int4",
        key_column_usage,
    ),
    relation(
        0,
        "constraint_column_usage",
        "table_catalog text, table_schema text, table_name text, column_name text, \
         constraint_catalog text, constraint_schema text, constraint_name text",
        constraint_column_usage,
    ),
    relation(
        0,
        "check_constraints",
        "constraint_catalog text, constraint_schema text, constraint_name text, check_clause text",
        check_constraints,
    ),
    relation(
        0,
        "table_privileges",
        "grantor text, grantee text, table_catalog text, table_schema text, table_name text, \
         privilege_type text, is_grantable text, with_hierarchy text",
        table_privileges,
    ),
    relation(
        0,
        "role_table_grants",
        "grantor text, grantee text, table_catalog text, table_schema text, table_name text, \
         privilege_type text, is_grantable text, with_hierarchy text",
        table_privileges,
    ),
    empty(
        0,
        "referential_constraints",
        "constraint_catalog text, constraint_schema text, constraint_name text, \
         unique_constraint_catalog text, unique_constraint_schema text, unique_constraint_name text, \
         match_option text, update_rule text, delete_rule text",
    ),
    relation(
        0,
        "views",
        "table_catalog text, table_schema text, table_name text, view_definition text, check_option text, \
         is_updatable text, is_insertable_into text, is_trigger_updatable text, is_trigger_deletable text, \
         is_trigger_insertable_into text",
        named::standard_views,
    ),
    relation(
        0,
        "sequences",
        "sequence_catalog text, sequence_schema text, sequence_name text, data_type text, \
         numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, start_value text, \
         minimum_value text, maximum_value text, increment text, cycle_option text",
        named::standard_sequences,
    ),
    empty(
        0,
        "triggers",
        "trigger_catalog text, trigger_schema text, trigger_name text, event_manipulation text, \
         event_object_catalog text, event_object_schema text, event_object_table text, action_order int4, \
         action_condition text, action_statement text, action_orientation text, action_timing text",
    ),
    empty(
        0,
        "routines",
        "specific_catalog text, specific_schema text, specific_name text, routine_catalog text, \
         routine_schema text, routine_name text, routine_type text, data_type text, \
         routine_definition text, external_language text",
    ),
    empty(
        0,
        "parameters",
        "specific_catalog text, specific_schema text, specific_name text, ordinal_position int4, \
         parameter_mode text, parameter_name text, data_type text",
    ),
    empty(
        0,
        "domains",
        "domain_catalog text, domain_schema text, domain_name text, data_type text, domain_default text",
    ),
    empty(
        0,
        "element_types",
        "object_catalog text, object_schema text, object_name text, object_type text, \
         collection_type_identifier text, data_type text",
    ),
];

/// Answer to whether something is allowed, as the standard spells it.
const YES: &str = "YES";
const NO: &str = "NO";

fn yes(flag: bool) -> Cell {
    if flag { YES.into() } else { NO.into() }
}

fn nulls(count: usize) -> impl Iterator<Item = Cell> {
    std::iter::repeat_n(Cell::Null, count)
}

fn catalog_name(_: &View) -> DFResult<Rows> {
    Ok(vec![vec![CATALOG.into()]])
}

fn schemata(_: &View) -> DFResult<Rows> {
    let row = |(_, name): (i64, &str)| {
        let mut row: Vec<Cell> = vec![CATALOG.into(), name.into(), CATALOG.into()];
        row.extend(nulls(4));
        row
    };
    Ok(View::schemas().into_iter().map(row).collect())
}

/// Tables without those of materialized views, which the standard does not have.
fn plain_tables(view: &View) -> impl Iterator<Item = &Arc<Table>> {
    view.tables.iter().filter(|table| held_by(table).is_none())
}

fn tables(view: &View) -> DFResult<Rows> {
    let own = plain_tables(view).map(|table| (SCHEMA, table.name(), "BASE TABLE"));
    let described = view.registry.all().map(|(schema, relation)| {
        let kind = if schema == PG_CATALOG { "BASE TABLE" } else { "VIEW" };
        (schema, relation.name, kind)
    });
    let views = view.catalog.views();
    let views = views.iter().map(|view| (SCHEMA, view.name(), "VIEW"));
    let row = |(schema, name, kind): (&str, &str, &str)| {
        let mut row: Vec<Cell> = vec![CATALOG.into(), schema.into(), name.into(), kind.into()];
        row.extend(nulls(5));
        row.extend([yes(schema == SCHEMA && kind != "VIEW"), NO.into(), Cell::Null]);
        row
    };
    Ok(own.chain(views).chain(described).map(row).collect())
}

fn columns(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for table in plain_tables(view) {
        let of_table = attributes_of(table);
        rows.extend(
            of_table.iter().enumerate().map(|(at, column)| column_row(SCHEMA, table.name(), at, column)),
        );
    }
    for named in named::all(view).iter().filter(|named| named.kind == 'v') {
        let of_view = named::attributes_of(view, named);
        let described = of_view.iter().enumerate();
        rows.extend(described.map(|(at, column)| column_row(SCHEMA, &named.name, at, column)));
    }
    for (schema, relation) in view.registry.all() {
        let of_relation = described_attributes(relation);
        let described = of_relation.iter().enumerate();
        rows.extend(described.map(|(at, column)| column_row(schema, relation.name, at, column)));
    }
    Ok(rows)
}

fn column_row(schema: &str, table: &str, at: usize, column: &Attribute) -> Vec<Cell> {
    let of = column.data_type;
    let (precision, radix, scale) = match of.name {
        "int2" => (Some(16), Some(2), Some(0)),
        "int4" => (Some(32), Some(2), Some(0)),
        "int8" => (Some(64), Some(2), Some(0)),
        "float4" => (Some(24), Some(2), None),
        "float8" => (Some(53), Some(2), None),
        "numeric" if column.modifier >= 4 => {
            (Some((column.modifier - 4) >> 16), Some(10), Some((column.modifier - 4) & 0x7ff))
        }
        _ => (None, None, None),
    };
    let fraction = match of.name {
        "date" => Some(0_i64),
        "timestamp" | "timestamptz" | "time" | "interval" => Some(6),
        _ => None,
    };
    let characters =
        (matches!(of.name, "varchar" | "bpchar") && column.modifier >= 4).then_some(column.modifier - 4);
    // A character has four bytes at most.
    let octets = characters.map(|length| length * 4).or((of.name == "text").then_some(1_i64 << 30));
    let shown = if of.category == "A" { "ARRAY" } else { of.long_name };
    let mut row: Vec<Cell> = vec![
        CATALOG.into(),
        schema.into(),
        table.into(),
        column.name.as_str().into(),
        (at + 1).into(),
        column.default.clone().into(),
        yes(!column.not_null),
        shown.into(),
        characters.into(),
        octets.into(),
        precision.into(),
        radix.into(),
        scale.into(),
        fraction.into(),
    ];
    row.extend(nulls(11));
    row.extend([CATALOG.into(), PG_CATALOG.into(), of.name.into()]);
    row.extend(nulls(4));
    row.extend([Cell::from((at + 1).to_string()), NO.into(), NO.into()]);
    row.extend(nulls(5));
    row.extend([NO.into(), "NEVER".into(), Cell::Null, yes(schema == SCHEMA)]);
    row
}

fn table_constraints(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for constraint in constraints::all(view)? {
        let table = constraint.table;
        let kind = match constraint.kind {
            "p" => "PRIMARY KEY",
            "u" => "UNIQUE",
            _ => "CHECK",
        };
        rows.push(vec![
            CATALOG.into(),
            SCHEMA.into(),
            constraint.name.as_str().into(),
            CATALOG.into(),
            SCHEMA.into(),
            table.name().into(),
            kind.into(),
            NO.into(),
            NO.into(),
            YES.into(),
            (kind == "UNIQUE").then_some(YES).into(),
        ]);
    }
    Ok(rows)
}

fn key_column_usage(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for constraint in constraints::all(view)? {
        let table = constraint.table;
        if constraint.kind == "c" {
            continue;
        }
        for (at, &column) in constraint.columns.iter().enumerate() {
            rows.push(vec![
                CATALOG.into(),
                SCHEMA.into(),
                constraint.name.as_str().into(),
                CATALOG.into(),
                SCHEMA.into(),
                table.name().into(),
                table.schema().columns()[column].name.as_str().into(),
                (at + 1).into(),
                Cell::Null,
            ]);
        }
    }
    Ok(rows)
}

fn constraint_column_usage(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for constraint in constraints::all(view)? {
        let table = constraint.table;
        for &column in &constraint.columns {
            rows.push(vec![
                CATALOG.into(),
                SCHEMA.into(),
                table.name().into(),
                table.schema().columns()[column].name.as_str().into(),
                CATALOG.into(),
                SCHEMA.into(),
                constraint.name.as_str().into(),
            ]);
        }
    }
    Ok(rows)
}

fn check_constraints(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for constraint in constraints::all(view)? {
        if let Some(condition) = constraint.condition {
            let clause = Cell::Text(format!("({condition})"));
            rows.push(vec![CATALOG.into(), SCHEMA.into(), constraint.name.as_str().into(), clause]);
        }
    }
    Ok(rows)
}

fn table_privileges(view: &View) -> DFResult<Rows> {
    let mut rows = Rows::new();
    for role in view.roles()? {
        for table in &view.tables {
            let granted = role.privileges(table.name());
            for (privilege, name, _) in Privileges::NAMES {
                if granted.contains(privilege) {
                    rows.push(vec![
                        CATALOG.into(),
                        role.name.as_str().into(),
                        CATALOG.into(),
                        SCHEMA.into(),
                        table.name().into(),
                        name.into(),
                        NO.into(),
                        yes(name == "SELECT"),
                    ]);
                }
            }
        }
    }
    Ok(rows)
}
