//! Files of the database's machine that a COPY names: patterns, errors, and files that appear once they are complete.

use crate::error::{Error, Result};
use crate::row_files::failed;
use crate::session::commit::blocking;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of files that a pattern stands for.
const FILES_MAX: usize = 100_000;
/// Maximum number of symbolic links to a file.
const LINKS_MAX: usize = 40;

/// Files that a name stands for: itself, or the ones that match it if `*` or `?` stand behind its last `/`, by name.
fn matching(name: &str) -> Result<Vec<PathBuf>> {
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

/// Files that a name stands for, and the bytes of all of them.
pub(super) async fn matching_with_bytes(name: &str) -> Result<(Vec<PathBuf>, u64)> {
    let name = name.to_owned();
    blocking(move || {
        let paths = matching(&name)?;
        let bytes = paths.iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
        Ok((paths, bytes))
    })
    .await?
}

/// Returns true if a name stands for regular files alone, which can be read again.
pub(super) async fn are_regular(name: &str) -> bool {
    let name = name.to_owned();
    let regular =
        blocking(move || matching(&name).is_ok_and(|paths| paths.iter().all(|path| path.is_file())));
    regular.await.unwrap_or(false)
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
/// and a crash leaves that and one whose name ends in `.part`. A device or pipe is written in its place; behind a symbolic link
/// stands the file that is written.
#[derive(Debug)]
pub(super) struct NewFile {
    path: PathBuf,
    /// File that is written, and its place; none for what is no regular file.
    part: Option<(PathBuf, PathBuf)>,
}

impl NewFile {
    /// Begins with a file of this path.
    pub(super) fn create(path: &Path) -> Result<(NewFile, File)> {
        let is_other = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        let place = behind_links(path);
        let failed = |error: io::Error| failed("create", path, &error);
        if is_other {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return Ok((NewFile { path: path.to_owned(), part: None }, file));
        }
        let (part, file) = create_part(&place).map_err(failed)?;
        Ok((NewFile { path: path.to_owned(), part: Some((part, place)) }, file))
    }

    /// Path that it will have.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file durable and moves it to its place.
    pub(super) fn complete(mut self, file: &File) -> Result<()> {
        let Some((part, place)) = &self.part else { return Ok(()) };
        file.sync_all().map_err(|error| failed("write", &self.path, &error))?;
        fs::rename(part, place).map_err(|error| failed("create", &self.path, &error))?;
        let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).to_owned();
        self.part = None;
        let synced = File::open(&directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| failed("write", &directory, &error))
    }
}

/// File that the symbolic links of a path lead to, which need not be there.
fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().map_or(target.clone(), |parent| parent.join(&target));
    }
    path
}

/// New file beside a path. Another process with the same identity may have left some, as in a container.
fn create_part(path: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = path.as_os_str().to_owned();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}-{number}.part", std::process::id()));
        let part = PathBuf::from(name);
        match File::create_new(&part) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (part, file)),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.part
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

    #[test]
    fn incomplete_files_of_before_and_links_are_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        // As a process of the same number left them.
        for number in 0..100 {
            fs::write(directory.path().join(format!("file.{}-{number}.part", std::process::id())), "")
                .unwrap();
        }
        std::os::unix::fs::symlink("file", &link).unwrap();
        let (new, file) = NewFile::create(&link).unwrap();
        new.complete(&file).unwrap();
        assert!(path.is_file() && fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
