//! ALTER SOURCE ... SEEK TO: another position for the topologies that read a source, none of which runs.
//!
//! | source | position |
//! | --- | --- |
//! | generator, nexmark | number of rows before the next one |
//! | one file | byte behind a line |
//! | several files, Parquet files | the beginning alone |
//! | connections, changes of rows by their key, sources with marks of transactions | none |
//!
//! Rows are read again, or are not read: what the topology has written and its state stay. The position of each
//! topology is changed in a transaction of its own; a crash leaves it changed for some, and the statement can be
//! repeated.

use crate::error::{Error, Result};
use crate::parser::own::streaming::SeekTarget;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::streaming::connectors::{SourceDefinition, SourcePositions};
use crate::streaming::starting::stream_error;
use entresol_streams::{Head, Position, Split, SplitPosition, seek};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file that are looked at at once.
const READ_BYTES: usize = 1 << 16;

/// Sets the position of a source in all topologies that read it.
pub(crate) async fn seek_source(
    session: &SessionCore,
    name: &str,
    source: &SourceDefinition,
    target: SeekTarget,
) -> Result<()> {
    let topologies = &session.options.topologies;
    let users = topologies.users(|used| used.uses(name));
    if users.is_empty() {
        let message = format!("no topology reads source \"{name}\": a new one begins at its beginning");
        return Err(Error::coded("55000", message));
    }
    if let Some(running) = users.iter().find(|user| topologies.is_running(user)) {
        let object = if topologies.is_sink(running) { "SINK" } else { "TOPOLOGY" };
        let message = format!(
            "source \"{name}\" is read by \"{running}\", which runs: ALTER {object} {running} PAUSE before, and RESUME behind SEEK"
        );
        return Err(Error::coded("55006", message));
    }
    let (name, catalog, positions) = (name.to_owned(), Arc::clone(&session.catalog), source.positions());
    blocking(move || {
        let (position, split) = position_of(&name, &positions, target)?;
        let split = split.map(|split| SplitPosition { split, position });
        for user in users {
            seek(&catalog, &user, &name, position, split.as_ref()).map_err(stream_error)?;
        }
        Ok(())
    })
    .await?
}

/// Position in a source, and the file that it is in.
fn position_of(
    name: &str,
    positions: &SourcePositions,
    target: SeekTarget,
) -> Result<(Position, Option<Split>)> {
    let refused = |reason: &str| {
        Err(Error::unsupported(format!("ALTER SOURCE {name} SEEK TO a position of a source {reason}")))
    };
    match (positions, target) {
        (SourcePositions::None(reason), _) => refused(reason),
        (_, SeekTarget::Beginning | SeekTarget::Position(0)) => Ok((Position::default(), None)),
        (SourcePositions::Beginning(reason), SeekTarget::Position(_)) => refused(reason),
        (SourcePositions::Rows { rows }, SeekTarget::Position(offset)) => {
            if rows.is_some_and(|rows| offset > rows) {
                let rows = rows.unwrap_or_default();
                return Err(out_of_range(format!(
                    "position {offset} of source \"{name}\", which has {rows} rows"
                )));
            }
            Ok((Position { offset, line: 0 }, None))
        }
        (SourcePositions::File { path, is_csv }, SeekTarget::Position(offset)) => {
            let line = lines_before(path, offset, *is_csv)?;
            let split = Split { name: path.to_string_lossy().into(), head: Head::default() };
            Ok((Position { offset, line }, Some(split)))
        }
    }
}

fn out_of_range(message: String) -> Error {
    Error::coded("22003", message)
}

/// Number of the lines of a file before an offset, which must be behind one of them.
fn lines_before(path: &Path, offset: u64, is_csv: bool) -> Result<u64> {
    let io = |error: std::io::Error| Error::coded("58030", format!("file {}: {error}", path.display()));
    let mut file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    if offset > bytes {
        let path = path.display();
        return Err(out_of_range(format!("position {offset} of file {path}, which has {bytes} bytes")));
    }
    let (mut rest, mut lines, mut quotes, mut last) = (offset, 0, 0_u64, b'\n');
    let mut buffer = vec![0; READ_BYTES];
    while rest > 0 {
        let wanted = usize::try_from(rest).unwrap_or(READ_BYTES).min(READ_BYTES);
        file.read_exact(&mut buffer[..wanted]).map_err(io)?;
        for byte in &buffer[..wanted] {
            lines += u64::from(*byte == b'\n');
            quotes += u64::from(*byte == b'"');
        }
        last = buffer[wanted - 1];
        rest -= wanted as u64;
    }
    // A line end between quotes is one of a value.
    if last != b'\n' || (is_csv && quotes % 2 == 1) {
        let path = path.display();
        return Err(out_of_range(format!(
            "position {offset} of file {path} is not behind a line: INCLUDE OFFSET and entresol.sources have positions that are"
        )));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_behind_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        std::fs::write(&path, "a,b\n1,\"x\ny\"\n2,z\n").unwrap();
        for (offset, is_csv, expected) in [
            (4, true, Ok(1)),
            (12, true, Ok(3)),
            (16, true, Ok(4)),
            (9, false, Ok(2)),
            (9, true, Err("not behind a line")),
            (5, true, Err("not behind a line")),
            (17, true, Err("which has 16 bytes")),
        ] {
            match (lines_before(&path, offset, is_csv), expected) {
                (Ok(lines), Ok(expected)) => assert_eq!(lines, expected, "{offset}"),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (found, expected) => panic!("{offset}: {found:?}, {expected:?}"),
            }
        }
    }
}
