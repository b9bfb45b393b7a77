//! `blob completions`: prints a completion script for a shell.
//!
//! The scripts for bash, zsh and fish are our own, call `blob __complete` for words, and let the shell complete
//! files. For other shells clap generates the script, which does not complete tensors.

use std::io::Write;

use clap_complete::Shell;

use crate::args::{Completions, whole};
use crate::context::Context;
use crate::failure::{Failure, Status};

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
    case $kind in
        words) compopt +o default 2>/dev/null ;;
        both)
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do
                COMPREPLY+=("$word")
            done < <(compgen -f -- "$2")
            ;;
    esac
    return 0
}
complete -o default -F _blob blob
"#;

const ZSH: &str = r#"#compdef blob
# Completion of blob for zsh: a file _blob in a folder of $fpath, or source this file after compinit.
_blob() {
    local kind word help
    local -a words_found shown
    {
        read -r kind
        while IFS=$'\t' read -r word help; do
            words_found+=("$word")
            shown+=("$word${help:+  -- $help}")
        done
    } < <("${words[1]/#\~/$HOME}" __complete "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)
    local -i ret=1
    if (( $#words_found )); then
        # zsh quotes the words, but not a tilde at the start of one outside quotes.
        if [[ -z $compstate[quote] ]]; then
            words_found=("${(@q)words_found}")
            compadd -Q -l -d shown -a words_found && ret=0
        else
            compadd -l -d shown -a words_found && ret=0
        fi
    fi
    if [[ $kind != words ]]; then
        _files && ret=0
    fi
    return ret
}
if [[ $funcstack[1] = _blob ]]; then
    _blob "$@"
else
    compdef _blob blob
fi
"#;

const FISH: &str = r#"# Completion of blob for fish: source this file, or put it into ~/.config/fish/completions.
function __blob_complete
    set -l found (blob __complete (commandline -cp | string collect) 2>/dev/null)
    set -l kind $found[1]
    set -e found[1]
    printf '%s\n' $found
    if test "$kind" != words
        __fish_complete_path (commandline -ct)
    end
end
complete -c blob -f -a '(__blob_complete)'
"#;

pub(crate) fn run(args: &Completions, context: &Context) -> Result<Status, Failure> {
    context.no_json("completions")?;
    let script = match args.shell {
        Shell::Bash => BASH.into(),
        Shell::Zsh => ZSH.into(),
        Shell::Fish => FISH.into(),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut whole(), "blob", &mut script);
            script
        }
    };
    let mut out = context.terminal.out();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Status::Yes)
}
