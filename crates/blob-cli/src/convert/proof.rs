//! Prints the `verify` command that proves a conversion, with its paths quoted for a shell.

use std::fs;
use std::path::Path;

use blob_convert::change::Effect;
use blob_convert::recipe::{self, NetFile, Recipe};
use blob_convert::{Plan, Summary};
use blob_io::Checkpoint;

use crate::args::Global;
use crate::context::Context;
use crate::escape::escape;
use crate::open::open;
use crate::output::sink::is_stdout;

/// Why a file without a receipt is not proved.
pub(crate) const NO_ROOM: &str = "the format has no room for the receipt, from which it would repeat the changes";

/// Why a file without some arrays of its source is not proved.
pub(crate) const WHOLE: &str = "it wants every array of the input";

const NO_RECEIPT: &str = "--no-receipt leaves out the receipt, from which it would repeat the changes";

/// Says that nothing proves the output.
pub(crate) fn no_proof(why: &str, context: &Context) {
    context.terminal.note(format!("  no proof by `blob verify`: {why}"));
}

/// Why `verify`, which compares bit for bit, does not prove the conversion.
fn unproven(target: &recipe::Target, source: &Checkpoint, plan: &Plan<'_>) -> Option<String> {
    if let Some(model) = &target.into {
        return Some(format!("the rest is of {}, which `blob diff` compares", quoted(model)));
    }
    if !plan.is_untransformed() && !plan.has_receipt() {
        return Some(if target.receipt { NO_ROOM } else { NO_RECEIPT }.to_owned());
    }
    if !plan.unproven().is_empty() {
        return Some(format!("the receipt has no room for what {} did", plan.unproven().join(", ")));
    }
    // A receipt says which arrays were left out.
    let is_partial = target.skip_unsupported && !plan.has_receipt() || plan.is_copy();
    if is_partial && source.entries().iter().any(|entry| entry.unread().is_some()) {
        return Some(WHOLE.to_owned());
    }
    if plan.changes().iter().any(|group| matches!(group.change.effect, Effect::DtypeLost { .. })) {
        return Some("an array without values has lost its dtype".to_owned());
    }
    if !plan.has_receipt()
        && plan.changes().iter().any(|group| matches!(group.change.effect, Effect::BitsStored { .. }))
    {
        return Some("without a receipt, nothing says that the u16 are bf16".to_owned());
    }
    if !plan.has_receipt() && plan.changes().iter().any(|group| matches!(group.change.effect, Effect::Reshaped { .. }))
    {
        return Some("tensors are stored with other shapes".to_owned());
    }
    None
}

/// Prints the command that verifies the conversion, if both files can be read again.
pub(super) fn print_proof(
    recipe: &Recipe,
    plan: &Plan<'_>,
    checkpoint: &Checkpoint,
    done: &Summary,
    context: &Context,
) {
    let [source] = &recipe.sources[..] else { return };
    let (input, Some(path)) = (&source.path, recipe.target.path.as_deref().filter(|path| !is_stdout(path))) else {
        return;
    };
    // The file itself, or the index of its shards.
    let output = plan.index().map_or(path, |(index, _)| index);
    let is_on_disk = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    if !(is_on_disk(input) && is_on_disk(output)) {
        return;
    }
    if let Some(why) = unproven(&recipe.target, checkpoint, plan) {
        return no_proof(&why, context);
    }
    // `verify` must detect the format of `--against`; `--from` can name only that of the output.
    let detect = Global { from: None, ..context.global.clone() };
    if source.format.is_some() && !open(input, &detect).is_ok_and(|file| file.format() == checkpoint.format()) {
        return;
    }
    let from = if done.is_recognised { String::new() } else { format!(" --from {}", plan.to().name()) };
    let (output, input) = (quoted(output), quoted(input));
    let net = match recipe.net.as_ref().filter(|_| plan.net().is_some()) {
        Some(NetFile::Prototxt(path)) => format!(" --net {}", quoted(path)),
        Some(NetFile::Symbol(path)) => format!(" --symbol {}", quoted(path)),
        _ => String::new(),
    };
    let salvage = if checkpoint.salvaged().is_some() { " --salvage=ok" } else { "" };
    context.terminal.command(format!("  prove it:  blob verify {output}{from}{salvage} --against {input}{net}"));
}

/// Whether a character stands for itself in a shell.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "/._-+=:,@%".contains(c)
}

/// A path quoted for a shell, and never taken for an option.
pub(crate) fn quoted(path: &Path) -> String {
    let path = match path.as_os_str().as_encoded_bytes() {
        [b'-', ..] => &Path::new(".").join(path),
        _ => path,
    };
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Some(text) if escape(text) == text => format!("'{}'", text.replace('\'', "'\\''")),
        // Characters that a terminal must not show are escaped byte by byte.
        _ => {
            let bytes = path.as_os_str().as_encoded_bytes().iter();
            let bytes = bytes.map(|byte| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", bytes.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_for_the_shell() {
        for (path, word) in [
            ("a/b-1.npz", "a/b-1.npz"),
            ("my model.npz", "'my model.npz'"),
            ("it's", "'it'\\''s'"),
            ("größe.npz", "größe.npz"),
            ("-dash.npz", "./-dash.npz"),
            ("-a b", "'./-a b'"),
            ("o\nn", "$'o\\x0an'"),
            ("o\n'n", "$'o\\x0a\\'n'"),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
