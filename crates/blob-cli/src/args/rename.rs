//! The command line of `blob rename`.

use std::path::PathBuf;

use blob_io::Format;
use regex::Regex;

use super::{Filter, Skip, Writing, format};

/// Rename tensors and change nothing else
///
/// Fails if two tensors would get the same name, and lists them. OUT has FILE's format, or that of its extension; in a
/// .caffemodel layers are renamed, or arrays change places, and all other bytes are kept; names that tear a layer apart
/// cost the net around the arrays, which a warning says. The receipt, if OUT's format has one, records the old names:
/// `blob verify OUT --against FILE` repeats the renaming and compares.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob rename net.params --sed 's/^arg://' -o net.npz
  blob rename net.caffemodel --map names.txt -o renamed.caffemodel
  blob rename net.npz 'fc*' --sed 's/weight$/kernel/' -o dense.npz")]
#[command(group = clap::ArgGroup::new("how").required(true).args(["map", "sed"]))]
pub(crate) struct Rename {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tensors to rename: names, else layers' names, globs (`*` matches `/` too), or `#3`, `#3-5` by index; without it,
    /// all
    #[arg(value_name = "TENSOR")]
    pub(crate) tensors: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Output: a file, a folder (ending with `/`), or `-` for standard output
    #[arg(short, long, value_name = "OUT", required_unless_present = "dry_run")]
    pub(crate) output: Option<PathBuf>,
    /// Output format, of `blob formats` [default: from OUT's extension]
    #[arg(long, value_name = "FMT", value_parser = format(|_| true), hide_possible_values = true)]
    pub(crate) to: Option<Format>,
    /// A file of lines `OLD NEW`, where `*` in OLD matches any text and `$1` in NEW is the text that the first `*`
    /// matched
    #[arg(long, value_name = "MAP")]
    pub(crate) map: Option<PathBuf>,
    /// Replace matches of a regular expression, like sed: `s/OLD/NEW/` replaces the first match, `s/OLD/NEW/g` all; in
    /// NEW, `\1` is the text that the first group matched, `&` the whole match. Several are applied in order
    #[arg(long, value_name = "S/OLD/NEW/", value_parser = sed)]
    pub(crate) sed: Vec<Sed>,
    #[command(flatten)]
    pub(crate) writing: Writing,
    #[command(flatten)]
    pub(crate) skip: Skip,
}

/// A replacement in the notation of sed.
#[derive(Clone, Debug)]
pub(crate) struct Sed {
    old: Regex,
    new: Vec<Piece>,
    is_global: bool,
}

/// A piece of a new name: text, or the text that a group matched; group 0 is the whole match.
#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Group(usize),
}

impl Sed {
    /// Replaces the matches in a name; `None` where more than `most` bytes would come out.
    pub(crate) fn applied(&self, name: &str, most: usize) -> Option<String> {
        let (mut made, mut rest) = (String::new(), 0);
        let times = if self.is_global { usize::MAX } else { 1 };
        for captures in self.old.captures_iter(name).take(times) {
            let found = captures.get_match();
            made += &name[rest..found.start()];
            rest = found.end();
            for piece in &self.new {
                made += match piece {
                    Piece::Text(text) => text,
                    Piece::Group(group) => captures.get(*group).map_or("", |matched| matched.as_str()),
                };
                if made.len() > most {
                    return None;
                }
            }
        }
        made += &name[rest..];
        (made.len() <= most).then_some(made)
    }
}

fn sed(text: &str) -> Result<Sed, String> {
    const USAGE: &str = "s/OLD/NEW/ or s/OLD/NEW/g is expected";
    let mut letters = text.chars();
    let (Some('s'), Some(delimiter)) = (letters.next(), letters.next()) else { return Err(USAGE.to_owned()) };
    let mut parts = vec![String::new()];
    let mut is_escaped = false;
    for letter in letters {
        let part = parts.last_mut().ok_or(USAGE)?;
        match letter {
            _ if is_escaped && letter == delimiter => part.push(letter),
            _ if is_escaped => part.extend(['\\', letter]),
            '\\' => {}
            _ if letter == delimiter => parts.push(String::new()),
            _ => part.push(letter),
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    let ([old, new, flags], false) = (&parts[..], is_escaped) else { return Err(USAGE.to_owned()) };
    if !["", "g"].contains(&&**flags) || delimiter.is_alphanumeric() || delimiter == '\\' {
        return Err(USAGE.to_owned());
    }
    let old = Regex::new(old).map_err(|e| e.to_string().lines().last().unwrap_or_default().trim().to_owned())?;
    Ok(Sed { new: replacement(new, old.captures_len())?, old, is_global: flags == "g" })
}

/// Reads a replacement of sed, in which `\1` and `&` stand for matches.
fn replacement(new: &str, groups: usize) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut text, mut letters) = (Vec::new(), String::new(), new.chars());
    while let Some(letter) = letters.next() {
        let group = match (letter, letter == '\\') {
            ('&', _) => 0,
            (_, false) => {
                text.push(letter);
                continue;
            }
            (_, true) => match letters.next() {
                Some(digit @ '1'..='9') if (digit as usize - '0' as usize) < groups => digit as usize - '0' as usize,
                Some(digit @ '1'..='9') => return Err(format!("\\{digit} stands for no parentheses")),
                Some(plain @ ('&' | '\\')) => {
                    text.push(plain);
                    continue;
                }
                Some(other) => return Err(format!("\\{other} has no meaning in the new name")),
                None => continue,
            },
        };
        pieces.extend([Piece::Text(std::mem::take(&mut text)), Piece::Group(group)]);
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_as_sed_replaces_them() {
        for (script, old, new) in [
            ("s/a/b/", "aa", "ba"),
            ("s/a/b/g", "aa", "bb"),
            ("s|arg:||", "arg:w", "w"),
            ("s/\\//./g", "conv/0/1", "conv.0.1"),
            (r"s/(\w+)_(\w+)/\2.\1/", "fc_weight", "weight.fc"),
            (r"s/x/[&]\&$1/", "x", "[x]&$1"),
            ("s/^/net./", "w", "net.w"),
            (r"s/\./\\/", "a.b", r"a\b"),
        ] {
            let sed = sed(script).unwrap_or_else(|e| panic!("{script}: {e}"));
            assert_eq!(sed.applied(old, 100).as_deref(), Some(new), "{script}");
            assert_eq!(sed.applied(old, new.len()).as_deref(), Some(new), "{script}");
            assert_eq!(sed.applied(old, new.len() - 1), None, "{script}");
        }
        for wrong in [
            "", "s", "s/a/b", "s/a", "y/a/b/", "s/a/b/x", "s/(/b/", r"s/a/\1/", r"s/a/\n/", "saabaa", "s/a/b/c/d",
            "s/a/b\\",
        ] {
            assert!(sed(wrong).is_err(), "{wrong}");
        }
    }
}
