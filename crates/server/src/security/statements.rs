//! CREATE, ALTER and DROP of roles, GRANT and REVOKE as SQL; [`super::roles`] does the work.
//!
//! ```text
//!   CREATE ROLE | USER name [WITH] option …         ALTER ROLE | USER name [WITH] option …
//!   DROP ROLE | USER [IF EXISTS] name, …
//!   GRANT privilege, … ON [TABLE] table, … | ALL TABLES IN SCHEMA public TO role, …
//!   REVOKE privilege, … ON … FROM role, …
//! ```
//!
//! - A role with a password can log in; one without cannot. LOGIN without a password is for a password that is set
//!   later, and NOLOGIN with one is refused.
//! - SUPERUSER is the administrator. Options with the behaviour of Entresol are accepted, others refused (0A000).
//! - The first role must be a SUPERUSER, and the last one stays: from the first role on, every client needs a password.
//! - Each statement is a transaction of its own; none runs inside of a block.
//!
//! The password is in the statement's text, and so perhaps in the client's history. `\password` of psql hashes it
//! first, and `entresol role` asks for it.

use entresol::Database;
use entresol::query::datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use entresol::query::datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::roles::{self, Change, GRANTS_TABLE, Privileges, ROLES_TABLE, Role};
use crate::error::{Outcome, Report};

/// A statement about roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoleStatement {
    Create { role: String, options: Options },
    Alter { role: String, options: Options },
    Drop { roles: Vec<String>, if_exists: bool },
    Grant { privileges: Privileges, tables: Tables, roles: Vec<String> },
    Revoke { privileges: Privileges, tables: Tables, roles: Vec<String> },
}

/// Options of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    change: Change,
    login: Option<bool>,
}

/// The tables of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tables {
    Named(Vec<String>),
    All,
}

/// Parses a statement about roles; `None` if it is about something else.
pub(crate) fn parse(sql: &str) -> Outcome<Option<RoleStatement>> {
    let mut words = sql.split_whitespace().map(str::to_ascii_uppercase);
    let first = words.next().unwrap_or_default();
    let second = words.next().unwrap_or_default();
    let concerned = match first.as_str() {
        "CREATE" | "ALTER" | "DROP" => matches!(second.as_str(), "ROLE" | "USER"),
        "GRANT" | "REVOKE" => true,
        _ => false,
    };
    if !concerned {
        return Ok(None);
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize();
    let tokens = tokens.map_err(|error| syntax(&error.to_string()))?;
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let mut words = Words { tokens, at: 0 };
    let statement = match (words.word()?.as_str(), first.as_str()) {
        ("create", _) => {
            words.word()?;
            RoleStatement::Create { role: words.name()?, options: words.options()? }
        }
        ("alter", _) => {
            words.word()?;
            RoleStatement::Alter { role: words.name()?, options: words.options()? }
        }
        ("drop", _) => {
            words.word()?;
            let if_exists = words.skip(&["if", "exists"]);
            RoleStatement::Drop { roles: words.names()?, if_exists }
        }
        ("grant", _) => {
            let (privileges, tables) = (words.privileges()?, words.tables()?);
            words.expect("to")?;
            RoleStatement::Grant { privileges, tables, roles: words.grantees()? }
        }
        _ => {
            let (privileges, tables) = (words.privileges()?, words.tables()?);
            words.expect("from")?;
            let roles = words.grantees()?;
            let _ = words.skip(&["restrict"]) || words.skip(&["cascade"]);
            RoleStatement::Revoke { privileges, tables, roles }
        }
    };
    words.end()?;
    Ok(Some(statement))
}

fn syntax(near: &str) -> Report {
    Report::error("42601", format!("syntax error at or near \"{near}\""))
}

fn unsupported(what: impl std::fmt::Display) -> Report {
    Report::error("0A000", format!("{what} is not supported"))
}

/// The tokens of a statement.
struct Words {
    tokens: Vec<Token>,
    at: usize,
}

impl Words {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn near(&self) -> Report {
        match self.tokens.get(self.at) {
            Some(token) => syntax(&token.to_string()),
            None => Report::error("42601", "syntax error at end of input"),
        }
    }

    /// The next word in lower case, if it is one without quotes.
    fn peek(&self) -> Option<String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    fn word(&mut self) -> Outcome<String> {
        let word = self.peek().ok_or_else(|| self.near())?;
        self.at += 1;
        Ok(word)
    }

    fn skip(&mut self, words: &[&str]) -> bool {
        let before = self.at;
        for word in words {
            if self.peek().as_deref() != Some(word) {
                self.at = before;
                return false;
            }
            self.at += 1;
        }
        true
    }

    fn expect(&mut self, word: &str) -> Outcome<()> {
        if self.skip(&[word]) { Ok(()) } else { Err(self.near()) }
    }

    fn end(&self) -> Outcome<()> {
        if self.at >= self.tokens.len() { Ok(()) } else { Err(self.near()) }
    }

    fn comma(&mut self) -> bool {
        let comma = self.tokens.get(self.at) == Some(&Token::Comma);
        self.at += usize::from(comma);
        comma
    }

    fn name(&mut self) -> Outcome<String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => {
                let name = match word.quote_style {
                    Some(_) => word.value.clone(),
                    None => word.value.to_lowercase(),
                };
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.near()),
        }
    }

    fn names(&mut self) -> Outcome<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.comma() {
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn grantees(&mut self) -> Outcome<Vec<String>> {
        let _ = self.skip(&["group"]);
        let names = self.names()?;
        if names.iter().any(|name| name == "public") {
            return Err(unsupported("granting to PUBLIC"));
        }
        if self.skip(&["with", "grant", "option"]) {
            return Err(unsupported("WITH GRANT OPTION"));
        }
        Ok(names)
    }

    fn privileges(&mut self) -> Outcome<Privileges> {
        if self.skip(&["grant", "option", "for"]) {
            return Err(unsupported("GRANT OPTION FOR"));
        }
        if self.skip(&["all"]) {
            let _ = self.skip(&["privileges"]);
            return Ok(Privileges::ALL);
        }
        let mut all = Privileges::NONE;
        loop {
            let word = self.word()?.to_ascii_uppercase();
            let known = Privileges::NAMES.iter().find(|(_, name, _)| *name == word);
            match known {
                Some((privilege, ..)) => all = all.with(*privilege),
                None if matches!(
                    word.as_str(),
                    "TRUNCATE" | "REFERENCES" | "TRIGGER" | "MAINTAIN" | "USAGE"
                ) =>
                {
                    return Err(unsupported(format!("the privilege {word}")));
                }
                // A role that is granted to another.
                None if matches!(self.peek().as_deref(), Some("to" | "from")) => {
                    return Err(unsupported("membership in roles"));
                }
                None => {
                    self.at -= 1;
                    return Err(self.near());
                }
            }
            if self.tokens.get(self.at) == Some(&Token::LParen) {
                return Err(unsupported("a privilege on columns"));
            }
            if !self.comma() {
                return Ok(all);
            }
        }
    }

    fn tables(&mut self) -> Outcome<Tables> {
        self.expect("on")?;
        if self.skip(&["all", "tables", "in", "schema"]) {
            return match self.names()?.as_slice() {
                [schema] if schema == entresol::query::SCHEMA => Ok(Tables::All),
                other => {
                    Err(Report::error("3F000", format!("schema \"{}\" does not exist", other.join(", "))))
                }
            };
        }
        for other in ["schema", "database", "sequence", "function", "all"] {
            if self.peek().as_deref() == Some(other) {
                return Err(unsupported(format!("GRANT ON {}", other.to_uppercase())));
            }
        }
        let _ = self.skip(&["table"]);
        let mut names = Vec::new();
        loop {
            let mut name = self.name()?;
            while self.tokens.get(self.at) == Some(&Token::Period) {
                self.at += 1;
                if name != entresol::query::SCHEMA && name != entresol::query::CATALOG {
                    return Err(Report::error("3F000", format!("schema \"{name}\" does not exist")));
                }
                name = self.name()?;
            }
            names.push(name);
            if !self.comma() {
                return Ok(Tables::Named(names));
            }
        }
    }

    fn text(&mut self) -> Outcome<String> {
        let near = self.near();
        match self.next() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => Ok(text),
            _ => Err(near),
        }
    }

    fn options(&mut self) -> Outcome<Options> {
        let mut options = Options::default();
        let _ = self.skip(&["with"]);
        while self.at < self.tokens.len() {
            let word = self.word()?;
            match word.as_str() {
                "superuser" => options.change.administrator = Some(true),
                "nosuperuser" => options.change.administrator = Some(false),
                "login" => options.login = Some(true),
                "nologin" => options.login = Some(false),
                "inherit" | "nocreatedb" | "nocreaterole" | "noreplication" | "nobypassrls" => {}
                "encrypted" => {}
                "password" if self.skip(&["null"]) => options.change.password = Some(None),
                "password" => options.change.password = Some(Some(self.text()?)),
                // A role that may do everything may do these, too.
                "createdb" | "createrole" | "bypassrls" if options.change.administrator == Some(true) => {}
                "connection" if self.skip(&["limit"]) => match self.tokens.get(self.at..self.at + 2) {
                    Some([Token::Minus, Token::Number(one, _)]) if one == "1" => self.at += 2,
                    _ => return Err(unsupported("CONNECTION LIMIT of a role")),
                },
                "valid" if self.skip(&["until"]) => {
                    if self.text()? != "infinity" {
                        return Err(unsupported("VALID UNTIL of a role"));
                    }
                }
                "noinherit" | "createdb" | "createrole" | "replication" | "bypassrls" | "in" | "role"
                | "admin" | "user" | "sysid" | "set" | "reset" | "rename" => {
                    return Err(unsupported(format!("{} of a role", word.to_uppercase())));
                }
                _ => {
                    self.at -= 1;
                    return Err(self.near());
                }
            }
        }
        if options.login == Some(false) && matches!(options.change.password, Some(Some(_))) {
            return Err(unsupported("NOLOGIN of a role with a password"));
        }
        Ok(options)
    }
}

impl RoleStatement {
    /// The tag of its end.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            RoleStatement::Create { .. } => "CREATE ROLE",
            RoleStatement::Alter { .. } => "ALTER ROLE",
            RoleStatement::Drop { .. } => "DROP ROLE",
            RoleStatement::Grant { .. } => "GRANT",
            RoleStatement::Revoke { .. } => "REVOKE",
        }
    }

    /// Checks the privilege: administrators run all of these, others change their own password.
    pub(crate) fn check(&self, role: &Role) -> Outcome<()> {
        let own_password = match self {
            RoleStatement::Alter { role: name, options } => {
                *name == role.name && options.change.administrator.is_none() && options.login.is_none()
            }
            _ => false,
        };
        if role.administrator || own_password {
            Ok(())
        } else {
            Err(Report::error("42501", format!("permission denied to {}", self.tag().to_lowercase())))
        }
    }

    /// Runs it, as role `by`. It waits for the disk.
    pub(crate) fn run(&self, db: &Database, by: &str) -> Outcome<()> {
        match self {
            RoleStatement::Create { role, options } => {
                let administrator = options.change.administrator == Some(true);
                if !administrator && !roles::exist(db).map_err(report)? {
                    return Err(report(roles::Error::LastAdministrator(role.clone())));
                }
                if administrator && !roles::exist(db).map_err(report)? && options.change.password.is_none() {
                    let message =
                        format!("role \"{role}\" must have a password: otherwise no role could log in");
                    return Err(Report::error("55000", message));
                }
                let password = options.change.password.clone().flatten();
                let role = Role { name: role.clone(), administrator, grants: Default::default() };
                roles::create_with(db, &role, password.as_deref()).map_err(report)
            }
            RoleStatement::Alter { role, options } => {
                let mut change = options.change.clone();
                if options.login == Some(false) {
                    change.password = Some(None);
                }
                roles::alter(db, role, &change).map_err(report)
            }
            RoleStatement::Drop { roles: names, if_exists } => {
                for name in names {
                    if name == by {
                        return Err(Report::error("55006", "current user cannot be dropped"));
                    }
                    match roles::drop_role(db, name) {
                        Err(roles::Error::Missing(_)) if *if_exists => {}
                        dropped => dropped.map_err(report)?,
                    }
                }
                Ok(())
            }
            RoleStatement::Grant { privileges, tables, roles: names } => {
                let tables = tables.names(db)?;
                names.iter().try_for_each(|name| roles::grant(db, name, *privileges, &tables).map_err(report))
            }
            RoleStatement::Revoke { privileges, tables, roles: names } => {
                let tables = tables.names(db)?;
                names
                    .iter()
                    .try_for_each(|name| roles::revoke_some(db, name, *privileges, &tables).map_err(report))
            }
        }
    }
}

impl Tables {
    /// The names of the tables, which must exist.
    fn names(&self, db: &Database) -> Outcome<Vec<String>> {
        match self {
            Tables::All => {
                let tables = db.catalog().tables();
                let own = |name: &str| name == ROLES_TABLE || name == GRANTS_TABLE;
                Ok(tables.iter().map(|table| table.name().to_owned()).filter(|name| !own(name)).collect())
            }
            Tables::Named(names) => {
                for name in names {
                    if name == ROLES_TABLE || name == GRANTS_TABLE {
                        return Err(Report::error(
                            "42501",
                            format!("privileges on {name} cannot be changed"),
                        ));
                    }
                    if db.catalog().table(name).is_err() {
                        return Err(Report::error("42P01", format!("relation \"{name}\" does not exist")));
                    }
                }
                Ok(names.clone())
            }
        }
    }
}

/// An error of the roles with PostgreSQL's code.
fn report(error: roles::Error) -> Report {
    let code = match &error {
        roles::Error::Exists(_) => "42710",
        roles::Error::Missing(_) => "42704",
        roles::Error::LastAdministrator(_) => "55000",
        roles::Error::Invalid(_) => "22023",
        roles::Error::Tables(error) => error.sqlstate(),
        roles::Error::Transactions(error) => entresol::tables::transactions_sqlstate(error),
        _ => "XX000",
    };
    Report::error(code, error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parsed(sql: &str) -> RoleStatement {
        parse(sql).unwrap().unwrap()
    }

    fn code(sql: &str) -> &'static str {
        parse(sql).unwrap_err().code
    }

    #[test]
    fn statements_about_roles_are_read() {
        let made = parsed("CREATE USER Anna WITH LOGIN ENCRYPTED PASSWORD 'it''s'");
        let change = Change { password: Some(Some("it's".into())), administrator: None };
        let options = Options { change, login: Some(true) };
        assert_eq!(made, RoleStatement::Create { role: "anna".into(), options });
        let grant = parsed("grant select, INSERT on table public.a, \"B\" to anna, bob");
        let privileges = Privileges::SELECT.with(Privileges::INSERT);
        let (tables, roles) =
            (Tables::Named(vec!["a".into(), "B".into()]), vec!["anna".into(), "bob".into()]);
        assert_eq!(grant, RoleStatement::Grant { privileges, tables, roles });
        let revoke = parsed("REVOKE ALL PRIVILEGES ON ALL TABLES IN SCHEMA public FROM anna CASCADE");
        let roles = vec!["anna".into()];
        assert_eq!(revoke, RoleStatement::Revoke { privileges: Privileges::ALL, tables: Tables::All, roles });
        assert_eq!(
            parsed("DROP ROLE IF EXISTS a, b"),
            RoleStatement::Drop { roles: vec!["a".into(), "b".into()], if_exists: true }
        );
        assert_eq!(parse("CREATE TABLE role (a INT)"), Ok(None));
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
            assert_eq!(code(sql), "0A000", "{sql}");
        }
        for sql in
            ["CREATE ROLE", "CREATE ROLE a PASSWORD", "GRANT SELECT ON", "DROP ROLE a b", "CREATE USER 'a'"]
        {
            assert_eq!(code(sql), "42601", "{sql}");
        }
        assert_eq!(code("GRANT SELECT ON other.t TO a"), "3F000");
    }
}
