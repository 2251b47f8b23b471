//! Parser of ALTER … OWNER TO.
//!
//! ```text
//!   ALTER SOURCE | SINK | STREAM | TOPOLOGY | MATERIALIZED VIEW name OWNER TO role
//!   ALTER TABLE | VIEW | SEQUENCE [IF EXISTS] [ONLY] name OWNER TO role
//!   role = name | CURRENT_USER | CURRENT_ROLE | SESSION_USER
//! ```
//!
//! The second form is for the scripts of `pg_dump`: tables, views and sequences belong to the superusers.

use crate::error::Result;
use crate::parser::names::table_name;
use crate::parser::own::role::RoleStatement;
use crate::parser::own::words::Words;
use crate::parser::text::tokens::is_word;
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Kind of an object in ALTER … OWNER TO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerTarget {
    /// Source.
    Source,
    /// Sink.
    Sink,
    /// Stream of no topology.
    Stream,
    /// Topology.
    Topology,
    /// Materialized view, over tables or streams.
    MaterializedView,
    /// Table.
    Table,
    /// View.
    View,
    /// Sequence.
    Sequence,
}

impl OwnerTarget {
    const ALL: [(OwnerTarget, &[&str], &str); 8] = [
        (OwnerTarget::Source, &["source"], "ALTER SOURCE"),
        (OwnerTarget::Sink, &["sink"], "ALTER SINK"),
        (OwnerTarget::Stream, &["stream"], "ALTER STREAM"),
        (OwnerTarget::Topology, &["topology"], "ALTER TOPOLOGY"),
        (OwnerTarget::MaterializedView, &["materialized", "view"], "ALTER MATERIALIZED VIEW"),
        (OwnerTarget::Table, &["table"], "ALTER TABLE"),
        (OwnerTarget::View, &["view"], "ALTER VIEW"),
        (OwnerTarget::Sequence, &["sequence"], "ALTER SEQUENCE"),
    ];

    /// Command tag.
    pub(crate) fn tag(self) -> &'static str {
        let found = Self::ALL.iter().find(|(target, ..)| *target == self);
        found.map_or("ALTER TABLE", |(_, _, tag)| tag)
    }
}

/// Returns true if the tokens of an ALTER end in OWNER TO and a role.
pub(crate) fn is_owner_change(tokens: &[TokenWithSpan]) -> bool {
    let is = |token: &TokenWithSpan, word: &str| is_word(&token.token, word);
    matches!(tokens, [first, .., owner, to, _] if is(first, "alter") && is(owner, "owner") && is(to, "to"))
}

/// Parses a statement for which [`is_owner_change`] is true.
pub(crate) fn parse(tokens: &[&Token]) -> Result<RoleStatement> {
    let mut words = Words(tokens);
    words.expect("alter")?;
    let found = OwnerTarget::ALL.iter().find(|(_, noun, _)| words.phrase(noun));
    let Some((target, ..)) = found else { return Err(words.unexpected()) };
    let if_exists = words.phrase(&["if", "exists"]);
    if *target == OwnerTarget::Table {
        let _ = words.word("only");
    }
    let name = table_name(&ObjectName::from(words.name()?))?;
    words.expect("owner")?;
    words.expect("to")?;
    let is_current = ["current_user", "current_role", "session_user"].iter().any(|word| words.word(word));
    let to = if is_current { None } else { Some(words.folded()?) };
    words.end()?;
    Ok(RoleStatement::ChangeOwner { target: *target, name, if_exists, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as statements;

    fn change(sql: &str) -> (OwnerTarget, String, bool, Option<String>) {
        match statements(sql).unwrap().pop() {
            Some(Command::Role(statement)) => match *statement {
                RoleStatement::ChangeOwner { target, name, if_exists, to } => (target, name, if_exists, to),
                other => panic!("{sql}: {other:?}"),
            },
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn changes_of_owners_are_parsed() {
        let anna = || Some("anna".to_owned());
        assert_eq!(
            change("ALTER TOPOLOGY Households OWNER TO Anna"),
            (OwnerTarget::Topology, "households".into(), false, anna())
        );
        assert_eq!(
            change("alter materialized view if exists public.\"V\" owner to anna;"),
            (OwnerTarget::MaterializedView, "V".into(), true, anna())
        );
        assert_eq!(
            change("ALTER TABLE ONLY t OWNER TO CURRENT_USER"),
            (OwnerTarget::Table, "t".into(), false, None)
        );
        let sequence = change("ALTER SEQUENCE public.s OWNER TO anna");
        assert_eq!(sequence, (OwnerTarget::Sequence, "s".into(), false, anna()));
    }

    #[test]
    fn others_are_syntax_errors() {
        for sql in [
            "ALTER SCHEMA public OWNER TO anna",
            "ALTER SOURCE a b OWNER TO anna",
            "ALTER STREAM a OWNER TO 'anna'",
            "ALTER SINK ONLY a OWNER TO anna",
        ] {
            assert_eq!(statements(sql).unwrap_err().sqlstate(), "42601", "{sql}");
        }
    }
}
