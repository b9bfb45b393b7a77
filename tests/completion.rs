//! Completion in interactive shells, of tensors whose names are shell commands: the line holds the name, nothing runs.

use std::fs;
use std::process::Command;

use crate::support::archive::named;
use crate::support::{Folder, ran, report, tool};

/// Names that would run `touch PWNED`, or become another word, if a shell took names as code.
const HOSTILE: [&str; 20] = [
    "conv'; touch PWNED; echo 'x",
    "and   w$(touch PWNED)`touch PWNED`",
    "c\"; touch PWNED; echo \"x",
    "c!touch !! x",
    "c\\' $HOME \\",
    "c & touch PWNED | cat",
    "c#;touch PWNED#",
    "~root",
    "c{a,b}*?[x]",
    "c<PWNED>PWNED",
    "é'ü\"名",
    "-c'",
    "$'\\x41'",
    "'",
    "\"!\"",
    "'; touch PWNED; '",
    "\"; touch PWNED; \"",
    "!touch",
    "'\"; touch PWNED; '\"",
    "=cmd(%)^c",
];

/// Presses tab behind each file and each opening quote, then enter. The function `blob` writes down the last word that
/// the shell gives it.
fn typed_and_completed(shell: &[&str], rc: &str, start: &str) -> Vec<(String, String)> {
    let folder = Folder::new();
    let mut typed = String::new();
    let mut expected = Vec::new();
    for (number, name) in HOSTILE.iter().enumerate() {
        let file = format!("{number}.safetensors");
        named(&folder.path().join(&file), &[(*name).to_owned()]);
        for quote in ["", "'", "\""] {
            typed += &format!("blob show -- {file} {quote}\t\n");
            expected.push((*name).to_owned());
        }
    }
    folder.with("rc", rc);
    let mut script = Command::new("script");
    let path = format!("{}:{}", tool().parent().unwrap().display(), std::env::var("PATH").unwrap());
    script.current_dir(folder.path()).env("TERM", "dumb").env("LC_ALL", "C.UTF-8").env("PATH", path);
    script.env("HOME", folder.path()).args(["-qec", &shell.join(" "), "/dev/null"]);
    let shown = ran(script, format!("{start}{typed}exit\n").as_bytes());
    let said = fs::read_to_string(folder.path().join("said")).unwrap_or_default();
    let made: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!made.iter().any(|file| file.contains("PWNED")), "{shell:?}: a name ran: {made:?}: {shown:?}");
    let mut said = said.lines().map(str::to_owned);
    expected.into_iter().map(|name| (name, said.next().unwrap_or_default())).collect()
}

/// Whether every completion arrived; the tool offers nothing for a file that takes half a second, as on a busy machine.
fn completes(shell: &[&str], rc: &str, start: &str) -> Result<(), Vec<(String, String)>> {
    // fish expands the tilde of a candidate on purpose.
    let wrong = |_| {
        typed_and_completed(shell, rc, start)
            .into_iter()
            .filter(|(name, said)| name != said && !(shell[0] == "fish" && name == "~root"))
            .collect()
    };
    let mut wrongs = (0..6).map(wrong);
    let first: Vec<(String, String)> = wrongs.next().unwrap();
    if first.is_empty() || wrongs.any(|wrong: Vec<_>| wrong.is_empty()) { Ok(()) } else { Err(first) }
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn bash_gets_every_name_as_one_word_behind_every_quote() {
    if !has("bash") || !has("script") {
        return report("NOT TESTED: completion of hostile names (no bash or no `script`)");
    }
    let rc = "PS1='> '\nblob() { case $1 in __complete) command blob \"$@\";; *) printf '%s\\n' \"${!#}\" >> said;; esac; }\n\
              source <(command blob completions bash)\n";
    assert_eq!(completes(&["bash", "--noprofile", "--rcfile", "rc", "-i"], rc, ""), Ok(()));
}

#[test]
fn zsh_and_fish_get_every_name_as_one_word() {
    if !has("script") {
        return report("NOT TESTED: completion of hostile names in zsh and fish (no `script`)");
    }
    let zsh = "autoload -Uz compinit; compinit -u; PS1='> '; setopt nobanghist\n\
               blob() { case $1 in (__complete) command blob \"$@\";; (*) print -r -- \"${@[-1]}\" >> said;; esac; }\n\
               source <(command blob completions zsh)\n";
    if has("zsh") {
        assert_eq!(completes(&["zsh", "-f", "-i"], zsh, "source rc\n"), Ok(()));
    } else {
        report("NOT TESTED: completion of hostile names in zsh (not installed)");
    }
    let fish = "blob completions fish | source\n\
                function blob; if test \"$argv[1]\" = __complete; command blob $argv; \
                else; printf '%s\\n' $argv[-1] >> said; end; end\nfunction fish_prompt; end\n";
    if has("fish") {
        assert_eq!(completes(&["fish", "--no-config", "-i"], fish, "source rc\n"), Ok(()));
    } else {
        report("NOT TESTED: completion of hostile names in fish (not installed)");
    }
}
