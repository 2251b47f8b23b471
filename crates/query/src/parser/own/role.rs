//! Parser of the statements about roles, which a server runs.
//!
//! ```text
//!   CREATE ROLE | USER name [WITH] option …         ALTER ROLE | USER name [WITH] option …
//!   DROP ROLE | USER [IF EXISTS] name, …
//!   GRANT privilege, … ON [TABLE] table, … | ALL TABLES IN SCHEMA public TO role, …
//!   REVOKE privilege, … ON … FROM role, …
//!   GRANT CREATE ON SCHEMA public TO role, …        REVOKE CREATE ON SCHEMA public FROM role, …
//!   REASSIGN OWNED BY role, … TO role
//!   ALTER … OWNER TO role                           crate::parser::own::owner
//! ```
//!
//! sqlparser knows CREATE ROLE in one order of options, and no ALTER USER of PostgreSQL's.

use crate::error::{Error, Result};
use crate::parser::own::owner::OwnerTarget;
use crate::parser::own::words::Words;
use crate::parser::text::tokens::is_word;
use crate::privileges::Privileges;
use crate::schema_names::{CATALOG, SCHEMA};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Statement about roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleStatement {
    /// CREATE ROLE.
    Create {
        /// Name of the new role.
        role: String,
        /// Options as written.
        options: RoleOptions,
    },
    /// ALTER ROLE.
    Alter {
        /// Name of the role.
        role: String,
        /// Options as written.
        options: RoleOptions,
    },
    /// DROP ROLE.
    Drop {
        /// Names of the roles.
        roles: Vec<String>,
        /// True if missing roles are no error.
        if_exists: bool,
    },
    /// GRANT of privileges on tables.
    Grant {
        /// Privileges that are granted.
        privileges: Privileges,
        /// Tables that they are on.
        tables: GrantTables,
        /// Roles that get them.
        roles: Vec<String>,
    },
    /// REVOKE of privileges on tables.
    Revoke {
        /// Privileges that are revoked.
        privileges: Privileges,
        /// Tables that they are on.
        tables: GrantTables,
        /// Roles that lose them.
        roles: Vec<String>,
    },
    /// REASSIGN OWNED.
    Reassign {
        /// Roles that own the objects.
        roles: Vec<String>,
        /// Role that gets them.
        to: String,
    },
    /// ALTER … OWNER TO.
    ChangeOwner {
        /// Kind of the object.
        target: OwnerTarget,
        /// Name of the object.
        name: String,
        /// True if a missing object is no error.
        if_exists: bool,
        /// Role that gets it; none: that of the session.
        to: Option<String>,
    },
}

/// Options of a role; `None` was not written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// SUPERUSER, NOSUPERUSER.
    pub superuser: Option<bool>,
    /// LOGIN, NOLOGIN.
    pub login: Option<bool>,
    /// PASSWORD; the inner `None` is PASSWORD NULL.
    pub password: Option<Option<String>>,
}

/// Tables of a GRANT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantTables {
    /// Tables by name.
    Named(Vec<String>),
    /// ALL TABLES IN SCHEMA public.
    All,
    /// SCHEMA public itself.
    Schema,
}

impl RoleStatement {
    /// Command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            RoleStatement::Create { .. } => "CREATE ROLE",
            RoleStatement::Alter { .. } => "ALTER ROLE",
            RoleStatement::Drop { .. } => "DROP ROLE",
            RoleStatement::Grant { .. } => "GRANT",
            RoleStatement::Revoke { .. } => "REVOKE",
            RoleStatement::Reassign { .. } => "REASSIGN OWNED",
            RoleStatement::ChangeOwner { target, .. } => target.tag(),
        }
    }
}

/// Returns true if tokens behind CREATE, ALTER or DROP begin a statement about roles.
pub(crate) fn is_role(tokens: &[TokenWithSpan]) -> bool {
    tokens.get(1).is_some_and(|second| is_word(&second.token, "role") || is_word(&second.token, "user"))
}

/// Parses the tokens of a statement about roles.
pub(crate) fn parse(tokens: &[&Token]) -> Result<RoleStatement> {
    let mut words = Words(tokens);
    let statement = if words.word("grant") {
        let (privileges, tables) = words.privileges_on()?;
        words.expect("to")?;
        RoleStatement::Grant { privileges, tables, roles: words.grantees()? }
    } else if words.word("revoke") {
        let (privileges, tables) = words.privileges_on()?;
        words.expect("from")?;
        let roles = words.grantees()?;
        let _ = words.word("restrict") || words.word("cascade");
        RoleStatement::Revoke { privileges, tables, roles }
    } else if words.word("reassign") {
        words.expect("owned")?;
        words.expect("by")?;
        let roles = words.names()?;
        words.expect("to")?;
        RoleStatement::Reassign { roles, to: words.folded()? }
    } else if words.word("drop") {
        words.skip();
        let if_exists = words.phrase(&["if", "exists"]);
        RoleStatement::Drop { roles: words.names()?, if_exists }
    } else if words.word("create") {
        words.skip();
        RoleStatement::Create { role: words.folded()?, options: words.role_options()? }
    } else {
        words.expect("alter")?;
        words.skip();
        RoleStatement::Alter { role: words.folded()?, options: words.role_options()? }
    };
    words.end()?;
    Ok(statement)
}

impl Words<'_> {
    fn names(&mut self) -> Result<Vec<String>> {
        let mut names = vec![self.folded()?];
        while self.comma() {
            names.push(self.folded()?);
        }
        Ok(names)
    }

    fn grantees(&mut self) -> Result<Vec<String>> {
        let _ = self.word("group");
        let names = self.names()?;
        if names.iter().any(|name| name == "public") {
            return Err(Error::unsupported("granting to PUBLIC"));
        }
        if self.phrase(&["with", "grant", "option"]) {
            return Err(Error::unsupported("WITH GRANT OPTION"));
        }
        Ok(names)
    }

    /// Privileges, and what they are on: those of a schema are others than those of tables.
    fn privileges_on(&mut self) -> Result<(Privileges, GrantTables)> {
        let is_all = matches!(self.0.first(), Some(word) if is_word(word, "all"));
        let (privileges, tables) = (self.privileges()?, self.tables()?);
        let (possible, kind) = match tables {
            GrantTables::Schema => (Privileges::CREATE, "schema"),
            GrantTables::Named(_) | GrantTables::All => (Privileges::ALL, "table"),
        };
        if is_all {
            return Ok((possible, tables));
        }
        let wrong = privileges.without(possible);
        let named = Privileges::NAMES.into_iter().chain([(Privileges::CREATE, "CREATE", 'C')]);
        match named.into_iter().find(|(privilege, ..)| wrong.contains(*privilege)) {
            None => Ok((privileges, tables)),
            Some((_, name, _)) => {
                let message = format!("invalid privilege type {name} for {kind}");
                Err(Error::coded("0LP01", message))
            }
        }
    }

    fn privileges(&mut self) -> Result<Privileges> {
        const OTHERS: [&str; 5] = ["TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN", "USAGE"];
        if self.phrase(&["grant", "option", "for"]) {
            return Err(Error::unsupported("GRANT OPTION FOR"));
        }
        if self.word("all") {
            let _ = self.word("privileges");
            return Ok(Privileges::ALL);
        }
        let mut all = Privileges::NONE;
        loop {
            if let Some(other) = OTHERS.iter().find(|other| self.word(other)) {
                return Err(Error::unsupported(format!("the privilege {other}")));
            }
            match Privileges::NAMES.iter().find(|(_, name, _)| self.word(name)) {
                None if self.word("create") => all = all.with(Privileges::CREATE),
                Some((privilege, ..)) => all = all.with(*privilege),
                // A role that is granted to another.
                None if self.is_followed_by(&["to", "from"]) => {
                    return Err(Error::unsupported("membership in roles"));
                }
                None => return Err(self.unexpected()),
            }
            if self.0.first() == Some(&&Token::LParen) {
                return Err(Error::unsupported("a privilege on columns"));
            }
            if !self.comma() {
                return Ok(all);
            }
        }
    }

    fn tables(&mut self) -> Result<GrantTables> {
        let no_schema = |name: &str| Err(Error::coded("3F000", format!("schema \"{name}\" does not exist")));
        self.expect("on")?;
        if self.phrase(&["all", "tables", "in", "schema"]) {
            return match self.names()?.as_slice() {
                [schema] if schema == SCHEMA => Ok(GrantTables::All),
                other => no_schema(&other.join(", ")),
            };
        }
        if self.word("schema") {
            return match self.names()?.as_slice() {
                [schema] if schema == SCHEMA => Ok(GrantTables::Schema),
                other => no_schema(&other.join(", ")),
            };
        }
        for other in ["database", "sequence", "function", "all"] {
            if self.word(other) {
                return Err(Error::unsupported(format!("GRANT ON {}", other.to_uppercase())));
            }
        }
        let _ = self.word("table");
        let mut names = Vec::new();
        loop {
            let mut name = self.folded()?;
            while let [Token::Period, rest @ ..] = self.0 {
                self.0 = rest;
                if name != SCHEMA && name != CATALOG {
                    return no_schema(&name);
                }
                name = self.folded()?;
            }
            names.push(name);
            if !self.comma() {
                return Ok(GrantTables::Named(names));
            }
        }
    }

    fn role_options(&mut self) -> Result<RoleOptions> {
        const IGNORED: [&str; 6] =
            ["inherit", "nocreatedb", "nocreaterole", "noreplication", "nobypassrls", "encrypted"];
        const IMPLIED_BY_SUPERUSER: [&str; 3] = ["createdb", "createrole", "bypassrls"];
        const REFUSED: [&str; 13] = [
            "noinherit",
            "createdb",
            "createrole",
            "replication",
            "bypassrls",
            "in",
            "role",
            "admin",
            "user",
            "sysid",
            "set",
            "reset",
            "rename",
        ];
        let mut options = RoleOptions::default();
        let _ = self.word("with");
        while !self.0.is_empty() {
            if self.word("superuser") {
                options.superuser = Some(true);
            } else if self.word("nosuperuser") {
                options.superuser = Some(false);
            } else if self.word("login") {
                options.login = Some(true);
            } else if self.word("nologin") {
                options.login = Some(false);
            } else if self.word("password") {
                options.password = Some(if self.word("null") { None } else { Some(self.string()?) });
            } else if self.phrase(&["connection", "limit"]) {
                match self.0 {
                    [Token::Minus, Token::Number(one, _), rest @ ..] if one == "1" => self.0 = rest,
                    _ => return Err(Error::unsupported("CONNECTION LIMIT of a role")),
                }
            } else if self.phrase(&["valid", "until"]) {
                if self.string()? != "infinity" {
                    return Err(Error::unsupported("VALID UNTIL of a role"));
                }
            } else if options.superuser == Some(true)
                && IMPLIED_BY_SUPERUSER.iter().any(|word| self.word(word))
            {
                // A role that may do everything may do these, too.
            } else if let Some(word) = REFUSED.iter().find(|word| self.word(word)) {
                return Err(Error::unsupported(format!("{} of a role", word.to_uppercase())));
            } else if !IGNORED.iter().any(|word| self.word(word)) {
                return Err(self.unexpected());
            }
        }
        if options.login == Some(false) && matches!(options.password, Some(Some(_))) {
            return Err(Error::unsupported("NOLOGIN of a role with a password"));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;

    fn role(sql: &str) -> Result<RoleStatement> {
        match parse_text(sql)?.pop() {
            Some(Command::Role(statement)) => Ok(*statement),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn statements_about_roles_are_parsed() {
        let options = RoleOptions { superuser: None, login: Some(true), password: Some(Some("it's".into())) };
        let created = role("CREATE USER Anna WITH LOGIN ENCRYPTED PASSWORD 'it''s'").unwrap();
        assert_eq!(created, RoleStatement::Create { role: "anna".into(), options });
        let grant = role("grant select, INSERT on table public.a, \"B\" to anna, bob").unwrap();
        let privileges = Privileges::SELECT.with(Privileges::INSERT);
        let (tables, roles) =
            (GrantTables::Named(vec!["a".into(), "B".into()]), vec!["anna".into(), "bob".into()]);
        assert_eq!(grant, RoleStatement::Grant { privileges, tables, roles });
        let revoke = role("REVOKE ALL PRIVILEGES ON ALL TABLES IN SCHEMA public FROM anna CASCADE").unwrap();
        let (tables, roles) = (GrantTables::All, vec!["anna".into()]);
        assert_eq!(revoke, RoleStatement::Revoke { privileges: Privileges::ALL, tables, roles });
        let create = role("GRANT ALL ON SCHEMA public TO anna").unwrap();
        let (privileges, tables, roles) = (Privileges::CREATE, GrantTables::Schema, vec!["anna".into()]);
        assert_eq!(create, RoleStatement::Grant { privileges, tables, roles });
        let reassign = role("REASSIGN OWNED BY anna, bob TO eve").unwrap();
        let roles = vec!["anna".into(), "bob".into()];
        assert_eq!(reassign, RoleStatement::Reassign { roles, to: "eve".into() });
        let dropped = role("DROP ROLE IF EXISTS a, b").unwrap();
        assert_eq!(dropped, RoleStatement::Drop { roles: vec!["a".into(), "b".into()], if_exists: true });
        let table = parse_text("CREATE TABLE role (a INT)").unwrap();
        assert!(matches!(table.as_slice(), [Command::CreateTable(_)]));
    }

    #[test]
    fn unsupported_statements_are_refused() {
        for sql in [
            "CREATE ROLE a CREATEDB",
            "CREATE ROLE a NOLOGIN PASSWORD 'x'",
            "CREATE ROLE a VALID UNTIL '2030-01-01'",
            "CREATE ROLE a CONNECTION LIMIT 5",
            "GRANT b TO a",
            "GRANT TRUNCATE ON t TO a",
            "GRANT SELECT (x) ON t TO a",
            "GRANT SELECT ON t TO PUBLIC",
            "GRANT SELECT ON t TO a WITH GRANT OPTION",
            "GRANT USAGE ON SCHEMA public TO a",
            "ALTER ROLE a RENAME TO b",
        ] {
            assert_eq!(role(sql).unwrap_err().sqlstate(), "0A000", "{sql}");
        }
        for sql in
            ["CREATE ROLE", "CREATE ROLE a PASSWORD", "GRANT SELECT ON", "DROP ROLE a b", "CREATE USER 'a'"]
        {
            assert_eq!(role(sql).unwrap_err().sqlstate(), "42601", "{sql}");
        }
        for sql in ["GRANT CREATE ON t TO a", "GRANT SELECT, CREATE ON SCHEMA public TO a"] {
            assert_eq!(role(sql).unwrap_err().sqlstate(), "0LP01", "{sql}");
        }
        for sql in ["GRANT SELECT ON other.t TO a", "GRANT CREATE ON SCHEMA other TO a"] {
            assert_eq!(role(sql).unwrap_err().sqlstate(), "3F000", "{sql}");
        }
    }
}
