//! A text as statements, which end at `;` outside quotes and comments, as DataFusion's parser knows them: `'text'`,
//! `E'text with \''`, `"name"`, `` `name` ``, `$$text$$`, `$tag$text$tag$`, `-- to the end of the line`,
//! `/* may /* nest */ */`.

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

/// The pieces of a text and where they begin. A doubled quote is the end of one quoted piece and the beginning of the
/// next.
fn pieces(text: &str) -> impl Iterator<Item = (Piece, usize)> {
    let (mut at, mut is_in_word) = (0, false);
    std::iter::from_fn(move || {
        let rest = text.get(at..)?;
        let first = rest.chars().next()?;
        let closed_by = |open: usize, close: &str| {
            let found = rest.get(open..).and_then(|tail| tail.find(close));
            found.map_or(rest.len(), |end| open + end + close.len())
        };
        let (piece, len) = match (first, dollar_tag(rest)) {
            ('\'' | '"' | '`', _) => (Piece::Quoted, closed_by(1, &first.to_string())),
            ('e' | 'E', _) if !is_in_word && rest[1..].starts_with('\'') => {
                (Piece::Quoted, 1 + escaped_len(&rest[1..]))
            }
            ('$', Some(tag)) if !is_in_word => (Piece::Quoted, closed_by(tag.len(), tag)),
            ('-', _) if rest.starts_with("--") => (Piece::Comment { is_closed: true }, closed_by(2, "\n")),
            ('/', _) if rest.starts_with("/*") => {
                let (len, is_closed) = comment_len(rest);
                (Piece::Comment { is_closed }, len)
            }
            (other, _) => (Piece::Plain, other.len_utf8()),
        };
        is_in_word = piece == Piece::Plain && (first.is_alphanumeric() || first == '_');
        let start = at;
        at += len;
        Some((piece, start))
    })
}

/// What opens a text in dollars, and closes it.
fn dollar_tag(rest: &str) -> Option<&str> {
    let name = rest.strip_prefix('$')?.split('$').next()?;
    let is_name =
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    rest.get(..name.len() + 2).filter(|tag| is_name && tag.ends_with('$'))
}

/// The length of a quoted text in which `\` makes the next character one of the text.
fn escaped_len(quoted: &str) -> usize {
    let mut characters = quoted.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '\'' => return at + 1,
            _ => {}
        }
    }
    quoted.len()
}

/// The length of a comment with those inside it, and whether it has an end.
fn comment_len(comment: &str) -> (usize, bool) {
    let (mut at, mut depth) = (0, 0);
    while let Some(rest) = comment.get(at..).filter(|rest| !rest.is_empty()) {
        let step = match rest {
            _ if rest.starts_with("/*") => 1,
            _ if rest.starts_with("*/") => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { rest.chars().next().map_or(1, char::len_utf8) } else { 2 };
        if depth == 0 {
            return (at, true);
        }
    }
    (comment.len(), false)
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
    fn quotes_and_comments_are_those_of_the_parser() {
        for whole in [
            "SELECT $$a;b$$",
            "SELECT $t$a;$$;b$t$ AS x",
            "SELECT 1 AS `a;b`",
            "SELECT E'it\\'s; x'",
            "/* a /* b */ c; */ SELECT 1",
        ] {
            assert_eq!(split(whole).collect::<Vec<_>>(), [whole]);
            assert!(is_complete(&format!("{whole};")) && !is_complete(whole), "{whole}");
        }
        assert_eq!(split("SELECT $1; SELECT name'a;'").collect::<Vec<_>>(), ["SELECT $1", " SELECT name'a;'"]);
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
