//! Text from a file, made safe for a terminal and for one line: control characters never reach the user's screen.

use std::borrow::Cow;

/// Escapes control characters and those that reorder text: `\n`, `\t`, `\x1b`, `\u{202e}`. A text that needs it has its
/// backslashes doubled, so that no two texts look the same; any other text is returned as it is.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unsafe(c) && (c as u32) < 0x80 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if is_unsafe(c) => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Control characters (C0, DEL, C1), line separators, and what changes the direction of text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_untouched() {
        for name in ["conv1/0", "arg:fc1_weight", "@3", "名前", r"a\b", ""] {
            assert!(matches!(escape(name), Cow::Borrowed(same) if same == name));
        }
    }

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(escape("a\tb\nc\r"), r"a\tb\nc\r");
        assert_eq!(escape("\x1b[31mred\x7f"), r"\x1b[31mred\x7f");
        assert_eq!(escape("\u{9b}31m\u{202e}"), r"\u{9b}31m\u{202e}");
    }

    #[test]
    fn no_two_names_look_the_same() {
        assert_eq!(escape("\\n\n"), r"\\n\n");
        assert_ne!(escape("\\n\n"), escape("\n\\n"));
    }
}
