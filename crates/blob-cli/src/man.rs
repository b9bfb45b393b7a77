//! `blob man`: the manual, made from the command line's own description.

use std::io::Write;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::Context;
use crate::args::{self, Args};
use crate::failure::{Failure, Status};

pub(crate) fn run(args: &args::Man, context: &Context) -> Result<Status, Failure> {
    context.no_json("man")?;
    let command = Args::command();
    let Some(folder) = &args.output else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        let mut out = context.terminal.out();
        out.write_all(&page)?;
        out.flush()?;
        return Ok(Status::Yes);
    };
    let refuse = |e| Failure::new(format!("cannot write to {}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(refuse)?;
    clap_mangen::generate_to(command, folder).map_err(refuse)?;
    Ok(Status::Yes)
}
