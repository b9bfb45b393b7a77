//! The tool's help, manual pages, and completion in real shells.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::support::archive::zeros;
use crate::support::{blob, commands, data, ran, report, tool};

#[test]
fn completions_and_manuals_know_every_command() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = blob(&["completions", shell]).ok();
        // These scripts call the tool.
        let offered = match shell {
            "bash" | "zsh" | "fish" => blob(&["__complete", "blob "]),
            _ => script,
        };
        assert!(commands.iter().all(|command| offered.out.contains(command.as_str())), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(blob(&["man", "-o", folder.path().to_str().unwrap()]).code, Some(0));
    for name in commands.iter().map(|c| format!("blob-{c}.1")).chain(["blob.1".to_owned()]) {
        let page = fs::read_to_string(folder.path().join(&name)).unwrap();
        assert!(page.contains(".SH NAME"), "{name}");
    }
    assert!(blob(&["man"]).out.contains(".TH blob 1"));
    let formats = blob(&["formats", "--json"]);
    assert_eq!(formats.json()[0]["formats"].as_array().map(Vec::len), Some(blob_io::Format::ALL.len()));
}

#[test]
fn every_option_of_every_manual_page_is_described() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(blob(&["man", "-o", folder.path().to_str().unwrap()]).code, Some(0));
    let mut pages = 0;
    for page in fs::read_dir(folder.path()).unwrap() {
        let path = page.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "ENVIRONMENT", "\"SEE ALSO\""]
        {
            let bare = section.trim_matches('"');
            let has = |s: &str| text.lines().any(|line| line == format!(".SH {s}"));
            assert!(has(section) || has(bare), "{name} has no {section}");
        }
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate().filter(|(_, line)| **line == ".TP") {
            let body = lines.get(i + 2).copied().unwrap_or_default();
            assert!(body.len() > 5 && !body.starts_with(".TP"), "{name}, line {i}: {line} {}", lines[i + 1]);
        }
        let command = name.strip_prefix("blob-").unwrap_or("");
        let help = if command.is_empty() { blob(&["--help"]) } else { blob(&[command, "--help"]) }.out;
        for flag in help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 4) {
            // `--salvage[=<ok>]`
            let flag = flag.split('[').next().unwrap_or_default();
            let flag = flag.trim_end_matches(|c: char| !c.is_ascii_lowercase()).replace('-', "\\-");
            assert!(text.contains(&flag), "{name} does not say {flag}");
        }
        assert_eq!(help.starts_with("Examples:"), text.contains(".SH EXAMPLES"), "{name}");
        pages += 1;
    }
    // The tool itself has a page, too.
    assert_eq!(pages, commands().len() + 1);
    let ls = fs::read_to_string(folder.path().join("blob-ls.1")).unwrap();
    assert!(ls.contains("[PATTERN]..."), "{ls}");
    shown_without_warnings(folder.path());
}

fn shown_without_warnings(folder: &std::path::Path) {
    if Command::new("man").arg("--version").output().is_err() {
        return report("NOT TESTED: how manual pages are shown (no `man`)");
    }
    for page in fs::read_dir(folder).unwrap() {
        let mut man = Command::new("man");
        man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").args(["--warnings", "-l"]).arg(page.unwrap().path());
        let shown = ran(man, b"");
        assert!(shown.code == Some(0) && shown.err.is_empty() && shown.out.contains("NAME"), "{shown:?}");
    }
}

/// The candidates of bash for the last word of a line; empty if bash itself completes files.
fn offered(words: &[&str], typed: &str) -> Vec<String> {
    let script = format!(
        "source <('{0}' completions bash); COMP_LINE=$1; COMP_POINT=${{#1}}; shift; COMP_WORDS=(\"$@\"); \
         COMP_CWORD=$(($# - 1)); _blob '{0}' \"${{!#}}\" x; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        tool().display()
    );
    let mut bash = Command::new("bash");
    bash.current_dir(data("")).args(["--norc", "-c", &script, "bash", typed]).args(words);
    let ran = ran(bash, b"");
    assert_eq!(ran.err, "", "{typed}");
    ran.out.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

/// The first offer that is not empty. The tool skips a file that it cannot read within half a second, which can happen
/// on a busy machine.
fn at_last(offer: impl Fn() -> Vec<String>) -> Vec<String> {
    (0..20).map(|_| offer()).find(|offer| !offer.is_empty()).unwrap_or_default()
}

#[test]
fn bash_completes_files_then_tensors() {
    if Command::new("bash").arg("--version").output().is_err() {
        return report("NOT TESTED: completion (no bash)");
    }
    for typed in ["blob ls ", "blob ls caf", "blob info x ", "blob show ", "blob convert a -o "] {
        let words: Vec<&str> = typed.split(' ').collect();
        assert_eq!(offered(&words, typed), [""; 0], "{typed}: bash's own files");
    }
    let net = "caffe/net/v1.caffemodel";
    let show = format!("blob show {net} conv");
    assert_eq!(at_last(|| offered(&["blob", "show", net, "conv"], &show)), ["conv1/0", "conv1/1"]);
    assert_eq!(at_last(|| offered(&["blob", "ls", net, ""], &format!("blob ls {net} "))).len(), 4);
    assert_eq!(offered(&["blob", "ls", net, "no"], &format!("blob ls {net} no")), [""; 0]);
    assert!(offered(&["blob", "ls", "-"], "blob ls -").contains(&"--tree".to_owned()));
    assert_eq!(offered(&["blob", "sta"], "blob sta"), ["stats"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("with colons.safetensors");
    let header = br#"{"arg:fc w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"arg:fc2":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0]].concat()).unwrap();
    let path = path.to_str().unwrap().replace(' ', "\\ ");
    // Bash breaks words at colons, and inserts only the part after the last one.
    let typed = format!("blob ls {path} arg:f");
    assert_eq!(at_last(|| offered(&["blob", "ls", &path, "arg", ":", "f"], &typed)), ["fc\\ w", "fc2"]);
    let broken = "blob ls caffe/net/truncated.caffemodel c";
    assert_eq!(offered(&["blob", "ls", "caffe/net/truncated.caffemodel", "c"], broken), [""; 0]);
}

/// The candidates of another shell: each word with help, and `FILES` where paths are completed too.
fn offered_by(shell: &str, typed: &str) -> Option<Vec<String>> {
    let path = format!("{}:{}", tool().parent()?.display(), std::env::var("PATH").ok()?);
    let (flag, script) = match shell {
        "fish" => ("--no-config", "blob completions fish | source; complete -C $argv[1]".to_owned()),
        // zsh's completion system needs a terminal, so the functions that ours calls are replaced.
        _ => (
            "-f",
            "compdef() { :; }; compadd() { print -rl -- $shown; }; _files() { print -r FILES; }; \
                     eval \"$(blob completions zsh)\"; words=(${(z)1}); [[ $1 = *' ' ]] && words+=(''); \
                     CURRENT=$#words; PREFIX=$words[-1]; _blob; true"
                .to_owned(),
        ),
    };
    let mut command = Command::new(shell);
    command.current_dir(data("")).env("PATH", path).args([flag, "-c", &script]);
    if shell == "zsh" {
        command.arg("zsh");
    }
    command.arg(typed);
    Command::new(shell).arg("--version").output().ok()?;
    let ran = ran(command, b"");
    assert_eq!(ran.err, "", "{shell}: {typed}");
    Some(ran.out.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect())
}

#[test]
fn zsh_and_fish_complete_commands_files_and_tensors() {
    let net = "caffe/net/v1.caffemodel";
    for shell in ["zsh", "fish"] {
        if offered_by(shell, "blob ").is_none() {
            report(&format!("NOT TESTED: completion in {shell} (not installed)"));
            continue;
        }
        let tensors = at_last(|| offered_by(shell, &format!("blob ls {net} con")).unwrap());
        assert_eq!(tensors.iter().map(|l| l.trim()).collect::<Vec<_>>(), ["conv1/0", "conv1/1"], "{shell}");
        assert_eq!(at_last(|| offered_by(shell, &format!("blob show {net} ")).unwrap()).len(), 4, "{shell}");
        let offered = offered_by(shell, "blob ").unwrap();
        let info = offered.iter().find(|l| l.starts_with("info")).unwrap();
        assert!(offered.len() == commands().len() && info.contains("Summarize a file"), "{offered:?}");
        let file = if shell == "zsh" { "FILES" } else { "caffe/" };
        for typed in ["blob caf", "blob ls caf", "blob convert a -o caf"] {
            assert_eq!(
                offered_by(shell, typed).unwrap().iter().map(|l| l.trim()).collect::<Vec<_>>(),
                [file],
                "{shell}: {typed}"
            );
        }
        assert!(offered_by(shell, "blob ls --tr").unwrap()[0].starts_with("--tree"), "{shell}");
    }
}

/// Presses tab in an interactive bash on a terminal.
#[test]
fn a_tab_completes_in_an_interactive_bash() {
    let line =
        format!("source <('{0}' completions bash); alias blob='{0}'; blob() {{ '{0}' \"$@\"; }}\n", tool().display());
    let folder = tempfile::tempdir().unwrap();
    let rc = folder.path().join("rc");
    let path = format!("PATH={}:$PATH\nPS1='> '\n", tool().parent().unwrap().display());
    fs::write(&rc, format!("{path}{}", line.replace("alias blob=", "alias unused="))).unwrap();
    let mut script = Command::new("script");
    let bash = format!("bash --noprofile --rcfile '{}' -i", rc.display());
    script.current_dir(data("")).env("TERM", "dumb").env("LC_ALL", "C.UTF-8").args(["-qec", &bash, "/dev/null"]);
    if Command::new("script").arg("--version").output().is_err() {
        return report("NOT TESTED: completion in an interactive bash (no `script`)");
    }
    let typed = b"blob ls caffe/net/v1.caf\tip/\t0\nexit\n";
    let shown = ran(script, typed);
    assert!(shown.out.contains("ip/0  "), "{shown:?}");
}

/// A progress bar is cleared before the message about a signal.
#[cfg(unix)]
#[test]
fn a_signal_leaves_no_half_bar() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("zeros.npy");
    zeros(&source, 64 << 30);
    let line = format!("stty cols 80 rows 50; echo $$; exec '{}' stats '{}'", tool().display(), source.display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let Ok(mut script) = script.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").spawn() else {
        return report("NOT TESTED: a signal on a terminal (no `script`)");
    };
    let (mut terminal, mut shown) = (script.stdout.take().unwrap(), Vec::new());
    let text = |shown: &[u8]| String::from_utf8_lossy(shown).replace('\r', "");
    let mut piece = [0; 256];
    while !text(&shown).contains("of 256.0 GiB") {
        let read = terminal.read(&mut piece).unwrap();
        assert!(read > 0, "no bar in {:?}", text(&shown));
        shown.extend_from_slice(&piece[..read]);
    }
    let process = text(&shown).lines().next().unwrap().to_owned();
    assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
    terminal.read_to_end(&mut shown).unwrap();
    script.wait().unwrap();
    let shown = text(&shown);
    let (_, last) = shown.rsplit_once("\x1b[2K").unwrap_or_else(|| panic!("no bar in {shown:?}"));
    assert_eq!(last, "interrupted\n", "{shown:?}");
}
