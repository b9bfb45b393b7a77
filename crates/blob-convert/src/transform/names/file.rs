//! Parses a file of names: lines `OLD NEW`, where `*` in OLD matches any text and `$1` in NEW is the text that the
//! first `*` matched.

use std::collections::{HashMap, HashSet};

use blob_io::{Entry, Kind, TensorName};

use super::{Names, Room};

impl Names {
    /// Reads a file of names and applies it to the tensors `names`: the first matching line wins.
    ///
    /// A line has an old and a new name, separated by blanks, or by a tab if the names contain blanks. `*` in the old
    /// name matches any text, `$1` to `$9` in the new name are the texts that the first to ninth `*` matched, `$$` is a
    /// dollar. Empty lines are skipped, and lines that begin with `#`, unless the old name is that of a tensor, to the
    /// letter. A note lists the lines that match no tensor. A line whose new name is the old one keeps that tensor's
    /// name, whatever later lines say.
    ///
    /// ```
    /// use blob_convert::transform::{Names, Transform};
    ///
    /// let names = ["conv1/0", "conv1/1", "fc/0"];
    /// assert!(!Names::from_file("conv*/0 c$1.weight\n* old.$1\n", names)?.is_empty());
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// Every malformed line, with its number; new names that no file holds, since they are too long.
    pub fn from_file<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let names: Vec<&str> = names.into_iter().collect();
        let hashed: HashSet<&str> = names.iter().copied().filter(|name| name.starts_with('#')).collect();
        let (mut lines, mut wrong) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            match parsed(line, &hashed) {
                Ok(Some((old, new))) => lines.push((index + 1, old, new, false)),
                Ok(None) => {}
                Err(why) => wrong.push(format!("line {}: {why}", index + 1)),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        // Lines without `*` are found by lookup; the others are tried in order.
        let (mut whole, mut globs) = (HashMap::new(), Vec::new());
        for (at, (_, old, ..)) in lines.iter().enumerate() {
            if old.contains('*') {
                globs.push(at);
            } else {
                whole.entry(*old).or_insert(at);
            }
        }
        let (mut map, mut room) = (Vec::new(), Room::default());
        for name in names {
            let exact = whole.get(name).copied();
            let before = globs.iter().copied().take_while(|at| exact.is_none_or(|exact| *at < exact));
            let found = before.chain(exact).find_map(|at| Some((at, captures(lines[at].1, name)?)));
            if let Some((at, captures)) = found {
                let (line, _, new, used) = &mut lines[at];
                *used = true;
                let most = room.most();
                let new = filled(new, &captures, most).filter(|new| room.take(new).is_some()).ok_or_else(|| {
                    format!("line {line}: the new name of {name:?} would have more than {most} bytes")
                })?;
                if new != name {
                    map.push((name.to_owned(), new));
                }
            }
        }
        let mut names = Self::new(map);
        let unused = lines.iter().filter(|(.., used)| !used);
        names.notes = unused.map(|(line, old, ..)| format!("names: line {line}, {old:?}, fits no tensor")).collect();
        Ok(names)
    }

    /// The names by which a file of names may call tensors: each tensor's, and a sparse array's before its parts'.
    pub fn callable<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for entry in entries {
            let name = TensorName::of(entry.name());
            if entry.sparse().is_some() && name.kind == Kind::Values {
                names.push(name.array);
            }
            names.push(entry.name());
        }
        names
    }
}

/// The two names of a line; `hashed` has the names of tensors that begin like a comment.
fn parsed<'l>(line: &'l str, hashed: &HashSet<&str>) -> Result<Option<(&'l str, &'l str)>, String> {
    let line = line.trim();
    let parts: Vec<&str> = if line.contains('\t') {
        line.split('\t').map(str::trim).filter(|part| !part.is_empty()).collect()
    } else {
        line.split_whitespace().collect()
    };
    if line.is_empty() || line.starts_with('#') && !hashed.contains(parts[0]) {
        return Ok(None);
    }
    let [old, new] = parts[..] else {
        return Err(format!("expected an old name and a new one, found {} names", parts.len()));
    };
    let stars = old.matches('*').count();
    let mut rest = new;
    while let Some((_, behind)) = rest.split_once('$') {
        match behind.chars().next() {
            Some('$') => {}
            Some(digit @ '1'..='9') if digit as usize - '0' as usize <= stars => {}
            _ => {
                return Err(format!("expected $1 to ${} or $$ in {new:?}, as {old:?} has {stars} stars", stars.min(9)));
            }
        }
        rest = &behind[1..];
    }
    Ok(Some((old, new)))
}

/// The texts that the stars of a pattern match, each as short as possible; `None` if the name does not match.
fn captures<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let Some((first, others)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let mut rest = name.strip_prefix(first)?;
    let mut captures = Vec::new();
    let mut others = others.split('*').peekable();
    while let Some(part) = others.next() {
        if others.peek().is_none() {
            captures.push(rest.strip_suffix(part)?);
            break;
        }
        let (before, behind) = rest.split_once(part)?;
        captures.push(before);
        rest = behind;
    }
    Some(captures)
}

/// The new name; `None` where that has more than `most` bytes.
fn filled(new: &str, captures: &[&str], most: usize) -> Option<String> {
    let mut filled = String::new();
    let mut chars = new.chars();
    while let Some(c) = chars.next() {
        if filled.len() > most {
            return None;
        }
        match (c, c == '$') {
            (_, true) => match chars.next() {
                Some(digit @ '1'..='9') => filled.push_str(captures[digit as usize - '1' as usize]),
                _ => filled.push('$'),
            },
            (c, false) => filled.push(c),
        }
    }
    (filled.len() <= most).then_some(filled)
}
