//! The command line of `blob rename`.

use std::path::PathBuf;

use blob_io::Format;
use regex::Regex;

use super::{Skip, format};

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
  blob rename net.npz --sed 's/weight$/kernel/' --sed 's/^fc/dense/' -n -o x.npz")]
#[command(group = clap::ArgGroup::new("how").required(true).args(["map", "sed"]))]
pub(crate) struct Rename {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
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
    /// Replace OUT if it exists; FILE itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what would be done without writing anything; -o is not needed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) skip: Skip,
}

/// A replacement in the notation of sed.
#[derive(Clone, Debug)]
pub(crate) struct Sed {
    old: Regex,
    /// The replacement in the notation of the crate `regex`.
    new: String,
    is_global: bool,
}

impl Sed {
    /// Replaces the matches in a name.
    pub(crate) fn applied(&self, name: &str) -> String {
        self.old.replacen(name, if self.is_global { 0 } else { 1 }, &*self.new).into_owned()
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

/// Translates a replacement of sed, in which `\1` and `&` stand for matches, into the notation of the crate `regex`.
fn replacement(new: &str, groups: usize) -> Result<String, String> {
    let (mut made, mut letters) = (String::new(), new.chars());
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            ('$', _) => made += "$$",
            ('&', _) => made += "${0}",
            (_, false) => made.push(letter),
            (_, true) => match letters.next() {
                Some(digit @ '1'..='9') if (digit as usize - '0' as usize) < groups => made += &format!("${{{digit}}}"),
                Some(digit @ '1'..='9') => return Err(format!("\\{digit} stands for no parentheses")),
                Some('&') => made.push('&'),
                Some('\\') => made.push('\\'),
                Some(other) => return Err(format!("\\{other} has no meaning in the new name")),
                None => {}
            },
        }
    }
    Ok(made)
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
            assert_eq!(sed(script).unwrap_or_else(|e| panic!("{script}: {e}")).applied(old), new, "{script}");
        }
        for wrong in [
            "",
            "s",
            "s/a/b",
            "s/a",
            "y/a/b/",
            "s/a/b/x",
            "s/(/b/",
            r"s/a/\1/",
            r"s/a/\n/",
            "saabaa",
            "s/a/b/c/d",
            "s/a/b\\",
        ] {
            assert!(sed(wrong).is_err(), "{wrong}");
        }
    }
}
