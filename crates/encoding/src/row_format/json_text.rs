//! The text of JSON (RFC 8259): tokens with their positions, strings both ways.
//!
//! Objects and arrays are never values here, so nothing recurses.

use super::span::Fault;

/// A string between its quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringToken {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Walks over the tokens of a text.
#[derive(Debug)]
pub(super) struct JsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> JsonReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub(super) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over `byte` if it is next.
    #[inline]
    pub(super) fn accept(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Steps over `prefix` if it is next.
    #[inline]
    pub(super) fn accept_prefix(&mut self, prefix: &Prefix) -> bool {
        let is_next = prefix.is_of(&self.bytes[self.at..]);
        self.at += if is_next { prefix.bytes.len() } else { 0 };
        is_next
    }

    /// A string with its quotes.
    pub(super) fn token(&self, string: StringToken) -> &'a [u8] {
        &self.bytes[string.start - 1..string.end + 1]
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.accept(byte) { Ok(()) } else { Err(self.unexpected(&format!("`{}`", char::from(byte)))) }
    }

    /// Fails unless only space is left.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.skip_space();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    #[cold]
    pub(super) fn unexpected(&self, wanted: &str) -> Fault {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(byte @ 0x20..0x7f) => format!("`{}`", char::from(byte)),
            Some(byte) => format!("byte {byte:02X}"),
        };
        Fault::new(self.at, format!("malformed JSON: expected {wanted}, found {found}"))
    }

    /// A string: no control characters, known escapes, no surrogate without its other half.
    #[inline]
    pub(super) fn string(&mut self) -> Result<StringToken, Fault> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            self.at += plain_len(&self.bytes[self.at..]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                None | Some(0..0x20) => return Err(self.unexpected("a character or `\"`")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(StringToken { start, end: self.at - 1 })
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => match unicode_escape(&self.bytes[start..]) {
                Some((_, len)) => {
                    self.at = start + len;
                    Ok(())
                }
                None if hex4(&self.bytes[start..]).is_some() => {
                    Err(Fault::new(start, "malformed JSON: a surrogate without its other half"))
                }
                None => Err(Fault::new(start, "malformed JSON: `\\u` needs four hexadecimal digits")),
            },
            _ => Err(self.unexpected("an escape")),
        }
    }

    /// Steps over a value that is no object and no array.
    #[inline]
    pub(super) fn value(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(b'{' | b'[') => Err(Fault::new(self.at, "a column cannot hold an object or an array")),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// As [`JsonReader::value`], of a text that was found to be one before: what is no string is not looked at, but for
    /// where it ends.
    #[inline]
    pub(super) fn trusted_value(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'"') {
            return self.string().map(drop);
        }
        while let Some(byte) = self.peek()
            && !matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r')
        {
            self.at += 1;
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Fault> {
        for &byte in word {
            self.expect(byte)?;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        self.accept(b'-');
        if !self.accept(b'0') {
            self.digits()?;
        }
        if self.accept(b'.') {
            self.digits()?;
        }
        if self.accept(b'e') || self.accept(b'E') {
            if !self.accept(b'+') {
                self.accept(b'-');
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.unexpected("a digit")) }
    }
}

/// Bytes that texts are compared with, of which most begin with others.
#[derive(Debug)]
pub(super) struct Prefix {
    bytes: Box<[u8]>,
    /// The first eight, as far as there are so many, and which bits these are.
    head: u64,
    head_mask: u64,
    /// The last eight, if there are so many.
    tail: u64,
}

impl Prefix {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let (mut head, mut mask) = ([0; 8], [0; 8]);
        for (at, &byte) in bytes.iter().take(8).enumerate() {
            (head[at], mask[at]) = (byte, 0xff);
        }
        let tail = bytes.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail));
        Self { bytes: bytes.into(), head: u64::from_le_bytes(head), head_mask: u64::from_le_bytes(mask), tail }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn is_of(&self, text: &[u8]) -> bool {
        match text.first_chunk::<8>() {
            Some(head) if u64::from_le_bytes(*head) & self.head_mask != self.head => false,
            Some(_) if self.bytes.len() <= 8 => true,
            // The first and the last eight are all.
            Some(_) if self.bytes.len() <= 16 => {
                let own = text.get(..self.bytes.len()).and_then(<[u8]>::last_chunk::<8>);
                own.is_some_and(|own| u64::from_le_bytes(*own) == self.tail)
            }
            _ => text.starts_with(&self.bytes),
        }
    }
}

/// How many bytes at the start of `text` are no quotes, no backslashes and no control characters: all of them, or all
/// but some of the last seven of the text.
#[inline]
fn plain_len(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    // The lowest high bit is that of the first byte below the limit; those after it may be wrong.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGH;
    let equals = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let mut len = 0;
    while let Some(chunk) = text.get(len..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let others = equals(word, b'"') | equals(word, b'\\') | below(word, 0x20);
        if others != 0 {
            return len + others.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len
}

/// The four hexadecimal digits after the `\u` at the start of `text`.
fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |value, &byte| Some(value << 4 | char::from(byte).to_digit(16)?))
}

/// The character and the length of the `\u` escape, or pair of them, at the start of `text`.
fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let first = hex4(text)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = hex4(text.get(6..)?)?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 12))
}

/// The text of the string `token` (quotes included): borrowed if there are no escapes, else built in `scratch`.
pub(super) fn unescape<'a>(token: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a str, Fault> {
    let content = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    let text = if content.contains(&b'\\') {
        scratch.clear();
        append_unescaped(content, scratch)?;
        &scratch[..]
    } else {
        content
    };
    std::str::from_utf8(text).map_err(|e| Fault::new(1 + e.valid_up_to(), "text is not UTF-8"))
}

fn append_unescaped(content: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut rest = content;
    while let Some(position) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..position]);
        rest = &rest[position..];
        let simple = match rest.get(1) {
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            _ => {
                let Some((character, len)) = unicode_escape(rest) else {
                    return Err(Fault::new(1 + content.len() - rest.len(), "malformed escape"));
                };
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[len..];
                continue;
            }
        };
        out.push(simple);
        rest = &rest[2..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Appends `text` as a string: only `"`, `\` and control characters are escaped.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(position) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&rest[..position]);
        match rest[position] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => super::number::print(out, format_args!("\\u{byte:04x}")),
        }
        rest = &rest[position + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_back() {
        for text in ["", "a", "\0\u{1f}\"\\/\n\r\t\u{8}\u{c}", "é😀\u{ffff}\u{7f}"] {
            let mut token = Vec::new();
            put_string(&mut token, text);
            assert_eq!(JsonReader::new(&token).string().unwrap().end, token.len() - 1);
            assert_eq!(unescape(&token, &mut Vec::new()).unwrap(), text);
        }
        let token = br#""\u00e9\uD83D\ude00\/\b\f""#;
        assert_eq!(unescape(token, &mut Vec::new()).unwrap(), "é😀/\u{8}\u{c}");
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in [
            "",
            "tru",
            "nul",
            "-",
            "+1",
            ".5",
            "1.",
            "1e",
            "1e+",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "{}",
            "[1]",
            "NaN",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "'a'",
        ] {
            assert!(JsonReader::new(text.as_bytes()).value().is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_of_any_length_are_told_apart() {
        let text = b"\"distance\":17,\"distances\":1";
        for len in 0..text.len() {
            let prefix = Prefix::new(text[..len].to_vec());
            for end in 0..text.len() {
                assert_eq!(prefix.is_of(&text[..end]), end >= len, "{len} of {end}");
            }
            for at in 0..len {
                let mut other = text.to_vec();
                other[at] ^= 1;
                assert!(!prefix.is_of(&other), "{len}, another byte at {at}");
            }
        }
    }

    #[test]
    fn the_first_byte_of_a_string_that_needs_a_look_is_found() {
        for at in 0..24 {
            for special in (0..0x20).chain([b'"', b'\\']) {
                for other in [b'a', 0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                    let mut text = vec![other; 24];
                    text[at] = special;
                    assert_eq!(plain_len(&text), at, "{special:02x} at {at} among {other:02x}");
                    text.truncate(at);
                    assert_eq!(plain_len(&text), at / 8 * 8);
                }
            }
        }
    }
}
