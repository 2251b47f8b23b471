//! Statements of the simple protocol that differ in their literals only: parsed once, run with the literals
//! as values.
//!
//! `SELECT v FROM t WHERE id = 17` has the fingerprint `SELECT v FROM t WHERE id = $1`. Parsing is most of
//! the cost of such a statement, and clients that do not prepare send thousands of the same fingerprint.
//!
//! # Invariants
//!
//! - Only statements of the fast path, which need no planning, are cached ([`Session::prepare_for_fast_path`]), and
//!   only if each literal is exactly of its parameter's type. So a statement means what its text means; all
//!   others are parsed as usual.
//! - A fingerprint that was parsed at another version of the catalog is parsed again.
//!
//! Memory: [`STATEMENTS_MAX`] fingerprints of at most [`STATEMENT_BYTES_MAX`] bytes; the least recently used one is
//! evicted.

use entresol::query::datafusion::common::ScalarValue;
use entresol::query::{Literal, PreparedStatement, Session, fingerprint};
use std::collections::HashMap;

/// Maximum number of fingerprints of a connection.
const STATEMENTS_MAX: usize = 128;
/// Maximum bytes of a statement that is fingerprinted.
const STATEMENT_BYTES_MAX: usize = 1024;

/// The fingerprints of a connection.
#[derive(Debug, Default)]
pub(super) struct StatementCache {
    statements: HashMap<String, CachedStatement>,
    /// Counts statements.
    clock: u64,
    /// The fingerprint of the last statement, and its literals.
    text: String,
    literals: Vec<Literal>,
}

#[derive(Debug)]
struct CachedStatement {
    /// `None`: it is not of the fast path.
    prepared: Option<PreparedStatement>,
    /// The version of the catalog.
    version: u64,
    used: u64,
}

impl StatementCache {
    /// Forgets all fingerprints, for a role that may do something else now.
    pub(super) fn clear(&mut self) {
        self.statements.clear();
    }

    /// The prepared statement for a query text, with its values; `None` if there is none.
    pub(super) fn find(
        &mut self,
        session: &mut Session,
        sql: &str,
    ) -> Option<(PreparedStatement, Vec<ScalarValue>)> {
        self.literals.clear();
        if sql.len() > STATEMENT_BYTES_MAX || !fingerprint(sql, &mut self.text, &mut self.literals) {
            return None;
        }
        self.clock += 1;
        let version = session.catalog().version();
        let known = self.statements.get_mut(&self.text).filter(|known| known.version == version);
        let prepared = match known {
            Some(known) => {
                known.used = self.clock;
                known.prepared.clone()?
            }
            None => {
                let prepared = session.prepare_for_fast_path(&self.text);
                self.keep(CachedStatement { prepared: prepared.clone(), version, used: self.clock });
                prepared?
            }
        };
        let types = prepared.parameters();
        if types.len() != self.literals.len() {
            return None;
        }
        let values = self.literals.iter().zip(types).map(|(literal, wanted)| literal.value(wanted));
        let values = values.collect::<Option<Vec<_>>>()?;
        Some((prepared, values))
    }

    fn keep(&mut self, statement: CachedStatement) {
        if self.statements.len() >= STATEMENTS_MAX && !self.statements.contains_key(&self.text) {
            let oldest = self.statements.iter().min_by_key(|(_, statement)| statement.used);
            if let Some(oldest) = oldest.map(|(text, _)| text.clone()) {
                self.statements.remove(&oldest);
            }
        }
        self.statements.insert(self.text.clone(), statement);
    }
}
