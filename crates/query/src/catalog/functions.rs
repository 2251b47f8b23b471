//! Functions of `pg_catalog` on objects, privileges and sizes.
//!
//! Each takes a row of [`Cell`]s and sees the same [`View`] as the relations. DataFusion may evaluate one
//! with constant arguments at planning time; so none is immutable ([`super::call`]).

use super::cell::Cell;
use super::resolve::{Alias, parts};
use super::rows::constraints;
use super::view::View;
use super::{definitions, oids};
use crate::catalog::rows::activity;
use crate::catalog::rows::comments;
use crate::catalog::rows::named::sequences_of;
use crate::error::{Error, external};
use crate::postgres::pg_types;
use crate::privileges::Privileges;
use crate::schema_names::{PG_CATALOG, SCHEMA};
use crate::session::owners::owner_of_relation;
use datafusion::common::Result as DFResult;
use std::ops::RangeInclusive;

pub(super) type Call = fn(&View, &[Cell]) -> DFResult<Cell>;

/// Definition of a catalog function.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// Accepted numbers of arguments.
    pub(crate) arguments: RangeInclusive<usize>,
    returns: &'static str,
    pub(super) call: Call,
    /// True if a NULL argument makes the result NULL.
    pub(super) strict: bool,
    /// True if it does something: it runs for each row, and not while a statement is planned.
    pub(super) acts: bool,
}

impl Definition {
    /// Short name of the result type.
    pub(crate) fn returns(&self) -> &'static str {
        self.returns
    }
}

const fn strict(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    returns: &'static str,
    call: Call,
) -> Definition {
    Definition { name, arguments, returns, call, strict: true, acts: false }
}

/// Function that does something.
const fn acting(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    returns: &'static str,
    call: Call,
) -> Definition {
    Definition { name, arguments, returns, call, strict: true, acts: true }
}

/// Function about a kind of object that does not exist here: always NULL.
const fn nothing(name: &'static str, arguments: RangeInclusive<usize>, returns: &'static str) -> Definition {
    Definition { name, arguments, returns, call: |_, _| Ok(Cell::Null), strict: true, acts: false }
}

const fn visible(name: &'static str) -> Definition {
    strict(name, 1..=1, "bool", |_, _| Ok(true.into()))
}

/// Function about a privilege that every role has.
const fn allowed(name: &'static str) -> Definition {
    strict(name, 2..=4, "bool", |_, _| Ok(true.into()))
}

/// All functions; the index of a function is its number.
pub(crate) const DEFINITIONS: &[Definition] = &[
    strict("pg_get_userbyid", 1..=1, "name", |view, of| {
        let oid = of[0].int().unwrap_or(0);
        Ok(view.role_name(oid)?.unwrap_or_else(|| format!("unknown (OID={oid})")).into())
    }),
    Definition {
        name: "format_type",
        arguments: 2..=2,
        returns: "text",
        call: |_, of| Ok(of[0].int().map(|oid| pg_types::format(oid, of[1].int())).into()),
        strict: false,
        acts: false,
    },
    strict("pg_get_expr", 2..=3, "text", |_, of| Ok(of[0].clone())),
    strict("pg_get_indexdef", 1..=3, "text", index_definition),
    strict("pg_get_constraintdef", 1..=2, "text", |view, of| {
        let oid = of[0].int();
        let found = constraints::all(view)?.into_iter().find(|constraint| Some(constraint.oid) == oid);
        let pretty = of.get(1) == Some(&Cell::Bool(true));
        Ok(found.map(|found| definitions::constraint(&found, pretty)).into())
    }),
    strict("pg_get_viewdef", 1..=2, "text", |view, of| {
        let oid = of[0].int();
        let found = super::rows::named::all(view).into_iter().find(|named| Some(named.oid) == oid);
        if let Some(query) = found.and_then(|named| named.query) {
            return Ok(query.into());
        }
        Ok(oid.and_then(|oid| super::rows::materialized::query_of(view, oid)).into())
    }),
    nothing("pg_get_ruledef", 1..=2, "text"),
    nothing("pg_get_triggerdef", 1..=2, "text"),
    nothing("pg_get_functiondef", 1..=1, "text"),
    nothing("pg_get_function_result", 1..=1, "text"),
    nothing("pg_get_function_arguments", 1..=1, "text"),
    nothing("pg_get_function_identity_arguments", 1..=1, "text"),
    nothing("pg_get_function_sqlbody", 1..=1, "text"),
    nothing("pg_get_statisticsobjdef", 1..=1, "text"),
    nothing("pg_get_statisticsobjdef_columns", 1..=1, "text"),
    nothing("pg_get_partkeydef", 1..=1, "text"),
    nothing("pg_get_partition_constraintdef", 1..=1, "text"),
    strict("pg_get_serial_sequence", 2..=2, "text", serial_sequence),
    strict("obj_description", 1..=2, "text", comments::of_object),
    nothing("shobj_description", 2..=2, "text"),
    strict("col_description", 2..=2, "text", comments::of_column),
    nothing("pg_relation_filenode", 1..=1, "oid"),
    nothing("pg_stat_get_numscans", 1..=1, "int8"),
    acting("pg_stat_reset", 0..=0, "text", |view, _| {
        if !view.variables.authority.is_superuser() {
            let message = "permission denied for function pg_stat_reset";
            return Err(external(Error::coded("42501", message)));
        }
        view.tables.iter().for_each(|table| table.workload().reset());
        Ok("".into())
    }),
    acting("pg_cancel_backend", 1..=1, "bool", activity::cancel),
    acting("pg_terminate_backend", 1..=2, "bool", activity::terminate),
    // Space is counted per state, not per table.
    nothing("pg_relation_size", 1..=2, "int8"),
    nothing("pg_table_size", 1..=1, "int8"),
    nothing("pg_indexes_size", 1..=1, "int8"),
    nothing("pg_total_relation_size", 1..=1, "int8"),
    strict("pg_database_size", 1..=1, "int8", |view, _| {
        Ok((view.catalog.context().pool().stats().allocated_bytes as i64).into())
    }),
    nothing("pg_tablespace_size", 1..=1, "int8"),
    strict("pg_tablespace_location", 1..=1, "text", |_, _| Ok("".into())),
    strict("pg_size_pretty", 1..=1, "text", |_, of| Ok(of[0].int().map(size_pretty).into())),
    strict("pg_table_is_visible", 1..=1, "bool", |view, of| {
        let object = of[0].int().and_then(|oid| view.object(oid));
        let is_visible =
            |schema| schema == oids::PG_CATALOG || schema == oids::PUBLIC && view.variables.has_public();
        Ok(object.map(|object| is_visible(object.schema)).into())
    }),
    visible("pg_type_is_visible"),
    visible("pg_function_is_visible"),
    visible("pg_operator_is_visible"),
    visible("pg_opclass_is_visible"),
    visible("pg_opfamily_is_visible"),
    visible("pg_collation_is_visible"),
    visible("pg_conversion_is_visible"),
    visible("pg_statistics_obj_is_visible"),
    visible("pg_ts_config_is_visible"),
    strict("pg_is_other_temp_schema", 1..=1, "bool", |_, _| Ok(false.into())),
    strict("pg_relation_is_publishable", 1..=1, "bool", |view, of| {
        Ok(of[0].int().is_some_and(|oid| view.table(oid).is_some()).into())
    }),
    strict("row_security_active", 1..=1, "bool", |_, _| Ok(false.into())),
    // There are no locks of that kind.
    strict("pg_advisory_unlock_all", 0..=0, "text", |_, _| Ok(Cell::Null)),
    strict("pg_my_temp_schema", 0..=0, "oid", |_, _| Ok(Cell::Int(0))),
    strict("pg_partition_ancestors", 1..=1, "oid[]", |_, _| Ok(Cell::Ints(Vec::new()))),
    strict("pg_encoding_to_char", 1..=1, "name", |_, of| {
        Ok(if of[0].int() == Some(oids::UTF8) { "UTF8".into() } else { "".into() })
    }),
    strict("pg_char_to_encoding", 1..=1, "int4", |_, of| {
        let is_utf8 =
            of[0].text().is_some_and(|name| matches!(&*name.to_ascii_uppercase(), "UTF8" | "UTF-8"));
        Ok(if is_utf8 { oids::UTF8.into() } else { Cell::Int(-1) })
    }),
    strict("getdatabaseencoding", 0..=0, "name", |_, _| Ok("UTF8".into())),
    strict("pg_client_encoding", 0..=0, "name", |_, _| Ok("UTF8".into())),
    strict("current_schemas", 1..=1, "name[]", |view, of| {
        let mut names = view.variables.search_path();
        if of[0] == Cell::Bool(true) && !names.contains(&PG_CATALOG) {
            names.insert(0, PG_CATALOG);
        }
        Ok(Cell::Texts(names.into_iter().map(str::to_owned).collect()))
    }),
    strict("quote_ident", 1..=1, "text", |_, of| Ok(of[0].text().map(definitions::quoted).into())),
    strict("quote_literal", 1..=1, "text", |_, of| {
        Ok(shown(&of[0]).map(|text| definitions::literal(&text)).into())
    }),
    Definition {
        name: "quote_nullable",
        arguments: 1..=1,
        returns: "text",
        call: |_, of| {
            Ok(shown(&of[0]).map_or_else(|| "NULL".to_owned(), |text| definitions::literal(&text)).into())
        },
        strict: false,
        acts: false,
    },
    strict("parse_ident", 1..=2, "text[]", |_, of| {
        Ok(of[0].text().map_or(Cell::Null, |name| Cell::Texts(parts(name))))
    }),
    strict("array_upper", 2..=2, "int4", |_, of| Ok(bound(of, |length| length))),
    strict("array_lower", 2..=2, "int4", |_, of| Ok(bound(of, |_| 1))),
    strict("has_table_privilege", 2..=3, "bool", |view, of| table_privilege(view, of, 1)),
    strict("has_any_column_privilege", 2..=3, "bool", |view, of| table_privilege(view, of, 1)),
    strict("has_column_privilege", 3..=4, "bool", |view, of| table_privilege(view, of, 2)),
    allowed("has_schema_privilege"),
    allowed("has_database_privilege"),
    allowed("has_function_privilege"),
    allowed("has_language_privilege"),
    allowed("has_type_privilege"),
    allowed("has_sequence_privilege"),
    allowed("has_tablespace_privilege"),
    strict("pg_has_role", 2..=3, "bool", |view, of| {
        let (user, role) = match of {
            [user, role, _] => (Alias::Role.number(view, user)?, role),
            [role, ..] => (Alias::Role.number(view, &view.client().user.into())?, role),
            [] => return Ok(Cell::Null),
        };
        Ok((user == Alias::Role.number(view, role)?).into())
    }),
    strict("to_regclass", 1..=1, "oid", |view, of| lenient(Alias::Class, view, &of[0])),
    strict("to_regtype", 1..=1, "oid", |view, of| lenient(Alias::Type, view, &of[0])),
    strict("to_regnamespace", 1..=1, "oid", |view, of| lenient(Alias::Namespace, view, &of[0])),
    strict("to_regrole", 1..=1, "oid", |view, of| lenient(Alias::Role, view, &of[0])),
    // Targets of casts to alias types: numbers, and names where they are shown.
    strict("regclass", 1..=1, "oid", |view, of| Alias::Class.number(view, &of[0])),
    strict("regtype", 1..=1, "oid", |view, of| Alias::Type.number(view, &of[0])),
    strict("regnamespace", 1..=1, "oid", |view, of| Alias::Namespace.number(view, &of[0])),
    strict("regrole", 1..=1, "oid", |view, of| Alias::Role.number(view, &of[0])),
    // Columns of functions contain names.
    strict("regproc", 1..=1, "text", |view, of| match &of[0] {
        Cell::Text(name) => Ok(parts(name).pop().into()),
        other => Alias::Procedure.text(view, other),
    }),
    strict("regcollation", 1..=1, "oid", |view, of| Alias::Collation.number(view, &of[0])),
    strict("regclass_name", 1..=1, "text", |view, of| Alias::Class.text(view, &of[0])),
    strict("regtype_name", 1..=1, "text", |view, of| Alias::Type.text(view, &of[0])),
    strict("regnamespace_name", 1..=1, "text", |view, of| Alias::Namespace.text(view, &of[0])),
    strict("regrole_name", 1..=1, "text", |view, of| Alias::Role.text(view, &of[0])),
    strict("regproc_name", 1..=1, "text", |view, of| match &of[0] {
        Cell::Text(name) => Ok(parts(name).pop().into()),
        other => Alias::Procedure.text(view, other),
    }),
    strict("regcollation_name", 1..=1, "text", |view, of| Alias::Collation.text(view, &of[0])),
];

/// Position of a function.
pub(super) fn place(name: &str) -> Option<usize> {
    DEFINITIONS.iter().position(|definition| definition.name == name)
}

fn index_definition(view: &View, of: &[Cell]) -> DFResult<Cell> {
    let oid = of[0].int();
    let found = view.indexes().find(|index| Some(index.oid) == oid);
    let column = of.get(1).and_then(Cell::int).unwrap_or(0);
    Ok(match (found, column) {
        (None, _) => Cell::Null,
        (Some(index), 0) => definitions::index(&index).into(),
        (Some(index), column) => {
            let column = usize::try_from(column - 1).ok().and_then(|at| index.column(at));
            column.map(|column| definitions::quoted(&column.name)).unwrap_or_default().into()
        }
    })
}

/// Sequence owned by a column: `public.t_id_seq`.
fn serial_sequence(view: &View, of: &[Cell]) -> DFResult<Cell> {
    let (Some(table), Some(column)) = (of[0].text(), of[1].text()) else { return Ok(Cell::Null) };
    let Some(name) = parts(table).pop() else { return Ok(Cell::Null) };
    let table = view.catalog.table(&name).map_err(external)?;
    let columns = table.schema().visible_columns();
    let Some(place) = columns.iter().position(|known| known.name == column) else {
        let message = format!("column \"{column}\" of relation \"{name}\" does not exist");
        return Err(external(Error::coded("42703", message)));
    };
    let owned = sequences_of(&view.catalog, &table, place..place + 1);
    Ok(owned.first().map(|name| format!("{SCHEMA}.{}", definitions::quoted(name))).into())
}

fn lenient(alias: Alias, view: &View, name: &Cell) -> DFResult<Cell> {
    Ok(match name.text() {
        Some(name) => alias.find(view, name)?.into(),
        None => name.int().into(),
    })
}

fn shown(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Bool(flag) => Some(flag.to_string()),
        Cell::Int(value) => Some(value.to_string()),
        Cell::Real(value) => Some(value.to_string()),
        Cell::Text(text) => Some(text.clone()),
        Cell::Texts(texts) => Some(format!("{{{}}}", texts.join(","))),
        Cell::Ints(values) => {
            Some(format!("{{{}}}", values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")))
        }
    }
}

/// Bound of the first dimension; NULL for other dimensions, and for an empty list.
fn bound(of: &[Cell], at: fn(usize) -> usize) -> Cell {
    let length = match &of[0] {
        Cell::Texts(values) => values.len(),
        Cell::Ints(values) => values.len(),
        _ => 0,
    };
    (length > 0 && of[1].int() == Some(1)).then(|| at(length)).into()
}

/// Formats a size in a unit of which there are at least ten, as PostgreSQL does.
fn size_pretty(bytes: i64) -> String {
    let mut size = bytes;
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        if size.abs() < 10_240 {
            return format!("{size} {unit}");
        }
        size = (size + 512).div_euclid(1024);
    }
    format!("{size} PB")
}

/// `has_table_privilege([user,] table, [column,] privilege)`; `behind`: number of arguments after the user.
fn table_privilege(view: &View, of: &[Cell], behind: usize) -> DFResult<Cell> {
    let (user, rest) = if of.len() > behind + 1 {
        (Alias::Role.text(view, &of[0])?, &of[1..])
    } else {
        (view.client().user.into(), of)
    };
    let oid = Alias::Class.number(view, &rest[0])?;
    let (Some(table), Some(user), Some(wanted)) =
        (oid.int().and_then(|oid| view.object(oid)), user.text(), rest[rest.len() - 1].text())
    else {
        return Ok(Cell::Null);
    };
    let roles = view.roles()?;
    // Without any roles every user has every privilege.
    let Some(role) = roles.iter().find(|role| role.name == user) else { return Ok(roles.is_empty().into()) };
    if table.schema != oids::PUBLIC {
        return Ok(wanted.trim().eq_ignore_ascii_case("select").into());
    }
    let mut granted = role.privileges(&table.name);
    if owner_of_relation(&view.catalog, &table.name).map_err(external)?.as_ref() == Some(&role.name) {
        granted = granted.with(Privileges::SELECT);
    }
    let mut any = false;
    for word in wanted.split(',') {
        let word = word.trim().to_ascii_uppercase();
        let privilege = Privileges::NAMES.iter().find(|(_, name, _)| *name == word);
        any |= match (privilege, word.as_str()) {
            (Some((privilege, ..)), _) => granted.contains(*privilege),
            // Privileges that cannot be granted belong to administrators only.
            (None, "TRUNCATE" | "REFERENCES" | "TRIGGER" | "MAINTAIN") => role.administrator,
            (None, other) => {
                let message = format!("unrecognized privilege type: \"{other}\"");
                return Err(external(Error::coded("22023", message)));
            }
        };
    }
    Ok(any.into())
}

#[cfg(test)]
mod tests {
    use super::super::cell;
    use super::*;

    #[test]
    fn sizes_read_as_postgresql_shows_them() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (1 << 20, "1024 kB"),
            (123_456_789, "118 MB"),
        ] {
            assert_eq!(size_pretty(bytes), shown);
        }
    }

    #[test]
    fn functions_have_different_names_and_known_types() {
        for (at, definition) in DEFINITIONS.iter().enumerate() {
            assert_eq!(place(definition.name), Some(at));
            assert!(cell::type_of(definition.returns).is_ok(), "{}", definition.name);
        }
    }
}
