//! Turns a glob into a regular expression that matches whole names. Paths of files are matched elsewhere: in a name,
//! `*` and `?` match `/` too.

use std::fmt::Write;

use regex::escape;

/// The regular expression of a glob: `*` is any text, `?` any character, `[a-z]` one of a set, `[!a-z]` one outside
/// the set, `{a,b}` one of several globs, `**/` also no text, and `\` takes the next character literally.
///
/// # Errors
/// What is missing, in words.
pub(super) fn expression(glob: &str) -> Result<String, String> {
    let (mut out, mut depth, mut rest) = (String::from("^"), 0_usize, glob);
    // Whether a part of a name begins here.
    let mut is_start = true;
    while let Some(next) = rest.chars().next() {
        let before = rest;
        rest = &rest[next.len_utf8()..];
        match next {
            '*' => rest = stars(before, is_start, &mut out),
            '?' => out.push('.'),
            '[' => rest = set(rest, &mut out)?,
            '{' => {
                depth += 1;
                out.push_str("(?:");
            }
            ',' if depth > 0 => out.push('|'),
            '}' => {
                depth = depth.checked_sub(1).ok_or("a `}` has no `{`")?;
                out.push(')');
            }
            '\\' => rest = literal(rest, &mut out).ok_or("nothing follows the last backslash")?,
            _ => out.push_str(&escape(next.encode_utf8(&mut [0; 4]))),
        }
        let taken = &before[..before.len() - rest.len()];
        is_start = matches!(taken, "/" | "\\/" | "**/" | "{") || taken == "," && depth > 0;
    }
    if depth > 0 {
        return Err("a `{` has no `}`".to_owned());
    }
    out.push('$');
    Ok(out)
}

/// Takes stars: two of them where a part of a name begins, and a slash behind them, are any folders or none.
fn stars<'g>(glob: &'g str, is_start: bool, out: &mut String) -> &'g str {
    match glob.strip_prefix("**/").filter(|_| is_start) {
        Some(below) => {
            out.push_str("(?:.*/)?");
            below
        }
        None => {
            out.push_str(".*");
            glob.trim_start_matches('*')
        }
    }
}

/// Takes the character after a backslash.
fn literal<'g>(glob: &'g str, out: &mut String) -> Option<&'g str> {
    let next = glob.chars().next()?;
    out.push_str(&escape(&glob[..next.len_utf8()]));
    Some(&glob[next.len_utf8()..])
}

/// Takes a set from behind its `[`. A `]` that comes first is one of the set.
fn set<'g>(glob: &'g str, out: &mut String) -> Result<&'g str, String> {
    let inner = glob.strip_prefix(['!', '^']);
    out.push_str(if inner.is_some() { "[^" } else { "[" });
    let inner = inner.unwrap_or(glob);
    let first = inner.chars().next().map_or(0, char::len_utf8);
    let end = first + inner[first..].find(']').ok_or("a `[` has no `]`")?;
    let members: Vec<char> = inner[..end].chars().collect();
    let mut at = 0;
    while let Some(from) = members.get(at) {
        let to = members.get(at + 2).filter(|_| members[at + 1] == '-');
        let last = to.unwrap_or(from);
        if last < from {
            return Err(format!("the range {from}-{last} is empty"));
        }
        // By number, as a class has signs of its own.
        let _ = write!(out, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(*from), u32::from(*last));
        at += if to.is_some() { 3 } else { 1 };
    }
    out.push(']');
    Ok(&inner[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, name: &str) -> bool {
        let expression = expression(glob).unwrap();
        regex::RegexBuilder::new(&expression).dot_matches_new_line(true).build().unwrap().is_match(name)
    }

    #[test]
    fn a_glob_matches_what_a_shell_would_and_the_slash_too() {
        for (glob, taken, left) in [
            ("conv*", &["conv", "conv1/0", "conv\n"][..], &["xconv", "Conv1"][..]),
            ("a?c", &["abc", "a/c", "aéc", "a.c"], &["ac", "abbc"]),
            ("l[0-2]", &["l0", "l2"], &["l3", "l", "l-", "l00"]),
            ("l[!0-2]", &["l3", "l-"], &["l0", "l", "l33"]),
            ("l[^x]", &["ly"], &["lx"]),
            ("l[]-]", &["l]", "l-"], &["l["]),
            ("l[a-]", &["la", "l-"], &["lb"]),
            ("l[\\^&&~]", &["l\\", "l^", "l&", "l~"], &["la"]),
            ("{conv,fc}[12]*", &["conv1", "fc2/0"], &["fc3", "ip1"]),
            ("a{b,{c,d}e}f", &["abf", "acef", "adef"], &["acf", "abef", "af"]),
            ("a{,b}", &["a", "ab"], &["b"]),
            ("a,b", &["a,b"], &["a", "b"]),
            ("**/w", &["w", "a/w", "a/b/w"], &["aw", "w/a"]),
            ("a/**/w", &["a/w", "a/b/w"], &["aw", "a/bw"]),
            ("a/**", &["a/", "a/b/c"], &["a"]),
            ("a**w", &["aw", "a/w"], &["a"]),
            ("a,**/w", &["a,/w", "a,b/w"], &["a,w"]),
            (r"\{**/w", &["{/w", "{a/w"], &["{w"]),
            (r"a\/**/**/w", &["a/w", "a/b/w"], &["aw"]),
            ("{a,**/w}", &["a", "w", "b/w"], &["a,w"]),
            ("***/w", &["/w", "a/w"], &["w"]),
            (r"\*\{\\", &[r"*{\"], &[r"x{\"]),
            ("a.b+(c)|^$#", &["a.b+(c)|^$#"], &["aab+(c)|^$#"]),
        ] {
            taken.iter().for_each(|name| assert!(matches(glob, name), "{glob} takes {name:?}"));
            left.iter().for_each(|name| assert!(!matches(glob, name), "{glob} leaves {name:?}"));
        }
    }

    #[test]
    fn what_is_open_or_empty_is_said() {
        for (glob, expected) in [
            ("[", "a `[` has no `]`"),
            ("[]", "a `[` has no `]`"),
            ("a{b", "a `{` has no `}`"),
            ("a}", "a `}` has no `{`"),
            ("[z-a]", "the range z-a is empty"),
            ("a\\", "nothing follows the last backslash"),
        ] {
            assert_eq!(expression(glob).unwrap_err(), expected, "{glob}");
        }
    }
}
