//! `blob man`: the manual, made from the command line's own description and the notes of `help`.

use std::io::{self, Write};
use std::path::PathBuf;

use blob_convert::{Folders, Together};
use blob_io::{IfExists, Output};
use clap::Command;
use clap_mangen::Man;

use crate::args::{self, if_exists, whole};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::help::{ENVIRONMENT, NOTES};
use crate::output::sink::is_stdout;
use crate::output::written::{Begun, Written};

pub(crate) fn run(args: &args::Man, context: &Context) -> Result<Status, Failure> {
    context.no_json("man")?;
    let mut pages = pages();
    let Some(folder) = &args.output else {
        let mut page = Vec::new();
        write_page(pages.remove(0), &mut page)?;
        let mut out = context.terminal.out();
        out.write_all(&page)?;
        out.flush()?;
        return Ok(Status::Yes);
    };
    if is_stdout(folder) {
        return Err(Failure::new("-o - is no folder").help("without -o the page goes to standard output"));
    }
    let (begun, if_exists) = (Begun::now(args.dry_run), if_exists(args.force));
    let pages = pages.into_iter().map(|command| {
        let (path, mut page) = (folder.join(Man::new(command.clone()).get_filename()), Vec::new());
        write_page(command, &mut page).map(|()| (path, page))
    });
    let pages: Vec<(PathBuf, Vec<u8>)> = pages.collect::<io::Result<_>>()?;
    if !args.dry_run {
        write(&pages, if_exists)?;
    } else if folder.is_dir() {
        check(&pages, if_exists)?;
    }
    let (files, bytes) = (pages.len() as u64, pages.iter().map(|(_, page)| page.len() as u64).sum());
    context.terminal.written(&Written { files, ..Written::new(folder, "man", bytes, begun) }, &[]);
    Ok(Status::Yes)
}

fn check(pages: &[(PathBuf, Vec<u8>)], if_exists: IfExists) -> Result<(), Failure> {
    Ok(pages.iter().try_for_each(|(path, _)| Output::check(path, if_exists))?)
}

/// Writes all pages or none.
fn write(pages: &[(PathBuf, Vec<u8>)], if_exists: IfExists) -> Result<(), Failure> {
    let paths = || pages.iter().map(|(path, _)| path.as_path());
    let folders = Folders::of(paths())?;
    check(pages, if_exists)?;
    let mut together = Together::of(paths())?;
    for (path, page) in pages {
        let mut output = Output::create(path, if_exists)?;
        output.write_all(page)?;
        together.add(path, output.complete()?)?;
    }
    together.publish()?;
    folders.keep();
    Ok(())
}

/// The commands that have a page: the tool itself, then each subcommand.
fn pages() -> Vec<Command> {
    let command = whole();
    let parts = command.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    [command.clone()].into_iter().chain(parts).collect()
}

fn write_page(mut command: Command, page: &mut Vec<u8>) -> io::Result<()> {
    let is_root = command.has_subcommands();
    // The manual includes the options that the short help leaves out.
    command = command.mut_args(|arg| arg.hide_short_help(false));
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.override_usage(usage)).source(concat!("blob ", env!("CARGO_PKG_VERSION")));
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if is_root {
        man.render_subcommands_section(page)?;
        for (title, text) in NOTES {
            section(page, title, text)?;
        }
    } else if let Some((title, text)) = NOTES.last() {
        section(page, title, text)?;
    }
    writeln!(page, ".SH ENVIRONMENT")?;
    for (name, text) in ENVIRONMENT {
        writeln!(page, ".TP\n.B {name}\n{}", escaped(text))?;
    }
    if let Some(lines) = examples.strip_prefix("Examples:\n") {
        writeln!(page, ".SH EXAMPLES\n.nf\n{}\n.fi", escaped(lines.trim_end()))?;
    }
    see_also(page, is_root)
}

fn section(page: &mut Vec<u8>, title: &str, text: &str) -> io::Result<()> {
    writeln!(page, ".SH {title}\n{}", escaped(text))
}

fn see_also(page: &mut Vec<u8>, is_root: bool) -> io::Result<()> {
    let others = pages().into_iter().map(|c| Man::new(c).get_filename());
    let others = others.filter(|name| is_root != (name == "blob.1"));
    let others: Vec<String> = others
        .filter(|name| is_root || name == "blob.1")
        .map(|name| format!("\\fB{}\\fR(1)", name.trim_end_matches(".1").replace('-', "\\-")))
        .collect();
    writeln!(page, ".SH \"SEE ALSO\"\n{}", others.join(", "))
}

/// Escapes text for roff: backslashes, quotes, dashes and line starts.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '`' => out.push_str("\\(ga"),
            '\'' => out.push_str("\\(aq"),
            '…' => out.push_str("..."),
            c => out.push(c),
        }
        if c == '\n' {
            out.push_str("\\&");
        }
    }
    format!("\\&{out}")
}
