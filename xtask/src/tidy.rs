//! Rules about the tree that no compiler checks:
//!
//! 1. no Rust file is longer than 1,000 lines;
//! 2. every Rust file of a `src` directory opens with a module header (`//!`), `build.rs` and tests excepted;
//! 3. no `todo!`, `unimplemented!`, `dbg!`, nor a comment that starts with TODO, FIXME or XXX;
//! 4. prose in comments is no wider than code, 120 columns; tables and what stands between fences may be;
//! 5. decisions that code or documents name are there, and in their index (decisions.rs);
//! 6. modules of a crate do not use one another in a circle (modules.rs).

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::decisions::{self, Records};
use crate::modules::Crates;

const LONGEST: usize = 1000;

/// Columns of code, and of prose in comments.
const WIDEST: usize = 120;

/// Directories that hold nothing of ours.
const SKIPPED: [&str; 3] = ["target", "target-peers", ".git"];

/// Fails if a rule is broken, after naming every place.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let records = Records::read(root)?;
    let index = Path::new(decisions::DIRECTORY).join("README.md");
    let (mut crates, mut broken) = (Crates::default(), 0);
    for path in &files {
        let text = fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let shown = path.strip_prefix(root).unwrap_or(path);
        let mut found = if is_rust(shown) { complaints(shown, &text) } else { Vec::new() };
        crates.add(shown, &text);
        found.extend(records.unknown(&text));
        if shown == index {
            found.extend(records.complaints(&text).into_iter().map(|complaint| (1, complaint)));
        }
        for (line, complaint) in found {
            eprintln!("{}:{line}: {complaint}", shown.display());
            broken += 1;
        }
    }
    for complaint in crates.complaints() {
        eprintln!("{complaint}");
        broken += 1;
    }
    if broken > 0 {
        return Err(format!("tidy: {broken} rules broken").into());
    }
    println!("tidy: {} files, all rules kept", files.len());
    Ok(())
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// The Rust files, documents and manifests.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name();
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                collect(&path, files)?;
            }
        } else if is_rust(&path) || path.extension().is_some_and(|extension| extension == "md" || extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

fn complaints(path: &Path, text: &str) -> Vec<(usize, String)> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST {
        complaints.push((lines, format!("{lines} lines; at most {LONGEST}")));
    }
    let in_source = path.components().any(|part| part.as_os_str() == "src");
    if in_source && !text.trim_start().starts_with("//!") {
        complaints.push((1, "no module header (//!)".to_owned()));
    }
    // Written in two pieces, so that this file keeps its own rules.
    let macros = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let marks = ["TO", "FIX", "XX"].into_iter().zip(["DO", "ME", "X"]).map(|(a, b)| format!("// {a}{b}"));
    let leftovers: Vec<String> = macros.into_iter().chain(marks).collect();
    complaints.extend(too_wide(text));
    for (number, line) in text.lines().enumerate() {
        if let Some(leftover) = leftovers.iter().find(|leftover| line.contains(leftover.as_str())) {
            complaints.push((number + 1, format!("{leftover:?} left in the code")));
        }
    }
    complaints
}

/// Rule 4.
fn too_wide(text: &str) -> Vec<(usize, String)> {
    let mut complaints = Vec::new();
    let mut is_fenced = false;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_fenced = false;
            continue;
        };
        let prose = comment.trim_start_matches(['/', '!']).trim_start();
        is_fenced ^= prose.starts_with("```");
        let columns = line.chars().count();
        if columns > WIDEST && !is_fenced && !prose.starts_with('|') {
            complaints.push((number + 1, format!("a comment of {columns} columns; at most {WIDEST}")));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_checked() {
        let source = Path::new("crates/a/src/lib.rs");
        assert!(complaints(source, "//! Header.\n").is_empty());
        assert_eq!(complaints(source, "fn f() {}\n").len(), 1);
        assert!(complaints(Path::new("crates/a/tests/a.rs"), "fn f() {}\n").is_empty());
        let leftover = format!("//! Header.\nfn f() {{ {}!() }}\n{} later\n", "todo", "// TO".to_owned() + "DO");
        assert_eq!(complaints(source, &leftover).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3]);
        let long = "//! Header.\n".repeat(LONGEST + 1);
        assert_eq!(complaints(source, &long).len(), 1);
        let wide = "w".repeat(WIDEST);
        let comments = format!("//! Header.\n/// | {wide}\n/// ```\n/// {wide}\n/// ```\n/// {wide}\n// {wide}\n");
        assert_eq!(complaints(source, &comments).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [6, 7]);
    }
}
