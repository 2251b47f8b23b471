//! Kinds of statements with regard to transactions.
//!
//! A parsed statement has the kind of its command. First words are for a statement that is not parsed yet: a block
//! that has failed refuses it, and those of one query text share a transaction. WITH may stand before INSERT.

/// Kind of a statement with regard to transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    /// SELECT, VALUES, TABLE.
    Read,
    /// SHOW.
    Show,
    /// EXPLAIN.
    Explain,
    /// INSERT, UPDATE, DELETE, MERGE.
    Write,
    /// COPY.
    Copy,
    /// DECLARE, FETCH, MOVE, CLOSE.
    Cursor,
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT, but not to a savepoint.
    Rollback,
    /// SAVEPOINT, RELEASE.
    Savepoint,
    /// ROLLBACK TO.
    RollbackTo,
    /// SET, RESET, DISCARD, DEALLOCATE, PREPARE, EXECUTE and the like.
    Setting,
    /// CREATE, ALTER and DROP of roles, GRANT, REVOKE, REASSIGN OWNED, ALTER … OWNER TO.
    Role,
    /// Everything else: definitions, BACKUP.
    Definition,
}

impl StatementKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [StatementKind; 14] = [
        StatementKind::Read,
        StatementKind::Show,
        StatementKind::Explain,
        StatementKind::Write,
        StatementKind::Copy,
        StatementKind::Cursor,
        StatementKind::Begin,
        StatementKind::Commit,
        StatementKind::Rollback,
        StatementKind::Savepoint,
        StatementKind::RollbackTo,
        StatementKind::Setting,
        StatementKind::Role,
        StatementKind::Definition,
    ];

    /// Number of words that decide the kind.
    pub(crate) const WORDS: usize = 3;

    /// Kind of a statement that begins with these words; missing ones are empty.
    pub(crate) fn of(words: [&str; StatementKind::WORDS]) -> StatementKind {
        let is =
            |at: usize, wanted: &[&str]| wanted.iter().any(|wanted| words[at].eq_ignore_ascii_case(wanted));
        let starts = |wanted: &[&str]| is(0, wanted);
        // In the order of how often they come.
        if starts(&["SELECT", "VALUES", "WITH", "TABLE", ""]) {
            StatementKind::Read
        } else if starts(&["INSERT", "UPDATE", "DELETE", "MERGE"]) {
            StatementKind::Write
        } else if starts(&["BEGIN"]) || (starts(&["START"]) && is(1, &["TRANSACTION"])) {
            StatementKind::Begin
        } else if starts(&["COMMIT", "END"]) {
            StatementKind::Commit
        } else if starts(&["ROLLBACK"]) && (is(1, &["TO"]) || is(2, &["TO"])) {
            StatementKind::RollbackTo
        } else if starts(&["ROLLBACK", "ABORT"]) {
            StatementKind::Rollback
        } else if starts(&["SAVEPOINT", "RELEASE"]) {
            StatementKind::Savepoint
        } else if starts(&["SHOW"]) {
            StatementKind::Show
        } else if starts(&["EXPLAIN"]) {
            StatementKind::Explain
        } else if starts(&["COPY"]) {
            StatementKind::Copy
        } else if starts(&["DECLARE", "FETCH", "MOVE", "CLOSE"]) {
            StatementKind::Cursor
        } else if starts(&[
            "SET",
            "RESET",
            "DISCARD",
            "DEALLOCATE",
            "PREPARE",
            "EXECUTE",
            "LISTEN",
            "UNLISTEN",
        ]) {
            StatementKind::Setting
        } else if starts(&["GRANT", "REVOKE", "REASSIGN"])
            || (starts(&["CREATE", "ALTER", "DROP"]) && is(1, &["ROLE", "USER"]))
        {
            StatementKind::Role
        } else {
            StatementKind::Definition
        }
    }

    /// Returns true if it may run in a transaction block that has failed.
    pub fn ends_failure(self) -> bool {
        matches!(self, StatementKind::Commit | StatementKind::Rollback | StatementKind::RollbackTo)
    }

    /// Returns true if several such may share one implicit transaction.
    pub fn shares_transaction(self) -> bool {
        matches!(
            self,
            StatementKind::Read
                | StatementKind::Write
                | StatementKind::Copy
                | StatementKind::Explain
                | StatementKind::Show
        )
    }

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            StatementKind::Read => "select",
            StatementKind::Show => "show",
            StatementKind::Explain => "explain",
            StatementKind::Write => "write",
            StatementKind::Copy => "copy",
            StatementKind::Cursor => "cursor",
            StatementKind::Begin => "begin",
            StatementKind::Commit => "commit",
            StatementKind::Rollback => "rollback",
            StatementKind::RollbackTo => "rollback_to",
            StatementKind::Savepoint => "savepoint",
            StatementKind::Setting => "set",
            StatementKind::Role => "role",
            StatementKind::Definition => "definition",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::text::script::statements;

    #[test]
    fn kinds_have_their_numbers() {
        assert!(StatementKind::ALL.iter().enumerate().all(|(number, kind)| *kind as usize == number));
    }

    #[test]
    fn words_decide() {
        for (sql, kind) in [
            ("/* c */ begin", StatementKind::Begin),
            ("START TRANSACTION", StatementKind::Begin),
            ("rollback to savepoint a", StatementKind::RollbackTo),
            ("ROLLBACK WORK TO a", StatementKind::RollbackTo),
            ("ROLLBACK", StatementKind::Rollback),
            ("abort", StatementKind::Rollback),
            ("(SELECT 1)", StatementKind::Read),
            ("INSERT INTO t VALUES (1)", StatementKind::Write),
            ("merge INTO t USING s ON a WHEN MATCHED THEN DELETE", StatementKind::Write),
            ("CREATE USER a", StatementKind::Role),
            ("grant SELECT ON t TO a", StatementKind::Role),
            ("CREATE TABLE t (a INT)", StatementKind::Definition),
            ("'a'", StatementKind::Read),
        ] {
            assert_eq!(statements(sql)[0].kind, kind, "{sql}");
        }
    }
}
