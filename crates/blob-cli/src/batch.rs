//! `blob batch`: runs the jobs of `blob_convert::batch` on several threads, and says how each ended.
//!
//! Threads do the jobs and write the log; this thread prints, in the order of the jobs. Makes lines in `make`.

mod make;
mod outcome;

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use blob_convert::batch::{Batch, Log, Marks, Opener, Trust};
use blob_convert::report::json;
use blob_convert::transform::Registry;
use blob_convert::{Recipe, in_order};
use blob_io::{Checkpoint, Error, Format};

use crate::args::{self, Global, Trusted};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::inputs::is_stdin;
use crate::open::{name, open};
use crate::output::progress::Progress;
use crate::output::written::Begun;
pub(crate) use outcome::Outcome;
use outcome::{State, Tally};

/// A longer file of jobs is not read.
const LONGEST: u64 = 1 << 30;

pub(crate) fn run(args: &args::Batch, context: &Context) -> Result<Status, Failure> {
    let asked = args.transforms.recipe()?;
    let (Some(file), None) = (&args.file, &args.make) else { return make::run(args, asked, context) };
    if asked != Recipe::default() || args.transforms.strict {
        let failure = Failure::new("each job says what is done, and other options say it, too");
        return Err(failure.help("the transforms go with --make"));
    }
    let begun = Begun::now(args.dry_run);
    let batch = Batch::read(&name(file), &text_of(file)?)?;
    let log_file = args.log.as_deref();
    if log_file.is_some_and(is_stdin) {
        return Err(Failure::new("--log needs a file: a later run reads its lines").help("--json prints the lines"));
    }
    for (used, is_written) in [(Some(&**file).filter(|file| !is_stdin(file)), false), (log_file, true)] {
        used.map_or(Ok(()), |used| batch.check_apart(used, is_written))?;
    }
    let batch = match args.shard {
        Some(shard) => batch.shard(shard),
        None => batch,
    };
    let open_log = if args.dry_run { Log::read } else { Log::open };
    let log = log_file.map(open_log).transpose()?;
    if !args.dry_run {
        batch.sweep();
    }
    // To look at each source takes a while.
    let bytes = if Progress::is_shown(&context.terminal) { total(&batch) } else { 0 };
    let progress = Progress::begin(&context.terminal, bytes);
    let work = Work {
        marks: Marks::new(context.global.salvage.is_some()).from(context.global.from),
        trust: if args.trust == Trusted::Mtime { Trust::Times } else { Trust::Content },
        batch,
        log,
        is_dry: args.dry_run,
        checks: args.check,
        keeps_going: args.keep_going,
        global: &context.global,
        next: AtomicUsize::new(0),
        is_stopped: AtomicBool::new(false),
        progress: &progress,
    };
    let threads = args.jobs.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut tally = Tally::default();
    let take = &mut |_, outcome| tally.take(outcome, context);
    let done = in_order(threads.min(work.batch.len()), || (), |()| work.step(), take);
    progress.end();
    tally.end(begun, work.batch.len(), context);
    done?;
    Ok(tally.status())
}

/// The text of a file of jobs.
fn text_of(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if is_stdin(path) {
        io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
    };
    read.map_err(|source| Error::Open { file: name(path), source })?;
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::new(format!("{}: more than {LONGEST} bytes of jobs", name(path))));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::new(format!("{}: is not UTF-8", name(path))))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// How many bytes the sources of all jobs have.
fn total(batch: &Batch) -> u64 {
    let sources = batch.recipes().filter_map(|(_, recipe)| fs::metadata(&recipe.sources.first()?.path).ok());
    sources.map(|meta| meta.len()).sum()
}

/// Opens the files of jobs as all commands do.
struct Opening<'a>(&'a Global);

impl Opener for Opening<'_> {
    fn open(&self, path: &Path, format: Option<Format>) -> Result<Checkpoint, Error> {
        open(path, &Global { from: format.or(self.0.from), ..self.0.clone() })
    }
}

/// The jobs, shared by the threads.
struct Work<'a> {
    batch: Batch,
    marks: Marks,
    trust: Trust,
    log: Option<Log>,
    is_dry: bool,
    checks: bool,
    keeps_going: bool,
    global: &'a Global,
    next: AtomicUsize,
    is_stopped: AtomicBool,
    progress: &'a Progress,
}

impl Work<'_> {
    /// Does the next job; `None` after the last one, and after a failure.
    fn step(&self) -> Option<(usize, Outcome)> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let (line, recipe) = self.batch.recipe(at)?;
        let mut outcome = Outcome::new(line, recipe);
        let failure = match self.job(at, &mut outcome, &Opening(self.global)) {
            Ok(()) => self.note(&outcome).err(),
            Err(error) => Some(error.into()),
        };
        if let Some(failure) = failure {
            let is_last = failure.is_last();
            outcome.failed(failure);
            if !is_last {
                // An unwritable log is this job's failure already.
                let _ = self.note(&outcome);
            }
            if is_last || !self.keeps_going {
                self.is_stopped.store(true, Ordering::Relaxed);
            }
        }
        Some((at, outcome))
    }

    fn job(&self, at: usize, outcome: &mut Outcome, opening: &Opening<'_>) -> Result<(), Error> {
        let job = self.batch.job(at, &self.marks)?;
        let log = self.log.as_ref();
        let why = match job.done(opening, self.trust, log, self.progress)? {
            Some(claim) => match if self.checks { job.check_output(self.progress) } else { Ok(()) } {
                Ok(()) => {
                    if job.is_salvaged(&claim) {
                        self.global.is_salvaged.store(true, Ordering::Relaxed);
                    }
                    outcome.done(claim);
                    return Ok(());
                }
                Err(Error::Request { message, .. }) if job.replaces() => Some(message),
                Err(e) => return Err(e),
            },
            None => job.why_again(opening, log),
        };
        if self.is_dry {
            outcome.ran(State::WouldWrite, job.check(opening)?);
        } else {
            let ran = job.run(opening, &Registry::default(), self.progress)?;
            let state = match (&why, ran.is_unchanged) {
                (Some(_), _) => State::Redone,
                (None, true) => State::Unchanged,
                (None, false) => State::Written,
            };
            outcome.ran(state, ran);
        }
        // Without leave to replace, other bytes are an error of the run: a dry one promises nothing of them.
        outcome.why = why.filter(|_| !self.is_dry || job.replaces());
        Ok(())
    }

    /// Adds a job that ended to the log; a job that was done before has a line, or a receipt.
    fn note(&self, outcome: &Outcome) -> Result<(), Failure> {
        let Some(log) = self.log.as_ref().filter(|_| !self.is_dry && outcome.state != State::Done) else {
            return Ok(());
        };
        let mut line = Vec::new();
        json::line(&mut line, outcome)?;
        Ok(log.add(&line)?)
    }
}
