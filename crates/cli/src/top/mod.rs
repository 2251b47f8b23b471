//! `entresol top DIR|URL`: what topologies do, refreshed at a terminal until `q`.
//!
//! - A URL is that of a served database, asked over the wire; a directory is opened, and its topologies run as long as
//!   the command does.
//! - If standard output is no terminal, and with `--once`, one page is printed.

mod connection;
mod page;
mod screen;

use crate::arguments::TopArguments;
use crate::error::{Error, Result};
use crate::shell::output;
use connection::Connection;
use page::Snapshot;
use screen::Screen;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Rows of a page that is not bounded by a terminal.
const ALL_LINES: usize = usize::MAX;

/// Runs `entresol top`.
pub fn run(arguments: &TopArguments) -> Result<()> {
    let interval =
        Duration::try_from_secs_f64(arguments.interval).ok().filter(|interval| !interval.is_zero());
    let interval = interval.ok_or_else(|| {
        Error::Invalid(format!("--interval {}: expected seconds, more than 0", arguments.interval))
    })?;
    let mut connection = Connection::open(arguments)?;
    let name = connection.name(&arguments.target).to_owned();
    let outcome = if arguments.once || !is_terminal() {
        print_once(&mut connection, &name)
    } else {
        refresh(&mut connection, &name, interval)
    };
    let closed = connection.close();
    outcome.and(closed)
}

/// Returns true if pages can be drawn, and keys read.
fn is_terminal() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

fn print_once(connection: &mut Connection, target: &str) -> Result<()> {
    let snapshot = Snapshot::take(connection)?;
    let mut out = output::stdout();
    for line in page::lines(target, &snapshot, None, ALL_LINES) {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

fn refresh(connection: &mut Connection, target: &str, interval: Duration) -> Result<()> {
    let mut before = None;
    let mut snapshot = Snapshot::take(connection)?;
    let mut screen = Screen::open()?;
    loop {
        let (columns, rows) = screen.size();
        screen.draw(&page::lines(target, &snapshot, before.as_ref(), rows), columns)?;
        if screen.leaves_within(interval)? {
            return Ok(());
        }
        before = Some(std::mem::replace(&mut snapshot, Snapshot::take(connection)?));
    }
}
