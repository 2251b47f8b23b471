//! The guest's initial file system: a cpio archive in the "newc" form that the kernel unpacks.

use crate::{Paths, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Packs init, busybox, the kernel's modules and the guest program.
pub(crate) fn pack(paths: &Paths, guest: &Path, into: &Path) -> Result<()> {
    let mut archive = Vec::new();
    for directory in ["proc", "sys", "dev", "mnt"] {
        entry(&mut archive, directory, DIRECTORY, &[])?;
    }
    entry(&mut archive, "init", PROGRAM, include_bytes!("../guest/init"))?;
    entry(&mut archive, "dax-guest", PROGRAM, &std::fs::read(guest)?)?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(paths.root.join("guest"))?.flatten().map(|file| file.path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != "vmlinuz" {
            entry(&mut archive, &name, PROGRAM, &std::fs::read(&file)?)?;
        }
    }
    entry(&mut archive, "TRAILER!!!", 0, &[])?;
    Ok(std::fs::write(into, archive)?)
}

fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    // Magic; then inode, mode, user, group, links, time, bytes, device (2), special device (2), name bytes, check.
    let inode = archive.len() as u32;
    let fields =
        [inode, mode, 0, 0, 1, 0, u32::try_from(content.len())?, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.write_all(b"070701")?;
    for field in fields {
        write!(archive, "{field:08X}")?;
    }
    archive.write_all(name.as_bytes())?;
    archive.push(0);
    pad(archive);
    archive.write_all(content)?;
    pad(archive);
    Ok(())
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}
