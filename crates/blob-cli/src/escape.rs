//! Escapes text from a file for a terminal: no name can move the cursor, break the line or look like another name.
//!
//! The rule, as `blob --help` states it: a backslash is `\\`; a character that is invisible, moves other text or ends
//! the line is escaped as `\0`, `\n`, `\r`, `\t`, `\u{1b}` or `\u{200b}`, in the way of `{:?}`, which quotes names in
//! messages. So different names print differently, and each can be parsed back.

use std::borrow::Cow;

/// Escapes a name, so that different names look different.
pub(crate) fn escape(name: &str) -> Cow<'_, str> {
    escape_by(name, Rule { is_name: true, ascii: false })
}

/// Escapes a name in pure ASCII: any other character is `\u{540d}`.
pub(crate) fn escape_ascii(name: &str) -> Cow<'_, str> {
    escape_by(name, Rule { is_name: true, ascii: true })
}

/// Escapes a name for a field between tabs: a spreadsheet takes one with `=`, `+`, `-` or `@` for a formula.
/// Numbers behind `@` call no function, so the names that blob gives (`@0`, `@7/0`, `@0.diff`) stay, and paths that
/// look like these.
pub(crate) fn escape_field(name: &str, ascii: bool) -> Cow<'_, str> {
    let escaped = if ascii { escape_ascii(name) } else { escape(name) };
    let is_formula = match escaped.as_bytes() {
        [b'@', b'0'..=b'9', rest @ ..] => !rest.iter().all(|c| c.is_ascii_alphanumeric() || b"/.#".contains(c)),
        [first, ..] => b"=+-@".contains(first),
        [] => false,
    };
    match escaped.as_bytes() {
        [first, ..] if is_formula => Cow::Owned(format!("\\x{first:02x}{}", &escaped[1..])),
        _ => escaped,
    }
}

/// Escapes a message. Names in a message are already quoted, so backslashes and spaces stay.
pub(crate) fn escape_message(message: &str) -> Cow<'_, str> {
    escape_by(message, Rule { is_name: false, ascii: false })
}

/// Escapes a message in pure ASCII; `×` and `…` become `x` and `...`.
pub(crate) fn escape_message_ascii(message: &str) -> Cow<'_, str> {
    escape_by(message, Rule { is_name: false, ascii: true })
}

/// Whether every character shows, and none moves other text.
pub(crate) fn is_visible_text(text: &str) -> bool {
    let rule = Rule { is_name: false, ascii: false };
    text.chars().all(|c| rule.keeps(c, false))
}

/// Which characters are escaped.
#[derive(Clone, Copy)]
struct Rule {
    is_name: bool,
    ascii: bool,
}

impl Rule {
    /// Whether a character is printed unescaped.
    fn keeps(self, c: char, is_at_edge: bool) -> bool {
        match c {
            '\\' => !self.is_name,
            // A space at either end would be invisible.
            ' ' => !(self.is_name && is_at_edge),
            c if c.is_ascii() => c.is_ascii_graphic(),
            c => !self.ascii && is_visible(c),
        }
    }
}

fn escape_by(text: &str, rule: Rule) -> Cow<'_, str> {
    let last = text.len();
    let keeps = |(at, c): (usize, char)| rule.keeps(c, at == 0 || at + c.len_utf8() == last);
    if text.char_indices().all(keeps) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for (at, c) in text.char_indices() {
        match c {
            c if keeps((at, c)) => out.push(c),
            '\\' => out.push_str("\\\\"),
            '\0' => out.push_str("\\0"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '×' if !rule.is_name => out.push('x'),
            '…' if !rule.is_name => out.push_str("..."),
            c => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    Cow::Owned(out)
}

/// Whether a character outside ASCII is visible. The standard library's rule for `{:?}` excludes control, format,
/// private-use and unassigned characters and all spaces. That rule takes the characters below for letters and marks,
/// although Unicode calls them `Default_Ignorable_Code_Point`; U+2800 is a Braille cell without dots.
fn is_visible(c: char) -> bool {
    let ignorable = matches!(c, '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}');
    // The character follows an `x`, because `{:?}` escapes a combining mark at the beginning.
    let mut pair = [b'x'; 5];
    let len = 1 + c.encode_utf8(&mut pair[1..]).len();
    let shown = std::str::from_utf8(&pair[..len]).map(|pair| pair.escape_debug().count());
    !ignorable && shown == Ok(2)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn plain_names_are_untouched() {
        for name in ["conv1/0", "arg:fc1_weight", "@3", "名前", "a b", "e\u{301}té", ""] {
            assert!(matches!(escape(name), Cow::Borrowed(same) if same == name), "{name}");
        }
    }

    #[test]
    fn a_field_is_no_formula() {
        for kept in ["@0", "@7/0", "@0.diff", "@3/weight", "@1/net.npz", "@03", "w=1", ""] {
            assert_eq!(escape_field(kept, false), kept);
        }
        for formula in ["=cmd|A0", "+1", "-w", "@SUM(1)", "@1+cmd", "@"] {
            let escaped = escape_field(formula, true);
            assert_eq!(escaped, format!("\\x{:02x}{}", formula.as_bytes()[0], &formula[1..]), "{formula}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("a\tb\nc\r\0"), r"a\tb\nc\r\0");
        assert_eq!(escape("\x1b[31mred\x7f"), r"\u{1b}[31mred\u{7f}");
        assert_eq!(escape("\u{9b}31m\u{202e}"), r"\u{9b}31m\u{202e}");
    }

    /// Invisible characters of each kind: bidirectional controls, joiners, soft hyphen, tags, variation selectors,
    /// fillers, spaces, private use, unassigned.
    #[test]
    fn invisible_characters_are_escaped() {
        let invisible = "\u{61c}\u{200b}\u{200e}\u{2060}\u{2066}\u{ad}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{fe0f}\u{e0100}\
                      \u{34f}\u{3164}\u{115f}\u{17b4}\u{180e}\u{a0}\u{3000}\u{2028}\u{e000}\u{10ffff}\u{378}\u{2800}";
        for c in invisible.chars() {
            assert_eq!(escape(&format!("con{c}v1")), format!("con\\u{{{:x}}}v1", c as u32));
        }
        assert_eq!(escape(" a "), r"\u{20}a\u{20}");
    }

    #[test]
    fn ascii_is_ascii() {
        assert_eq!(escape_ascii("名/0"), r"\u{540d}/0");
        assert_eq!(escape_message_ascii("\"a\\n\" has 2×3, é…"), "\"a\\n\" has 2x3, \\u{e9}...");
        assert_eq!(escape_message("\"a\\n\" has 2×3\n"), "\"a\\n\" has 2×3\\n");
    }

    #[test]
    fn a_name_in_a_message_is_escaped_as_in_a_list() {
        for name in ["a\x1b[31m", "\x001", "\u{7f}", "\\u{1b}", "a\u{200b}\\", "\\", "\\\u{1}"] {
            assert_eq!(escape_message(&format!("{name:?} is missing")), format!("\"{}\" is missing", escape(name)));
        }
        assert_eq!(escape_message(r"C:\udata\u{zz} \u{1b"), r"C:\udata\u{zz} \u{1b");
    }

    /// Parses an escaped name.
    fn unescape(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c != '\\' {
                out.push(c);
                continue;
            }
            let (kind, after) = rest.split_at(1);
            let (digits, after) = match kind {
                "u" => after[1..].split_once('}').unwrap(),
                _ => ("", after),
            };
            rest = after;
            out.push(match kind {
                "\\" => '\\',
                "0" => '\0',
                "n" => '\n',
                "r" => '\r',
                "t" => '\t',
                _ => char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap(),
            });
        }
        out
    }

    /// Tests every text of up to four characters from an alphabet of those that occur in escapes.
    #[test]
    fn no_two_names_print_alike_and_each_parses_back() {
        let alphabet = ['\\', '\0', 'n', 'x', '2', '0', 'u', '{', '}', '\n', ' ', '\x02', '\u{200b}', 'é', '\u{2}'];
        let mut names = vec![String::new()];
        let mut from = 0;
        for _ in 0..4 {
            let to = names.len();
            for i in from..to {
                names.extend(alphabet.map(|c| format!("{}{c}", names[i])));
            }
            from = to;
        }
        let names: HashSet<String> = names.into_iter().collect();
        for escape in [escape, escape_ascii] {
            let printed: HashSet<String> = names.iter().map(|n| escape(n).into_owned()).collect();
            assert_eq!(printed.len(), names.len());
            assert!(names.iter().all(|name| unescape(&escape(name)) == *name));
        }
    }
}
