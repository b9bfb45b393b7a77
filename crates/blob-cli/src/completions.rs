//! `blob completions`: a completion script for a shell, made from the command line's own description.

use std::io::Write;

use clap::CommandFactory;

use crate::Context;
use crate::args::{Args, Completions};
use crate::failure::{Failure, Status};

pub(crate) fn run(args: &Completions, context: &Context) -> Result<Status, Failure> {
    context.no_json("completions")?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "blob", &mut script);
    let mut out = context.terminal.out();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Status::Yes)
}
