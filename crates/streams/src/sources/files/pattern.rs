//! Paths of files with `*` and `?` in the name of the file.

use crate::error::{Error, Result};
use crate::sources::files::FILES_MAX;
use std::path::{Path, PathBuf};

/// Length of the name of a split, which is in the key of a table.
const NAME_BYTES_MAX: usize = 512;

/// Files of a source.
#[derive(Debug, Clone)]
pub(super) struct FilePattern {
    folder: PathBuf,
    /// Pattern of the names; none of one file.
    names: Option<String>,
    path: PathBuf,
}

impl FilePattern {
    /// Pattern of a path: `*` stands for any characters of the file's name, `?` for one.
    pub(super) fn new(path: &Path) -> FilePattern {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let names = name.contains(['*', '?']).then(|| name.to_owned());
        FilePattern { folder, names, path: path.to_owned() }
    }

    /// Returns true if there may be several files.
    pub(super) fn is_pattern(&self) -> bool {
        self.names.is_some()
    }

    /// Path as it was given.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Files that are there, in the order of their names.
    pub(super) fn files(&self) -> Result<Vec<String>> {
        let Some(pattern) = &self.names else { return Ok(vec![checked(&self.path)?]) };
        let io = |source| Error::io(&self.folder, source);
        let here = Path::new(".");
        let folder = if self.folder.as_os_str().is_empty() { here } else { &self.folder };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let matched = name.to_str().is_some_and(|name| matches(pattern, name));
            if !matched || entry.path().is_dir() {
                continue;
            }
            if files.len() == FILES_MAX {
                return Err(Error::Limit {
                    resource: format!("files of {}", self.path.display()),
                    max: FILES_MAX,
                });
            }
            files.push(checked(&self.folder.join(name))?);
        }
        files.sort_unstable();
        Ok(files)
    }
}

/// Path as the name of a split.
fn checked(path: &Path) -> Result<String> {
    let refused = |reason: &str| Error::File { path: path.to_owned(), reason: reason.to_owned() };
    let name = path.to_str().ok_or_else(|| refused("the name is not UTF-8"))?;
    if name.len() > NAME_BYTES_MAX {
        return Err(refused(&format!("the path is longer than {NAME_BYTES_MAX} bytes")));
    }
    Ok(name.to_owned())
}

/// Returns true if a name has the form of a pattern. A name that begins with a dot needs a pattern that does.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    // Place behind the last star, and of the name that it has reached.
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, of));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[of] => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((behind, reached)) = star else { return false };
                star = Some((behind, reached + 1));
                (at, of) = (behind, reached + 1);
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_form_of_patterns() {
        for (pattern, name, wanted) in [
            ("*.csv", "a.csv", true),
            ("*.csv", ".csv", false),
            ("*.csv", "a.csv.part", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("day-??.json", "day-07.json", true),
            ("day-??.json", "day-7.json", false),
            ("*", "ä", true),
            ("?", "ä", true),
            (".*", ".hidden", true),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn files_come_in_the_order_of_their_names() {
        let directory = tempfile::TempDir::new().unwrap();
        for name in ["b.csv", "a.csv", "c.txt", ".d.csv"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        std::fs::create_dir(directory.path().join("e.csv")).unwrap();
        let pattern = FilePattern::new(&directory.path().join("*.csv"));
        let names: Vec<String> = pattern.files().unwrap();
        let wanted = ["a.csv", "b.csv"].map(|name| directory.path().join(name).display().to_string());
        assert_eq!(names, wanted);
        let long = FilePattern::new(&directory.path().join("x".repeat(600)));
        assert!(long.files().unwrap_err().to_string().contains("longer than 512 bytes"));
    }
}
