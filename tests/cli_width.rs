//! Tables fit the terminal's width, and long names need only bounded memory and output.

use std::fs;
use std::process::Command;

use crate::support::archive::named;
use crate::support::{Folder, blob, command, data, on_terminal, on_terminal_after, ran, real, report, tool};

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
    // DTYPE and SHAPE stay, and the names have the rest.
    assert!(shown.contains("arg:rf_c2_late…al_bn_gamma") || shown.contains("arg:rf_c2_lateral_bn_gamma"), "{shown}");
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
    for (args, lines) in [("formats", 60), ("ls -l caffe/blobproto/float_and_double.binaryproto", 20)] {
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

/// The rows of a table between the header and the last lines, and where the names begin.
fn rows(shown: &str) -> (Vec<&str>, usize) {
    let mut lines = shown.lines();
    let at = lines.next().and_then(|header| header.find("NAME")).expect("a header");
    (lines.take_while(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).collect(), at)
}

/// Real nets, and names that differ in one place only, at either end or in the middle.
fn files_with_long_names(folder: &Folder) -> Vec<String> {
    let layer = |i: usize| (i / 16, i / 4 % 4, i % 4);
    let of = |name: &dyn Fn(usize) -> String| (0..64).map(name).collect::<Vec<_>>();
    let sets = [
        of(&|i| format!("cifarresnetv10_stage{}_basicblockv1{}_conv{}_weight", layer(i).0, layer(i).1, layer(i).2)),
        of(&|i| format!("arg:stage{}_unit{}_a_name_with_a_long_end_{}_gamma", layer(i).0, layer(i).1, layer(i).2)),
        of(&|i| format!("module/backbone/with/a/long/prefix/conv{i}/0")),
        of(&|i| format!("{i}_and_then_the_same_name_of_a_layer_for_all_tensors")),
    ];
    let mut files = Vec::new();
    for (i, names) in sets.iter().enumerate() {
        let path = folder.path().join(format!("{i}.safetensors"));
        named(&path, names);
        files.push(path.to_str().unwrap().to_owned());
    }
    for folder in ["caffe/real", "mxnet/real", "neoml/real"] {
        let Some(folder) = real(folder) else {
            report(&format!("NOT TESTED: the width of the nets in {folder} (BLOB_REAL_DATA)"));
            continue;
        };
        let all = crate::support::files(&folder, |_| true);
        files.extend(
            all.iter()
                .filter(|path| {
                    blob_io::Checkpoint::open(path)
                        .is_ok_and(|file| file.entries().iter().any(|entry| entry.byte_len() > 0))
                })
                .map(|path| path.to_str().unwrap().to_owned()),
        );
    }
    files
}

#[test]
fn every_row_is_told_apart_and_its_name_selects_it() {
    let folder = Folder::new();
    for file in files_with_long_names(&folder) {
        for args in [&["ls"][..], &["stats"], &["stats", "--hist"]] {
            for width in [60, 80, 120] {
                let mut table = command(&[args, &[&*file, "--table"]].concat());
                table.env("COLUMNS", width.to_string());
                let shown = ran(table, b"").ok().out;
                let (rows, at) = rows(&shown);
                let names: Vec<&str> = rows.iter().map(|row| row[at..].split("  ").next().unwrap()).collect();
                let distinct: std::collections::HashSet<&&str> = names.iter().collect();
                assert_eq!(distinct.len(), rows.len(), "{args:?} {file} at {width}: {shown}");
                assert!(rows.iter().all(|row| columns(row) <= width), "{args:?} {file} at {width}: {shown}");
                // Some of the cut names are pasted.
                for (place, name) in names.iter().enumerate().filter(|(_, name)| name.contains('…')).step_by(29) {
                    let found = blob(&["ls", "--json", &file, name]).ok().json();
                    let tensors = found[0]["tensors"].as_array().unwrap();
                    assert_eq!((tensors.len(), &tensors[0]["index"]), (1, &place.into()), "{file}: {name}");
                }
            }
        }
    }
}

#[test]
fn no_table_is_wider_than_asked_at_any_width() {
    let folder = Folder::new();
    let mut files = files_with_long_names(&folder);
    files.extend([NET, "caffe/net/v0.caffemodel", "neoml/py/net_conv_bn.cnnarch"].map(str::to_owned));
    for file in files {
        for args in [&["ls"][..], &["stats", "--hist"]] {
            for width in (20..200).step_by(31) {
                let mut table = command(&[args, &[&*file, "--table"]].concat());
                table.env("COLUMNS", width.to_string());
                let shown = ran(table, b"").ok().out;
                let (rows, _) = rows(&shown);
                let distinct: std::collections::HashSet<&&str> = rows.iter().collect();
                assert!(distinct.len() == rows.len() && !rows.is_empty(), "{args:?} {file} at {width}: {shown}");
                assert!(shown.lines().all(|line| columns(line) <= width), "{args:?} {file} at {width}: {shown}");
            }
        }
    }
}
