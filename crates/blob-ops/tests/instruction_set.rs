//! The environment variable that lowers the instruction set, in processes of their own: it is read once in each.
//!
//! Relies on this binary being able to run itself. Which names are known is tested beside the code.

use std::process::Output;

#[path = "../src/tests/again.rs"]
mod again;

const SWITCH: &str = "BLOB_OPS_ISA";

/// Asks a test of this binary to answer instead of testing.
const ASKED: &str = "BLOB_OPS_TEST_ASKED";

#[test]
fn answers_where_it_is_asked() {
    if std::env::var_os(ASKED).is_some() {
        println!("\nruns {}", blob_ops::instruction_set());
    }
}

/// What runs with the variable set so, and what was said on stderr; nothing under Miri.
fn runs(switch: Option<&str>) -> Option<(String, String)> {
    if cfg!(miri) {
        return None;
    }
    let mut command = again::this_binary();
    command.args(["--exact", "answers_where_it_is_asked", "--nocapture"]);
    command.env(ASKED, "1").env_remove(SWITCH);
    if let Some(switch) = switch {
        command.env(SWITCH, switch);
    }
    let Output { stdout, stderr, .. } = command.output().expect("a process");
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).expect("text"));
    let answer = stdout.lines().find_map(|line| line.strip_prefix("runs "));
    Some((answer.expect(&stdout).to_owned(), stderr))
}

#[test]
fn the_variable_lowers_the_instruction_set() {
    let Some((best, said)) = runs(None) else {
        return;
    };
    assert_eq!(said, "");
    let ladder: &[&str] = match best.as_str() {
        "neon" => &["portable", "neon"],
        _ => &["portable", "avx2", "avx512"],
    };
    let top = ladder.iter().position(|name| *name == best);
    let top = top.expect("a known name");
    for name in ["portable", "avx2", "avx512", "neon"] {
        let place = ladder.iter().position(|known| *known == name);
        // A name of another kind of machine is the plainest here.
        let want = ladder[place.unwrap_or(0).min(top)];
        let quiet = String::new();
        assert_eq!(runs(Some(name)), Some((want.to_owned(), quiet)), "{name}");
    }
}

#[test]
fn a_name_that_is_none_is_portable_and_said_once() {
    let Some((name, said)) = runs(Some("mmx")) else {
        return;
    };
    assert_eq!(name, "portable");
    let line = "blob-ops: BLOB_OPS_ISA=mmx is none of portable, avx2, avx512, neon; running portable\n";
    assert_eq!(said, line);
}
