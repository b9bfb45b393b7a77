//! The check for NaN and Inf, which vouches for no bits whose dtype only the receipt of a folder says.

use std::path::Path;

use blob_convert::verify;
use blob_core::DType;
use blob_io::layout::{FOLDER_LIST, file_names};
use blob_io::{Checkpoint, Error, Files, Reason};

use super::report::{Line, Report};
use crate::args::Verify;
use crate::context::Context;
use crate::convert::quoted;
use crate::open::open_whole;
use crate::output::progress::Progress;

/// How many folders around a file are looked into for a receipt.
const DEEPEST: usize = 32;

/// Looks for NaN and Inf, where that is asked for; notes the folder that a file belongs to.
pub(super) fn finite(
    checkpoint: &Checkpoint,
    args: &Verify,
    context: &Context,
    progress: &Progress,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let folder = folder_of(checkpoint);
    if let Some(folder) = folder {
        let finite = if args.finite { " --finite" } else { "" };
        let path = folder.display();
        let said = format!("one file of the folder {path}, whose receipt says of which dtype the bits are");
        report.note(format!("{said}: `blob verify{finite} {}` checks them as that", quoted(folder)));
    }
    if !args.finite {
        return Ok(());
    }
    if folder.is_some_and(|folder| is_bf16_of(folder, checkpoint, context)) {
        let said = "the folder's receipt says that these u16 are bf16: NaN and Inf were not looked for";
        report.finding(Line::of_file(Reason::Receipt, said));
        return Ok(());
    }
    let before = report.count();
    verify::finite(checkpoint, progress, &mut |remark| report.remark(remark))?;
    if report.count() == before {
        report.passed("all values finite".to_owned());
    }
    Ok(())
}

/// The folder of a conversion that an npy file is one file of.
fn folder_of(checkpoint: &Checkpoint) -> Option<&Path> {
    let path = checkpoint.path().filter(|_| checkpoint.format().holds().files == Files::Folder)?;
    let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    folders.take(DEEPEST).find(|folder| folder.join(FOLDER_LIST).is_file())
}

/// Whether the receipt of a folder says that the u16 of one of its files are bf16.
fn is_bf16_of(folder: &Path, file: &Checkpoint, context: &Context) -> bool {
    let is_u16 = file.entries().iter().any(|entry| entry.dtype() == Some(DType::U16));
    let Some(within) = file.path().filter(|_| is_u16).and_then(|path| path.strip_prefix(folder).ok()) else {
        return false;
    };
    let Ok(whole) = open_whole(folder, &context.global) else { return false };
    let names: Vec<&str> = whole.names().collect();
    let place = file_names(&names).iter().position(|name| Path::new(&format!("{name}.npy")) == within);
    place.is_some_and(|place| whole.entries()[place].dtype() == Some(DType::BF16))
}
