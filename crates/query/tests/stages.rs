//! Order of the folders of this crate, which are stages of a statement: each imports only from those before
//! it, and within a folder at most three files import each other.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Folders, and files beside them, in the order in which they may import.
const STAGES: [&str; 14] = [
    "schema_names",
    "error",
    "privileges",
    "parser",
    "postgres",
    "session",
    "catalog",
    "planner",
    "dml",
    "row_files",
    "ddl",
    "materialized",
    "streaming",
    "execution",
];
/// Largest set of files in a folder that import each other.
const CYCLE_MAX: usize = 3;

/// Names that make a parser or tokens of SQL.
const PARSERS: [&str; 5] =
    ["Parser::new", "Parser::parse_sql", "Tokenizer::new", "DFParser::new", "DFParserBuilder::new"];

/// Module paths behind the root of the crate.
type Path = Vec<String>;

/// Sources of a folder by module path, without their comments and tests.
fn sources(src: &std::path::Path) -> BTreeMap<Path, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let module = path.strip_prefix(src).unwrap().with_extension("");
            let mut module: Path = module.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            let last = module.last().unwrap().clone();
            if ["tests", "fuzzing"].contains(&last.as_str()) || path.extension().is_none_or(|end| end != "rs")
            {
                continue;
            }
            if last == "mod" || module == ["lib"] {
                module.pop();
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            found.insert(module, code.join("\n"));
        }
    }
    found
}

/// Sources of this crate.
fn own_sources() -> BTreeMap<Path, String> {
    let found = sources(&PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("src"));
    assert!(found.len() > 100, "the sources are found: {}", found.len());
    found
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Reads the path at the beginning of a text, and all of those in its braces; returns the text behind it.
fn read_paths<'c>(mut path: Path, mut text: &'c str, found: &mut Vec<Path>) -> &'c str {
    loop {
        text = text.trim_start();
        if let Some(mut list) = text.strip_prefix('{') {
            loop {
                list = read_paths(path.clone(), list, found);
                // A name may follow behind AS.
                list = list.trim_start_matches(|letter| letter != ',' && letter != '}');
                match list.strip_prefix(',') {
                    Some(next) => list = next,
                    None => return list.strip_prefix('}').unwrap_or(list),
                }
            }
        }
        let (name, behind) = text.split_at(text.find(|letter| !is_word(letter)).unwrap_or(text.len()));
        match name {
            "" | "self" => {}
            "super" => drop(path.pop()),
            name => path.push(name.to_owned()),
        }
        match behind.strip_prefix("::") {
            Some(next) => text = next,
            None => {
                found.push(path);
                return behind;
            }
        }
    }
}

/// Paths of this crate that a text names: behind `crate`, `self`, `super`, or a module of its own.
fn paths(module: &[String], modules: &BTreeMap<Path, String>, code: &str) -> Vec<Path> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let start = code[..at].rfind(|letter| !is_word(letter)).map_or(0, |before| before + 1);
        if start == at || code[..start].ends_with(':') {
            continue;
        }
        let base = match &code[start..at] {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().saturating_sub(1)].to_vec(),
            name => {
                let child: Path = module.iter().cloned().chain([name.to_owned()]).collect();
                if !modules.contains_key(&child) {
                    continue;
                }
                child
            }
        };
        read_paths(base, &code[at + 2..], &mut found);
    }
    found
}

/// Modules of a crate, with the paths that each names, and the names that it imports.
struct Imports {
    modules: BTreeMap<Path, String>,
    /// Paths of imported names, by the path that the importing module gives them.
    names: BTreeMap<Path, Path>,
}

impl Imports {
    fn new(modules: BTreeMap<Path, String>) -> Imports {
        let mut names = BTreeMap::new();
        for (module, code) in &modules {
            for (at, _) in code.match_indices("use ") {
                let Some(declared) = code[at..].split(';').next() else { continue };
                for path in paths(module, &modules, declared) {
                    if let Some(name) = path.last() {
                        names.insert(module.iter().cloned().chain([name.clone()]).collect(), path);
                    }
                }
            }
        }
        Imports { modules, names }
    }

    /// Module that has what a path names, through the imports of others.
    fn module_of(&self, path: &[String]) -> &Path {
        let mut path = path.to_vec();
        // Names of enums and their variants are behind those of modules; imports never go in circles.
        for _ in 0..10 {
            let imported = (1..=path.len()).find_map(|length| {
                let target = self.names.get(&path[..length]).filter(|target| target[..] != path[..length])?;
                (!self.modules.contains_key(&path[..length])).then_some((target, length))
            });
            let Some((target, length)) = imported else { break };
            path = target.iter().chain(&path[length..]).cloned().collect();
        }
        let known = (0..=path.len()).rev().find_map(|length| self.modules.get_key_value(&path[..length]));
        known.map(|(module, _)| module).expect("the root of the crate is a module")
    }

    /// Modules that a module names, without itself and the root.
    fn of(&self, module: &Path) -> BTreeSet<&Path> {
        let named = paths(module, &self.modules, &self.modules[module]);
        let targets = named.iter().map(|path| self.module_of(path));
        targets.filter(|target| *target != module && !target.is_empty()).collect()
    }
}

#[test]
fn folders_import_only_from_those_before_them() {
    let stage = |name: &str| STAGES.iter().position(|known| *known == name);
    let imports = Imports::new(own_sources());
    let mut wrong = BTreeSet::new();
    for module in imports.modules.keys() {
        let Some(own) = module.first() else { continue };
        let own_stage =
            stage(own).unwrap_or_else(|| panic!("{own} is not among the stages: give it a place"));
        for target in imports.of(module) {
            if stage(&target[0]).is_some_and(|target| target > own_stage) {
                wrong.insert(format!("{} imports {}", module.join("::"), target.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_more_than_three_files_import_each_other() {
    let imports = Imports::new(own_sources());
    let direct: BTreeMap<&Path, BTreeSet<&Path>> =
        imports.modules.keys().map(|module| (module, imports.of(module))).collect();
    let reached = |from: &Path| {
        let (mut found, mut next) = (BTreeSet::new(), direct[from].clone());
        while let Some(module) = next.pop_first() {
            if found.insert(module) {
                next.extend(&direct[module]);
            }
        }
        found
    };
    let reached: BTreeMap<&Path, BTreeSet<&Path>> =
        direct.keys().map(|from| (*from, reached(from))).collect();
    for (module, all) in &reached {
        let cycle: Vec<String> = all
            .iter()
            .filter(|other| reached[**other].contains(module))
            .map(|other| other.join("::"))
            .collect();
        assert!(cycle.len() <= CYCLE_MAX, "these import each other: {cycle:#?}");
    }
}

#[test]
fn imports_are_seen_in_braces_through_others_and_upwards() {
    let files = [
        ("", "pub use a::{b::{Deep, C as Renamed}, top};"),
        ("a", "mod b;\npub(crate) use b::Shown;\nuse crate::d::Hidden;\nfn f() { b::g() }"),
        ("a::b", "use super::{Parent, Hidden};"),
        ("c", "use crate::{\n    a::{b::Deep, Shown},\n    d,\n};"),
        ("d", "fn f() -> crate::Renamed { super::a::Shown::new() }"),
    ];
    let path = |text: &str| -> Path {
        text.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let imports = Imports::new(files.iter().map(|(name, code)| (path(name), (*code).to_owned())).collect());
    let of = |name: &str| imports.of(&path(name)).iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(of("a"), ["a::b", "d"]);
    assert_eq!(of("a::b"), ["a", "d"]);
    assert_eq!(of("c"), ["a::b", "d"]);
    assert_eq!(of("d"), ["a::b"]);
}

/// SQL has one front door: nothing else makes a parser or tokens of its own.
#[test]
fn only_the_parser_parses() {
    let crates = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let mut parsing = BTreeSet::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        for (module, code) in sources(&entry.path().join("src")) {
            let is_called = |parser: &str| {
                let mut places = code.match_indices(parser);
                places.any(|(at, _)| !code[..at].ends_with(is_word))
            };
            if PARSERS.iter().any(|parser| is_called(parser)) {
                parsing.insert(format!("{name}::{}", module.join("::")));
            }
        }
    }
    assert!(parsing.contains("query::parser::statement"), "the parser is found: {parsing:?}");
    let wrong: Vec<&String> = parsing.iter().filter(|file| !file.starts_with("query::parser::")).collect();
    assert!(wrong.is_empty(), "these parse SQL beside crates/query/src/parser: {wrong:?}");
}
