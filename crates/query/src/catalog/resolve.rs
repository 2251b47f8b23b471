//! Alias types: names to numbers and back for `'t'::regclass`, `23::regtype` and the like.

use super::cell::Cell;
use super::view::{View, schema_oid};
use super::{definitions, functions, oids};
use crate::error::{Error, external};
use crate::postgres::pg_types;
use crate::schema_names::{CATALOG, PG_CATALOG, SCHEMA};
use datafusion::common::Result as DFResult;

/// Kind of object that a number identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alias {
    Class,
    Type,
    Namespace,
    Role,
    Procedure,
    Collation,
}

impl Alias {
    /// The alias type of this name.
    pub(crate) fn named(name: &str) -> Option<Alias> {
        Some(match name {
            "regclass" => Alias::Class,
            "regtype" => Alias::Type,
            "regnamespace" => Alias::Namespace,
            "regrole" => Alias::Role,
            "regproc" | "regprocedure" => Alias::Procedure,
            "regcollation" => Alias::Collation,
            _ => return None,
        })
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Alias::Class => "regclass",
            Alias::Type => "regtype",
            Alias::Namespace => "regnamespace",
            Alias::Role => "regrole",
            Alias::Procedure => "regproc",
            Alias::Collation => "regcollation",
        }
    }

    /// Number of a name; a number, or a string that contains one, is itself. An unknown name is an error.
    pub(crate) fn number(self, view: &View, value: &Cell) -> DFResult<Cell> {
        let name = match value {
            Cell::Text(name) if name.trim() == "-" => return Ok(Cell::Int(0)),
            Cell::Text(name) if name.trim().parse::<i64>().is_err() => name,
            other => return Ok(other.int().into()),
        };
        match self.find(view, name)? {
            Some(oid) => Ok(oid.into()),
            None => {
                let (code, what) = match self {
                    Alias::Class => ("42P01", "relation"),
                    Alias::Type => ("42704", "type"),
                    Alias::Namespace => ("3F000", "schema"),
                    Alias::Role => ("42704", "role"),
                    Alias::Procedure => ("42883", "function"),
                    Alias::Collation => ("42704", "collation"),
                };
                Err(external(Error::coded(code, format!("{what} \"{name}\" does not exist"))))
            }
        }
    }

    /// Number of a name, if there is such an object.
    pub(crate) fn find(self, view: &View, name: &str) -> DFResult<Option<i64>> {
        let parts = parts(name);
        let (schema, last) = match parts.as_slice() {
            [last] => (None, last.as_str()),
            [schema, last] => (Some(schema.as_str()), last.as_str()),
            [catalog, schema, last] if catalog == CATALOG => (Some(schema.as_str()), last.as_str()),
            _ => return Ok(None),
        };
        Ok(match self {
            Alias::Class => class(view, schema, last),
            Alias::Type => pg_types::named(last).map(|of| of.oid),
            Alias::Namespace => Some(schema_oid(last)).filter(|oid| *oid != 0),
            Alias::Role if last == CATALOG => Some(oids::OWNER),
            Alias::Role => {
                let known = view.roles()?.iter().any(|role| role.name == last) || view.client().user == last;
                known.then(|| oids::role(last))
            }
            Alias::Procedure => functions::place(last).map(|place| oids::FUNCTIONS + place as i64),
            Alias::Collation => (last == "default").then_some(oids::COLLATION),
        })
    }

    /// Name of a number; a name is itself. The number of no object is shown as a number.
    pub(crate) fn text(self, view: &View, value: &Cell) -> DFResult<Cell> {
        let oid = match value {
            Cell::Int(oid) => *oid,
            Cell::Text(_) => match self.number(view, value)? {
                Cell::Int(oid) => oid,
                _ => return Ok(Cell::Null),
            },
            _ => return Ok(Cell::Null),
        };
        if oid == 0 {
            return Ok("-".into());
        }
        let name = match self {
            Alias::Class => view.object(oid).map(|object| {
                let name = definitions::quoted(&object.name);
                match object.schema {
                    oids::PG_CATALOG => name,
                    oids::PUBLIC if view.variables.has_public() => name,
                    other => format!("{}.{name}", View::schema_name(other).unwrap_or_default()),
                }
            }),
            Alias::Type => pg_types::by_oid(oid).map(|of| of.long_name.to_owned()),
            Alias::Namespace => View::schema_name(oid).map(str::to_owned),
            Alias::Role => view.role_name(oid)?.map(|name| definitions::quoted(&name)),
            Alias::Procedure => {
                let place = usize::try_from(oid - oids::FUNCTIONS).ok();
                place
                    .and_then(|place| functions::DEFINITIONS.get(place))
                    .map(|function| function.name.to_owned())
            }
            Alias::Collation => (oid == oids::COLLATION).then(|| "\"default\"".to_owned()),
        };
        Ok(name.unwrap_or_else(|| oid.to_string()).into())
    }
}

/// Number of a table or index: `pg_catalog` first, then `public`.
fn class(view: &View, schema: Option<&str>, name: &str) -> Option<i64> {
    let found = |schema: i64| {
        view.objects().into_iter().find(|object| object.schema == schema && object.name == name)
    };
    let schemas = match schema {
        Some(schema) => vec![schema_oid(schema)],
        None if view.variables.has_public() => vec![schema_oid(PG_CATALOG), schema_oid(SCHEMA)],
        None => vec![schema_oid(PG_CATALOG)],
    };
    schemas.into_iter().find_map(found).map(|object| object.oid)
}

/// Identifiers of a dotted name, folded unless they are quoted.
pub(crate) fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = name.trim().chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                parts[last].push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c if quoted => parts[last].push(c),
            c => parts[last].extend(c.to_lowercase()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_points_outside_of_quotes() {
        assert_eq!(parts("Public.\"A.\"\"b\""), ["public", "A.\"b"]);
        assert_eq!(parts(" t "), ["t"]);
    }
}
