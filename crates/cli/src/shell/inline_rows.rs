//! Rows of a COPY FROM STDIN that follow it in a script, up to a line `\.` or the end of the input.
//!
//! Memory: one line at a time.

use std::io::{self, BufRead, Read};

/// End of the rows.
const END: &[u8] = b"\\.";

/// Reader of the rows, which leaves the input behind the line that ends them.
pub(super) struct InlineRows<'i> {
    input: &'i mut dyn BufRead,
    line: Vec<u8>,
    /// Bytes of the line that were taken.
    taken: usize,
    lines: usize,
    is_ended: bool,
}

impl<'i> InlineRows<'i> {
    pub(super) fn new(input: &'i mut dyn BufRead) -> Self {
        InlineRows { input, line: Vec::new(), taken: 0, lines: 0, is_ended: false }
    }

    /// Number of lines that were read, with the one that ends the rows.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }
}

impl InlineRows<'_> {
    fn next_line(&mut self) -> io::Result<()> {
        self.line.clear();
        self.taken = 0;
        let read = self.input.read_until(b'\n', &mut self.line)?;
        self.lines += usize::from(read > 0);
        if read == 0 || self.line.trim_ascii_end() == END {
            self.is_ended = true;
            self.line.clear();
        }
        Ok(())
    }
}

impl Read for InlineRows<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.taken == self.line.len() {
                if self.is_ended {
                    break;
                }
                self.next_line()?;
            }
            let bytes = (buffer.len() - filled).min(self.line.len() - self.taken);
            buffer[filled..filled + bytes].copy_from_slice(&self.line[self.taken..self.taken + bytes]);
            self.taken += bytes;
            filled += bytes;
        }
        Ok(filled)
    }
}
