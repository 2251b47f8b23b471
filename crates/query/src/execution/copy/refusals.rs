//! Errors of a COPY that is run where its rows cannot go.

use crate::error::Error;

/// Bytes of lines are asked for where there are no lines.
pub(super) fn no_lines() -> Error {
    Error::unsupported("COPY with FORMAT binary outside of the wire protocol")
}

/// A COPY with STDIN or STDOUT is run as a statement without a stream of rows.
pub(super) fn no_stream() -> Error {
    Error::unsupported(
        "COPY with STDIN or STDOUT outside of the wire protocol: use \\copy, a client's COPY, or the name of a file",
    )
}
