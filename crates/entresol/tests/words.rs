//! Words of the sources and the docs: the glossary's refused ones do not come back, types have the names of nouns,
//! and doc comments begin with a noun or a verb.

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
                lines.push((shown.clone(), shown.clone()));
                let numbered = production.lines().enumerate();
                lines.extend(numbered.map(|(at, line)| (format!("{shown}:{}", at + 1), line.to_owned())));
            }
        }
    }
    assert!(lines.len() > 100_000, "the sources are found: {} lines", lines.len());
    lines
}

/// Lines of the documentation, with file and number.
fn doc_lines() -> Vec<(String, String)> {
    let root = root();
    let mut folders =
        vec![root.clone(), root.join("docs"), root.join("docs/streams"), root.join("docs/design")];
    for parent in ["crates", "tests"] {
        let entries = std::fs::read_dir(root.join(parent)).unwrap();
        folders.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    }
    let mut lines = Vec::new();
    for folder in folders {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let shown = path.strip_prefix(&root).unwrap().display().to_string();
            if shown.ends_with(".md") && shown != "docs/glossary.md" {
                let text = std::fs::read_to_string(&path).unwrap();
                let numbered = text.lines().enumerate();
                lines.extend(numbered.map(|(at, line)| (format!("{shown}:{}", at + 1), line.to_owned())));
                lines.push((shown.clone(), shown));
            }
        }
    }
    assert!(lines.len() > 5_000, "the documentation is found: {} lines", lines.len());
    lines
}

fn glossary() -> String {
    std::fs::read_to_string(root().join("docs/glossary.md")).unwrap()
}

/// Word that is refused but for so many uses.
#[derive(Debug)]
struct Refused {
    word: String,
    sources_max: usize,
    docs_max: usize,
    proper: String,
}

/// The table of refused words in the glossary.
fn refused() -> Vec<Refused> {
    let glossary = glossary();
    let table = glossary.split("## Refused words").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")).map(|line| {
        let (word, rest) = line.split_once("` |").unwrap();
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        let [sources, docs, proper, ..] = cells[..] else { panic!("{line}: a row has four cells") };
        Refused {
            word: word.to_owned(),
            sources_max: sources.parse().unwrap(),
            docs_max: docs.parse().unwrap(),
            proper: proper.to_owned(),
        }
    });
    let rows: Vec<Refused> = rows.collect();
    assert!(rows.len() >= 50, "{rows:?}");
    rows
}

/// Words of the right columns of the tables of terms.
fn avoided() -> Vec<String> {
    let glossary = glossary();
    let terms = glossary.split("## Terms").nth(1).unwrap().split("## Refused words").next().unwrap();
    let cells = terms.lines().filter(|line| line.starts_with("| ")).filter_map(|line| {
        let cell = line.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        (!["not", "---", "", "(only this)"].contains(&cell)).then(|| cell.to_owned())
    });
    let mut words = Vec::new();
    for cell in cells {
        for word in cell.split([',', ';']).map(str::trim) {
            let word = word.trim_end_matches(" (alone)");
            match word.strip_suffix("(s)") {
                Some(word) => words.extend([word.to_owned(), format!("{word}s")]),
                None => words.push(word.to_owned()),
            }
        }
    }
    assert!(words.len() >= 40, "{words:?}");
    words
}

/// Text in small letters, the parts of names in camel case as words of their own.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len() + 8);
    let mut before = ' ';
    for letter in line.chars() {
        if letter.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            plain.push(' ');
        }
        plain.extend(letter.to_lowercase());
        before = letter;
    }
    plain
}

/// Counts a word in a line: letters do not go on before it or behind it.
fn count(line: &str, word: &str) -> usize {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let found = line.match_indices(word).filter(|(at, _)| {
        !is_letter(line[..*at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next())
    });
    found.count()
}

/// Complaint about a word that stands too often, or less often than its limit says.
fn judged(word: &str, lines: &[(String, String)], most: usize) -> Option<String> {
    let found = lines.iter().map(|(place, line)| (place, count(line, word)));
    let found: Vec<(&String, usize)> = found.filter(|(_, times)| *times > 0).collect();
    let times: usize = found.iter().map(|(_, times)| times).sum();
    if times > most {
        let places: Vec<&String> = found.iter().map(|(place, _)| *place).take(30).collect();
        Some(format!("{word:?} stands {times} times, at most {most}: {places:?}"))
    } else if most > times + times / 6 + 5 {
        Some(format!("{word:?} stands {times} times only: write that in docs/glossary.md, not {most}"))
    } else {
        None
    }
}

#[test]
fn refused_words_do_not_come_back() {
    let in_words = |lines: Vec<(String, String)>| -> Vec<(String, String)> {
        lines.into_iter().map(|(place, line)| (place, plain(&line))).collect()
    };
    let (sources, docs) = (in_words(source_lines()), in_words(doc_lines()));
    let mut wrong = Vec::new();
    // Several words are found in names, too: `short_way` is a short way.
    let spelled_out = |lines: &[(String, String)]| -> Vec<(String, String)> {
        lines.iter().map(|(place, line)| (place.clone(), line.replace('_', " "))).collect()
    };
    let (names_in_sources, names_in_docs) = (spelled_out(&sources), spelled_out(&docs));
    for Refused { word, sources_max, docs_max, proper } in refused() {
        let searched = plain(&word);
        let is_one = !searched.contains(' ');
        let (sources, docs) = if is_one { (&sources, &docs) } else { (&names_in_sources, &names_in_docs) };
        wrong.extend(judged(&searched, sources, sources_max));
        wrong.extend(judged(&searched, docs, docs_max));
        if sources_max + docs_max > 0 && proper.is_empty() {
            wrong.push(format!("{word:?}: docs/glossary.md does not say where it is proper"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_words_that_the_glossary_avoids_are_counted() {
    let refused: Vec<String> = refused().into_iter().map(|refused| refused.word.to_lowercase()).collect();
    let missing: Vec<String> =
        avoided().into_iter().filter(|word| !refused.contains(&word.to_lowercase())).collect();
    assert!(missing.is_empty(), "no limit in docs/glossary.md: {missing:?}");
}

/// Function words, adjectives and generic nouns that are no name of a type.
const NO_TYPES: &[&str] = &[
    "Above", "Active", "Additive", "After", "Around", "Ask", "Before", "Begun", "Behind", "Below", "Beside",
    "By", "Done", "Drawn", "Exact", "Expects", "Far", "First", "Fit", "Found", "Full", "Given", "Held",
    "Hit", "Hot", "How", "Inner", "Kept", "Kind", "Last", "Legal", "Live", "Made", "Met", "Near", "Next",
    "Off", "On", "Open", "Other", "Others", "Ours", "Outer", "Partial", "Place", "Put", "Ran", "Ready",
    "Rest", "Resumes", "Same", "Seen", "Shape", "Sent", "Similar", "Spent", "Stuff", "Taken", "Theirs",
    "Thing", "Told", "Trouble", "Uses", "Volatile", "Way", "What", "When", "Where", "Who", "Why", "Within",
    "Without", "Work", "Written",
];

/// Nouns with the endings of participles, and names of the papers.
const NOUNS: &[&str] = &[
    // Nouns of the field.
    "Backing",
    "Clustering",
    "Encoding",
    "Feed",
    "Hashing",
    "Mapping",
    "Ranking",
    "Ring",
    "Screen",
    "Setting",
    "Staging",
    "Token",
    "Wording",
    // Clauses of SQL.
    "Overriding",
    "Returning",
    // Layouts of nodes of the papers.
    "Sorted",
    "Unordered",
    "Unsorted",
    // Handle of a running topology, a part of the interface of `streams`.
    "Running",
    // Next element of a source, a part of the interface of `streams`.
    "Next",
];

/// Name of the type that a line declares; associated types are named by their traits.
fn declared_type(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let text = match text.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => text.strip_prefix("pub ").unwrap_or(text),
    };
    let (keyword, rest) = text.strip_prefix("unsafe ").unwrap_or(text).split_once(' ')?;
    let is_declaration = ["struct", "enum", "trait", "union"].contains(&keyword)
        || (keyword == "type" && !line.starts_with(' '));
    let name = rest.split(|letter: char| !letter.is_alphanumeric()).next()?;
    (is_declaration && name.starts_with(char::is_uppercase)).then_some(name)
}

/// Returns true if a name of one word is a participle or no noun.
fn is_no_noun(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|letter| letter.is_ascii_lowercase());
    let is_participle = ["ed", "ing", "en"].iter().any(|ending| name.ends_with(ending));
    is_one_word && (is_participle || NO_TYPES.contains(&name)) && !NOUNS.contains(&name)
}

#[test]
fn names_of_types_are_nouns() {
    let mut wrong = Vec::new();
    let mut used = Vec::new();
    for (place, line) in source_lines() {
        let Some(name) = declared_type(&line) else { continue };
        used.push(name.to_owned());
        if is_no_noun(name) {
            wrong.push(format!("{place}: {name}"));
        }
    }
    assert!(used.len() > 1_500, "the declarations are found: {}", used.len());
    assert!(wrong.is_empty(), "take a noun of the field:\n{}", wrong.join("\n"));
    let left: Vec<&&str> = NOUNS.iter().filter(|noun| !used.iter().any(|name| name == **noun)).collect();
    assert!(left.is_empty(), "no type has these names any more: {left:?}");
}

#[test]
fn participles_are_told_from_nouns() {
    for (line, name) in [
        ("pub(crate) struct Given {", Some("Given")),
        ("    pub(in crate::a) enum Kind {", Some("Kind")),
        ("    type Made = u64;", None),
        ("type Parsed<T> = Result<T>;", Some("Parsed")),
        ("pub trait Decoded: Copy {", Some("Decoded")),
        ("let structure = 1;", None),
    ] {
        assert_eq!(declared_type(line), name, "{line}");
    }
    assert!(["Given", "Within", "Looked", "Kind", "By"].iter().all(|name| is_no_noun(name)));
    assert!(["CommitQueue", "Ring", "RowStream", "KeptRows", "Table"].iter().all(|name| !is_no_noun(name)));
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

/// Returns true if a line has a message that something "is no ..." in place of PostgreSQL's "is not a ...".
fn says_is_no(line: &str) -> bool {
    let code = line.trim_start();
    let Some(text) = code.find('"').map(|at| &code[at..]).filter(|_| !code.starts_with("//")) else {
        return false;
    };
    text.match_indices(" is no ").any(|(at, found)| {
        let (before, behind) = (&text[..at], &text[at + found.len()..]);
        !before.to_ascii_lowercase().ends_with("there")
            && !["longer", "more", "such"].iter().any(|word| behind.starts_with(word))
    })
}

#[test]
fn messages_say_what_something_is_not() {
    assert!(says_is_no("    Err(format!(\"{name} is no topology\"))"));
    assert!(!says_is_no("    Err(format!(\"there is no topology {name}\"))"));
    assert!(!says_is_no("    // \"x\" is no topology"));
    let wrong: Vec<String> = source_lines()
        .into_iter()
        .filter(|(_, line)| says_is_no(line))
        .map(|(place, line)| format!("{place}: {}", line.trim()))
        .collect();
    assert!(wrong.is_empty(), "say \"is not a\":\n{}", wrong.join("\n"));
}

#[test]
fn a_word_is_counted_where_it_stands_alone() {
    assert_eq!(count("a moment, moments; the moment_of(moment)", "moment"), 3);
    assert_eq!(count("wholesome", "whole"), 0);
    assert_eq!(plain("fn cut_off(CutPoint)"), "fn cut_off(cut point)");
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
