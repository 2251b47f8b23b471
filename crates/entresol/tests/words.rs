//! Words of the sources: the glossary's refused ones do not come back, and doc comments begin with a noun or
//! a verb.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

const RELATIVES: [&str; 12] =
    ["What", "Who", "Whoever", "Whether", "That", "Which", "Where", "How", "When", "Those", "Why", "Whose"];

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..")
}

/// Lines of the sources of all crates, tests left out, with file and number.
fn source_lines() -> Vec<(String, String)> {
    let root = root();
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let mut folders: Vec<PathBuf> = crates.map(|entry| entry.unwrap().path().join("src")).collect();
    let mut lines = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let production = text.split("#[cfg(test)]\nmod ").next().unwrap();
                let shown = path.strip_prefix(&root).unwrap().display().to_string();
                let numbered = production.lines().enumerate();
                lines.extend(numbered.map(|(at, line)| (format!("{shown}:{}", at + 1), line.to_owned())));
            }
        }
    }
    assert!(lines.len() > 100_000, "the sources are found: {} lines", lines.len());
    lines
}

/// The table of refused words in the glossary.
fn refused() -> Vec<(String, usize)> {
    let glossary = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let table = glossary.split("## Refused words").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: Vec<(String, usize)> =
        rows.map(|(word, most)| (word.to_owned(), most.trim_end_matches(" |").parse().unwrap())).collect();
    assert!(rows.len() >= 10, "{rows:?}");
    rows
}

/// Counts a word in a line: letters do not go on before it or behind it.
fn count(line: &str, word: &str) -> usize {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let found = line.match_indices(word).filter(|(at, _)| {
        !is_letter(line[..*at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next())
    });
    found.count()
}

#[test]
fn refused_words_do_not_come_back() {
    let lines = source_lines();
    let mut wrong = Vec::new();
    for (word, most) in refused() {
        let lowered = lines.iter().map(|(place, line)| (place, line.to_lowercase()));
        let found: Vec<(&String, usize)> = lowered
            .map(|(place, line)| (place, count(&line, &word)))
            .filter(|(_, times)| *times > 0)
            .collect();
        let times: usize = found.iter().map(|(_, times)| times).sum();
        if times > most {
            let places: Vec<&String> = found.iter().map(|(place, _)| *place).collect();
            wrong.push(format!("{word:?} stands {times} times, at most {most}: {places:?}"));
        } else if times < most {
            wrong.push(format!(
                "{word:?} stands {times} times only: write that in docs/glossary.md, not {most}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let mut wrong = Vec::new();
    let mut before = String::new();
    for (place, line) in source_lines() {
        let line = line.trim_start().to_owned();
        let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        let goes_on = before.starts_with("///") || before.starts_with("//!");
        let first = text.and_then(|text| text.split(' ').next()).unwrap_or_default();
        if !goes_on && RELATIVES.contains(&first) {
            wrong.push(format!("{place}: {line}"));
        }
        before = line;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_word_is_counted_where_it_stands_alone() {
    assert_eq!(count("a moment, moments; the moment_of(moment)", "moment"), 3);
    assert_eq!(count("wholesome", "whole"), 0);
}

#[test]
fn imports_are_one_block() {
    let lines = source_lines();
    let is_import = |line: &str| line.trim_start().starts_with("use ");
    let split = lines.windows(3).filter(|lines| {
        let [(_, before), (_, between), (_, after)] = lines else { return false };
        before.ends_with(';') && is_import(before) && between.is_empty() && is_import(after)
    });
    let places: Vec<&String> = split.map(|lines| &lines[1].0).collect();
    assert!(places.is_empty(), "blank lines between imports, whose order is rustfmt's: {places:?}");
}
