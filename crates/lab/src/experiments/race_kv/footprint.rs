//! Bytes of a tuple on disk, and memory of the process, as the kernel counts them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Space of a store, once it is loaded and at rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Footprint {
    /// Bytes that hold a tuple: the store's own count, all of its files, or memory where it has none.
    pub(super) tuple_bytes: f64,
    /// Blocks of all files, journals and logs among them, a tuple.
    pub(super) file_bytes: f64,
    /// Growth of the process's memory, mapped files included, bytes a tuple.
    pub(super) memory_bytes: f64,
    /// The most that the process's memory grew by while it was loaded, MiB.
    pub(super) peak_mib: f64,
}

/// Memory of the process before a store is opened.
pub(super) struct MemoryBaseline {
    resident: u64,
}

impl Footprint {
    /// Forgets the peak so far.
    pub(super) fn start() -> MemoryBaseline {
        // Where the kernel does not allow it, the peak is that of the whole run.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        MemoryBaseline { resident: status_bytes("VmRSS") }
    }
}

impl MemoryBaseline {
    /// Space of the store in a directory.
    pub(super) fn end(self, dir: &Path, own_count: Option<u64>, tuples: u64) -> Footprint {
        let files = disk_bytes(dir);
        let memory = status_bytes("VmRSS").saturating_sub(self.resident);
        // A volatile store has no files.
        let held = own_count.unwrap_or(if files == 0 { memory } else { files });
        let per_tuple = |bytes: u64| bytes as f64 / tuples as f64;
        Footprint {
            tuple_bytes: per_tuple(held),
            file_bytes: per_tuple(files),
            memory_bytes: per_tuple(memory),
            peak_mib: status_bytes("VmHWM").saturating_sub(self.resident) as f64 / f64::from(1 << 20),
        }
    }
}

/// A line of the process's status, in bytes; 0 if there is none.
fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: u64 =
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    kib * 1024
}

/// Blocks that the files below a directory take up.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(of).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_and_memory_are_counted() {
        let dir = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        std::fs::write(dir.path().join("below/file"), vec![1; 1 << 20]).unwrap();
        let file = std::fs::File::open(dir.path().join("below/file")).unwrap();
        file.sync_all().unwrap();
        let before = Footprint::start();
        let memory: Vec<u8> = vec![1; 8 << 20];
        let footprint = before.end(dir.path(), None, 1000);
        assert!((1000.0..2000.0).contains(&footprint.file_bytes), "{footprint:?}");
        assert!(footprint.memory_bytes > 4000.0 && footprint.peak_mib > 4.0, "{footprint:?}");
        assert_eq!(memory[memory.len() / 2], 1);
    }
}
