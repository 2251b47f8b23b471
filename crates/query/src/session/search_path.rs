//! Schemas of the setting `search_path`.
//!
//! Tables, views and sequences are in `public`: a name without a schema means them while `public` is in the path.
//! `pg_catalog` is searched first, written or not. `"$user"` is no schema: none belongs to a user.

use crate::schema_names::{INFORMATION_SCHEMA, PG_CATALOG, SCHEMA, SYSTEM_SCHEMA};

/// Schemas that exist.
const SCHEMAS: [&str; 4] = [PG_CATALOG, INFORMATION_SCHEMA, SYSTEM_SCHEMA, SCHEMA];

/// Schemas of a path that exist, in its order.
pub(crate) fn schemas(path: &str) -> Vec<&'static str> {
    let name = |part: &str| {
        let part = part.trim();
        match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => part.to_lowercase(),
        }
    };
    let mut found = Vec::new();
    for part in path.split(',').map(name) {
        if let Some(&schema) = SCHEMAS.iter().find(|&&schema| schema == part)
            && !found.contains(&schema)
        {
            found.push(schema);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_the_schemas_that_exist_once_each() {
        assert_eq!(schemas("\"$user\", public"), [SCHEMA]);
        assert_eq!(schemas("Public, nothing, pg_catalog,public"), [SCHEMA, PG_CATALOG]);
        assert_eq!(schemas("\"Public\""), [] as [&str; 0]);
        assert_eq!(schemas(""), [] as [&str; 0]);
    }
}
