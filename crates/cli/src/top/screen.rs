//! Terminal with a page of its own, and single keys.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use rustyline::DefaultEditor;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Size of a terminal that does not tell.
const SIZE_DEFAULT: (usize, usize) = (120, 40);
/// Byte of Ctrl-C, which sends no signal here.
const INTERRUPT: u8 = 3;
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Terminal of the process, until it is dropped.
pub(super) struct Screen {
    before: Termios,
    /// Knows the size of the terminal.
    editor: DefaultEditor,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        let editor = DefaultEditor::new().map_err(io::Error::other)?;
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
        let screen = Screen { before, editor };
        print(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&mut self) -> (usize, usize) {
        self.editor
            .dimensions()
            .map_or(SIZE_DEFAULT, |(columns, rows)| (usize::from(columns), usize::from(rows)))
    }

    pub(super) fn draw(&self, lines: &[String], columns: usize) -> io::Result<()> {
        let mut page = String::new();
        for (row, line) in lines.iter().enumerate() {
            let shown: String = line.chars().take(columns).collect();
            page += &format!("\x1b[{};1H{shown}\x1b[K", row + 1);
        }
        page += "\x1b[J";
        print(&page)
    }

    /// Waits so long; returns true as soon as the user leaves.
    pub(super) fn leaves_within(&self, interval: Duration) -> io::Result<bool> {
        let end = Instant::now() + interval;
        let stdin = io::stdin();
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_millis();
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) if Instant::now() >= end => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let mut keys = [0; 64];
            let read = stdin.lock().read(&mut keys)?;
            // A terminal that is gone can be read, and has nothing.
            if read == 0 || keys[..read].iter().any(|key| matches!(key, b'q' | b'Q' | &INTERRUPT)) {
                return Ok(true);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error here has no reader.
        let _ = print(LEAVE);
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
