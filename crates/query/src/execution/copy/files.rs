//! Files of the database's machine that a COPY names: patterns, errors, and files that appear once they are complete.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of files that a pattern stands for.
const FILES_MAX: usize = 100_000;

/// Error of a call on a file.
pub(super) fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    let sqlstate = match error.kind() {
        ErrorKind::NotFound => "58P01",
        ErrorKind::PermissionDenied => "42501",
        ErrorKind::IsADirectory => "42809",
        ErrorKind::StorageFull => "53100",
        _ => "58030",
    };
    Error::coded(sqlstate, format!("could not {what} file \"{}\": {error}", path.display()))
}

/// Files that a name stands for: itself, or the ones that match it if `*` or `?` stand behind its last `/`, by name.
pub(super) fn matching(name: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    let pattern = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !pattern.contains(['*', '?']) || path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(directory).map_err(|error| failed("open", directory, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("read", directory, &error))?;
        let name = entry.file_name();
        if is_match(pattern.as_bytes(), name.to_string_lossy().as_bytes()) && entry.path().is_file() {
            found.push(entry.path());
        }
        if found.len() > FILES_MAX {
            let message = format!("more than {FILES_MAX} files match \"{name}\"", name = path.display());
            return Err(Error::coded("54000", message));
        }
    }
    if found.is_empty() {
        return Err(Error::coded("58P01", format!("no file matches \"{name}\"")));
    }
    found.sort();
    Ok(found)
}

/// Returns true if a name matches a pattern of `*` (any bytes) and `?` (one). Linear but for stars: each is tried at
/// later places only.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut next, mut star) = (0, 0, None);
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[next] => (at, next) = (at + 1, next + 1),
            _ => match star {
                Some((before, from)) => {
                    star = Some((before, from + 1));
                    (at, next) = (before + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Opens a file to be read.
pub(super) fn open(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|error| failed("open", path, &error))?;
    let metadata = file.metadata().map_err(|error| failed("read", path, &error))?;
    if metadata.is_dir() {
        return Err(failed("read", path, &io::Error::from(ErrorKind::IsADirectory)));
    }
    Ok(file)
}

/// File that is written beside its place and moved there once it is complete: until then a file that was there stays,
/// and a crash leaves that and one whose name ends in `.part`. A device or pipe is written in its place.
#[derive(Debug)]
pub(super) struct NewFile {
    path: PathBuf,
    /// None for what is no regular file.
    part: Option<PathBuf>,
}

impl NewFile {
    /// Begins with a file of this path.
    pub(super) fn create(path: &Path) -> Result<(NewFile, File)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let is_other = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        let part = (!is_other).then(|| {
            let mut name = path.as_os_str().to_owned();
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            name.push(format!(".{}-{number}.part", std::process::id()));
            PathBuf::from(name)
        });
        let created = match &part {
            Some(part) => File::create_new(part),
            None => File::options().write(true).open(path),
        };
        let file = created.map_err(|error| failed("create", path, &error))?;
        Ok((NewFile { path: path.to_owned(), part }, file))
    }

    /// Path that it will have.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file durable and moves it to its place.
    pub(super) fn complete(mut self, file: &File) -> Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        file.sync_all().map_err(|error| failed("write", &self.path, &error))?;
        fs::rename(part, &self.path).map_err(|error| failed("create", &self.path, &error))?;
        self.part = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part
            && let Err(error) = fs::remove_file(part)
        {
            tracing::warn!(file = %part.display(), %error, "could not remove an incomplete file of COPY");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, matches) in [
            ("*.parquet", "a.parquet", true),
            ("*.parquet", "a.parquet.part", false),
            ("part-?.tbl", "part-1.tbl", true),
            ("part-?.tbl", "part-12.tbl", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", "", true),
            ("?", "", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
        // Backtracking over all stars would take ages.
        assert!(!is_match("*a".repeat(30).as_bytes(), "a".repeat(10_000).replace('a', "ab").as_bytes()));
    }

    #[test]
    fn a_file_appears_once_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let names = || fs::read_dir(directory.path()).unwrap().count();
        drop(NewFile::create(&path).unwrap());
        assert_eq!(names(), 0, "an incomplete one is removed");
        let (new, file) = NewFile::create(&path).unwrap();
        assert!(!path.exists());
        new.complete(&file).unwrap();
        assert!(path.exists());
        assert_eq!(names(), 1);
        assert_eq!(failed("open", &path, &io::Error::from(ErrorKind::NotFound)).sqlstate(), "58P01");
    }
}
