//! The input files of a command line, and which files are refused.
//!
//! Standard input may be any of them once, and standard output none. Does not know the commands' work.

use std::fs;
use std::path::{Path, PathBuf};

use blob_io::IfExists;

use crate::args::{Command, Global};
use crate::failure::Failure;

/// The argument that stands for standard input.
const STDIN: &str = "-";

/// The files that a command reads.
pub(crate) struct Inputs<'a> {
    /// The file of a command that is about one.
    pub(crate) file: Option<&'a Path>,
    others: Vec<&'a Path>,
}

impl Inputs<'_> {
    /// Refuses inputs that cannot be read as the command line says, and those that standard output would lengthen.
    pub(crate) fn check(&self, global: &Global) -> Result<(), Failure> {
        let all = || self.file.iter().chain(&self.others).copied();
        let stdins = all().filter(|path| is_stdin(path)).count();
        if stdins > 1 {
            let failure = Failure::new("standard input can be read once, and `-` names it more often");
            return Err(failure.help("name files in place of all `-` but one"));
        }
        if let Some(member) = global.member.as_ref().filter(|_| stdins == 0) {
            let failure = Failure::new(format!("--member {member}: no file is `-`, standard input"));
            return Err(failure.help("a file of an archive on disk is named by its path: model.tar.gz/net.params"));
        }
        // The shell has emptied a file behind `>`, but not one behind `>>`.
        let Some(output) = redirected("/dev/stdout").filter(|file| fs::metadata(file).is_ok_and(|meta| meta.len() > 0))
        else {
            return Ok(());
        };
        for input in all() {
            let input = if is_stdin(input) { redirected_stdin() } else { Some(input.to_owned()) };
            let Some(input) = input else { continue };
            // A line of JSON, too, would lengthen the file.
            blob_convert::check_output(&input, &output, IfExists::Refuse).map_err(|e| Failure::from(e).in_json())?;
        }
        Ok(())
    }
}

/// Whether an input is standard input.
pub(crate) fn is_stdin(input: &Path) -> bool {
    input == Path::new(STDIN)
}

/// The file that standard input is redirected from; `None` for a pipe or a terminal.
pub(crate) fn redirected_stdin() -> Option<PathBuf> {
    redirected("/dev/stdin")
}

/// The regular file behind a device of Unix; other systems have none of its name.
fn redirected(device: &str) -> Option<PathBuf> {
    fs::canonicalize(device).ok().filter(|path| path.is_file())
}

impl Command {
    pub(crate) fn inputs(&self) -> Inputs<'_> {
        let (file, others) = match self {
            Self::Info(args) => (None, paths(&args.files)),
            Self::Ls(args) => (Some(&args.selection.file), Vec::new()),
            Self::Show(args) => (Some(&args.selection.file), Vec::new()),
            Self::Stats(args) => (Some(&args.selection.file), Vec::new()),
            Self::Verify(args) => (None, paths(args.files.iter().chain(&args.against))),
            Self::Diff(args) => (Some(&args.file), vec![&*args.other]),
            Self::Graph(args) => (Some(&args.file), Vec::new()),
            Self::Hash(args) => (None, paths(&args.files)),
            Self::Convert(args) => (args.input.as_ref(), paths(&args.into)),
            Self::Fold(args) => (Some(&args.input), Vec::new()),
            Self::Extract(args) => (Some(&args.file), Vec::new()),
            Self::Merge(args) => (None, paths(&args.inputs)),
            Self::Split(args) => (Some(&args.file), Vec::new()),
            Self::Plot(args) => (Some(&args.file), Vec::new()),
            Self::Report(args) => (Some(&args.file), paths(&args.other)),
            Self::Transpose(args) => (Some(&args.file), Vec::new()),
            Self::Rename(args) => (Some(&args.file), Vec::new()),
            Self::Batch(args) => (None, paths(&args.file)),
            Self::Formats | Self::Schemas | Self::Completions(_) | Self::Man(_) => (None, Vec::new()),
        };
        Inputs { file: file.map(PathBuf::as_path), others }
    }
}

fn paths<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<&'a Path> {
    paths.into_iter().map(PathBuf::as_path).collect()
}
