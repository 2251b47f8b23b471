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

/// Files by module path, without their comments and tests.
fn sources() -> BTreeMap<Vec<String>, String> {
    let src = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("src");
    let mut found = BTreeMap::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let module = path.strip_prefix(&src).unwrap().with_extension("");
            let mut module: Vec<String> =
                module.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            let last = module.last().unwrap().clone();
            if ["tests", "fuzzing", "lib"].contains(&last.as_str()) {
                continue;
            }
            if last == "mod" {
                module.pop();
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            found.insert(module, code.join("\n"));
        }
    }
    assert!(found.len() > 100, "the sources are found: {}", found.len());
    found
}

/// Module paths behind `crate::` and `super::` in a file, those in braces one by one.
fn imports(module: &[String], is_folder: bool, code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (root, base) in
        [("crate::", 0), ("super::", module.len().saturating_sub(1)), ("self::", module.len())]
    {
        // In a `mod.rs` the module is the folder itself.
        let base = if is_folder && root == "super::" { module.len().saturating_sub(1) } else { base };
        for (at, _) in code.match_indices(root) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut path: Vec<String> = module[..base.min(module.len())].to_vec();
            let mut rest = &code[at + root.len()..];
            loop {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let name = &rest[..end];
                if name == "super" {
                    path.pop();
                } else if !name.is_empty() {
                    path.push(name.to_owned());
                }
                rest = &rest[end..];
                match rest.strip_prefix("::") {
                    Some(behind) => rest = behind,
                    None => break,
                }
            }
            if let Some(list) = rest.strip_prefix('{').and_then(|list| list.split('}').next()) {
                for name in list.split(',') {
                    let name = name.trim().split([':', ' ']).next().unwrap_or_default();
                    found.push(path.iter().cloned().chain([name.to_owned()]).collect());
                }
            }
            found.push(path);
        }
    }
    found
}

#[test]
fn folders_import_only_from_those_before_them() {
    let stage = |name: &str| STAGES.iter().position(|known| *known == name);
    let mut wrong = BTreeSet::new();
    for (module, code) in sources() {
        let Some(own) = module.first() else { continue };
        let own_stage =
            stage(own).unwrap_or_else(|| panic!("{own} is not among the stages: give it a place"));
        for path in imports(&module, false, &code) {
            let target = path.first().and_then(|name| stage(name));
            if target.is_some_and(|target| target > own_stage) {
                wrong.insert(format!("{} imports {}", module.join("::"), path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_more_than_three_files_import_each_other() {
    let sources = sources();
    let mut reached: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for (module, code) in &sources {
        let is_folder =
            sources.keys().any(|other| other.len() == module.len() + 1 && other.starts_with(module));
        for path in imports(module, is_folder, code) {
            let target = (1..=path.len()).rev().find_map(|length| sources.get_key_value(&path[..length]));
            // A folder's own file only lists modules.
            if let Some((target, _)) = target
                && target != module
                && !module.starts_with(target)
            {
                reached.entry(module).or_default().insert(target);
            }
        }
    }
    loop {
        let mut grown = false;
        for module in sources.keys() {
            let direct = reached.get(module.as_slice()).cloned().unwrap_or_default();
            let further: BTreeSet<&[String]> =
                direct.iter().filter_map(|next| reached.get(next)).flatten().copied().collect();
            let own = reached.entry(module).or_default();
            let before = own.len();
            own.extend(further);
            grown |= own.len() > before;
        }
        if !grown {
            break;
        }
    }
    for (module, all) in &reached {
        let cycle: Vec<String> = all
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(module)))
            .map(|other| other.join("::"))
            .collect();
        assert!(cycle.len() <= CYCLE_MAX, "these import each other: {cycle:#?}");
    }
}
