//! Catalog rows that are not about tables: schemas, database, roles, settings, types, functions.

use crate::catalog::cell::Cell;
use crate::catalog::relation::Rows;
use crate::catalog::rows::relations::{alignment, collation_of};
use crate::catalog::view::View;
use crate::catalog::{definitions, functions, oids};
use crate::postgres::pg_types;
use crate::postgres::settings::{SETTINGS, Settings};
use crate::privileges::Role;
use crate::schema_names::CATALOG;
use datafusion::common::Result as DFResult;
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;
use entresol_structures::IndexStructure;
use std::collections::BTreeMap;

pub(crate) fn namespaces(_: &View) -> DFResult<Rows> {
    let row = |(oid, name): (i64, &str)| vec![oid.into(), name.into(), oids::OWNER.into(), Cell::Null];
    Ok(View::schemas().into_iter().map(row).collect())
}

pub(crate) fn databases(_: &View) -> DFResult<Rows> {
    Ok(vec![vec![
        oids::DATABASE.into(),
        CATALOG.into(),
        oids::OWNER.into(),
        oids::UTF8.into(),
        "c".into(),
        false.into(),
        true.into(),
        Cell::Int(-1),
        Cell::Int(0),
        Cell::Int(0),
        oids::TABLESPACE.into(),
        "C".into(),
        "C".into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
    ]])
}

/// All roles; without any, the one of the client.
fn known_roles(view: &View) -> DFResult<Vec<Role>> {
    let mut roles = view.roles()?;
    if roles.is_empty() {
        roles.push(Role { name: view.client().user, administrator: true, grants: BTreeMap::new() });
    }
    Ok(roles)
}

/// Rows of roles: the owner of all objects, who cannot log in, and the roles; number, name, administrator,
/// may log in.
fn role_rows(view: &View) -> DFResult<Vec<(i64, String, bool, bool)>> {
    let mut variables = vec![(oids::OWNER, CATALOG.to_owned(), true, false)];
    for role in known_roles(view)? {
        if role.name == CATALOG {
            variables[0].3 = true
        } else {
            variables.push((oids::role(&role.name), role.name, role.administrator, true))
        }
    }
    Ok(variables)
}

pub(crate) fn authids(view: &View) -> DFResult<Rows> {
    let row = |(oid, name, administrator, login): (i64, String, bool, bool)| {
        let admin = || Cell::Bool(administrator);
        vec![
            oid.into(),
            name.into(),
            admin(),
            true.into(),
            admin(),
            admin(),
            login.into(),
            false.into(),
            admin(),
            Cell::Int(-1),
            Cell::Null,
            Cell::Null,
        ]
    };
    Ok(role_rows(view)?.into_iter().map(row).collect())
}

pub(crate) fn roles(view: &View) -> DFResult<Rows> {
    let row = |(oid, name, administrator, login): (i64, String, bool, bool)| {
        let admin = || Cell::Bool(administrator);
        vec![
            name.into(),
            admin(),
            true.into(),
            admin(),
            admin(),
            login.into(),
            false.into(),
            Cell::Int(-1),
            "********".into(),
            Cell::Null,
            admin(),
            Cell::Null,
            oid.into(),
        ]
    };
    Ok(role_rows(view)?.into_iter().map(row).collect())
}

pub(crate) fn users(view: &View) -> DFResult<Rows> {
    let row = |(oid, name, administrator, _): (i64, String, bool, bool)| {
        let admin = || Cell::Bool(administrator);
        let secret = Cell::from("********");
        vec![name.into(), oid.into(), admin(), admin(), false.into(), admin(), secret, Cell::Null, Cell::Null]
    };
    Ok(role_rows(view)?.into_iter().filter(|role| role.3).map(row).collect())
}

pub(crate) fn settings(view: &View) -> DFResult<Rows> {
    let built_in = Settings::default();
    let row = |setting: &'static crate::postgres::settings::Setting| {
        let value = view.variables.value(setting);
        let initial = built_in.get(setting).to_owned();
        vec![
            setting.name.to_string().into(),
            value.into(),
            Cell::Null,
            "Session".into(),
            setting.help.into(),
            Cell::Null,
            "user".into(),
            "string".into(),
            "session".into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            built_in.get(setting).into(),
            initial.into(),
            Cell::Null,
            Cell::Null,
            false.into(),
        ]
    };
    Ok(SETTINGS.iter().map(row).collect())
}

pub(crate) fn access_methods(_: &View) -> DFResult<Rows> {
    let row = |oid: i64, name: &str, handler: &str, kind: &str| {
        vec![oid.into(), name.into(), handler.into(), kind.into()]
    };
    let others = IndexStructure::ALL.into_iter().filter(|structure| *structure != IndexStructure::default());
    let of_tables = others.map(|structure| {
        let handler = format!("{structure}_tableam_handler");
        row(oids::structure(structure), structure.name(), &handler, "t")
    });
    let known = [
        row(oids::HEAP, "heap", "heap_tableam_handler", "t"),
        row(oids::BTREE, "btree", "bthandler", "i"),
        row(oids::HASH, "hash", "hashhandler", "i"),
        row(oids::ELF, "elf", "elfhandler", "i"),
    ];
    Ok(known.into_iter().chain(of_tables).collect())
}

pub(crate) fn types(_: &View) -> DFResult<Rows> {
    let row = |of: &pg_types::PgType| {
        let routine = |suffix: &str| match of.category {
            "A" => Cell::Text(format!("array_{suffix}")),
            _ => Cell::Text(format!("{}{suffix}", of.name)),
        };
        let is_array = of.category == "A";
        vec![
            of.oid.into(),
            of.name.into(),
            oids::PG_CATALOG.into(),
            oids::OWNER.into(),
            of.length.into(),
            matches!(of.length, 1 | 2 | 4 | 8).into(),
            of.kind.into(),
            of.category.into(),
            matches!(of.name, "bool" | "text" | "oid" | "float8" | "timestamptz" | "interval").into(),
            true.into(),
            ",".into(),
            Cell::Int(0),
            if is_array { "array_subscript_handler".into() } else { "-".into() },
            of.element.into(),
            of.array.into(),
            routine("in"),
            routine("out"),
            routine("recv"),
            routine("send"),
            "-".into(),
            "-".into(),
            "-".into(),
            alignment(of.length).into(),
            if of.length < 0 { "x".into() } else { "p".into() },
            false.into(),
            Cell::Int(0),
            Cell::Int(-1),
            Cell::Int(0),
            collation_of(of.category).into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
        ]
    };
    Ok(pg_types::TYPES.iter().map(row).collect())
}

pub(crate) fn functions(_: &View) -> DFResult<Rows> {
    let row = |(place, function): (usize, &functions::Definition)| {
        let returns = pg_types::named(function.returns()).unwrap_or(pg_types::text());
        vec![
            (oids::FUNCTIONS + place as i64).into(),
            function.name.into(),
            oids::PG_CATALOG.into(),
            oids::OWNER.into(),
            Cell::Int(12),
            Cell::Real(1.0),
            Cell::Real(0.0),
            Cell::Int(0),
            "-".into(),
            "f".into(),
            false.into(),
            false.into(),
            true.into(),
            false.into(),
            "s".into(),
            "s".into(),
            (*function.arguments.start()).into(),
            Cell::Int(0),
            returns.oid.into(),
            Cell::Ints(vec![2276; *function.arguments.start()]),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
            function.name.into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
            Cell::Null,
        ]
    };
    Ok(functions::DEFINITIONS.iter().enumerate().map(row).collect())
}

pub(crate) fn collations(_: &View) -> DFResult<Rows> {
    let row = |oid: i64, name: &str, provider: &str, locale: Option<&str>| {
        vec![
            oid.into(),
            name.into(),
            oids::PG_CATALOG.into(),
            oids::OWNER.into(),
            provider.into(),
            true.into(),
            Cell::Int(-1),
            locale.into(),
            locale.into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
        ]
    };
    Ok(vec![row(oids::COLLATION, "default", "d", None), row(950, "C", "c", Some("C"))])
}

pub(crate) fn tablespaces(_: &View) -> DFResult<Rows> {
    Ok(vec![vec![oids::TABLESPACE.into(), "pg_default".into(), oids::OWNER.into(), Cell::Null, Cell::Null]])
}

pub(crate) fn languages(_: &View) -> DFResult<Rows> {
    Ok(vec![vec![
        Cell::Int(12),
        "internal".into(),
        oids::OWNER.into(),
        false.into(),
        false.into(),
        Cell::Int(0),
        Cell::Int(0),
        Cell::Int(0),
        Cell::Null,
    ]])
}

pub(crate) fn operator_classes(_: &View) -> DFResult<Rows> {
    Ok(vec![vec![
        oids::OPERATOR_CLASS.into(),
        oids::BTREE.into(),
        "any_ops".into(),
        oids::PG_CATALOG.into(),
        oids::OWNER.into(),
        Cell::Int(0),
        Cell::Int(2276),
        true.into(),
        Cell::Int(0),
    ]])
}

pub(crate) fn keywords(_: &View) -> DFResult<Rows> {
    let row = |word: &&str| {
        let word = word.to_lowercase();
        let reserved = definitions::is_reserved(&word);
        let (code, category) = if reserved { ("R", "reserved") } else { ("U", "unreserved") };
        vec![word.into(), code.into(), (!reserved).into(), category.into()]
    };
    Ok(ALL_KEYWORDS.iter().map(row).collect())
}
