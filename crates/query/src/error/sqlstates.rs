//! SQLSTATEs of the errors of the crates below, as PostgreSQL would report them.

use super::Error;

/// SQLSTATE of an error of the tables.
pub fn tables_sqlstate(error: &entresol_tables::Error) -> &'static str {
    use entresol_tables::Error as E;
    match error {
        E::NoSuchTable { .. } => "42P01",
        E::TableExists { .. } | E::RelationExists { .. } => "42P07",
        E::NoSuchColumn { .. } => "42703",
        E::ColumnExists { .. } => "42701",
        E::NoSuchIndex { .. } | E::NoSuchConstraint { .. } => "42704",
        E::ConstraintExists { .. } => "42710",
        E::WrongType { .. } => "42804",
        E::OutOfRange { .. } => "22003",
        E::TooLong { .. } => "22001",
        E::DigitsLost { .. } => "22003",
        E::InvalidJson { error, .. } => error.sqlstate(),
        E::NotNull { .. } => "23502",
        E::WrongValueCount { .. } => "42601",
        E::DuplicateKey { .. } | E::UniqueViolation { .. } => "23505",
        E::CheckViolation { .. } => "23514",
        E::NoSuchKey { .. } => "02000",
        E::RowTooLarge { .. } | E::KeyTooLarge { .. } => "54000",
        E::InvalidSchema { .. } => "42P16",
        E::InvalidName { .. } => "42602",
        E::Needed { .. } | E::Dependents { .. } => "2BP01",
        E::NoSuchRelation { .. } => "42P01",
        E::NoChangeLog { .. } => "55000",
        E::WrongKind { .. } => "42809",
        E::RecursiveView { .. } => "42P17",
        E::InvalidSequence { .. } => "22023",
        E::LayoutInUse { .. } => "55006",
        E::TableChanged { .. } | E::RelationChanged { .. } => "40001",
        E::PlacementFixed { .. }
        | E::LayoutFixed { .. }
        | E::StructureOfLayout { .. }
        | E::StructureOfKey { .. }
        | E::ProtocolOfLayout { .. }
        | E::NotOrdered { .. }
        | E::ElfOfRows { .. }
        | E::ObjectStoreOfRows { .. }
        | E::ObjectStoreFixed { .. }
        | E::ObjectStoreOfVolatile => "0A000",
        E::ObjectStoreUrl { .. } => "22023",
        E::ObjectStore { .. } => "58030",
        E::Parse { .. } => "22P02",
        E::RowNumbersUsedUp { .. } | E::SequenceExhausted { .. } => "2200H",
        E::Corrupt { .. } => "XX001",
        E::Transactions(error) => transactions_sqlstate(error),
        E::Structures(error) => structures_sqlstate(error),
        E::Memory(error) => memory_sqlstate(error),
        _ => "XX000",
    }
}

/// SQLSTATE of an error of a transaction.
pub fn transactions_sqlstate(error: &entresol_transactions::Error) -> &'static str {
    use entresol_transactions::Error as E;
    match error {
        // snapshot_too_old
        E::SnapshotTooOld { .. } => "72000",
        E::NoHistory { .. } => "55000",
        E::Maintenance(error) => error.downcast_ref::<Error>().map_or("XX000", Error::sqlstate),
        E::NoSuchTier { .. } => "0A000",
        E::Invalid(_) => "22023",
        E::InTheFuture { .. } => "22023",
        E::ReadOnlyAsOf { .. } => "25006",
        E::LoadedTwice { .. } => "23505",
        E::HistoryKeyLength { .. } => "54000",
        E::Conflict { .. } | E::ReadConflict { .. } | E::Restart { .. } | E::VotedAbort(_) => "40001",
        E::Busy(_) => "53000",
        E::Interrupted(entresol_transactions::Interrupt::Shutdown) => "57P01",
        E::Interrupted(entresol_transactions::Interrupt::SnapshotTooOld) => "72000",
        E::Interrupted(_) => "57014",
        E::Finished | E::SupersededStatement => "25000",
        E::NoSuchState(_) | E::NoSuchGroup(_) => "42P01",
        E::WriteSetFull { .. } | E::OldVersionsFull { .. } => "53200",
        E::Full { .. } | E::KeyLength { .. } | E::ValueLength { .. } => "54000",
        E::OutcomeUnknown { .. } => "08007",
        E::Poisoned(_) => "58030",
        E::Corrupt(_) => "XX001",
        E::Memory(error) => memory_sqlstate(error),
        E::Structures(error) => structures_sqlstate(error),
        _ => "XX000",
    }
}

fn structures_sqlstate(error: &entresol_structures::Error) -> &'static str {
    use entresol_structures::Error as E;
    match error {
        E::Memory(error) => memory_sqlstate(error),
        E::KeyTooLong { .. } => "54000",
        E::Corrupt { .. } | E::DamagedElf { .. } => "XX001",
        _ => "XX000",
    }
}

fn memory_sqlstate(error: &entresol_memory::Error) -> &'static str {
    use entresol_memory::Error as E;
    match error {
        E::OutOfSpace { .. } => "53100",
        E::MemoryLimit(_) => "53200",
        E::Corrupt { .. } => "XX001",
        E::Closed => "57P01",
        E::Io { .. } | E::Failed { .. } => "58030",
        _ => "58000",
    }
}
