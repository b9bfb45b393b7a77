//! Tensor names as names of files and zip members: relative paths that stay inside the folder on every system.
//!
//! A pure function that knows no file system. Changed characters are percent-encoded, so that most names can be read
//! back.

use std::collections::{HashMap, HashSet};

use unicode_normalization::UnicodeNormalization;

use crate::notes::FOLDER_LIST;

/// A component, or a whole path, that is longer than this when encoded is cut and gets a checksum. 200 leaves room for
/// `.npy` and a suffix below the 255 bytes that file systems allow; a path must fit PATH_MAX with the target's own.
const LONGEST_COMPONENT: usize = 200;
const LONGEST_PATH: usize = 1024;

/// The path of each name, without an extension: `/` separates folders, and everything that a file system could
/// interpret is percent-encoded.
///
/// * Encoded: `.` and `..`, a dot or space at a component's end, a dash at its start (an option for the programs that
///   get the name from `*`), control characters, `\ : * ? " < > |`, `%` itself, the
///   device names of Windows (`aux` becomes `%61ux`), a folder's `.npy` ending, the first letter of a first folder
///   called `blob.receipt.json` in any case; an empty component is `%`.
/// * A component over 200 bytes, or a path over 1024, is cut and gets `~` and its CRC-32.
/// * A name that is taken gets `~2`, `~3`, …, also where the two differ in case alone, or in the way Unicode composes
///   letters: `é` may be one character or two.
///
/// No result begins with `/`, has an empty component or one that is `.` or `..`; all differ, whatever the case and the
/// form of Unicode.
///
/// ```
/// let names = blob_io::layout::file_names(&["conv1/0", "arg:fc1", "../../etc/passwd", "W", "w"]);
/// assert_eq!(names, ["conv1/0", "arg%3Afc1", "%2E%2E/%2E%2E/etc/passwd", "W", "w~2"]);
/// ```
#[must_use]
pub fn file_names(names: &[&str]) -> Vec<String> {
    let mut numbered = Numbered::default();
    let each = names.iter().map(|name| {
        let path = path(name);
        numbered.name(folded(&path), path)
    });
    each.collect()
}

/// The text that is equal for paths which some file system takes for the same: macOS compares letters in their
/// decomposed form, Windows and macOS without case.
fn folded(path: &str) -> String {
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    // Through upper case, because `ſ` is an `S` and `ς` a `Σ`; a letter of the other case may be composed.
    path.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfd().collect()
}

/// Adds a number to names that are taken.
#[derive(Default)]
pub(crate) struct Numbered {
    taken: HashSet<String>,
    /// The next number for each name, so that many equal names stay cheap.
    next: HashMap<String, u64>,
}

impl Numbered {
    /// Marks a name as taken; false if already taken.
    pub(crate) fn take(&mut self, key: String) -> bool {
        self.taken.insert(key)
    }

    /// `name`, with `~2`, `~3`, … if taken; names with the same `key` count as equal.
    pub(crate) fn name(&mut self, key: String, name: String) -> String {
        if self.take(key.clone()) {
            return name;
        }
        let mut count = self.next.get(&key).copied().unwrap_or(2);
        while !self.take(format!("{key}~{count}")) {
            count += 1;
        }
        self.next.insert(key, count + 1);
        format!("{name}~{count}")
    }
}

fn path(name: &str) -> String {
    let mut path = String::with_capacity(name.len() + 8);
    let mut components = name.split('/').peekable();
    while let Some(raw) = components.next() {
        if components.peek().is_none() {
            path += &component(raw, Component::File);
            break;
        }
        let kind = if path.is_empty() && is_list(raw) { Component::List } else { Component::Folder };
        path += &component(raw, kind);
        path.push('/');
    }
    if path.len() <= LONGEST_PATH {
        return path;
    }
    // A cut within a component leaves a valid component, because the checksum ends the component.
    cut(&path, LONGEST_PATH, name)
}

/// The meaning of a component.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Component {
    File,
    Folder,
    /// A folder where a folder's list goes.
    List,
}

fn component(raw: &str, kind: Component) -> String {
    if raw.is_empty() {
        return "%".to_owned();
    }
    let npy = raw.len().saturating_sub(4);
    let npy = kind != Component::File && raw.as_bytes()[npy..].eq_ignore_ascii_case(b".npy");
    let taken = kind == Component::List || is_device(raw);
    let mut out = String::with_capacity(raw.len() + 8);
    for (at, c) in raw.char_indices() {
        let last = at + c.len_utf8() == raw.len();
        let special = matches!(c, '%' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|')
            || c.is_control()
            || last && matches!(c, '.' | ' ')
            || at == 0 && c == '-'
            || npy && at + 4 == raw.len()
            || taken && at == 0
            || raw == ".."; // its first dot too
        push(&mut out, c, special);
    }
    if out.len() <= LONGEST_COMPONENT {
        return out;
    }
    cut(&out, LONGEST_COMPONENT, raw)
}

/// Adds a character, percent-encoded if special.
pub(crate) fn push(out: &mut String, c: char, special: bool) {
    if !special {
        return out.push(c);
    }
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        *out += &format!("%{byte:02X}");
    }
}

/// The start of an encoded text with the checksum of the raw one, at most `limit` bytes together.
pub(crate) fn cut(encoded: &str, limit: usize, raw: &str) -> String {
    let mut end = floor(encoded, limit - 9);
    // Not within `%XX`.
    if let Some(percent) = encoded[..end].rfind('%').filter(|at| at + 3 > end) {
        end = percent;
    }
    let crc = crc32fast::hash(raw.as_bytes());
    format!("{}~{crc:08X}", &encoded[..end])
}

/// The last character boundary up to `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Whether a file system that ignores case takes the name for that of a folder's list; upper case, because `ſ` is an
/// `S` too.
fn is_list(raw: &str) -> bool {
    raw.to_uppercase() == FOLDER_LIST.to_uppercase()
}

/// Whether Windows takes the name for a device, with any extension.
fn is_device(raw: &str) -> bool {
    let stem = raw.split('.').next().unwrap_or(raw).trim_end_matches(' ');
    let stem = stem.to_ascii_lowercase();
    match stem.strip_prefix("com").or(stem.strip_prefix("lpt")) {
        // Windows takes superscript digits for digits.
        Some(digit) => matches!(digit, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"),
        None => matches!(stem.as_str(), "aux" | "con" | "nul" | "prn" | "conin$" | "conout$"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> String {
        file_names(&[name]).remove(0)
    }

    #[test]
    fn ordinary_names_stay() {
        for name in
            ["conv1/0", "features.0.weight", "a b/c-d_e+f,g=h@7#values~", "größe/層", ".hidden", "...a", "arr_0"]
        {
            assert_eq!(one(name), name);
        }
    }

    #[test]
    fn what_a_file_system_could_interpret_is_encoded() {
        for (name, path) in [
            ("", "%"),
            ("/", "%/%"),
            ("/etc/passwd", "%/etc/passwd"),
            ("a//b", "a/%/b"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("../x", "%2E%2E/x"),
            ("...", "..%2E"),
            ("a./b ", "a%2E/b%20"),
            ("arg:w", "arg%3Aw"),
            ("C:\\w", "C%3A\\w".replace('\\', "%5C").as_str()),
            ("a\0b\x1B\u{85}", "a%00b%1B%C2%85"),
            ("100%", "100%25"),
            ("<a|b>*?\"", "%3Ca%7Cb%3E%2A%3F%22"),
            ("aux/Con.w/com1/comx/LPT9", "%61ux/%43on.w/%63om1/comx/%4CPT9"),
            ("com¹/LPT².w/Com³ .x/com⁴", "%63om¹/%4CPT².w/%43om³ .x/com⁴"),
            ("CONIN$/conout$.w/conin", "%43ONIN$/%63onout$.w/conin"),
            ("-rf/--x/a-b/c-", "%2Drf/%2D-x/a-b/c-"),
            ("a.npy/b.npy", "a%2Enpy/b.npy"),
            ("a.NPY/b", "a%2ENPY/b"),
            ("blob.receipt.json/x", "%62lob.receipt.json/x"),
            ("Blob.Receipt.JſON//x", "%42lob.Receipt.JſON/%/x"),
            ("blob.receipt.json", "blob.receipt.json"),
            ("a/blob.receipt.json/x", "a/blob.receipt.json/x"),
        ] {
            assert_eq!(one(name), path, "{name:?}");
        }
    }

    #[test]
    fn long_names_are_cut_between_characters_and_escapes() {
        assert_eq!(one(&"n".repeat(200)), "n".repeat(200));
        for unit in ["n", "é", "層", ":", "a:", "ab:"] {
            let long = unit.repeat(300);
            let path = one(&long);
            assert!((185..=200).contains(&path.len()), "{path}");
            let (start, crc) = path.rsplit_once('~').unwrap();
            assert_eq!(crc, format!("{:08X}", crc32fast::hash(long.as_bytes())));
            let encoded = unit.replace(':', "%3A").repeat(300);
            assert!(encoded.starts_with(start), "{path}");
            assert_eq!(start.matches('%').count(), start.matches("%3A").count());
        }
        let deep = "folder/".repeat(1000);
        assert!(one(&deep).len() <= 1024);
        assert_ne!(one(&deep), one(&format!("{deep}x")));
    }

    #[test]
    fn names_that_a_system_takes_for_the_same_get_a_suffix() {
        assert_eq!(file_names(&["W", "w", "w~2", "W", "É", "é", "w"]), ["W", "w~2", "w~2~2", "W~3", "É", "é~2", "w~4"]);
        // Composed and decomposed, in either case; Å the letter and the unit; ﬁ, whose capitals are F and I.
        let names = ["caf\u{e9}/0", "cafe\u{301}/0", "CAFE\u{301}/0", "\u{c5}", "\u{212b}", "a\u{30a}", "ﬁ", "fi"];
        let files =
            ["caf\u{e9}/0", "cafe\u{301}/0~2", "CAFE\u{301}/0~3", "\u{c5}", "\u{212b}~2", "a\u{30a}~3", "ﬁ", "fi~2"];
        assert_eq!(file_names(&names), files);
    }
}
