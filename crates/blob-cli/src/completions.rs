//! `blob completions`: a completion script for a shell.
//!
//! For bash it is our own, which asks `complete`; for the others it is made from the command line's description.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Context;
use crate::args::{Args, Completions};
use crate::failure::{Failure, Status};

/// Files are bash's own to complete; words come from the tool, which knows the line and the breaks between words.
const BASH: &str = r#"# Completion of blob for bash: source this file.
_blob() {
    local tool=${1/#\~/$HOME} kind word
    COMPREPLY=()
    {
        read -r kind
        while IFS= read -r word; do
            COMPREPLY+=("$word")
        done
    } < <("$tool" __complete "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
    if [ "$kind" = words ]; then
        compopt +o default 2>/dev/null
    fi
    return 0
}
complete -o default -F _blob blob
"#;

pub(crate) fn run(args: &Completions, context: &Context) -> Result<Status, Failure> {
    context.no_json("completions")?;
    let mut script = BASH.as_bytes().to_vec();
    if args.shell != Shell::Bash {
        script.clear();
        clap_complete::generate(args.shell, &mut Args::command(), "blob", &mut script);
    }
    let mut out = context.terminal.out();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Status::Yes)
}
