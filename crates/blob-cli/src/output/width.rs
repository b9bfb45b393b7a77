//! Fits text into a width in terminal columns: two for 名, none for a combining accent.
//!
//! Expects escaped text and never cuts inside an escape sequence.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// The columns of a text; colour codes take none.
pub(crate) fn width(text: &str) -> usize {
    if text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return text.len();
    }
    let mut parts = text.split("\x1b[");
    let plain = |part: &str| part.chars().map(columns).sum::<usize>();
    let first = parts.next().map_or(0, plain);
    // A colour ends with the first `m`.
    first + parts.map(|part| plain(part.split_once('m').map_or("", |(_, rest)| rest))).sum::<usize>()
}

/// The marks of a cut, in UTF-8 and in ASCII.
pub(crate) const DOTS: [&str; 2] = ["…", "..."];

/// The mark of a cut.
pub(crate) fn dots(ascii: bool) -> &'static str {
    DOTS[usize::from(ascii)]
}

/// Cuts the middle of a text longer than `most` columns: `arg:rf_c2…_gamma`.
pub(crate) fn cut(text: &str, most: usize, ascii: bool) -> Cow<'_, str> {
    let room = most.saturating_sub(width(dots(ascii)));
    if text.len() <= most || width(text) <= most {
        return Cow::Borrowed(text);
    }
    cut_ends(text, room.div_ceil(2), room / 2, ascii)
}

/// Keeps `head` and `tail` columns of a text that has more than these and the dots between them.
pub(crate) fn cut_ends(text: &str, head: usize, tail: usize, ascii: bool) -> Cow<'_, str> {
    let dots = dots(ascii);
    let most = head + width(dots) + tail;
    // A text has no more columns than bytes, so most texts need no measuring.
    if text.len() <= most || width(text) <= most {
        return Cow::Borrowed(text);
    }
    let head = fitting(atoms(text), head);
    let atoms: Vec<&str> = atoms(&text[head..]).collect();
    let tail = fitting(atoms.into_iter().rev(), tail);
    Cow::Owned(format!("{}{dots}{}", &text[..head], &text[text.len() - tail..]))
}

/// Wraps a text to `most` columns at spaces, and inside words that are longer than a line.
pub(crate) fn wrap(text: &str, most: usize) -> Vec<String> {
    let most = most.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let gap = usize::from(!line.is_empty());
        if width(&line) + gap + width(word) <= most {
            line.push_str(&" "[..gap]);
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        let mut rest = word;
        while width(rest) > most {
            let end = fitting(atoms(rest), most).max(atoms(rest).next().map_or(0, str::len));
            // A long name is broken between parts.
            let end = rest[..end].rfind(['/', '.', ':', '_', '-']).map_or(end, |at| at + 1);
            lines.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
        line.push_str(rest);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Wraps a message to `most` columns and indents all lines but the first by `hang`. Longer words are not broken, so
/// that a path can be copied in one piece even if the terminal wraps it.
pub(crate) fn paragraph(text: &str, most: Option<usize>, hang: usize) -> String {
    let body = text.trim_start_matches(' ');
    let lead = text.len() - body.len();
    let mut out = text[..lead].to_owned();
    let (mut column, mut is_start) = (lead, true);
    for word in body.split(' ') {
        if !is_start && most.is_some_and(|most| column + 1 + width(word) > most) {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', hang));
            (column, is_start) = (hang, true);
        }
        if is_start && word.is_empty() {
            continue;
        }
        if !is_start {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width(word);
        is_start = false;
    }
    out
}

fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// The number of bytes in the leading parts that fit into `room` columns.
fn fitting<'t>(parts: impl Iterator<Item = &'t str>, mut room: usize) -> usize {
    let fits = parts.take_while(|part| match room.checked_sub(width(part)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    });
    fits.map(str::len).sum()
}

/// Splits a text into parts that must not be cut: escapes, and characters with their combining marks.
fn atoms(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let escape = match (first, rest.as_bytes().get(1)) {
            ('\\', Some(b'u')) => rest.find('}').map_or(2, |end| end + 1),
            ('\\', Some(_)) => 2,
            _ => first.len_utf8(),
        };
        let start = if rest.is_char_boundary(escape) { escape } else { first.len_utf8() };
        let marks = rest[start..].chars().take_while(|c| columns(*c) == 0);
        let (atom, left) = rest.split_at(start + marks.map(char::len_utf8).sum::<usize>());
        rest = left;
        Some(atom)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_in_the_middle_by_columns() {
        for (text, most, expected) in [
            ("conv1/0", 7, "conv1/0"),
            ("arg:rf_c2_lateral_bn_gamma", 16, "arg:rf_c…n_gamma"),
            ("名前名前名前", 7, "名…前"),
            ("名前名前名前", 12, "名前名前名前"),
            ("aaaa\\u{200b}bbbb", 9, "aaaa…bbbb"),
            ("ae\u{301}e\u{301}e\u{301}e\u{301}a", 5, "ae\u{301}…e\u{301}a"),
            ("abc", 1, "…"),
            ("abc", 0, "…"),
        ] {
            assert_eq!(cut(text, most, false), expected);
        }
        assert_eq!(cut("arg:rf_c2_lateral_bn_gamma", 16, true), "arg:rf_..._gamma");
    }

    #[test]
    fn cut_and_wrapped_text_fits_the_width() {
        let text = r"a名\u{1b}\\e\u{202e}x".repeat(9);
        for most in 1..80 {
            assert!(width(&cut(&text, most, false)) <= most);
            assert!(wrap(&text, most.max(8)).iter().all(|line| width(line) <= most.max(8)));
            assert_eq!(wrap(&text, most).concat(), text);
        }
    }

    #[test]
    fn a_message_is_indented_and_its_longest_word_stays_whole() {
        let text = "  help: fetch the file/that/is/long anew";
        assert_eq!(paragraph(text, None, 4), text);
        assert_eq!(paragraph(text, Some(14), 4), "  help: fetch\n    the\n    file/that/is/long\n    anew");
        let painted = "\x1b[1mx.npz\x1b[0m: OK   three";
        assert_eq!(width(painted), 17);
        assert_eq!(paragraph(painted, Some(17), 2), painted);
        assert_eq!(paragraph(painted, Some(16), 2), "\x1b[1mx.npz\x1b[0m: OK\n  three");
    }

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a longestword b", 4), ["a", "long", "estw", "ord", "b"]);
        assert_eq!(wrap("one  two", 5), ["one", "two"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
