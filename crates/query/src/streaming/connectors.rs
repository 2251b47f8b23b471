//! Connectors of sources: what `WITH (connector = '...')` reads.
//!
//! | connector | options |
//! | --- | --- |
//! | `file` | `path`, `*` and `?` in the file's name for several; `tail` (`true`: waits for more lines and files), `rejects` (table of bad lines); of CSV `delimiter` (comma), `null` (a string that means NULL) |
//! | `tcp` | `listen` or `connect` (`host:port`); `retry` (interval between connections that are made), `acknowledge`, `rejects`, and the format as of files |
//! | `generator` | `rows` (without end), `rows_per_second`, `start`, `step` (event time between rows, a second), `seed` (other values), `<column>.cardinality`, `<column>.max` |
//! | `table` | `table`, which logs its changes: they are the rows ([`super::logged_table`]) |
//! | `nexmark` | `entity` (`person`, `auction`, `bid`), `events` of all entities (without end), `rows_per_second`, `start`, `events_per_second` (of event time, 10,000), `seed` |
//!
//! FORMAT PLAIN ENCODE CSV is the default of files and connections, beside JSON and TEXT, and PARQUET of files; FORMAT UPSERT and DEBEZIUM ENCODE JSON have rows with
//! a PRIMARY KEY that change (`timestamp_unit` of numbers that are timestamps; of files of DEBEZIUM `transactions`, the file of
//! transaction marks, and `collection`, the name in it); options of the format may stand in parentheses behind it. All: `future_limit`
//! (a day): an event time further ahead of the clock closes no window; of FORMAT PLAIN `transaction_id` and `transaction_end`, columns
//! that say where transactions end.

use crate::ddl::table_definition::declared_column;
use crate::error::{Error, Result};
use crate::parser::durations::invalid;
use crate::parser::own::streaming::{CreateSource, Encoding, TABLE_CONNECTOR};
use crate::streaming::computed_columns::ComputedColumns;
use crate::streaming::generated_rows::{Generator, rows_per_second, start_us};
use crate::streaming::logged_table::LoggedTable;
use crate::streaming::options::StreamOptions;
use crate::streaming::parquet_source::ParquetSource;
use crate::streaming::watermarks::EventTime;
use datafusion::execution::SessionState;
use entresol_memory::MemoryBudget;
use entresol_streams::{
    ChangeFormat, ChangesSource, DELETED, Envelope, FileFormat, FilesSource, IncludedColumns, MappedSource,
    MarkedSource, Nexmark, NexmarkEntity, PacedSource, Source, TRANSACTION, TRANSACTION_ORDER, TcpEndpoint,
    TcpSource, TransactionColumns, TransactionSource,
};
use entresol_tables::{Catalog, Column, DataType, Error as TableError, Schema, Table, change_columns};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const FUTURE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
const NEXMARK_EVENTS_PER_SECOND_MAX: u64 = 1_000_000_000;

/// Source as it was created.
#[derive(Debug, Clone)]
pub(crate) struct SourceDefinition {
    pub(crate) columns: Vec<Column>,
    /// Columns that are not computed, those that say where rows come from behind the others.
    read: Vec<Column>,
    /// Contents of the columns that say where rows come from.
    included: Vec<IncludedColumns>,
    computed: ComputedColumns,
    pub(crate) event_time: Option<EventTime>,
    /// Silence after which windows over several sources do not wait for it.
    pub(crate) idle_timeout: Option<Duration>,
    /// Table of the records that are not tuples.
    pub(crate) rejects: Option<String>,
    /// Key of the rows, if they change.
    pub(crate) key: Option<Vec<String>>,
    /// Columns that mark transactions.
    marks: Option<TransactionColumns>,
    connector: Connector,
}

/// Marks of the transactions of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceMarks<'s> {
    None,
    /// File of the marks of all sources.
    File(&'s str),
    /// Columns of its rows; true if transactions have ids.
    Columns(bool),
}

#[derive(Debug, Clone)]
enum Connector {
    /// Logged changes of a table.
    Changes {
        catalog: Arc<Catalog>,
        table: Arc<Table>,
        /// Places of the source's columns among those of the changes; none if it has all.
        columns: Option<Vec<usize>>,
    },
    File {
        path: PathBuf,
        format: FileFormat,
        tails: bool,
        /// Marks of the transactions of its changes.
        transactions: Option<TransactionMarks>,
    },
    /// Parquet files.
    Parquet {
        path: PathBuf,
        tails: bool,
    },
    Tcp {
        endpoint: TcpEndpoint,
        format: FileFormat,
        acknowledges: bool,
    },
    Generator(Generator),
    Nexmark {
        events: Nexmark,
        rows_per_second: Option<u64>,
    },
}

/// Positions that a source may be set to.
#[derive(Debug, Clone)]
pub(crate) enum SourcePositions {
    /// Numbers of rows, up to the number of all.
    Rows { rows: Option<u64> },
    /// Bytes of a file behind its lines.
    File { path: PathBuf, is_csv: bool },
    /// The beginning alone, for this reason.
    Beginning(&'static str),
    /// None, for this reason.
    None(&'static str),
}

/// File of Debezium's marks of transactions.
#[derive(Debug, Clone)]
struct TransactionMarks {
    path: String,
    /// Name of the source's data in them.
    collection: Option<String>,
}

impl SourceDefinition {
    /// Definition that a statement declares. That of a table's changes needs the table. Expressions are planned with the state of
    /// topologies ([`crate::streaming::steps::state_of_topologies`]).
    pub(crate) fn new(
        catalog: &Arc<Catalog>,
        state: &SessionState,
        create: &CreateSource,
    ) -> Result<SourceDefinition> {
        let (mut columns, keys) = declared_columns(create)?;
        let key = source_key(create, keys, &mut columns)?;
        let is_computed = |place: usize| create.computed.contains_key(&place);
        let mut read: Vec<Column> = (0..)
            .zip(&columns)
            .filter(|(place, _)| !is_computed(*place))
            .map(|(_, column)| column.clone())
            .collect();
        let mut options = StreamOptions::new(format!("source \"{}\"", create.name), &create.options);
        let named = options.require("connector")?;
        if read.len() == create.included.len() && (named != TABLE_CONNECTOR || !create.columns.is_empty()) {
            let which = if create.columns.is_empty() { "" } else { " but computed ones" };
            return Err(Error::coded("42601", format!("source \"{}\" has no columns{which}", create.name)));
        }
        let logged = match named.as_str() {
            TABLE_CONNECTOR => Some(LoggedTable::new(catalog, create, &mut options, &mut read)?),
            _ => None,
        };
        let computed =
            create.computed.iter().map(|(place, expr)| (*place, columns[*place].clone(), expr.clone()));
        let computed = ComputedColumns::plan(state, &create.name, &read, computed)?;
        let columns = computed.among(&read);
        let declared = &read[..read.len() - create.included.len()];
        if create.encoding == Some(Encoding::Plain) {
            check_plain(&format!("source \"{}\"", create.name), declared)?;
        }
        let future_limit = options.interval("future_limit")?.unwrap_or(FUTURE_LIMIT);
        let event_time = create
            .watermark
            .as_ref()
            .map(|(column, expression)| EventTime::new(state, &columns, (column, expression), future_limit));
        let event_time = event_time.transpose()?;
        let idle_timeout = options.interval("idle_timeout")?;
        if idle_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(invalid("idle_timeout", "0"));
        }
        let rejects = options.take("rejects");
        let connector = match named.as_str() {
            "file" => Connector::file(&mut options, (create.encoding, key.as_deref()))?,
            "tcp" => Connector::tcp(&mut options, (create.encoding, key.as_deref()))?,
            without @ ("generator" | "nexmark" | "table") if create.encoding.is_some() => {
                let message = format!("FORMAT of a source with the connector \"{without}\"");
                return Err(Error::coded("22023", message));
            }
            "generator" => Connector::Generator(Generator::new(declared, &mut options)?),
            "nexmark" => Connector::nexmark(declared, &mut options)?,
            other => match logged {
                Some(LoggedTable { table, columns }) => {
                    Connector::Changes { catalog: Arc::clone(catalog), table, columns: Some(columns) }
                }
                None => {
                    let message = format!(
                        "connector \"{other}\" does not exist; there are file, tcp, table, generator and nexmark"
                    );
                    return Err(Error::coded("22023", message));
                }
            },
        };
        let marks = transaction_columns(&mut options, (create.encoding, declared))?;
        options.end()?;
        let included = create.included.iter().map(|(included, _)| *included).collect();
        Ok(SourceDefinition {
            columns,
            read,
            included,
            computed,
            event_time,
            idle_timeout,
            rejects,
            key,
            marks,
            connector,
        })
    }

    /// Source of the logged changes of a table, which another topology or a client writes.
    pub(crate) fn changes(catalog: &Arc<Catalog>, table: &Arc<Table>) -> Result<SourceDefinition> {
        if table.change_log()?.is_none() {
            return Err(TableError::NoChangeLog { table: table.name().to_owned() }.into());
        }
        let columns = change_columns(table.schema().visible_columns());
        Ok(SourceDefinition {
            read: columns.clone(),
            columns,
            included: Vec::new(),
            computed: ComputedColumns::default(),
            event_time: None,
            idle_timeout: None,
            rejects: None,
            key: None,
            marks: None,
            connector: Connector::Changes {
                catalog: Arc::clone(catalog),
                table: Arc::clone(table),
                columns: None,
            },
        })
    }

    /// Table whose logged changes it has.
    pub(crate) fn logged_table(&self) -> Option<&str> {
        match &self.connector {
            Connector::Changes { table, .. } => Some(table.name()),
            _ => None,
        }
    }

    /// Name of its connector, if that reads files or connections.
    pub(crate) fn outside(&self) -> Option<&'static str> {
        match self.connector {
            Connector::File { .. } | Connector::Parquet { .. } => Some("file"),
            Connector::Tcp { .. } => Some("tcp"),
            Connector::Changes { .. } | Connector::Generator(_) | Connector::Nexmark { .. } => None,
        }
    }

    /// Positions that it may be set to.
    pub(crate) fn positions(&self) -> SourcePositions {
        if self.key.is_some() {
            return SourcePositions::None("whose rows change: those that are there follow from all changes");
        }
        if self.marks() != SourceMarks::None {
            return SourcePositions::None("with marks of transactions, in the middle of which it would be");
        }
        match &self.connector {
            Connector::Changes { .. } => SourcePositions::None("that is the change log of a table"),
            Connector::Tcp { .. } => SourcePositions::None("of connections, which cannot be read again"),
            Connector::Parquet { .. } => SourcePositions::Beginning(
                "of Parquet files, which have no lines: SEEK TO BEGINNING reads all of them again",
            ),
            Connector::File { path, format, .. } => {
                let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                if name.contains(['*', '?']) {
                    return SourcePositions::Beginning(
                        "of several files, each of which has its own: SEEK TO BEGINNING reads all of them again",
                    );
                }
                let is_csv = matches!(format, FileFormat::Csv { .. });
                SourcePositions::File { path: path.clone(), is_csv }
            }
            Connector::Generator(generator) => {
                SourcePositions::Rows { rows: Some(generator.rows).filter(|rows| *rows != u64::MAX) }
            }
            Connector::Nexmark { .. } => SourcePositions::Rows { rows: None },
        }
    }

    /// Marks of its transactions.
    pub(crate) fn marks(&self) -> SourceMarks<'_> {
        match (&self.connector, &self.marks) {
            (Connector::File { transactions: Some(marks), .. }, _) => SourceMarks::File(&marks.path),
            (_, Some(columns)) => SourceMarks::Columns(columns.id.is_some()),
            (_, None) => SourceMarks::None,
        }
    }

    /// Description of where its rows come from.
    pub(crate) fn describe(&self) -> String {
        match &self.connector {
            Connector::Changes { table, .. } => format!("changes of {}", table.name()),
            Connector::File { path, .. } => format!("file {}", path.display()),
            Connector::Parquet { path, .. } => format!("Parquet file {}", path.display()),
            Connector::Tcp { .. } => "tcp".to_owned(),
            Connector::Generator(_) => "generator".to_owned(),
            Connector::Nexmark { .. } => "nexmark".to_owned(),
        }
    }

    /// The source itself, by its name; what it reads ahead takes memory of a budget.
    pub(crate) fn source(&self, name: &str, memory: Option<&Arc<MemoryBudget>>) -> Box<dyn Source> {
        let (declared, included) = self.read.split_at(self.read.len() - self.included.len());
        let source = self.declared_source(declared, (name, memory));
        let source: Box<dyn Source> = match &self.marks {
            Some(marks) => Box::new(MarkedSource::new(source, marks)),
            None => source,
        };
        let has_lines = matches!(self.connector, Connector::File { .. });
        if included.is_empty() {
            return self.computed.source(source, has_lines);
        }
        let names = included.iter().map(|column| column.name.clone());
        let included = self.included.iter().copied().zip(names).collect();
        self.computed.source(Box::new(MappedSource::including(source, included)), has_lines)
    }

    /// Source of the declared columns.
    fn declared_source(
        &self,
        columns: &[Column],
        (name, memory): (&str, Option<&Arc<MemoryBudget>>),
    ) -> Box<dyn Source> {
        match &self.connector {
            Connector::Changes { catalog, table, columns } => {
                let source = ChangesSource::new(catalog, table);
                Box::new(match columns {
                    Some(columns) => source.with_columns(columns.clone()),
                    None => source,
                })
            }
            Connector::File { path, format, tails, transactions } => {
                let files = FilesSource::new(path, columns.to_vec(), format.clone());
                let files = if *tails { files.tail() } else { files };
                match transactions {
                    None => Box::new(files),
                    Some(TransactionMarks { path, collection }) => {
                        Box::new(TransactionSource::new(files, path, collection.clone(), *tails))
                    }
                }
            }
            Connector::Parquet { path, tails } => {
                let (name, columns, memory) = (name.to_owned(), columns.to_vec(), memory.cloned());
                let format = ParquetSource { name, columns: columns.clone(), memory };
                let files = FilesSource::of_batches(path, columns, Arc::new(format));
                Box::new(if *tails { files.tail() } else { files })
            }
            Connector::Tcp { endpoint, format, acknowledges } => {
                let source = TcpSource::new(endpoint.clone(), columns.to_vec(), format.clone());
                Box::new(if *acknowledges { source.acknowledged() } else { source })
            }
            Connector::Generator(generator) => {
                paced(generator.clone().source(columns), generator.rows_per_second)
            }
            Connector::Nexmark { events, rows_per_second } => {
                let source = events.source(columns).expect("columns were checked when it was created");
                paced(source, *rows_per_second)
            }
        }
    }
}

/// Columns that a statement declares, those behind INCLUDE behind the others, and the columns of its key.
fn declared_columns(create: &CreateSource) -> Result<(Vec<Column>, Option<Vec<String>>)> {
    let mut columns: Vec<Column> = Vec::with_capacity(create.columns.len());
    let mut keys = create.key.clone();
    let included = create.included.iter().map(|(_, definition)| definition);
    for definition in create.columns.iter().chain(included) {
        let declared = declared_column(definition)?;
        let only_null = declared.default.is_none()
            && declared.checks.is_empty()
            && declared.unique.is_none()
            && declared.generated.is_none();
        if !only_null {
            let message = "constraints of a source's column other than NOT NULL and PRIMARY KEY";
            return Err(Error::unsupported(message));
        }
        if declared.is_key() && keys.replace(vec![declared.column.name.clone()]).is_some() {
            let message = format!("source \"{}\" has several primary keys", create.name);
            return Err(Error::coded("42P16", message));
        }
        if columns.iter().any(|column| column.name == declared.column.name) {
            let message = format!("column \"{}\" specified more than once", declared.column.name);
            return Err(Error::coded("42701", message));
        }
        columns.push(declared.column);
    }
    Ok((columns, keys))
}

/// Source at a rate, if there is one.
fn paced(source: Box<dyn Source>, rows_per_second: Option<u64>) -> Box<dyn Source> {
    match rows_per_second {
        Some(rate) => Box::new(PacedSource::new(source, rate)),
        None => source,
    }
}

impl Connector {
    fn file(options: &mut StreamOptions, encoding: KeyedEncoding<'_>) -> Result<Connector> {
        let path = PathBuf::from(options.require("path")?);
        let folder = path.parent().and_then(|folder| folder.to_str()).unwrap_or_default();
        if folder.contains(['*', '?']) {
            return Err(Error::unsupported(format!(
                "wildcards in the folder {folder}: only in the file's name"
            )));
        }
        if let (Some(Encoding::Parquet), _) = encoding {
            return Ok(Connector::Parquet { path, tails: options.parsed("tail")?.unwrap_or(false) });
        }
        let mut format = file_format(options, encoding)?;
        let transactions = match &mut format {
            FileFormat::Changes(format) if format.envelope == Envelope::Debezium => {
                let marks = transaction_marks(options, &path)?;
                format.has_transactions = marks.is_some();
                marks
            }
            _ => None,
        };
        Ok(Connector::File { path, format, tails: options.parsed("tail")?.unwrap_or(false), transactions })
    }

    fn tcp(options: &mut StreamOptions, encoding: KeyedEncoding<'_>) -> Result<Connector> {
        let endpoint = match (options.take("listen"), options.take("connect")) {
            (Some(address), None) => TcpEndpoint::Listen(address),
            (None, Some(address)) => TcpEndpoint::Connect { address, retry: options.interval("retry")? },
            _ => {
                let message =
                    "a source with the connector \"tcp\" needs the option \"listen\" or \"connect\"";
                return Err(Error::coded("22023", message));
            }
        };
        let acknowledges = options.parsed("acknowledge")?.unwrap_or(false);
        Ok(Connector::Tcp { endpoint, format: file_format(options, encoding)?, acknowledges })
    }

    fn nexmark(columns: &[Column], options: &mut StreamOptions) -> Result<Connector> {
        let entity: NexmarkEntity =
            options.require("entity")?.parse().map_err(|message: String| Error::coded("22023", message))?;
        let mut events = Nexmark::new(entity);
        events.events = options.parsed("events")?.unwrap_or(events.events);
        events.start_us = start_us(options)?.unwrap_or(events.start_us);
        events.seed = options.parsed("seed")?.unwrap_or(events.seed);
        let per_second = options.parsed("events_per_second")?.unwrap_or(events.events_per_second);
        if !(1..=NEXMARK_EVENTS_PER_SECOND_MAX).contains(&per_second) {
            return Err(invalid("events_per_second", &per_second.to_string()));
        }
        events.events_per_second = per_second;
        if let Err(message) = events.source(columns) {
            let known = entity.columns();
            let is_known = |column: &Column| known.iter().any(|known| known.name == column.name);
            let code = if columns.iter().all(is_known) { "42804" } else { "42703" };
            return Err(Error::coded(code, message));
        }
        Ok(Connector::Nexmark { events, rows_per_second: rows_per_second(options)? })
    }
}

/// Marks of transactions of the options `transactions` and `collection`.
fn transaction_marks(options: &mut StreamOptions, data: &Path) -> Result<Option<TransactionMarks>> {
    let Some(path) = options.take("transactions") else { return Ok(None) };
    if path.contains(['*', '?']) || Path::new(&path) == data {
        return Err(invalid("transactions", &path));
    }
    Ok(Some(TransactionMarks { path, collection: options.take("collection") }))
}

/// Columns of the options `transaction_id` and `transaction_end`.
fn transaction_columns(
    options: &mut StreamOptions,
    (encoding, columns): (Option<Encoding>, &[Column]),
) -> Result<Option<TransactionColumns>> {
    let marks =
        TransactionColumns { id: options.take("transaction_id"), end: options.take("transaction_end") };
    if marks == TransactionColumns::default() {
        return Ok(None);
    }
    if matches!(encoding, Some(Encoding::Changes(_))) {
        return Err(Error::unsupported(
            "columns that mark transactions of FORMAT UPSERT and DEBEZIUM, of which the option \"transactions\" names a file of marks",
        ));
    }
    let column = |name: &String| {
        let message = || format!("column \"{name}\" that marks transactions does not exist");
        columns.iter().find(|column| column.name == *name).ok_or_else(|| Error::coded("42703", message()))
    };
    marks.id.as_ref().map(column).transpose()?;
    let end = marks.end.as_ref().map(column).transpose()?;
    if let Some(end) = end.filter(|end| end.data_type != DataType::Boolean) {
        let message = format!(
            "column \"{}\" that marks ends of transactions is {}, not BOOLEAN",
            end.name, end.data_type
        );
        return Err(Error::coded("42804", message));
    }
    Ok(Some(marks))
}

/// Key of a source's rows; its columns become NOT NULL. Only rows that change have one.
fn source_key(
    create: &CreateSource,
    key: Option<Vec<String>>,
    columns: &mut [Column],
) -> Result<Option<Vec<String>>> {
    let (name, is_changing) = (&create.name, matches!(create.encoding, Some(Encoding::Changes(_))));
    let Some(key) = key else {
        if is_changing {
            let message = format!(
                "source \"{name}\" of FORMAT UPSERT or DEBEZIUM needs a PRIMARY KEY: its rows change by it"
            );
            return Err(Error::coded("42P16", message));
        }
        return Ok(None);
    };
    if !is_changing {
        return Err(Error::unsupported(
            "PRIMARY KEY of a source of FORMAT PLAIN: its rows are inserts; FORMAT UPSERT and DEBEZIUM have rows that change",
        ));
    }
    if !create.computed.is_empty() {
        return Err(Error::unsupported(
            "computed columns of a source whose rows change: a step that reads it computes them",
        ));
    }
    if create.watermark.is_some() {
        return Err(Error::unsupported(
            "WATERMARK of a source whose rows change: windows over them are refused, and nothing else reads it",
        ));
    }
    if let Some(column) =
        columns.iter().find(|column| [DELETED, TRANSACTION, TRANSACTION_ORDER].contains(&&*column.name))
    {
        return Err(Error::coded(
            "42701",
            format!("column \"{}\" of a source whose rows change", column.name),
        ));
    }
    for name in &key {
        let column = columns[..create.columns.len()].iter_mut().find(|column| column.name == *name);
        let column = column.ok_or_else(|| {
            Error::coded("42703", format!("column \"{name}\" named in the primary key does not exist"))
        })?;
        column.nullable = false;
    }
    let names: Vec<&str> = key.iter().map(String::as_str).collect();
    Schema::new(columns.to_vec(), &names)?;
    Ok(Some(key))
}

/// Refuses rows of ENCODE TEXT that are not one string.
pub(crate) fn check_plain(what: &str, columns: &[Column]) -> Result<()> {
    let types: Vec<String> = columns.iter().map(|column| column.data_type.to_string()).collect();
    if let [Column { data_type: DataType::Varchar, .. }] = columns {
        return Ok(());
    }
    let message = format!("ENCODE TEXT of {what}: its rows are one VARCHAR, not {}", types.join(", "));
    Err(Error::coded("42804", message))
}

/// Encoding of rows, and the columns of their key if they have one.
pub(crate) type KeyedEncoding<'k> = (Option<Encoding>, Option<&'k [String]>);

/// Format of lines. The options of CSV are left if it is another.
pub(crate) fn file_format(
    options: &mut StreamOptions,
    (encoding, key): KeyedEncoding<'_>,
) -> Result<FileFormat> {
    match encoding {
        Some(Encoding::Json) => return Ok(FileFormat::Json),
        Some(Encoding::Plain) => return Ok(FileFormat::Plain),
        Some(Encoding::Changes(envelope)) => {
            let mut format = ChangeFormat::new(envelope, key.unwrap_or_default().to_vec());
            format.timestamp_unit_ns = match options.take("timestamp_unit").as_deref() {
                None => None,
                Some("ms") => Some(1_000_000),
                Some("us") => Some(1_000),
                Some("ns") => Some(1),
                Some(other) => return Err(invalid("timestamp_unit", other)),
            };
            return Ok(FileFormat::Changes(format));
        }
        Some(Encoding::Parquet) => return Err(Error::unsupported("ENCODE PARQUET of anything but files")),
        Some(Encoding::Csv) | None => {}
    }
    let delimiter = options.take("delimiter").unwrap_or_else(|| ",".to_owned());
    let [separator] = delimiter.as_bytes() else { return Err(invalid("delimiter", &delimiter)) };
    Ok(FileFormat::Csv { separator: *separator, null: options.take("null").unwrap_or_default() })
}
