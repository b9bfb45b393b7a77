//! Tables fit the terminal's width, and long names need only bounded memory and output.

use std::fs;
use std::process::Command;

use crate::support::archive::named;
use crate::support::{blob, command, data, on_terminal, on_terminal_after, ran, report, tool};

const NET: &str = "caffe/net/v1.caffemodel";
const MANY: &str = "mxnet/golden/mxnet-1.9.1/many_1000.nd";

/// The width of a line in which every character has one column.
fn columns(line: &str) -> usize {
    line.chars().count()
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.safetensors");
    let names = ["arg:rf_c2_lateral_bn_gamma", "a/b/c/d/e/f/g/h", &"n".repeat(65_000), "w"];
    named(&path, &names.map(str::to_owned));
    let long = path.to_str().unwrap();
    for file in [NET, MANY, long, "caffe/net/v0.caffemodel"] {
        for command in
            ["ls", "ls -l", "ls --tree", "stats", "stats --hist", "info", "formats", "convert -n -o x.safetensors"]
        {
            for width in [60, 80, 120] {
                let file = if command == "formats" { "" } else { file };
                let Some(shown) = on_terminal(width, &format!("{command} {file} --color never"), &[]) else {
                    return report("NOT TESTED: the width of a terminal (no `script`)");
                };
                // Paths and messages are not cut.
                for line in shown
                    .lines()
                    .filter(|l| !l.contains(['/', '"', ':', ';']) && !l.starts_with("would") || l.starts_with(' '))
                {
                    assert!(columns(line) <= width, "{command} at {width}: {line}");
                }
                assert!(shown.lines().count() > 2, "{command}: {shown}");
            }
        }
    }
    let shown = on_terminal(60, &format!("ls {long}"), &[("COLUMNS", "40")]).unwrap();
    assert!(shown.lines().filter(|l| !l.contains('\x1b')).all(|line| columns(line) <= 40), "{shown}");
    assert!(shown.contains("arg:rf_c2_la…al_bn_gamma"), "{shown}");
    let wide = on_terminal(60, &format!("ls --wide {long}"), &[]).unwrap();
    assert!(wide.contains("arg:rf_c2_lateral_bn_gamma") && wide.contains("OFFSET"), "{}", wide.len());
    assert!(wide.contains(&"n".repeat(65_000)));
}

/// Compares the order in `blob --help` with tables on ever narrower terminals.
#[test]
fn columns_leave_in_the_order_that_the_help_states() {
    let help = blob(&["--help"]).out;
    let help: Vec<&str> = help.split_whitespace().collect();
    let help = help.join(" ");
    let (_, stated) = help.split_once("leave first, in this order. ").unwrap();
    let (stated, _) = stated.split_once(". --wide ").unwrap();
    let stated: Vec<&str> = stated.split(". ").collect();
    let tables = [
        ("ls", &["ls", "-l", NET][..]),
        ("stats", &["stats", NET]),
        ("convert --dry-run", &["convert", "-n", NET, "-o", "x.npz"]),
        ("formats", &["formats"]),
    ];
    assert_eq!(stated.len(), tables.len(), "{stated:?}");
    for ((name, args), stated) in tables.into_iter().zip(stated) {
        let (of, titles) = stated.split_once(": ").unwrap();
        assert_eq!(of, name);
        let titles: Vec<&str> = titles.split(", ").collect();
        let mut left: Vec<&str> = Vec::new();
        for width in (1..200).rev() {
            let mut narrow = command(args);
            narrow.arg("--table").env("COLUMNS", width.to_string());
            let shown = ran(narrow, b"").out;
            let header = shown.lines().next().unwrap();
            let hidden = titles.iter().filter(|title| !header.contains(**title));
            left.extend(hidden.filter(|t| !left.contains(*t)).copied().collect::<Vec<_>>());
        }
        assert_eq!(left, titles, "{name}");
        // Columns that are not in the list are never dropped.
        let mut narrow = command(args);
        narrow.arg("--table").env("COLUMNS", "1");
        let shown = ran(narrow, b"").out;
        let hidden: String = shown.lines().collect::<Vec<_>>().concat();
        let (_, hidden) = hidden.split_once("(--widealsoshows").unwrap();
        let (hidden, _) = hidden.split_once(')').unwrap();
        assert_eq!(hidden.split(',').count(), titles.len(), "{name}: {hidden}");
    }
}

/// A text column without room is dropped, and not wrapped letter by letter.
#[test]
fn no_text_is_squeezed_into_a_letter_a_line() {
    for (args, lines) in [("formats", 60), ("ls -l caffe/blobproto/float_and_double.binaryproto", 12)] {
        for columns in [20, 30, 40, 60] {
            let Some(shown) = on_terminal(columns, &format!("{args} --color never"), &[]) else {
                return report("NOT TESTED: a narrow terminal (no `script`)");
            };
            assert!(shown.lines().count() <= lines, "{args} at {columns}: {shown}");
        }
    }
    let shown = on_terminal(30, "formats --color never", &[]).unwrap();
    assert!(shown.contains("TESTED AGAINST)") && shown.contains("safetensors"), "{shown}");
}

/// A process may use 16 MiB of writable memory and 256 bytes per array, not counting the threads' stacks.
#[cfg(target_os = "linux")]
#[test]
fn a_long_name_costs_neither_memory_nor_output() {
    let folder = tempfile::tempdir().unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for short in [4095, 34_000] {
        let path = folder.path().join("long.safetensors");
        let mut names = vec!["x".repeat(65_000)];
        names.extend((0..short).map(|i| format!("t{i}")));
        named(&path, &names);
        let len = fs::metadata(&path).unwrap().len() as usize;
        let limit = (16 << 10) + short / 4 + threads * (3 << 10);
        for args in ["ls", "stats", "info", "ls --table", "ls --table --wide", "ls --tree"] {
            let line = format!("ulimit -d {limit}; exec '{}' {args} '{}'", tool().display(), path.display());
            let mut sh = Command::new("sh");
            sh.current_dir(data("")).env("LC_ALL", "C.UTF-8").args(["-c", &line]);
            let shown = ran(sh, b"");
            assert_eq!(shown.code, Some(0), "{args} of {short}: {}", shown.err);
            assert!(shown.out.len() < 3 * len, "{args} of {short}: {} bytes", shown.out.len());
            let limited = format!("ulimit -d {limit}");
            let Some(shown) = on_terminal_after(&limited, 80, &format!("{args} '{}'", path.display()), &[]) else {
                return report("NOT TESTED: memory on a terminal (no `script`)");
            };
            // A wide table has the whole names; the others have lines of at most 80 columns.
            let most = if args.contains("wide") { 3 * len } else { 90 * (short + 10) };
            assert!(shown.len() < most && shown.lines().count() > 3, "{args} of {short}: {}", shown.len());
        }
    }
}
