//! Modules of a crate use one another in one direction, as crates do.
//!
//! 1. A module is a file below a crate's `src`. Comments are left out, and what is compiled for tests alone.
//! 2. It uses another where a path of it leads there, within `use` or anywhere else: from `crate`, `self` or `super`,
//!    or from a module below its own. What a module hands on (`pub use`) is used where it comes from. What a crate's
//!    root uses is not counted: it hands on.
//! 3. Modules that use one another in a circle must be parts of one module of the root: whatever they are, they are
//!    read together. What the modules of [`PASSED_OVER`] use is not counted; each of them must be in a circle without
//!    that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Modules by crate that others, which they are made of, add to, each with the reason.
const PASSED_OVER: [(&str, &str, &str); 4] = [
    ("encoding", "schema", "a schema has defaults, which are datums of its columns' types in their packed form"),
    ("engine", "database", "what all share is made of what each module keeps there, and each has its methods on it"),
    ("sst", "reader", "an open file is made of parts by format, and each part has its reads as methods on it"),
    ("sst", "writer", "a file being written is made of the builders by format, which know its limits"),
];

/// Names from a crate's root on.
type Names = Vec<String>;

/// The code of the modules of each crate.
#[derive(Default)]
pub(crate) struct Crates(BTreeMap<String, BTreeMap<Names, String>>);

impl Crates {
    /// Adds a file, if it is a module's.
    pub(crate) fn add(&mut self, path: &Path, text: &str) {
        if let Some((of, module)) = place_of(path) {
            self.0.entry(of).or_default().insert(module, code_of(text));
        }
    }

    /// The circles of all crates, and what is passed over without need.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for (name, modules) in &self.0 {
            let passed: Vec<Names> = passed_over(name).map(|module| vec![module.to_owned()]).collect();
            let uses = uses_of(modules);
            let mut counted = uses.clone();
            counted.retain(|module, _| !passed.contains(module));
            complaints.extend(circles(&counted).into_iter().map(|circle| told(name, &counted, &circle)));
            let reached = reached(&uses);
            for module in passed.iter().filter(|module| circle_of(&reached, module).is_none()) {
                complaints.push(format!("{name}: {} is passed over and in no circle", shown(module)));
            }
        }
        complaints
    }
}

fn passed_over(of: &str) -> impl Iterator<Item = &'static str> {
    PASSED_OVER.into_iter().filter(move |(name, ..)| *name == of).map(|(_, module, _)| module)
}

/// The crate and the module that a file is of; `None` of tests, programs beside a library and what is no source.
fn place_of(path: &Path) -> Option<(String, Names)> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let source = parts.iter().position(|part| *part == "src")?;
    let (file, directories) = parts[source + 1..].split_last()?;
    let file = file.strip_suffix(".rs")?;
    if file == "tests" || file.ends_with("_tests") || directories.first() == Some(&"bin") {
        return None;
    }
    let mut module: Names = directories.iter().map(|&name| name.to_owned()).collect();
    let is_root = directories.is_empty() && (file == "lib" || file == "main");
    if file != "mod" && !is_root {
        module.push(file.to_owned());
    }
    Some((parts[source.checked_sub(1)?].to_owned(), module))
}

/// A file without comments and without the modules in it that are compiled for tests alone.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_for_tests = line.starts_with("#[cfg(") && line.contains("test");
        if is_for_tests && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
            // What begins at the margin ends there.
            while lines.next().is_some_and(|line| line != "}") {}
        } else if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Which modules each module uses.
type Uses = BTreeMap<Names, BTreeSet<Names>>;

fn uses_of(modules: &BTreeMap<Names, String>) -> Uses {
    let mut read = BTreeMap::new();
    let mut handed_on: BTreeMap<Names, Names> = BTreeMap::new();
    for (module, code) in modules {
        let paths: Vec<(Names, Named<'_>)> = paths_in(code)
            .into_iter()
            .filter_map(|named| Some((from_root(modules, module, &named.path)?, named)))
            .collect();
        for (path, named) in paths.iter().filter(|(_, named)| named.is_handed_on) {
            let name = [&module[..], &[named.name.to_owned()]].concat();
            handed_on.insert(name, path.clone());
        }
        read.insert(module, paths);
    }
    let used = |(module, paths): (&Names, Vec<(Names, Named<'_>)>)| {
        let used = paths.into_iter().filter(|(_, named)| !named.is_handed_on);
        let targets = used.map(|(path, _)| target(modules, &handed_on, path));
        (module.clone(), targets.filter(|target| target != module && !target.is_empty()).collect())
    };
    read.into_iter().filter(|(module, _)| !module.is_empty()).map(used).collect()
}

/// A path in a module, from the root of its crate on; `None` of one that leads elsewhere.
fn from_root(modules: &BTreeMap<Names, String>, module: &[String], path: &[&str]) -> Option<Names> {
    let ups = path.iter().take_while(|name| **name == "super").count();
    let (from, rest) = match *path.first()? {
        "crate" => (&module[..0], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        _ => (module, path),
    };
    let absolute: Names = from.iter().cloned().chain(rest.iter().map(|&name| name.to_owned())).collect();
    let is_ours = rest.len() < path.len() || modules.contains_key(&absolute[..=from.len()]);
    is_ours.then_some(absolute)
}

/// The module in which is what a path leads to, past those that hand it on.
fn target(modules: &BTreeMap<Names, String>, handed_on: &BTreeMap<Names, Names>, mut path: Names) -> Names {
    // Nothing is handed on through so many modules.
    for _ in 0..8 {
        let Some((end, from)) = (1..=path.len()).find_map(|end| Some((end, handed_on.get(&path[..end])?))) else {
            break;
        };
        path = [&from[..], &path[end..]].concat();
    }
    let len = (0..=path.len()).rev().find(|&len| modules.contains_key(&path[..len])).unwrap_or_default();
    path.truncate(len);
    path
}

/// A path as it stands in code.
struct Named<'t> {
    path: Vec<&'t str>,
    /// What the path's end is called here.
    name: &'t str,
    is_handed_on: bool,
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// All paths of more than one name, and those of `use`.
fn paths_in(code: &str) -> Vec<Named<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut before) = (code, "");
    while let Some(start) = rest.find(is_in_name) {
        let goes_on = rest[..start].ends_with("::");
        let (word, after) = split_name(&rest[start..]);
        rest = match word {
            // `pub use`, or `pub(crate) use`.
            "use" => read_tree(after, &[], ["pub", "crate", "super"].contains(&before), &mut found),
            _ if !goes_on && after.starts_with("::") => read_tree(&rest[start..], &[], false, &mut found),
            _ => after,
        };
        before = word;
    }
    found
}

/// The name that a text begins with, and the rest.
fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !is_in_name(c)).unwrap_or(text.len()))
}

/// Reads a path, or a tree of them, whose names follow those of `before`. The rest of the text.
fn read_tree<'t>(text: &'t str, before: &[&'t str], is_handed_on: bool, found: &mut Vec<Named<'t>>) -> &'t str {
    let (mut path, mut rest) = (before.to_vec(), text.trim_start());
    loop {
        if let Some(mut group) = rest.strip_prefix('{') {
            while let Some(start) = group.find(|c: char| is_in_name(c) || "{}*".contains(c)) {
                group = match &group[start..] {
                    end if end.starts_with('}') => return &end[1..],
                    glob if glob.starts_with('*') => &glob[1..],
                    member => read_tree(member, &path, is_handed_on, found),
                };
            }
            return group;
        }
        let (name, after) = split_name(rest);
        // `{self, …}` is the module itself.
        if !name.is_empty() && (name != "self" || path.is_empty()) {
            path.push(name);
        }
        rest = match after.strip_prefix("::") {
            Some(further) if !name.is_empty() => further,
            _ => {
                let alias = after.strip_prefix(" as ").map(split_name);
                let (name, after) = alias.unwrap_or((path.last().copied().unwrap_or_default(), after));
                found.push(Named { path, name, is_handed_on });
                return after;
            }
        };
    }
}

/// All modules that each module uses, also through others.
type Reached<'u> = BTreeMap<&'u Names, BTreeSet<&'u Names>>;

fn reached(uses: &Uses) -> Reached<'_> {
    uses.keys().map(|module| (module, reached_from(uses, module))).collect()
}

fn reached_from<'u>(uses: &'u Uses, module: &'u Names) -> BTreeSet<&'u Names> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if reached.insert(used) {
                next.push(used);
            }
        }
    }
    reached
}

/// The modules of all circles that this one is in, if they are parts of several modules of the root.
fn circle_of<'u>(reached: &Reached<'u>, module: &Names) -> Option<BTreeSet<&'u Names>> {
    let leads_back = |other: &Names| reached.get(other).is_some_and(|reached| reached.contains(module));
    let circle: BTreeSet<&Names> = reached.get(module)?.iter().copied().filter(|other| leads_back(other)).collect();
    circle.iter().any(|other| other.first() != module.first()).then_some(circle)
}

fn circles(uses: &Uses) -> BTreeSet<BTreeSet<&Names>> {
    let reached = reached(uses);
    uses.keys().filter_map(|module| circle_of(&reached, module)).collect()
}

fn shown(module: &Names) -> String {
    module.join("::")
}

/// Which modules of a circle use which others of it.
fn told(of: &str, uses: &Uses, circle: &BTreeSet<&Names>) -> String {
    let mut told = format!("{of}: modules use one another in a circle:");
    for module in circle {
        let used = uses.get(*module).into_iter().flatten();
        let used: Vec<String> = used.filter(|used| circle.contains(used)).map(shown).collect();
        told.push_str(&format!("\n    {} uses {}", shown(module), used.join(", ")));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is complained of in a crate with these files.
    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let mut crates = Crates::default();
        for (path, text) in files {
            crates.add(&Path::new("crates/a/src").join(path), text);
        }
        crates.complaints()
    }

    fn is_circle(files: &[(&str, &str)]) -> bool {
        match &complaints(files)[..] {
            [] => false,
            [circle] => circle.contains("in a circle"),
            several => panic!("{several:?}"),
        }
    }

    #[test]
    fn circles_are_found_whatever_paths_they_go_along() {
        let lib = ("lib.rs", "mod one;\nmod two;\npub use two::Two;\n");
        assert!(!is_circle(&[lib, ("one.rs", "use crate::two::Two;"), ("two.rs", "pub struct Two;")]));
        for back in [
            "use crate::one::One;",
            "use crate::{other::{A, B}, one::{self, One as First}};",
            "use super::one::*;",
            "fn f() { let _ = crate::one::f::<u8>(); }",
        ] {
            assert!(is_circle(&[lib, ("one.rs", "use crate::two::Two;"), ("two.rs", back)]), "{back}");
            assert!(is_circle(&[
                lib,
                ("one.rs", "use crate::Two;"),
                ("two.rs", format!("{back}\npub struct Two;").as_str())
            ]));
        }
        let three =
            [("one.rs", "use crate::two::T;"), ("two.rs", "use crate::three::T;"), ("three.rs", "crate::one::f()")];
        let found = complaints(&three);
        assert!(found[0].contains("one uses two") && found[0].contains("three uses one"), "{found:?}");
    }

    #[test]
    fn what_is_handed_on_is_used_where_it_comes_from() {
        let parent = "mod low;\nmod high;\npub(crate) use low::Low;\npub(crate) use self::high::High as Highest;";
        let files = [("one/mod.rs", parent), ("one/low.rs", ""), ("one/high.rs", "use crate::two::Two;")];
        assert!(!is_circle(&[&files[..], &[("two.rs", "use crate::one::Low;")]].concat()));
        assert!(is_circle(&[&files[..], &[("two.rs", "use crate::one::Highest;")]].concat()));
    }

    #[test]
    fn parts_of_one_module_may_use_one_another_and_tests_anything() {
        let (whole, part) = ("mod part;\nuse part::Part;", "use super::Whole;");
        assert!(!is_circle(&[("one/mod.rs", whole), ("one/part.rs", part)]));
        let (two, tests) = ("two.rs", "#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}\n");
        let one = ("one.rs", "use crate::two::Two;");
        for text in [tests, "//! As [`crate::one::One`].\n", "// crate::one::f()\n"] {
            assert!(!is_circle(&[one, (two, text)]), "{text}");
            assert!(is_circle(&[one, (two, format!("{text}fn f() {{ crate::one::f() }}\n").as_str())]), "{text}");
        }
        assert!(!is_circle(&[one, ("two/mod.rs", ""), ("two/tests.rs", "use crate::one::One;")]));
    }

    #[test]
    fn what_is_passed_over_is_in_a_circle() {
        let mut crates = Crates::default();
        crates.add(Path::new("crates/engine/src/database.rs"), "use crate::core::Core;");
        crates.add(Path::new("crates/engine/src/core.rs"), "use crate::database::Inner;");
        assert!(crates.complaints().is_empty());
        crates.add(Path::new("crates/engine/src/core.rs"), "");
        assert_eq!(crates.complaints(), ["engine: database is passed over and in no circle"]);
    }
}
