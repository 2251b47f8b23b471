//! Arguments of the command line.

use crate::shell::output::Format;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use entresol::{CachePolicy, Durability, MemorySize, Options};
use entresol_demo::SmartMeteringArguments;
use entresol_ssb::SsbCommand;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  entresol demo smart-metering                     the smart metering use case, simulated
  entresol demo smart-metering --crash --cycles 50 the same under kill -9, checked
  entresol shell ./db                              interactive SQL
  entresol shell ./db -c 'SELECT 1 + 1'            one statement
  entresol shell ./db --format csv -f query.sql    statements from a file, results as CSV
  entresol serve ./db                              for psql and PostgreSQL drivers
  entresol top postgresql://127.0.0.1:5432         what its topologies do, refreshed
  entresol ssb generate --sf 1 --out ./ssb-1       the Star Schema Benchmark: tables, ...
  entresol ssb load ./ssb-1 --dir ./db             ... a database of them, ...
  entresol ssb run --dir ./db                      ... and its queries
  entresol check ./db                              verify checksums, objects and rows
  entresol backup ./db ./db-copy --verify          a copy, complete or not there at all";

/// An embedded database for transactional streams and analytics on tiered memory.
#[derive(Debug, Parser)]
#[command(name = "entresol", version, about, after_help = EXAMPLES, propagate_version = true)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run SQL on a database: at a terminal, with -c, from a file, or from standard input.
    Shell(ShellArguments),
    /// Serve a database on the PostgreSQL wire: psql, drivers and tools connect to it.
    Serve(Box<ServeArguments>),
    /// Watch topologies: rates, lag, watermarks, late and rejected rows, errors.
    Top(TopArguments),
    /// Make, change and list the roles that may connect to a served database.
    #[command(subcommand)]
    Role(RoleCommand),
    /// Verify every checksum, object and row of a database; changes nothing.
    Check(CheckArguments),
    /// Print the properties and contents of a database; changes nothing.
    Info(InfoArguments),
    /// Copy a database.
    Backup(BackupArguments),
    /// Run a demonstration.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Run the Star Schema Benchmark: generate its tables, load them, run its 13 queries.
    #[command(subcommand)]
    Ssb(SsbCommand),
}

const SHELL_EXAMPLES: &str = "Examples:
  entresol shell ./db
  entresol shell ./db -c 'CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR); SELECT * FROM t'
  entresol shell ./db --format json -c 'SELECT * FROM t' | jq .
  entresol shell ./db < statements.sql
At the prompt, \\? lists the commands. The first error ends -c, -f and standard input with exit status 1.";

/// Arguments of commands that open a database to run statements: memory, devices.
#[derive(Debug, Args)]
pub struct StorageArguments {
    /// Memory of the database: bytes such as 512MiB, or a share of the machine or its control group such as
    /// 25%.
    #[arg(long, value_name = "SIZE", default_value = "50%")]
    pub memory_max: MemorySize,
    /// Pages of tables by column that stay in memory: lru, mru, lfu, 2q, s3-fifo, hpcache; hpcache:10% for the least
    /// memory with which queries are at most 10% slower.
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub cache_policy: CachePolicy,
    /// Memory that these pages take at most, such as 1GB; never more than a quarter of --memory-max.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cache_max: Option<usize>,
    /// Directory on a disk for tables WITH (placement = 'disk') of a database on persistent memory; give it
    /// with every open.
    #[arg(long, value_name = "DIR")]
    pub disk_dir: Option<PathBuf>,
    /// Keep background threads on the processors near the device, on a machine with several memory nodes.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub near_device: bool,
    /// Does not start the topologies of the database
    #[arg(long)]
    pub no_topologies: bool,
    /// Profile of the disk that checkpoints write to, as measured by `lab run calibrate`.
    #[arg(long, value_name = "FILE")]
    pub disk_profile: Option<PathBuf>,
}

impl StorageArguments {
    /// Options for opening a database with these arguments.
    pub fn options(&self) -> Options {
        Options {
            memory_max: self.memory_max,
            cache_policy: self.cache_policy,
            cache_bytes_max: self.cache_max.map(|bytes| bytes as u64),
            disk_directory: self.disk_dir.clone(),
            near_device: self.near_device,
            starts_topologies: !self.no_topologies,
            disk_profile: self.disk_profile.clone(),
            ..Options::default()
        }
    }
}

/// Arguments of `entresol shell`.
#[derive(Debug, Args)]
#[command(after_help = SHELL_EXAMPLES)]
pub struct ShellArguments {
    /// Directory of the database; created if it does not exist.
    pub dir: PathBuf,
    /// Run these statements and leave (may be given several times).
    #[arg(short, long, value_name = "SQL")]
    pub command: Vec<String>,
    /// Run the statements of a file and leave (may be given several times; after all -c).
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Format of results.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Durability of commits: sync, group:10ms (any number of milliseconds) or none.
    #[arg(long, default_value = "sync", value_name = "LEVEL")]
    pub durability: Durability,
    /// Memory and devices of the database.
    #[command(flatten)]
    pub storage: StorageArguments,
    /// Neither read nor write the history.
    #[arg(long)]
    pub no_history: bool,
}

const SERVE_EXAMPLES: &str = "Examples:
  entresol serve ./db
  psql -h 127.0.0.1 -p 5432 -c 'SELECT 1 + 1'

  entresol role add ./db anna --write orders,items < password.txt
  entresol serve ./db --listen 0.0.0.0:5432 --tls-cert server.crt --tls-key server.key --tls require
  psql 'host=db.example user=anna sslmode=require'

  entresol serve ./db --metrics 127.0.0.1:9187
  curl http://127.0.0.1:9187/healthz http://127.0.0.1:9187/metrics

Without roles every client on this machine is a superuser, and the server listens on no other address. With roles every
client needs a password. SIGTERM or SIGINT ends it: running statements may finish, then the database is closed.";

/// Arguments of `entresol serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArguments {
    /// Directory of the database; created if it does not exist.
    pub dir: PathBuf,
    /// Address and port to listen on; port 0 takes a free one. Others than this machine's need roles.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5432")]
    pub listen: SocketAddr,
    /// Serve /metrics (for Prometheus) and /healthz here over HTTP, without a password.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Durability of commits: sync, group:10ms (any number of milliseconds) or none.
    #[arg(long, default_value = "sync", value_name = "LEVEL")]
    pub durability: Durability,
    /// PEM file with the certificate for encrypted connections.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with its private key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Encryption of connections: allowed or required.
    #[arg(long, value_enum, default_value = "allow", value_name = "MODE")]
    pub tls: TlsMode,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = entresol_server::CONNECTIONS_MAX)]
    pub connections: usize,
    /// Longest time of a statement, such as 30s; 0 is no limit.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub statement_timeout: Duration,
    /// Longest time that a transaction is open without a statement; 0 is no limit.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    pub idle_in_transaction_timeout: Duration,
    /// Longest time that a session may hold a snapshot, which keeps what it sees from being reclaimed; 0 is
    /// no limit.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub max_snapshot_age: Duration,
    /// Longest time until a client has given its password.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub startup_timeout: Duration,
    /// Time that running statements may go on after SIGTERM. Then they are stopped; the process ends less
    /// than two seconds later, whatever they do.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub shutdown_timeout: Duration,
    /// Memory and devices of the database.
    #[command(flatten)]
    pub storage: StorageArguments,
    /// Memory for the sorts, joins and aggregates of one statement, such as 256MB.
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = bytes)]
    pub statement_memory: usize,
    /// The same for all statements together.
    #[arg(long, value_name = "BYTES", default_value = "1GB", value_parser = bytes)]
    pub query_memory: usize,
    /// Longest message of a client.
    #[arg(long, value_name = "BYTES", default_value = "65MB", value_parser = bytes)]
    pub packet_size: usize,
}

/// Encryption of connections: allowed or required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// Both ways, if there is a certificate.
    Allow,
    /// Clients that do not encrypt are refused.
    Require,
}

/// A time: milliseconds, or with a unit.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits]
        .parse()
        .map_err(|_| format!("'{text}' is not a time, such as 250ms, 30s, 10min, 1h"))?;
    let unit_ms = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        other => return Err(format!("'{other}' is not a unit of time: use ms, s, min or h")),
    };
    let ms = number.checked_mul(unit_ms).ok_or_else(|| format!("{text} is too long"))?;
    Ok(Duration::from_millis(ms))
}

/// A number of bytes, in units of 1024.
fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize =
        text[..digits].parse().map_err(|_| format!("'{text}' is not a size, such as 512kB, 256MB, 1GB"))?;
    let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" | "kib" => 10,
        "mb" | "mib" => 20,
        "gb" | "gib" => 30,
        other => return Err(format!("'{other}' is not a unit of size: use kB, MB or GB")),
    };
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0).ok_or_else(|| format!("{text} is out of range"))
}

const ROLE_EXAMPLES: &str = "Examples:
  entresol role add ./db admin --administrator < password.txt
  entresol role add ./db anna --write orders,items --read customers --password-file anna.txt
  entresol role grant ./db anna --read '*'
  entresol role list ./db
The password is the first line of standard input or of the file; only its hash is stored. No process may have the
database open meanwhile.";

/// Roles of a database.
#[derive(Debug, Subcommand)]
#[command(after_help = ROLE_EXAMPLES)]
pub enum RoleCommand {
    /// Make a role.
    #[command(after_help = ROLE_EXAMPLES)]
    Add(RoleAddArguments),
    /// Give a role a new password.
    Password(RolePasswordArguments),
    /// Let a role read or write tables.
    Grant(RoleGrantArguments),
    /// Revoke the privileges of a role on tables.
    Revoke(RoleRevokeArguments),
    /// Remove a role.
    Drop(RoleNameArguments),
    /// List roles and their privileges.
    List(RoleListArguments),
}

/// Source of a password.
#[derive(Debug, Args)]
pub struct PasswordSource {
    /// Read the password from the first line of this file, not from standard input.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

/// Tables that a role may read or write.
#[derive(Debug, Args)]
pub struct GrantArguments {
    /// Tables that it may read; '*' is all.
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub read: Vec<String>,
    /// Tables that it may read and write; '*' is all.
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub write: Vec<String>,
}

/// Arguments of `entresol role add`.
#[derive(Debug, Args)]
pub struct RoleAddArguments {
    /// Directory of the database; created if it does not exist.
    pub dir: PathBuf,
    /// Name of the role.
    pub name: String,
    /// It may do everything.
    #[arg(long)]
    pub administrator: bool,
    /// Its privileges.
    #[command(flatten)]
    pub granted: GrantArguments,
    /// Its password.
    #[command(flatten)]
    pub password: PasswordSource,
}

/// Arguments of `entresol role password`.
#[derive(Debug, Args)]
pub struct RolePasswordArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Name of the role.
    pub name: String,
    /// Its new password.
    #[command(flatten)]
    pub password: PasswordSource,
}

/// Arguments of `entresol role grant`.
#[derive(Debug, Args)]
pub struct RoleGrantArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Name of the role.
    pub name: String,
    /// Privileges to grant.
    #[command(flatten)]
    pub granted: GrantArguments,
}

/// Arguments of `entresol role revoke`.
#[derive(Debug, Args)]
pub struct RoleRevokeArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Name of the role.
    pub name: String,
    /// Tables, or '*' for the privileges on all.
    #[arg(value_delimiter = ',', required = true)]
    pub tables: Vec<String>,
}

/// Arguments of `entresol role drop`.
#[derive(Debug, Args)]
pub struct RoleNameArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Name of the role.
    pub name: String,
}

/// Arguments of `entresol role list`.
#[derive(Debug, Args)]
pub struct RoleListArguments {
    /// Directory of the database.
    pub dir: PathBuf,
}

/// Arguments of `entresol top`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol top postgresql://anna:secret@db.example:5432
  entresol top ./db
  entresol top postgresql://127.0.0.1 --once | grep failed
A directory is opened, so no other process may have it open, and its topologies run meanwhile. The connection is not
encrypted. At a terminal, q leaves.")]
pub struct TopArguments {
    /// Served database as postgresql://USER:PASSWORD@HOST:PORT, or the directory of one that is not open.
    #[arg(value_name = "URL|DIR")]
    pub target: String,
    /// Seconds between two pages.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub interval: f64,
    /// Print one page and leave, as without a terminal.
    #[arg(long)]
    pub once: bool,
    /// Memory and devices of the database in a directory.
    #[command(flatten)]
    pub storage: StorageArguments,
}

/// Arguments of `entresol check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol check ./db
  entresol check ./db --json report.json
The exit status is 1 if anything is wrong. No other process may have the database open meanwhile.")]
pub struct CheckArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Write the findings as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Do not report progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Arguments of `entresol info`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol info ./db
  entresol info ./db --json | jq .tables
Of a database that a process has open, it says what the headers of the files say.")]
pub struct InfoArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `entresol backup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol backup ./db /backups/monday --verify
  entresol shell ./db -c \"BACKUP TO '/backups/monday'\"
A backup is a database: open it, or copy it back. If a process has the database open, it makes the backup: with the
statement BACKUP TO 'directory', or Database::backup; others go on writing meanwhile.")]
pub struct BackupArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Directory of the copy: new or empty. It appears when the copy is complete.
    #[arg(value_name = "DEST")]
    pub destination: PathBuf,
    /// Check the copy, as `entresol check` does.
    #[arg(long)]
    pub verify: bool,
}

/// The demonstrations.
#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// Smart meters and energy monitoring: three continuous queries and ad-hoc SQL on shared states.
    SmartMetering(Box<SmartMeteringArguments>),
    /// One cycle's victim of the crash loop.
    #[command(hide = true)]
    CrashChild(Box<SmartMeteringArguments>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("250"), Ok(Duration::from_millis(250)));
        assert_eq!(bytes("64kB"), Ok(64 << 10));
        assert!(time("soon").is_err() && time("3d").is_err() && bytes("0").is_err() && bytes("MB").is_err());
    }
}
