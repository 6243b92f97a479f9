//! A text as statements, which end at `;` outside quotes and comments.

/// The statements of a text, without the semicolons and without those that are empty.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some(end) = end_of_statement(text) else { return Some(text) };
        let (statement, tail) = text.split_at(end);
        rest = tail.get(1..);
        Some(statement)
    })
    .filter(|statement| !is_blank(statement))
}

/// Whether a text ends with a statement that is complete, or says nothing.
pub(super) fn is_complete(text: &str) -> bool {
    let mut rest = text;
    while let Some(end) = end_of_statement(rest) {
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    is_blank(rest)
}

/// Whether there is nothing but space and comments.
fn is_blank(text: &str) -> bool {
    pieces(text).all(|(piece, at)| match piece {
        Piece::Comment { is_closed } => is_closed,
        Piece::Quoted => false,
        Piece::Plain => text[at..].chars().next().is_none_or(char::is_whitespace),
    })
}

/// Where the semicolon of the first statement stands.
fn end_of_statement(text: &str) -> Option<usize> {
    pieces(text).find(|(piece, at)| *piece == Piece::Plain && text[*at..].starts_with(';')).map(|(_, at)| at)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Piece {
    /// One character.
    Plain,
    /// To its closing quote, or the end.
    Quoted,
    /// To its end, or that of the text.
    Comment { is_closed: bool },
}

/// The pieces of a text and where they begin. A doubled quote is the end of one quoted piece and the beginning of the next.
fn pieces(text: &str) -> impl Iterator<Item = (Piece, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..)?;
        let first = rest.chars().next()?;
        let closed_by = |open: usize, close: &str| {
            let found = rest.get(open..).and_then(|tail| tail.find(close));
            found.map_or((rest.len(), false), |end| (open + end + close.len(), true))
        };
        let (piece, (len, _)) = match first {
            '\'' | '"' => (Piece::Quoted, closed_by(1, &first.to_string())),
            '-' if rest.starts_with("--") => (Piece::Comment { is_closed: true }, closed_by(2, "\n")),
            '/' if rest.starts_with("/*") => {
                let end = closed_by(2, "*/");
                (Piece::Comment { is_closed: end.1 }, end)
            }
            other => (Piece::Plain, (other.len_utf8(), true)),
        };
        let start = at;
        at += len;
        Some((piece, start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_quotes_and_comments() {
        let text = "SELECT ';' AS \"a;b\" -- no; end\n; /* ; */ SELECT 'it''s;' ;; -- last\nSELECT \u{e4};";
        let expected = ["SELECT ';' AS \"a;b\" -- no; end\n", " /* ; */ SELECT 'it''s;' ", " -- last\nSELECT \u{e4}"];
        assert_eq!(split(text).collect::<Vec<_>>(), expected);
        assert_eq!(split("SELECT 1").collect::<Vec<_>>(), ["SELECT 1"]);
        assert_eq!(split(" ; -- nothing").count(), 0);
    }

    #[test]
    fn a_statement_is_complete_with_its_semicolon() {
        for complete in ["", "  ", "SELECT 1;", "SELECT 1; -- and so on", "SELECT 1; SELECT 2;\n", "/* a */"] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in ["SELECT 1", "SELECT ';", "SELECT 1; SELECT", "SELECT 1 -- ;", "SELECT \"a;", "/* ;"] {
            assert!(!is_complete(open), "{open}");
        }
    }
}
