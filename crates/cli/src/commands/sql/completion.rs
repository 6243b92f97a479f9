//! What the shell offers to complete a word with: keywords, tables, columns.

use mycelium::Database;

const KEYWORDS: [&str; 62] = [
    "ALL",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "AVG",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COUNT",
    "CROSS",
    "DATE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LATEST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MAX",
    "MIN",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OVER",
    "PARTITION",
    "RIGHT",
    "SELECT",
    "SET",
    "SHOW",
    "SNAPSHOT",
    "SUM",
    "TABLES",
    "TAKE",
    "THEN",
    "TRUE",
    "UNION",
    "USE",
    "WHEN",
    "WHERE",
];

/// The words that there are.
pub(super) struct Words {
    names: Vec<String>,
}

impl Words {
    /// The keywords and the names in a database.
    pub(super) fn of(database: &Database) -> Self {
        let mut names = Vec::new();
        for name in database.table_names() {
            let Ok(table) = database.table(&name) else { continue };
            if let Some(schema) = table.schema() {
                names.push(quoted(&name));
                names.extend(schema.live_columns().map(|(_, column)| quoted(&column.name)));
            }
        }
        Self::new(names)
    }

    fn new(mut names: Vec<String>) -> Self {
        names.sort_unstable();
        names.dedup();
        Self { names }
    }

    /// Where the word before `end` begins, and what begins as it does; keywords in the case of its first letter.
    pub(super) fn complete(&self, line: &str, end: usize) -> (usize, Vec<String>) {
        let before = line.get(..end).unwrap_or_default();
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
        let start = before.char_indices().rev().take_while(|(_, c)| is_part(*c)).last().map_or(end, |(at, _)| at);
        let word = &before[start..];
        let Some(first) = word.chars().next() else { return (start, Vec::new()) };
        let begins =
            |candidate: &str| candidate.get(..word.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(word));
        let mut found: Vec<String> = self.names.iter().filter(|name| begins(name)).cloned().collect();
        let keywords = KEYWORDS.iter().filter(|keyword| begins(keyword));
        found.extend(keywords.map(|word| if first.is_lowercase() { word.to_lowercase() } else { (*word).to_owned() }));
        (start, found)
    }
}

/// A name as SQL has to have it: in quotes, unless it is lower case and plain.
pub(super) fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_with_names_and_keywords() {
        let words = Words::new(["flights", "flight", "Origin", "orders"].map(quoted).to_vec());
        let complete = |line: &str| words.complete(line, line.len());
        assert_eq!(complete("select * from fl"), (14, vec!["flight".into(), "flights".into()]));
        assert_eq!(complete("sel"), (0, vec!["select".into()]));
        assert_eq!(complete("SEL"), (0, vec!["SELECT".into()]));
        assert_eq!(complete("select a.or"), (9, vec!["orders".into(), "or".into(), "order".into()]));
        assert_eq!(complete("select \"Or"), (7, vec!["\"Origin\"".into()]));
        assert_eq!(complete("select "), (7, vec![]));
        assert_eq!(words.complete("fli from", 3), (0, vec!["flight".into(), "flights".into()]));
    }

    #[test]
    fn keywords_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }
}
