//! Object numbers, which clients keep between their queries.
//!
//! A table or index has the number of its state for its lifetime; objects that belong to it are numbered
//! behind it. PostgreSQL's own relations, types and schemas have PostgreSQL's numbers where clients may have
//! them built in. All are below 2^31.
//!
//! ```text
//!   FIRST + state * STRIDE    the table or index
//!                       + 1   the index of a PRIMARY KEY
//!                       + 2   the PRIMARY KEY constraint
//!                       + 3   the UNIQUE constraint of an index
//!                       + CHECKS + n     the checks, by position
//!                       + DEFAULTS + n   the defaults, by column
//!                       + n   the Elf index with the number n, of the state of row groups
//! ```

use entresol_structures::IndexStructure;
use entresol_transactions::StateId;

/// First number of user objects, as in PostgreSQL.
const FIRST: i64 = 16384;
/// Numbers per state.
const STRIDE: i64 = 8192;
const CHECKS: i64 = 1024;
const DEFAULTS: i64 = 4096;
/// Base of the numbers of roles, views and sequences, which derive from their names.
const ROLES: i64 = 0x6000_0000;
const VIEWS: i64 = 0x5000_0000;
const SEQUENCES: i64 = 0x4000_0000;

/// The schema `pg_catalog`.
pub(crate) const PG_CATALOG: i64 = 11;
/// The schema `public`.
pub(crate) const PUBLIC: i64 = 2200;
/// The schema `information_schema`.
pub(crate) const INFORMATION_SCHEMA: i64 = 13_000;
/// The schema `entresol`.
pub(crate) const SYSTEM: i64 = 13_001;
/// Base of the numbers of relations without a PostgreSQL number, by position.
pub(crate) const RELATIONS: i64 = 13_100;
/// Base of the numbers of functions, by position.
pub(crate) const FUNCTIONS: i64 = 14_000;
/// The database.
pub(crate) const DATABASE: i64 = 5;
/// Owner of every object.
pub(crate) const OWNER: i64 = 10;
/// The tablespace.
pub(crate) const TABLESPACE: i64 = 1663;
/// Access method of tables with the structure that is the default.
pub(crate) const HEAP: i64 = 2;
/// Base of the numbers of the other structures of tables, by number.
const STRUCTURES: i64 = 13_010;
/// Access method of indexes.
pub(crate) const BTREE: i64 = 403;
/// Access method of indexes of hash codes.
pub(crate) const HASH: i64 = 405;
/// Access method of indexes of row groups.
pub(crate) const ELF: i64 = 13_002;
/// Collation of every string column.
pub(crate) const COLLATION: i64 = 100;

/// Access method of tables with a structure.
pub(crate) fn structure(structure: IndexStructure) -> i64 {
    if structure == IndexStructure::default() { HEAP } else { STRUCTURES + i64::from(structure.number()) }
}

/// A table or an index.
pub(crate) fn state(id: StateId) -> i64 {
    FIRST + i64::from(id.0) * STRIDE
}

/// An Elf index of a table whose row groups have this state.
pub(crate) fn elf(row_groups: StateId, number: u16) -> i64 {
    state(row_groups) + i64::from(number) % STRIDE
}

pub(crate) fn key_index(id: StateId) -> i64 {
    state(id) + 1
}

pub(crate) fn key_constraint(id: StateId) -> i64 {
    state(id) + 2
}

pub(crate) fn unique_constraint(index: StateId) -> i64 {
    state(index) + 3
}

pub(crate) fn check(id: StateId, place: usize) -> i64 {
    state(id) + CHECKS + place as i64
}

pub(crate) fn default(id: StateId, column: usize) -> i64 {
    state(id) + DEFAULTS + column as i64
}

/// A role.
pub(crate) fn role(name: &str) -> i64 {
    ROLES | hash(name)
}

/// A view.
pub(crate) fn view(name: &str) -> i64 {
    VIEWS | hash(name)
}

/// A sequence.
pub(crate) fn sequence(name: &str) -> i64 {
    SEQUENCES | hash(name)
}

/// FNV-1a of a name, 28 bits.
fn hash(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash & 0x0fff_ffff) as i64
}

/// UTF8 in PostgreSQL's numbering of encodings.
pub(crate) const UTF8: i64 = 6;
/// The operator class of every column of an index.
pub(crate) const OPERATOR_CLASS: i64 = 9_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_different_things_differ_and_fit() {
        let most = StateId(entresol_transactions::STATES_MAX as u32 - 1);
        assert!(default(most, STRIDE as usize - DEFAULTS as usize - 1) < SEQUENCES);
        assert!(sequence("anything") < VIEWS && (VIEWS..ROLES).contains(&view("anything")));
        assert!(role("anybody") < i64::from(i32::MAX));
        assert!(check(StateId(3), entresol_tables::CHECKS_MAX) < default(StateId(3), 0));
        assert!(default(StateId(3), entresol_tables::COLUMNS_MAX) < state(StateId(4)));
    }
}
