//! From the words of the command line to arguments, or to the fault and the words to type instead.
//!
//! `blob FILE` is `blob info FILE`, and `blob help ls` is `blob ls --help`. Does not know the commands' work.

mod missing;

use std::ffi::OsString;
use std::path::Path;

use blob_io::Format;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::{Args, whole};
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::format::{Instead, instead};

/// Commands that other tools have, each with ours.
const ELSEWHERE: [(&str, &str); 14] = [
    ("check", "verify"),
    ("validate", "verify"),
    ("view", "show"),
    ("cat", "show"),
    ("dump", "show"),
    ("print", "show"),
    ("list", "ls"),
    ("inspect", "info"),
    ("describe", "info"),
    ("compare", "diff"),
    ("export", "convert"),
    ("save", "convert"),
    ("hist", "plot"),
    ("concat", "merge"),
];

/// The flags by which other tools replace a file.
const FORCES: [&str; 6] = ["--overwrite", "--replace", "--clobber", "--yes", "-f", "-y"];

/// The extensions of outputs besides files of tensors.
const OUTPUTS: [&str; 5] = ["raw", "csv", "png", "svg", "html"];

/// The command line, parsed.
pub(crate) struct Parsed {
    pub(crate) args: Args,
    pub(crate) command: String,
}

/// Why the words are no command line.
pub(crate) struct Misuse {
    /// The command, if known.
    pub(crate) command: String,
    pub(crate) failure: Failure,
    /// Whether the words ask for JSON.
    pub(crate) json: bool,
    /// The text of clap, with the usage and similar names, if there is nothing better to say.
    pub(crate) text: Option<clap::Error>,
}

/// Parses the words. Prints help or the version, and ends, where asked to.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Parsed, Box<Misuse>> {
    let tool = Args::command();
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let misuse = |command: &str, failure, text| Box::new(Misuse { command: command.to_owned(), failure, json, text });
    let words = with_command(&tool, words).map_err(|failure| misuse("", failure, None))?;
    let command = command_of(&tool, &words).map(|command| command.get_name().to_owned()).unwrap_or_default();
    let error = match matched(tool, &words) {
        Ok(args) => return Ok(Parsed { args, command }),
        Err(error) if error.kind() == ErrorKind::DisplayVersion => error.exit(),
        Err(error) => error,
    };
    // Help and faults tell of every command, so all are made now.
    let tool = whole();
    let error = matched(tool.clone(), &words).err().unwrap_or(error);
    if error.kind() == ErrorKind::DisplayHelp {
        error.exit();
    }
    let failure =
        slip(&tool, &words, &error).or_else(|| missing::missing(&tool, command_of(&tool, &words)?, &words, &error));
    Err(match failure {
        Some(failure) => misuse(&command, failure, None),
        None => misuse(&command, Failure::new(first_paragraph(&error)), Some(error)),
    })
}

fn matched(tool: Command, words: &[OsString]) -> Result<Args, clap::Error> {
    Args::from_arg_matches(&tool.try_get_matches_from(words)?)
}

/// The message of clap, without the usage behind.
fn first_paragraph(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a file or a command is missing".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A slip that clap cannot explain: an output that is not named with -o, a second file for a command that takes one.
fn slip(tool: &Command, words: &[OsString], error: &clap::Error) -> Option<Failure> {
    let command = command_of(tool, words)?;
    if let Some(failure) = no_such_format(command, error).or_else(|| other_force(command, error)) {
        return Some(failure);
    }
    let last = words.last()?.to_string_lossy();
    let extra = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(extra))) if !extra.starts_with('-') => &**extra,
        // A command that takes any number of tensors takes the output for a tensor.
        (ErrorKind::MissingRequiredArgument, _)
            if is_like_output(&last)
                && positionals(tool, command, words) > 1
                && (takes_tensors(command) || !Path::new(&*last).is_file()) =>
        {
            &*last
        }
        _ => return None,
    };
    let takes = command.get_positionals().count();
    let (name, output) = (command.get_name(), command.get_arguments().find(|arg| arg.get_id() == "output")?);
    let mut texts = words.iter().map(|word| word.to_string_lossy());
    let is_named = texts.any(|word| word.starts_with("-o") || word == "--output" || word.starts_with("--output="));
    if (output.is_required_set() || name == "convert") && !is_named {
        let failure = Failure::new(format!("the output is named with -o, and {extra:?} is without"));
        return Some(failure.help(format!("blob {name} … -o {extra}")));
    }
    if takes != 1 {
        return None;
    }
    let failure = Failure::new(format!("`blob {name}` takes one file, and {extra:?} is another one"));
    if words.iter().any(|word| word == "--make") {
        return Some(
            failure.help("put a pattern in quotes, so that blob reads it in place of the shell: --make 'models/*'"),
        );
    }
    Some(failure.help(format!(
        "run it for each: for f in …; do blob {name} \"$f\" -o …; done; `blob merge` puts the tensors of several files \
         into one"
    )))
}

/// The failure of a flag by which other tools replace a file, for a command with --force.
fn other_force(command: &Command, error: &clap::Error) -> Option<Failure> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let is_known = FORCES.contains(&&**flag) && command.get_arguments().any(|arg| arg.get_long() == Some("force"));
    is_known.then(|| {
        let failure = Failure::new(format!("unexpected argument '{flag}' found"));
        failure.help("--force replaces an output that is there")
    })
}

/// The failure of a format that is known elsewhere, here by an extension, or that this command does not write.
fn no_such_format(command: &Command, error: &clap::Error) -> Option<Failure> {
    let (ErrorKind::InvalidValue, Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.kind(), error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    let option = option.split(' ').next().filter(|option| ["--to", "--from"].contains(option))?;
    let failure = Failure::new(format!("{option} {value}: `blob {}` takes no format of this name", command.get_name()));
    if let Some(format) = Format::from_extension(value).filter(|format| format.name() != value) {
        return Some(failure.help(format!("{option} {}", format.name())));
    }
    let Instead { write, reader, .. } = instead(value, |_| option == "--to")?;
    let format = Format::from_extension(write)?;
    Some(failure.help(format!("{option} {}, which {reader}", format.name())))
}

/// Whether the words behind the first file are names of its tensors.
fn takes_tensors(command: &Command) -> bool {
    command.get_positionals().any(|arg| arg.get_id() == "tensors" || arg.get_id() == "tensor")
}

/// How many words behind the command are neither flags nor values of flags.
fn positionals(tool: &Command, command: &Command, words: &[OsString]) -> usize {
    let mut valued = flags_with_values(tool);
    valued.extend(flags_with_values(command));
    let shorts = command.get_arguments().filter(|a| a.get_action().takes_values()).filter_map(clap::Arg::get_short);
    valued.extend(shorts.map(|short| format!("-{short}")));
    let (mut count, mut rest) = (0_usize, words);
    while let Some(at) = first_positional(rest, &valued) {
        count += 1;
        rest = &rest[at..];
    }
    count.saturating_sub(1)
}

/// Whether a word ends as the files do that commands write.
fn is_like_output(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|extension| extension.to_str());
    word.ends_with(std::path::is_separator)
        || extension.is_some_and(|of| Format::from_extension(of).is_some() || OUTPUTS.contains(&of))
}

/// The command that the words name.
fn command_of<'c>(tool: &'c Command, words: &[OsString]) -> Option<&'c Command> {
    let at = first_positional(words, &flags_with_values(tool))?;
    tool.find_subcommand(&words[at])
}

/// The words of the command line, with the command inserted where none was.
///
/// # Errors
/// The first word is neither a command nor a file, and looks like a mistyped command.
fn with_command(tool: &Command, mut words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some(at) = first_positional(&words, &flags_with_values(tool)) else {
        return Ok(words);
    };
    let first = words[at].to_string_lossy().into_owned();
    if words[at] != "--" && tool.find_subcommand(&first).is_some() {
        return Ok(words);
    }
    if first == "help" && !Path::new("help").exists() {
        // `blob help ls` is `blob ls --help`.
        words.remove(at);
        words.push("--help".into());
        return Ok(words);
    }
    let is_bare = !first.contains(['.', '/', '\\', '-']);
    if is_bare && !Path::new(&first).exists() {
        let failure = Failure::new(format!("there is no file and no command {first:?}"));
        return Err(match meant(tool, &first) {
            Some(name) => failure.help(format!("did you mean `blob {name}`?")),
            None => failure.help("`blob --help` lists the commands"),
        });
    }
    words.insert(at, "info".into());
    Ok(words)
}

/// The command that a word probably means.
fn meant<'c>(tool: &'c Command, word: &str) -> Option<&'c str> {
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == word).map(|(_, ours)| *ours);
    let names = tool.get_subcommands().flat_map(Command::get_name_and_visible_aliases);
    elsewhere.or_else(|| nearest(word, names))
}

/// The index of the first word that is neither a flag nor a flag's value; `None` if the user asks for help or the
/// version.
fn first_positional(words: &[OsString], with_value: &[String]) -> Option<usize> {
    let mut at = 1;
    while at < words.len() {
        let word = words[at].to_string_lossy();
        match &*word {
            "-" | "--" => return Some(at),
            "-h" | "--help" | "-V" | "--version" => return None,
            flag if with_value.iter().any(|f| f == flag) => at += 2,
            flag if flag.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// The global flags that take a value.
fn flags_with_values(command: &Command) -> Vec<String> {
    let arguments = command.get_arguments();
    // A value after `=` is no separate word.
    let valued = arguments.filter(|a| a.get_action().takes_values() && !a.is_require_equals_set());
    valued.filter_map(|a| a.get_long()).map(|long| format!("--{long}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn completed(line: &str) -> Result<String, String> {
        match with_command(&Args::command(), words(line)) {
            Ok(words) => Ok(words.join(" ".as_ref()).to_string_lossy().into_owned()),
            Err(failure) => Err(format!("{failure:?}")),
        }
    }

    #[test]
    fn a_file_without_a_command_means_info() {
        for (line, expected) in [
            ("blob a.params", "blob info a.params"),
            ("blob --json a.params b.params", "blob --json info a.params b.params"),
            ("blob --from params x.bin", "blob --from params info x.bin"),
            ("blob --from=params x.bin", "blob --from=params info x.bin"),
            ("blob -", "blob info -"),
            ("blob ./ls", "blob info ./ls"),
            ("blob -- ls", "blob info -- ls"),
            ("blob ls a.params", "blob ls a.params"),
            ("blob --max-alloc 1G ls a.params", "blob --max-alloc 1G ls a.params"),
            ("blob --help", "blob --help"),
            ("blob -V", "blob -V"),
            ("blob", "blob"),
            ("blob help", "blob --help"),
            ("blob help ls", "blob ls --help"),
        ] {
            assert_eq!(completed(line).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_mistyped_command_gets_a_suggestion() {
        let tool = Args::command();
        for (other, ours) in [("vrify", "verify"), ("permut", "permute")].iter().chain(&ELSEWHERE) {
            let error = completed(&format!("blob {other} a.params")).unwrap_err();
            assert!(error.contains(&format!("did you mean `blob {ours}`?")), "{error}");
            assert!(tool.find_subcommand(ours).is_some(), "{ours}");
        }
        assert!(completed("blob qqqq").unwrap_err().contains("--help"));
    }

    #[test]
    fn a_slip_gets_the_next_step() {
        for (line, command, step) in [
            ("blob convert a b", "convert", "blob convert … -o b"),
            ("blob --json fold a b", "fold", "blob fold … -o b"),
            ("blob extract a conv1/0 x.npy", "extract", "blob extract … -o x.npy"),
            ("blob extract a weights/", "extract", "blob extract … -o weights/"),
            // The file is there, and no tensor.
            (
                "blob extract a conv1/0 ../../tests/data/other/fortran_big_endian.npy",
                "extract",
                "blob extract … -o ../",
            ),
            ("blob convert a --to pt -o b", "convert", "--to safetensors, which PyTorch loads"),
            ("blob split a --by-layer --to onnx -o b/", "split", "--to safetensors, which holds the weights"),
            ("blob merge a b --to h5 -o c", "merge", "--to hdf5"),
            ("blob --from h5 ls a", "ls", "--from hdf5"),
            ("blob merge a.npz b.npz", "merge", "blob merge … -o b.npz"),
            ("blob convert a --dtype f16 b.npz", "convert", "blob convert … -o b.npz"),
            ("blob convert a b -o c", "convert", "for f in"),
            ("blob fold a b --output=c", "fold", "for f in"),
            ("blob convert a -o b --overwrite", "convert", "--force replaces"),
            ("blob plot a w -o b.svg --yes", "plot", "--force replaces"),
            ("blob merge Cargo.toml ./Cargo.toml", "merge", "blob merge Cargo.toml ./Cargo.toml -o OUT"),
            ("blob merge Cargo.lock build.rs", "merge", "blob merge Cargo.lock build.rs -o OUT"),
            ("blob rename m -o q.npz", "rename", "blob rename m -o q.npz --map MAP"),
            ("blob merge f a b --axis 0 -o q", "merge", "blob merge f a b --axis 0 -o q --into NAME"),
            ("blob merge f a b --into q -o q", "merge", "blob merge f a b --into q -o q --axis AXIS"),
            ("blob split f -o q/", "split", "blob split f -o q/ --by-layer"),
            ("blob split f w -o q/", "split", "blob split f w -o q/ --axis AXIS --sizes N,..."),
            ("blob extract -o x", "extract", "blob extract FILE -o x"),
            ("blob --json diff a", "diff", "blob --json diff a B"),
            ("blob transpose a --perm 1,0", "transpose", "blob transpose a --perm 1,0 TENSOR -o OUT"),
            ("blob convert", "convert", "blob convert IN -o OUT"),
            ("blob diff", "diff", "blob diff A B"),
            ("blob split f --sizes 1,2 -o q", "split", "blob split f --sizes 1,2 -o q --axis AXIS"),
        ] {
            let misuse = parse(words(line)).err().expect("it is misuse");
            let help = misuse.failure.problem().and_then(|problem| problem.help.as_deref());
            assert!(help.is_some_and(|help| help.contains(step)), "{line}: {help:?}");
            assert_eq!((&*misuse.command, misuse.json), (command, line.contains("--json")), "{line}");
        }
        assert!(parse(words("blob ls --tabel a")).err().is_some_and(|misuse| misuse.text.is_some()));
    }
}
