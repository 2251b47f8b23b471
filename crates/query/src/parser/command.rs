//! Commands: parsed statements, by the part of the session that runs them.

use crate::parser::own::copy::CopyStatement;
use crate::parser::own::fetch::CursorMotion;
use crate::parser::own::materialized::MaterializedStatement;
use crate::parser::own::role::RoleStatement;
use crate::parser::own::sequence::SequenceStatement;
use crate::parser::own::streaming::StreamingStatement;
use crate::parser::own::vacuum::Vacuum;
use crate::parser::text::kind::StatementKind;
use datafusion::sql::parser::{ExplainStatement, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{
    Analyze, CreateTable, DataType as SqlType, Delete, DiscardObject, Expr, Insert, ObjectName, ObjectType,
    Query, Statement, TransactionMode, Truncate, Update,
};
use std::path::PathBuf;

/// Statement, by the part of the session that runs it.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Begin(Vec<TransactionMode>),
    /// BEGIN AS OF: a block that reads as of a point in time.
    BeginAsOf(Box<Expr>),
    /// SET TRANSACTION AS OF.
    SetAsOf(Box<Expr>),
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    CreateTable(Box<CreateTable>),
    DropTable {
        if_exists: bool,
        names: Vec<ObjectName>,
        cascade: bool,
    },
    /// CREATE and DROP of indexes, views and sequences, ALTER TABLE, COMMENT ON.
    Define(Box<Statement>),
    /// CREATE SEQUENCE, ALTER SEQUENCE.
    Sequence(Box<SequenceStatement>),
    /// CREATE, ALTER and DROP of sources and topologies.
    Streaming(Box<StreamingStatement>),
    /// CREATE, DROP and REFRESH of materialized views.
    Materialized(Box<MaterializedStatement>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    /// MERGE, as the body of a query with its WITH.
    Merge(Box<Query>),
    Truncate(Box<Truncate>),
    Analyze(Box<Analyze>),
    Backup(PathBuf),
    Vacuum(Vacuum),
    /// SET or RESET of a setting; None is its default.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    ResetAll,
    Show(String),
    ShowAll,
    /// SET TRANSACTION, or of the session's blocks to come.
    SetTransaction {
        modes: Vec<TransactionMode>,
        session: bool,
    },
    Discard(DiscardObject),
    /// UNLISTEN: there are no listeners.
    Unlisten,
    Prepare {
        name: String,
        types: Vec<SqlType>,
        command: Box<Command>,
        /// Length of the statement's text.
        text_bytes: usize,
    },
    Execute {
        name: String,
        arguments: Vec<Expr>,
    },
    /// COPY; with STDIN or STDOUT only a client with a stream of rows can run it.
    Copy(Box<CopyStatement>),
    /// Statement about roles, which a server runs.
    Role(Box<RoleStatement>),
    /// DEALLOCATE; None: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        query: Box<DFStatement>,
    },
    /// FETCH, MOVE.
    Motion(CursorMotion),
    /// CLOSE; None: all.
    Close(Option<String>),
    /// EXPLAIN ANALYZE of a statement that writes.
    ExplainWrite {
        explain: Box<ExplainStatement>,
        command: Box<Command>,
    },
    /// SET or RESET of an option of DataFusion.
    DataFusion(Box<DFStatement>),
    /// Any statement that only reads.
    Query(Box<DFStatement>),
}

impl Command {
    /// Command tag without counts.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Command::Begin(_) | Command::BeginAsOf(_) => "BEGIN",
            Command::Commit => "COMMIT",
            Command::Rollback | Command::RollbackTo(_) => "ROLLBACK",
            Command::Savepoint(_) => "SAVEPOINT",
            Command::Release(_) => "RELEASE",
            Command::CreateTable(create) if create.query.is_some() => "CREATE TABLE AS",
            Command::CreateTable(_) => "CREATE TABLE",
            Command::DropTable { .. } => "DROP TABLE",
            Command::Define(statement) => definition_verb(statement),
            Command::Sequence(statement) if statement.creates => "CREATE SEQUENCE",
            Command::Sequence(_) => "ALTER SEQUENCE",
            Command::Streaming(statement) => statement.verb(),
            Command::Materialized(statement) => statement.verb(),
            Command::Insert(_) => "INSERT",
            Command::Update(_) => "UPDATE",
            Command::Delete(_) => "DELETE",
            Command::Merge(_) => "MERGE",
            Command::Truncate(_) => "TRUNCATE TABLE",
            Command::Analyze(_) => "ANALYZE",
            Command::Backup(_) => "BACKUP",
            Command::Vacuum(_) => "VACUUM",
            Command::Set { .. }
            | Command::SetTransaction { .. }
            | Command::SetAsOf(_)
            | Command::DataFusion(_) => "SET",
            Command::ResetAll => "RESET",
            Command::Show(_) | Command::ShowAll => "SHOW",
            Command::Discard(DiscardObject::ALL) => "DISCARD ALL",
            Command::Discard(DiscardObject::PLANS) => "DISCARD PLANS",
            Command::Discard(DiscardObject::SEQUENCES) => "DISCARD SEQUENCES",
            Command::Discard(DiscardObject::TEMP) => "DISCARD TEMP",
            Command::Unlisten => "UNLISTEN",
            Command::Prepare { .. } => "PREPARE",
            Command::Execute { .. } => "EXECUTE",
            Command::Copy(_) => "COPY",
            Command::Role(statement) => statement.tag(),
            Command::Deallocate(None) => "DEALLOCATE ALL",
            Command::Deallocate(Some(_)) => "DEALLOCATE",
            Command::Declare { .. } => "DECLARE CURSOR",
            Command::Motion(motion) if motion.passes => "MOVE",
            Command::Motion(_) => "FETCH",
            Command::Close(_) => "CLOSE CURSOR",
            Command::ExplainWrite { .. } => "EXPLAIN",
            Command::Query(statement) => match statement.as_ref() {
                DFStatement::Explain(_) => "EXPLAIN",
                DFStatement::Statement(statement) if matches!(**statement, Statement::Query(_)) => "SELECT",
                _ => "SHOW",
            },
        }
    }

    /// Kind with regard to transactions.
    pub(crate) fn kind(&self) -> StatementKind {
        match self {
            Command::Begin(_) | Command::BeginAsOf(_) => StatementKind::Begin,
            Command::Commit => StatementKind::Commit,
            Command::Rollback => StatementKind::Rollback,
            Command::RollbackTo(_) => StatementKind::RollbackTo,
            Command::Savepoint(_) | Command::Release(_) => StatementKind::Savepoint,
            Command::Insert(_) | Command::Update(_) | Command::Delete(_) | Command::Merge(_) => {
                StatementKind::Write
            }
            Command::Query(statement) => kind_of_query(statement),
            Command::ExplainWrite { .. } => StatementKind::Explain,
            Command::Streaming(_) | Command::Materialized(_) if !self.is_definition() => {
                StatementKind::Explain
            }
            Command::Show(_) | Command::ShowAll => StatementKind::Show,
            Command::Copy(_) => StatementKind::Copy,
            Command::Declare { .. } | Command::Motion(_) | Command::Close(_) => StatementKind::Cursor,
            Command::Role(_) => StatementKind::Role,
            Command::Set { .. }
            | Command::SetAsOf(_)
            | Command::SetTransaction { .. }
            | Command::ResetAll
            | Command::DataFusion(_)
            | Command::Discard(_)
            | Command::Unlisten
            | Command::Prepare { .. }
            | Command::Execute { .. }
            | Command::Deallocate(_) => StatementKind::Setting,
            Command::CreateTable(_)
            | Command::DropTable { .. }
            | Command::Define(_)
            | Command::Sequence(_)
            | Command::Streaming(_)
            | Command::Materialized(_)
            | Command::Truncate(_)
            | Command::Analyze(_)
            | Command::Backup(_)
            | Command::Vacuum(_) => StatementKind::Definition,
        }
    }

    /// Returns true if it reads or writes rows: it runs in a transaction and is retried after a conflict.
    pub(crate) fn is_rows(&self) -> bool {
        matches!(self, Command::Query(_)) || self.writes_rows()
    }

    pub(crate) fn writes_rows(&self) -> bool {
        matches!(
            self,
            Command::Insert(_)
                | Command::Update(_)
                | Command::Delete(_)
                | Command::Merge(_)
                | Command::ExplainWrite { .. }
        )
    }

    /// Returns true if a READ ONLY transaction refuses it.
    pub(crate) fn writes(&self) -> bool {
        self.writes_rows() || self.is_definition() || matches!(self, Command::Truncate(_))
    }

    /// Verb of a statement that a READ ONLY transaction refuses.
    pub(crate) fn written_verb(&self) -> Option<&'static str> {
        match self {
            Command::ExplainWrite { command, .. } => command.written_verb(),
            command => command.writes().then(|| command.verb()),
        }
    }

    /// Returns true for a definition: not allowed inside of a block.
    pub(crate) fn is_definition(&self) -> bool {
        matches!(
            self,
            Command::CreateTable(_) | Command::DropTable { .. } | Command::Define(_) | Command::Sequence(_)
        ) || matches!(
            self,
            Command::Streaming(statement) if !matches!(**statement, StreamingStatement::Explain { .. })
        ) || matches!(
            self,
            Command::Materialized(statement) if !matches!(**statement, MaterializedStatement::Explain { .. })
        )
    }

    /// Returns true for a definition that may take long, and checks for cancellation itself.
    pub(crate) fn is_stopped_by_itself(&self) -> bool {
        matches!(self, Command::Define(statement) if matches!(**statement, Statement::CreateIndex(_)))
    }

    /// Returns true if it concerns only the session and its transaction.
    pub(crate) fn concerns_session(&self) -> bool {
        matches!(
            self,
            Command::Begin(_)
                | Command::Commit
                | Command::Rollback
                | Command::Savepoint(_)
                | Command::RollbackTo(_)
                | Command::Release(_)
                | Command::Set { .. }
                | Command::SetTransaction { .. }
                | Command::Show(_)
        )
    }
}

/// Kind of a statement that only reads.
fn kind_of_query(statement: &DFStatement) -> StatementKind {
    match statement {
        DFStatement::Explain(_) => StatementKind::Explain,
        DFStatement::Statement(statement) => match **statement {
            Statement::Query(_) => StatementKind::Read,
            Statement::ExplainTable { .. } => StatementKind::Explain,
            _ => StatementKind::Show,
        },
        _ => StatementKind::Show,
    }
}

/// Beginning of a definition's command tag.
fn definition_verb(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::AlterTable(_) => "ALTER TABLE",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::Comment { .. } => "COMMENT",
        Statement::Drop { object_type: ObjectType::View, .. } => "DROP VIEW",
        Statement::Drop { object_type: ObjectType::Sequence, .. } => "DROP SEQUENCE",
        _ => "DROP INDEX",
    }
}
