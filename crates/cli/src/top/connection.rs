//! Queries to a database in this process, or over the wire.

use crate::arguments::TopArguments;
use crate::error::{Error, Result};
use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, ErrorKind, Session};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Port of URLs without one.
const PORT_DEFAULT: &str = "5432";

/// Row of a query, as texts; NULL is empty.
pub(super) type TextRow = Vec<String>;

/// Database that answers queries.
pub(super) enum Connection {
    Opened { database: Box<Database>, session: Box<Session> },
    Served { runtime: Runtime, client: Box<Client>, name: String },
}

impl Connection {
    /// Connects to the target of the command: a URL, or a directory.
    pub(super) fn open(arguments: &TopArguments) -> Result<Connection> {
        let target = arguments.target.as_str();
        if target.starts_with("postgresql://") || target.starts_with("postgres://") {
            return Connection::to_server(target);
        }
        let directory = Path::new(target);
        if !directory.is_dir() {
            return Err(Error::Invalid(format!(
                "{target}: expected the directory of a database, or postgresql://USER@HOST:PORT"
            )));
        }
        let database = Database::open(directory, arguments.storage.options()).map_err(|error| {
            if error.kind() != ErrorKind::Busy {
                return Error::Database(error);
            }
            Error::Invalid(format!(
                "{error}; if it is served, give its address: entresol top postgresql://127.0.0.1:5432"
            ))
        })?;
        let session = Box::new(database.session()?);
        Ok(Connection::Opened { database: Box::new(database), session })
    }

    fn to_server(url: &str) -> Result<Connection> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let parsed = url.parse();
        let mut config: Config =
            parsed.map_err(|error| Error::Invalid(format!("the URL of the server: {}", message(&error))))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_user().is_none() {
            config.user("entresol");
        }
        let name = name_of(&config);
        let refused = |error: &tokio_postgres::Error| Error::Invalid(format!("{name}: {}", message(error)));
        let connected = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            Ok::<Client, tokio_postgres::Error>(client)
        });
        let client = connected.map_err(|error| refused(&error))?;
        Ok(Connection::Served { runtime, client: Box::new(client), name })
    }

    /// Name of the database in pages and errors.
    pub(super) fn name<'c>(&'c self, target: &'c str) -> &'c str {
        match self {
            Connection::Opened { .. } => target,
            Connection::Served { name, .. } => name,
        }
    }

    /// Rows of a query.
    pub(super) fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>> {
        match self {
            Connection::Opened { session, .. } => opened_rows(session, sql),
            Connection::Served { runtime, client, name } => {
                let messages = runtime.block_on(client.simple_query(sql));
                let messages =
                    messages.map_err(|error| Error::Invalid(format!("{name}: {}", message(&error))))?;
                Ok(messages.iter().filter_map(served_row).collect())
            }
        }
    }

    /// Ends it; a database that was opened is closed.
    pub(super) fn close(self) -> Result<()> {
        let Connection::Opened { database, session } = self else { return Ok(()) };
        drop(session);
        Ok(database.close()?)
    }
}

fn opened_rows(session: &mut Session, sql: &str) -> Result<Vec<TextRow>> {
    let mut rows = Vec::new();
    for batch in session.query(sql)? {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| array_value_to_string(column, row));
            let cells = cells.collect::<std::result::Result<TextRow, _>>();
            rows.push(cells.map_err(|error| Error::Format(error.to_string()))?);
        }
    }
    Ok(rows)
}

fn served_row(message: &SimpleQueryMessage) -> Option<TextRow> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    Some((0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect())
}

/// Server as it is shown: without a password.
fn name_of(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(host) => host.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let ports = config.get_ports().iter().map(u16::to_string);
    let addresses = hosts.zip(ports.chain(std::iter::repeat(PORT_DEFAULT.to_owned())));
    let addresses: Vec<String> = addresses.map(|(host, port)| format!("{host}:{port}")).collect();
    format!("postgresql://{}@{}", config.get_user().unwrap_or_default(), addresses.join(","))
}

/// Message of the server, or reason why it did not answer.
fn message(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return answer.message().to_owned();
    }
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
