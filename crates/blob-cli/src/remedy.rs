//! The next step where tensors do not fit or are not read: an option of the command, or `blob convert` before or after.
//!
//! The one place for it. Whether a command has an option is asked of clap, so no help names an option in vain.

use blob_io::{Reason, Remedy};
use clap::Command;

use crate::args::whole;
use crate::failure::{Failure, Problem, TESTED_NET};

/// A way out.
struct Way {
    remedy: Remedy,
    /// The argument that a command needs for the way; `None` where every command has the way.
    argument: Option<&'static str>,
    help: &'static str,
    elsewhere: Elsewhere,
}

/// How a user of a command without the argument gets on.
#[derive(Clone, Copy)]
enum Elsewhere {
    /// `blob convert` changes the input.
    Before,
    /// `blob convert` changes the output, which is first written in a format that holds everything.
    After,
    Nowhere,
}

impl Failure {
    /// Adds the next step for a user of this command, where the failure has no help yet.
    pub(crate) fn for_command(mut self, command: &str) -> Self {
        if let Self::Trouble(problem) | Self::No(problem) = &mut self
            && problem.help.is_none()
        {
            let help = problem.remedy.and_then(|remedy| help(remedy, command));
            problem.help = help.or_else(|| without_array(problem, command));
        }
        self
    }
}

/// The next step for the user of a command.
fn help(remedy: Remedy, command: &str) -> Option<String> {
    let tool = whole();
    let command = tool.find_subcommand(command);
    let ways = || WAYS.iter().filter(|way| way.remedy == remedy);
    if let Some(way) = ways().find(|way| way.argument.is_none_or(|argument| has(command, argument))) {
        return Some(way.help.to_owned());
    }
    ways().find_map(|way| match way.elsewhere {
        Elsewhere::Before => Some(format!("`blob convert` first: {}; then take the file it wrote", way.help)),
        Elsewhere::After => Some(format!("write safetensors, and convert that with `blob convert`: {}", way.help)),
        Elsewhere::Nowhere => None,
    })
}

/// The next step where an array is broken and the command takes all arrays.
fn without_array(problem: &Problem, command: &str) -> Option<String> {
    let is_array = problem.subject.as_ref().is_some_and(|subject| subject.starts_with("array "));
    let is_broken = is_array && matches!(problem.reason, Reason::Malformed | Reason::Truncated);
    let tool = whole();
    let command = tool.find_subcommand(command);
    let takes_all = has(command, "skip_unsupported") && has(command, "exclude");
    (is_broken && takes_all).then(|| "--exclude NAME leaves a broken array out".to_owned())
}

fn has(command: Option<&Command>, argument: &str) -> bool {
    command.is_some_and(|command| {
        command.get_arguments().any(|other| other.get_id() == argument && !other.is_global_set())
    })
}

const fn way(remedy: Remedy, argument: &'static str, help: &'static str, elsewhere: Elsewhere) -> Way {
    Way { remedy, argument: Some(argument), help, elsewhere }
}

const fn always(remedy: Remedy, help: &'static str) -> Way {
    Way { remedy, argument: None, help, elsewhere: Elsewhere::Nowhere }
}

use Elsewhere::{After, Before, Nowhere};

/// All ways; of several for one remedy, the best first.
static WAYS: &[Way] = &[
    way(Remedy::Version3, "params_version", "--params-version 3 writes records that hold arrays without axes", After),
    way(
        Remedy::Version2,
        "params_version",
        "--params-version 2 writes records that hold sparse arrays; --dense expands them",
        After,
    ),
    way(
        Remedy::RawData,
        "form",
        "--dtype f32 is for BVLC Caffe; --form raw writes NVCaffe's raw_data, which holds f16",
        After,
    ),
    way(Remedy::NoDiffs, "strip_diff", "--strip-diff leaves the diffs out", Before),
    way(
        Remedy::LoneDiff,
        "strip_diff",
        "--exclude NAME leaves a diff out; --strip-diff takes those whose data is in the file, too",
        Nowhere,
    ),
    always(Remedy::NewFile, "leave --into out to write a new file; `blob merge` puts the tensors of several into one"),
    way(
        Remedy::BareModel,
        "no_receipt",
        "convert the new weights with their net, which makes a model of them; or make this one again with \
         --no-receipt, and put tensors of its names into that",
        Nowhere,
    ),
    way(
        Remedy::NewModel,
        "net",
        "the model was made of a net: name that net in place of the model, --net deploy.prototxt or --symbol \
         net-symbol.json, for a model of these weights",
        Nowhere,
    ),
    always(Remedy::OtherName, "write to another name beside it, then move that over it"),
    always(Remedy::OtherFolder, "name a file in another folder"),
    always(Remedy::Names, "`blob rename --map FILE` gives other names, by lines `OLD NEW`"),
    way(
        Remedy::KeepNames,
        "names",
        "--names raw keeps the names that it has; `blob rename --map FILE` gives others",
        After,
    ),
    way(Remedy::Dtype, "dtype", "--dtype f32 converts floats to f32, and likewise the others", After),
    way(Remedy::SkipUnsupported, "skip_unsupported", "--skip-unsupported leaves these arrays out", Before),
    way(Remedy::SkipUnsupported, "exclude", "--exclude NAME leaves one of several arrays out", Nowhere),
    way(Remedy::Net, "net", "name the net: --net deploy.prototxt", Nowhere),
    way(Remedy::NetOrSymbol, "net", "name the net: --net deploy.prototxt, or --symbol net-symbol.json", Nowhere),
    way(
        Remedy::InputShape,
        "input_shape",
        "say the shape of each of these inputs: --input NAME=1,3,224,224, as --input data=1,3,224,224",
        Nowhere,
    ),
    way(
        Remedy::OtherLayers,
        "net",
        "docs/onnx.md lists the layers that have a form in ONNX; name a copy of the net that ends before the others: \
         --net copy.prototxt",
        Nowhere,
    ),
    way(Remedy::Anew, "anew", "--anew writes a new file of the tensors, without these bytes", Nowhere),
    always(Remedy::OtherNet, "name the net whose weights these are"),
    way(
        Remedy::LayerNames,
        "net",
        "give one of the two layers another name in a copy of the net: --net copy.prototxt",
        Nowhere,
    ),
    way(Remedy::TestedNet, "net", TESTED_NET, Nowhere),
    way(Remedy::NamesFile, "names", "--names is raw, torch, or a file of lines `OLD NEW`", Nowhere),
    way(Remedy::NamesFile, "map", "--map is a file of lines `OLD NEW`", Nowhere),
    always(Remedy::SymbolName, "write to another name: the symbol is called as the weights are"),
    way(Remedy::OtherFormat, "into", "--into changes values alone; convert the result to another format", Nowhere),
    way(Remedy::Receipt, "no_receipt", "write to a file, or leave --no-receipt out", Nowhere),
    always(Remedy::NamedFile, "name a file: -o net.onnx"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_step_names_an_option_of_the_command_or_the_command_that_has_it() {
        let tool = whole();
        for command in tool.get_subcommands() {
            for way in WAYS {
                let Some(help) = help(way.remedy, command.get_name()) else { continue };
                let options = help.split_once("`blob ").map_or(&*help, |(own, _)| own).split_whitespace();
                for option in options.filter_map(|word| word.strip_prefix("--")) {
                    let option = option.trim_end_matches([';', ',', ':']);
                    let has = command.get_arguments().any(|argument| argument.get_long() == Some(option));
                    // The layout of a file that tensors go into is of --into, which one command has.
                    assert!(has || way.remedy == Remedy::NewFile, "{} {help}", command.get_name());
                }
            }
        }
        assert_eq!(help(Remedy::SkipUnsupported, "extract").as_deref(), Some(WAYS[14].help));
        assert!(help(Remedy::SkipUnsupported, "plot").is_some());
    }
}
