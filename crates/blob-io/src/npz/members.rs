//! Tensor names as names of a zip's members: unchanged, but for parts that lead out of folders or break tools.
//!
//! A pure function. NumPy's users access a member by the tensor's name, so as little as possible is changed.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::filenames::{Numbered, cut, push};

/// The longest name: fits, with `.npy` and the other fields of a record, into the 65,535 bytes that a zip allows.
pub(crate) const LONGEST: usize = 65_000;

/// The name of each tensor's member in an npz, without `.npy`: the tensor's own name where a zip can hold that, like
/// `arg:w`, `conv1/0`, `100%`, `a b` or `größe`.
///
/// * Percent-encoded: control characters and `\`, the dots of a part that is `..`, the `/` of an absolute path, the
///   colon of a drive letter (`C:/x`, `x/C:`), and the dot of a suffix `.npy` that NumPy would strip, because the name
///   before the suffix is a tensor's too.
/// * A name of over 65,000 bytes when encoded is cut and gets `~` and the CRC-32 of the tensor's name.
/// * An encoded name that is taken gets `~2`, `~3`, ….
///
/// All results differ, and none leads out of the folder that a zip is unpacked into.
///
/// ```
/// let names = blob_io::layout::member_names(&["arg:w", "conv1/0", "../../etc/passwd", "/x"]);
/// assert_eq!(names, ["arg:w", "conv1/0", "%2E%2E/%2E%2E/etc/passwd", "%2Fx"]);
/// ```
#[must_use]
pub fn member_names(names: &[&str]) -> Vec<String> {
    members(names).into_iter().map(Cow::into_owned).collect()
}

/// As [`member_names`]: a name that stays unchanged is borrowed.
pub(crate) fn members<'n>(names: &[&'n str]) -> Vec<Cow<'n, str>> {
    let has_suffix = names.iter().any(|name| name.ends_with(".npy"));
    let all: HashSet<&str> = names.iter().copied().filter(|_| has_suffix).collect();
    let mut members: Vec<Cow<'n, str>> = names.iter().map(|name| member(name, &all)).collect();
    let is_own = |member: &Cow<'_, str>| matches!(member, Cow::Borrowed(_));
    if members.iter().all(is_own) {
        return members;
    }
    let mut numbered = Numbered::default();
    // Names that stay unchanged are taken first, at any place in the list.
    for own in members.iter().filter(|member| is_own(member)) {
        numbered.take(own.to_string());
    }
    for member in &mut members {
        if let Cow::Owned(encoded) = member {
            *encoded = numbered.name(encoded.clone(), std::mem::take(encoded));
        }
    }
    members
}

fn member<'n>(name: &'n str, all: &HashSet<&str>) -> Cow<'n, str> {
    let npy = name.strip_suffix(".npy").filter(|stem| all.contains(stem)).map(str::len);
    let mut out = String::with_capacity(name.len() + 8);
    let mut at = 0;
    for (i, part) in name.split('/').enumerate() {
        if i > 0 {
            out += if at == 1 { "%2F" } else { "/" };
        }
        let drive = names_drive(part, i == 0, at + part.len() == name.len());
        for (within, c) in part.char_indices() {
            let place = at + within;
            let special = c == '\\' || c.is_control() || part == ".." || drive && within == 1 || npy == Some(place);
            push(&mut out, c, special);
        }
        at += part.len() + 1;
    }
    if out.len() > LONGEST {
        return Cow::Owned(cut(&out, LONGEST, name));
    }
    if out == name { Cow::Borrowed(name) } else { Cow::Owned(out) }
}

/// Whether a part could lead to another drive when names are joined on Windows. `a:w` is kept, because NumPy's users
/// need such names.
fn names_drive(part: &str, first: bool, last: bool) -> bool {
    match part.as_bytes() {
        [letter, b':', rest @ ..] if letter.is_ascii_alphabetic() => {
            !first || rest.is_empty() && !last || rest.starts_with(b"\\") || rest.ends_with(b"..")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> String {
        member_names(&[name]).remove(0)
    }

    #[test]
    fn names_that_a_zip_can_hold_are_unchanged() {
        for name in [
            "arg:w", "conv1/0", "", ".", "a//b", "a/.", "100%", "%2F", "w:0", "C:w", "C:", "a:w/b", "<a|b>*?\"", "aux",
            "a.npy", "größe/層", "a b ", "...", "..a/b..", "blob.receipt.json", "w#values",
        ] {
            assert_eq!(one(name), name);
        }
        assert_eq!(member_names(&["W", "w", "É", "é"]), ["W", "w", "É", "é"]);
    }

    #[test]
    fn what_leads_out_or_breaks_tools_is_encoded() {
        for (name, member) in [
            ("..", "%2E%2E"),
            ("../x", "%2E%2E/x"),
            ("a/../../b", "a/%2E%2E/%2E%2E/b"),
            ("/etc/passwd", "%2Fetc/passwd"),
            ("//x", "%2F/x"),
            ("C:/x", "C%3A/x"),
            ("C:\\x", "C%3A%5Cx"),
            ("x/C:", "x/C%3A"),
            ("x/c:d:e/arg:w", "x/c%3Ad:e/arg:w"),
            ("C:../x", "C%3A../x"),
            ("a\\..\\b", "a%5C..%5Cb"),
            ("a\0b\n\x1B\u{85}", "a%00b%0A%1B%C2%85"),
        ] {
            assert_eq!(one(name), member, "{name:?}");
        }
        let long = "é\0".repeat(30_000);
        assert!((LONGEST - 10..=LONGEST).contains(&one(&long).len()));
    }

    #[test]
    fn names_that_stay_keep_theirs_and_all_differ() {
        assert_eq!(
            member_names(&["a\\b", "a%5Cb", "a\\b~2", "/x", "%2Fx"]),
            ["a%5Cb~2", "a%5Cb", "a%5Cb~2~2", "%2Fx~2", "%2Fx"]
        );
        // numpy.load(…)["w.npy"] would be w.
        assert_eq!(member_names(&["w.npy", "w", "v.npy"]), ["w%2Enpy", "w", "v.npy"]);
    }
}
