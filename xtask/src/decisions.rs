//! References to decision records, which no compiler follows.
//!
//! 1. Each record `docs/decisions/NNNN-….md` has a number of its own and a line in the index beside it, one for each,
//!    ascending.
//! 2. Every record that a text names is there: by number (`decision 0036`, `decisions 0055, 0056`) or by file, from
//!    anywhere (`decisions/0036-….md`) or from beside it (`](0036-….md)`).

use std::fs;
use std::path::Path;

use crate::Result;

/// Where the records are.
pub(crate) const DIRECTORY: &str = "docs/decisions";

/// The names of the records' files, ascending.
pub(crate) struct Records(Vec<String>);

impl Records {
    /// Those of the tree at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut names = Vec::new();
        for entry in fs::read_dir(root.join(DIRECTORY))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if record_at(&name) == Some(name.as_str()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(Self(names))
    }

    /// What is wrong with the records, of which `index` is the list.
    pub(crate) fn complaints(&self, index: &str) -> Vec<String> {
        let twice = self.0.windows(2).filter(|pair| pair[0][..4] == pair[1][..4]);
        let twice = twice.map(|pair| format!("{} and {} have one number", pair[0], pair[1]));
        let missing = self.0.iter().filter(|name| !index.contains(&format!("]({name})")));
        let missing = missing.map(|name| format!("{name} is not in the index"));
        let listed: Vec<&str> = index.lines().filter_map(|line| record_at(line.strip_prefix("- [")?)).collect();
        let disordered = listed.windows(2).filter(|pair| pair[0] >= pair[1]);
        let disordered = disordered.map(|pair| format!("{} stands behind {} in the index", pair[1], pair[0]));
        twice.chain(missing).chain(disordered).collect()
    }

    /// The references of a text to records that are not there, with their lines.
    pub(crate) fn unknown(&self, text: &str) -> Vec<(usize, String)> {
        let is_known = |reference: &str| self.0.iter().any(|name| name == reference || name[..4] == *reference);
        let unknown = references(text).into_iter().filter(|(_, reference)| !is_known(reference));
        unknown.map(|(line, reference)| (line, format!("there is no decision {reference}"))).collect()
    }
}

/// The records that a text names, as it names them, with their lines.
fn references(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut note = |at: usize, reference| found.push((1 + text[..at].matches('\n').count(), reference));
    // From beside it.
    for (at, start) in text.match_indices("](") {
        if let Some(name) = record_at(&text[at + start.len()..]).filter(|name| name.len() > 4) {
            note(at, name);
        }
    }
    for (at, word) in text.match_indices("ecision") {
        let after = &text[at + word.len()..];
        let after = after.strip_prefix('s').unwrap_or(after);
        // A path, or the next word, which may stand in the next line of a comment.
        let mut rest = after.trim_start_matches(|c: char| c.is_whitespace() || "/!#".contains(c));
        while rest.len() < after.len()
            && let Some(reference) = record_at(rest)
        {
            note(at, reference);
            let after = &rest[reference.len()..];
            rest = after.strip_prefix(", ").or_else(|| after.strip_prefix(" and ")).unwrap_or_default();
        }
    }
    found
}

/// The number of a record, `0036`, or the name of its file, if the text begins with one.
fn record_at(text: &str) -> Option<&str> {
    if text.bytes().take_while(u8::is_ascii_digit).count() != 4 {
        return None;
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(text.len());
    let is_file = text[4..].starts_with('-') && text[end..].starts_with(".md");
    Some(if is_file { &text[..end + ".md".len()] } else { &text[..4] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(names: &[&str]) -> Records {
        Records(names.iter().map(|&name| name.to_owned()).collect())
    }

    /// References are put together here, lest they be some of this file.
    fn said(words: &str) -> String {
        words.replace("D-", "decision").replace("]>", "](")
    }

    #[test]
    fn references_are_followed_by_number_and_by_file() {
        let records = records(&["0001-one.md", "0002-two.md"]);
        for known in [
            "(D- 0001), D-s 0001, 0002 and others",
            "see the\n/// D-\n/// 0002.",
            "docs/D-s/0002-two.md",
            "docs/D-s",
            "[0001]>0001-one.md)",
            "a D- 12345 and [1]>2000)",
        ] {
            assert!(records.unknown(&said(known)).is_empty(), "{known}");
        }
        for (unknown, line) in [
            ("D- 0003", 1),
            ("\nD-s 0001, 0003", 2),
            ("\n\ndocs/D-s/0002-three.md", 3),
            ("[0001]>0001-two.md)", 1),
            ("D-s/0003", 1),
        ] {
            let lines: Vec<usize> = records.unknown(&said(unknown)).into_iter().map(|(line, _)| line).collect();
            assert_eq!(lines, [line], "{unknown}");
        }
    }

    #[test]
    fn records_have_numbers_of_their_own_and_are_in_the_index() {
        let index = said("- [0001]>0001-one.md) One\n- [0002]>0002-two.md) Two\n");
        assert!(records(&["0001-one.md", "0002-two.md"]).complaints(&index).is_empty());
        assert_eq!(records(&["0001-one.md", "0002-too.md", "0002-two.md"]).complaints(&index).len(), 2);
        let twice = said("- [0001]>0001-one.md) One\n- [0002]>0002-two.md) Two\n- [0001]>0001-one.md) One\n");
        assert_eq!(records(&["0001-one.md", "0002-two.md"]).complaints(&twice).len(), 1);
    }
}
