//! Connectors of sources: what `WITH (connector = '...')` reads.
//!
//! | connector | options |
//! | --- | --- |
//! | `file` | `path`, `*` and `?` in the file's name for several; `tail` (`true`: waits for more lines and files), `rejects` (table of bad lines); of CSV `delimiter` (comma), `null` (a string that means NULL) |
//! | `tcp` | `listen` or `connect` (`host:port`); `retry` (interval between connections that are made), `acknowledge`, `rejects`, and the format as of files |
//! | `generator` | `rows` (without end), `rows_per_second`, `start`, `step` (event time between rows, a second), `seed` (other values), `<column>.cardinality`, `<column>.max` |
//! | `nexmark` | `entity` (`person`, `auction`, `bid`), `events` of all entities (without end), `rows_per_second`, `start`, `events_per_second` (of event time, 10,000), `seed` |
//!
//! FORMAT PLAIN ENCODE CSV is the default of files and connections, beside JSON; FORMAT UPSERT and DEBEZIUM ENCODE JSON have rows with
//! a PRIMARY KEY that change (`timestamp_unit` of numbers that are timestamps; of files of DEBEZIUM `transactions`, the file of
//! transaction marks, and `collection`, the name in it); options of the format may stand in parentheses behind it. All: `future_limit`
//! (a day): an event time further ahead of the clock closes no window.

use crate::ddl::table_definition::declared_column;
use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::own::streaming::{CreateSource, Encoding};
use crate::streaming::names::interval_of;
use crate::streaming::options::{StreamOptions, interval, invalid};
use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, TimestampMicrosecondArray};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use entresol_streams::{
    ChangeFormat, ChangesSource, DELETED, Envelope, FileFormat, FilesSource, GeneratorSource,
    IncludedColumns, IncludingSource, Nexmark, NexmarkEntity, PacedSource, Source, TRANSACTION, TcpEndpoint,
    TcpSource, TransactionSource, mixed,
};
use entresol_tables::{
    Catalog, Column, ColumnBuilder, DataType, Error as TableError, Interval, Schema, Table, Value,
    arrow_schema, change_columns, interval,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const FUTURE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// 2026-01-01 00:00:00 in microseconds.
const START_US: i64 = 1_767_225_600_000_000;
const STEP: Duration = Duration::from_secs(1);
/// Distinct values of a generated column, and the end of generated doubles.
const CARDINALITY: u64 = 100;
const MAX: f64 = 100.0;
const NEXMARK_EVENTS_PER_SECOND_MAX: u64 = 1_000_000_000;
const UTC: &str = "UTC";

/// Source as it was created.
#[derive(Debug, Clone)]
pub(crate) struct SourceDefinition {
    pub(crate) columns: Vec<Column>,
    /// Contents of the last columns, which say where rows come from.
    included: Vec<IncludedColumns>,
    pub(crate) event_time: Option<EventTime>,
    /// Silence after which windows over several sources do not wait for it.
    pub(crate) idle_timeout: Option<Duration>,
    /// Table of the records that are not tuples.
    pub(crate) rejects: Option<String>,
    /// Key of the rows, if they change.
    pub(crate) key: Option<Vec<String>>,
    connector: Connector,
}

/// Event time of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventTime {
    pub(crate) column: usize,
    pub(crate) lateness: Duration,
    pub(crate) future_limit: Duration,
}

#[derive(Debug, Clone)]
enum Connector {
    /// Logged changes of a table.
    Changes {
        catalog: Arc<Catalog>,
        table: Arc<Table>,
    },
    File {
        path: PathBuf,
        format: FileFormat,
        tails: bool,
        /// Marks of the transactions of its changes.
        transactions: Option<TransactionMarks>,
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
    /// Positions in several files.
    Files,
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

#[derive(Debug, Clone)]
struct Generator {
    rows: u64,
    rows_per_second: Option<u64>,
    start_us: i64,
    step_us: i64,
    /// Number that all values are mixed with; 0 is none.
    seed: u64,
    /// Per column.
    cardinalities: Vec<u64>,
    maxima: Vec<f64>,
}

impl SourceDefinition {
    /// Definition that a statement declares.
    pub(crate) fn new(create: &CreateSource) -> Result<SourceDefinition> {
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
        let key = source_key(create, keys, &mut columns)?;
        let declared = &columns[..create.columns.len()];
        let mut options = StreamOptions::new(format!("source \"{}\"", create.name), &create.options);
        let future_limit = options.interval("future_limit")?.unwrap_or(FUTURE_LIMIT);
        let event_time = match &create.watermark {
            None => None,
            Some((column, expression)) => Some(event_time(&columns, column, expression, future_limit)?),
        };
        let idle_timeout = options.interval("idle_timeout")?;
        if idle_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(invalid("idle_timeout", "0"));
        }
        let rejects = options.take("rejects");
        let connector = match options.require("connector")?.as_str() {
            "file" => Connector::file(&mut options, (create.encoding, key.as_deref()))?,
            "tcp" => Connector::tcp(&mut options, (create.encoding, key.as_deref()))?,
            computed @ ("generator" | "nexmark") if create.encoding.is_some() => {
                let message = format!("FORMAT of a source with the connector \"{computed}\"");
                return Err(Error::coded("22023", message));
            }
            "generator" => Connector::Generator(Generator::new(declared, &mut options)?),
            "nexmark" => Connector::nexmark(declared, &mut options)?,
            other => {
                let message = format!(
                    "connector \"{other}\" does not exist; there are file, tcp, generator and nexmark"
                );
                return Err(Error::coded("22023", message));
            }
        };
        options.end()?;
        let included = create.included.iter().map(|(included, _)| *included).collect();
        Ok(SourceDefinition { columns, included, event_time, idle_timeout, rejects, key, connector })
    }

    /// Source of the logged changes of a table, which another topology or a client writes.
    pub(crate) fn changes(catalog: &Arc<Catalog>, table: &Arc<Table>) -> Result<SourceDefinition> {
        if table.change_log()?.is_none() {
            return Err(TableError::NoChangeLog { table: table.name().to_owned() }.into());
        }
        Ok(SourceDefinition {
            columns: change_columns(table.schema().visible_columns()),
            included: Vec::new(),
            event_time: None,
            idle_timeout: None,
            rejects: None,
            key: None,
            connector: Connector::Changes { catalog: Arc::clone(catalog), table: Arc::clone(table) },
        })
    }

    /// Table whose logged changes it has.
    pub(crate) fn logged_table(&self) -> Option<&str> {
        match &self.connector {
            Connector::Changes { table, .. } => Some(table.name()),
            _ => None,
        }
    }

    /// Positions that it may be set to.
    pub(crate) fn positions(&self) -> SourcePositions {
        if self.key.is_some() {
            return SourcePositions::None("whose rows change: those that are there follow from all changes");
        }
        match &self.connector {
            Connector::Changes { .. } => SourcePositions::None("that is the change log of a table"),
            Connector::Tcp { .. } => SourcePositions::None("of connections, which cannot be read again"),
            Connector::File { transactions: Some(_), .. } => {
                SourcePositions::None("with marks of transactions, in the middle of which it would be")
            }
            Connector::File { path, format, .. } => {
                let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                if name.contains(['*', '?']) {
                    return SourcePositions::Files;
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

    /// File that says where transactions end, if there is one.
    pub(crate) fn transactions(&self) -> Option<&str> {
        match &self.connector {
            Connector::File { transactions: Some(marks), .. } => Some(&marks.path),
            Connector::Changes { .. }
            | Connector::File { .. }
            | Connector::Tcp { .. }
            | Connector::Generator(_)
            | Connector::Nexmark { .. } => None,
        }
    }

    /// The source itself.
    pub(crate) fn source(&self) -> Box<dyn Source> {
        let (declared, included) = self.columns.split_at(self.columns.len() - self.included.len());
        let source = self.declared_source(declared);
        if included.is_empty() {
            return source;
        }
        let names = included.iter().map(|column| column.name.clone());
        Box::new(IncludingSource::new(source, self.included.iter().copied().zip(names).collect()))
    }

    /// Source of the declared columns.
    fn declared_source(&self, columns: &[Column]) -> Box<dyn Source> {
        match &self.connector {
            Connector::Changes { catalog, table } => Box::new(ChangesSource::new(catalog, table)),
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

/// Source at a rate, if there is one.
fn paced(source: Box<dyn Source>, rows_per_second: Option<u64>) -> Box<dyn Source> {
    match rows_per_second {
        Some(rate) => Box::new(PacedSource::new(source, rate)),
        None => source,
    }
}

/// Rate of the option `rows_per_second`.
fn rows_per_second(options: &mut StreamOptions) -> Result<Option<u64>> {
    let rate = options.parsed("rows_per_second")?;
    if rate == Some(0) {
        return Err(invalid("rows_per_second", "0"));
    }
    Ok(rate)
}

/// Microseconds of the option `start`, a timestamp.
fn start_us(options: &mut StreamOptions) -> Result<Option<i64>> {
    let Some(start) = options.take("start") else { return Ok(None) };
    match Column::new("start", DataType::Timestamp).parse(&start) {
        Ok(Value::Timestamp(start_us)) => Ok(Some(start_us)),
        _ => Err(invalid("start", &start)),
    }
}

/// Event time of a watermark: `at`, or `at - INTERVAL '...'`.
fn event_time(
    columns: &[Column],
    column: &str,
    expression: &Expr,
    future_limit: Duration,
) -> Result<EventTime> {
    let wrong = || {
        Error::unsupported(format!("WATERMARK FOR {column} AS {expression}: write {column} - INTERVAL '...'"))
    };
    let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(ident) if identifier(ident) == column);
    let lateness = match expression {
        expr if is_column(expr) => Duration::ZERO,
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if is_column(left) => {
            interval("WATERMARK", &interval_of(right).ok_or_else(wrong)?)?
        }
        _ => return Err(wrong()),
    };
    let at = columns.iter().position(|found| found.name == column);
    let at = at.ok_or_else(|| Error::coded("42703", format!("column \"{column}\" does not exist")))?;
    if !matches!(columns[at].data_type, DataType::Timestamp | DataType::TimestampTz) {
        let message =
            format!("column \"{column}\" of the watermark is {}, not a timestamp", columns[at].data_type);
        return Err(Error::coded("42804", message));
    }
    Ok(EventTime { column: at, lateness, future_limit })
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
    if create.watermark.is_some() {
        return Err(Error::unsupported(
            "WATERMARK of a source whose rows change: windows over them are refused, and nothing else reads it",
        ));
    }
    if let Some(column) = columns.iter().find(|column| [DELETED, TRANSACTION].contains(&&*column.name)) {
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

/// Encoding of rows, and the columns of their key if they have one.
pub(crate) type KeyedEncoding<'k> = (Option<Encoding>, Option<&'k [String]>);

/// Format of lines. The options of CSV are left if it is another.
pub(crate) fn file_format(
    options: &mut StreamOptions,
    (encoding, key): KeyedEncoding<'_>,
) -> Result<FileFormat> {
    match encoding {
        Some(Encoding::Json) => return Ok(FileFormat::Json),
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
        Some(Encoding::Csv) | None => {}
    }
    let delimiter = options.take("delimiter").unwrap_or_else(|| ",".to_owned());
    let [separator] = delimiter.as_bytes() else { return Err(invalid("delimiter", &delimiter)) };
    Ok(FileFormat::Csv { separator: *separator, null: options.take("null").unwrap_or_default() })
}

impl Generator {
    fn new(columns: &[Column], options: &mut StreamOptions) -> Result<Generator> {
        let step = options.interval("step")?.unwrap_or(STEP);
        let mut generator = Generator {
            rows: options.parsed("rows")?.unwrap_or(u64::MAX),
            rows_per_second: rows_per_second(options)?,
            start_us: start_us(options)?.unwrap_or(START_US),
            step_us: i64::try_from(step.as_micros()).unwrap_or(i64::MAX),
            seed: options.parsed("seed")?.map_or(0, |seed: u64| if seed == 0 { 0 } else { mixed(seed) }),
            cardinalities: Vec::new(),
            maxima: Vec::new(),
        };
        for column in columns {
            let cardinality = options.parsed(&format!("{}.cardinality", column.name))?.unwrap_or(CARDINALITY);
            if cardinality == 0 {
                return Err(invalid(&format!("{}.cardinality", column.name), "0"));
            }
            generator.cardinalities.push(cardinality);
            generator.maxima.push(options.parsed(&format!("{}.max", column.name))?.unwrap_or(MAX));
        }
        Ok(generator)
    }

    fn source(self, columns: &[Column]) -> Box<dyn Source> {
        let schema = arrow_schema(columns, UTC);
        let declared = columns.to_vec();
        Box::new(GeneratorSource::batches(columns.to_vec(), move |first, tuples_max| {
            let range = first.min(self.rows)..self.rows.min(first.saturating_add(tuples_max as u64));
            let rows = (range.end - range.start) as usize;
            let columns = declared.iter().zip(schema.fields()).enumerate().map(|(at, (column, field))| {
                if let Some(array) = self.array(column, at, range.clone()) {
                    return array;
                }
                let mut builder = ColumnBuilder::new(column.data_type, field.data_type(), rows);
                range.clone().for_each(|n| self.push(&mut builder, column, at, n));
                builder.finish()
            });
            let columns = columns.collect();
            datafusion::arrow::array::RecordBatch::try_new(Arc::clone(&schema), columns)
                .expect("the arrays are of the columns")
        }))
    }

    /// Array of a column of one of the usual types.
    fn array(&self, column: &Column, at: usize, rows: Range<u64>) -> Option<ArrayRef> {
        let seed = self.seed;
        let random = move |n: u64| mixed(n ^ seed ^ ((at as u64 + 1) << 56));
        let (cardinality, max) = (self.cardinalities[at], self.maxima[at]);
        Some(match column.data_type {
            DataType::Int => Arc::new(Int32Array::from_iter_values(
                rows.map(|n| (random(n) % cardinality % i32::MAX as u64) as i32),
            )),
            DataType::Double => Arc::new(Float64Array::from_iter_values(rows.map(|n| part(random(n)) * max))),
            DataType::Timestamp => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(rows.map(|n| self.time_us(n))))
            }
            _ => return None,
        })
    }

    fn time_us(&self, n: u64) -> i64 {
        self.start_us.saturating_add(self.step_us.saturating_mul(n as i64))
    }

    /// Adds the value of a column in row number `n`.
    fn push(&self, builder: &mut ColumnBuilder, column: &Column, at: usize, n: u64) {
        let random = mixed(n ^ self.seed ^ ((at as u64 + 1) << 56));
        let number = random % self.cardinalities[at];
        let time_us = self.time_us(n);
        const DAY_US: i64 = 86_400_000_000;
        builder.push(&match column.data_type {
            DataType::Boolean => Value::Boolean(random & 1 == 1),
            DataType::SmallInt => Value::Int((number % i16::MAX as u64) as i32),
            DataType::Int => Value::Int((number % i32::MAX as u64) as i32),
            DataType::BigInt => Value::BigInt((number % i64::MAX as u64) as i64),
            DataType::Real | DataType::Double => {
                let value = part(random) * self.maxima[at];
                Value::Double(if column.data_type == DataType::Real {
                    f64::from(value as f32)
                } else {
                    value
                })
            }
            DataType::Decimal { precision, .. } => {
                Value::Decimal(i128::from(number) % 10_i128.pow(u32::from(precision)))
            }
            DataType::Date => Value::Date(time_us.div_euclid(DAY_US) as i32),
            DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(time_us),
            DataType::Interval => {
                let micros = (number % interval::MICROS_MAX as u64) as i64;
                Interval::new(0, 0, micros).map_or(Value::Null, Value::Interval)
            }
            DataType::Varchar => return builder.push_text(&format!("{} {number}", column.name)),
        });
    }
}

/// Part of one: from 0 to below 1.
fn part(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
