//! How a file becomes a checkpoint: it is opened, its format is found, its arrays are listed. Streams are spooled first,
//! gzip files unpacked.

use std::io::Read;
use std::path::Path;

use super::{Checkpoint, Home, Lookup};
use crate::error::{Error, Fault, Reason};
use crate::folder;
use crate::format::Format;
use crate::limits::Limits;
use crate::names::NameTable;
use crate::sniff;
use crate::wire::gunzip;
use crate::wire::source::{FileSource, Input, Source};
use crate::wire::spool::Spool;

/// How to open a file: which format to take it for, and what it may cost.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    from: Option<Format>,
    limits: Limits,
    salvage: bool,
}

impl OpenOptions {
    /// The defaults: the format is found by content, the limits are [`Limits::default`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the file, or what a gzip file unpacks to, for this format, whatever it looks like.
    #[must_use]
    pub fn from(mut self, format: Format) -> Self {
        self.from = Some(format);
        self
    }

    /// Bounds what opening and loading may cost.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens a Caffe, MXNet or NeoML file that breaks off after some arrays with the arrays before the break;
    /// [`Checkpoint::whole`] then says where and why it breaks.
    #[must_use]
    pub fn salvage(mut self) -> Self {
        self.salvage = true;
        self
    }

    /// Opens a file, or a folder of npy files that a conversion wrote: its receipt says which tensor lies in which. A pipe
    /// or another file without positions is a stream.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let refuse = |source| Error::Io { file: name.clone(), action: "open".to_owned(), source };
        if path.is_dir() {
            return self.open_folder(path, name);
        }
        let file = std::fs::File::open(path).map_err(refuse)?;
        let meta = file.metadata().map_err(refuse)?;
        if !meta.is_file() && !meta.is_dir() {
            return self.open_stream(name, file);
        }
        let source = Box::new(FileSource::new(file).map_err(refuse)?);
        let opened = self.open_source(name, source)?;
        Ok(Checkpoint { home: Home::of_file(path), ..opened })
    }

    /// Opens a folder of npy files that a conversion wrote.
    fn open_folder(&self, path: &Path, name: String) -> Result<Checkpoint, Error> {
        if let Some(other) = self.from.filter(|from| *from != Format::Npy) {
            let message = format!("is a folder, and holds npy files, not {}", other.name());
            return Err(Error::Request { file: name, message });
        }
        let mut table = NameTable::new(&self.limits);
        let folder = folder::open(path, &name, &mut table)?;
        let kind = (Format::Npy, format!("folder of {} files", folder.count()));
        let input = Input::new(Box::new(folder));
        let opened = self.opened(name, kind, (input, None), table);
        Ok(Checkpoint { home: Home::Folder(path.to_owned()), ..opened })
    }

    /// Opens a stream (standard input, a pipe): reads it to its end and keeps it, the first 8 MiB in memory, a longer one
    /// in an unnamed temporary file. A stream that cannot be a tensor file by its beginning is refused before that file is made.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; a stream of more than [`Limits::max_spool`] bytes; where the temporary file cannot be
    /// written.
    pub fn open_stream(&self, name: impl Into<String>, mut stream: impl Read) -> Result<Checkpoint, Error> {
        let name = name.into();
        let mut spool = self.spool(&name, &name);
        spool.read(&mut stream)?;
        let source = spool.finish()?;
        self.open_source(name, source)
    }

    /// Opens a source; `name` is what errors and the extension's hint call it. A gzip file is unpacked first, within
    /// [`Limits::max_spool`], and its CRC-32 and length are checked.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_source(&self, name: impl Into<String>, source: Box<dyn Source>) -> Result<Checkpoint, Error> {
        let name = name.into();
        let input = Input::new(source);
        if !gunzip::begins_as_gzip(&input) {
            let mut table = NameTable::new(&self.limits);
            return match self.list(&input, &name, &name, &mut table) {
                Err(Error::Malformed { subject, mut fault, .. }) if self.salvage && table.intact() > 0 => {
                    fault.subject = subject.map(Box::new);
                    self.salvaged(name, input, *fault, table)
                }
                kind => Ok(self.opened(name, kind?, (input, None), table)),
            };
        }
        let inner = gunzip::inner_name(&name);
        let mut spool = self.spool(&name, inner);
        gunzip::unpack(&name, &input, &mut spool)?;
        let unpacked = Input::new(spool.finish().map_err(gunzip::inside)?);
        let mut table = NameTable::new(&self.limits);
        let kind = self.list(&unpacked, &name, inner, &mut table).map_err(gunzip::inside)?;
        Ok(self.opened(name, kind, (unpacked, Some(input)), table))
    }

    /// Reads the headers; `hint` is the name whose extension counts.
    fn list(&self, input: &Input, name: &str, hint: &str, table: &mut NameTable) -> Result<(Format, String), Error> {
        sniff::read(input, hint, self.from, table).map_err(|refusal| {
            let mut error = refusal.into_error(name);
            if let Error::Malformed { intact, .. } | Error::LimitExceeded { intact, .. } = &mut error {
                *intact = Some(table.intact());
            }
            error
        })
    }

    /// The arrays before a break.
    fn salvaged(&self, name: String, input: Input, fault: Fault, table: NameTable) -> Result<Checkpoint, Error> {
        let format = match self.from {
            Some(format) => Some(format),
            None => sniff::format(&input, &name),
        };
        if let Some(format) = format.filter(|format| is_salvageable(*format, &fault)) {
            let kind = (format, String::new());
            let opened = self.opened(name, kind, (input, None), table);
            let broken = Some(Box::new(fault));
            return Ok(Checkpoint { broken, ..opened });
        }
        Err(Error::of_fault(&name, fault, Some(table.intact())))
    }

    /// What was gathered from the input, which was unpacked from `packed` where that was a gzip file.
    fn opened(
        &self,
        name: String,
        (format, dialect): (Format, String),
        (input, packed): (Input, Option<Input>),
        mut table: NameTable,
    ) -> Checkpoint {
        Checkpoint {
            name,
            format,
            dialect,
            warnings: std::mem::take(&mut table.warnings),
            faults: std::mem::take(&mut table.faults),
            metadata: std::mem::take(&mut table.metadata),
            positions: table.positions as usize,
            entries: table.into_entries(),
            lookup: Lookup::default(),
            limits: self.limits.clone(),
            input,
            packed,
            home: Home::Nowhere,
            broken: None,
        }
    }

    fn spool<'a>(&self, name: &'a str, hint: &'a str) -> Spool<'a> {
        // With a format given by the caller, the beginning is not judged.
        let judged = self.from.is_none();
        let refuse = move |begin: &[u8]| {
            let refusal = judged.then(|| sniff::hopeless(begin, hint)).flatten();
            refusal.map(|refusal| refusal.into_error(name))
        };
        Spool::new(name, refuse, self.limits.max_spool)
    }
}

/// Whether the arrays before this fault are certain: these formats store them one after the other, each complete.
fn is_salvageable(format: Format, fault: &Fault) -> bool {
    use Format::{BlobProtoVector, CaffeModel, MxnetList, NeomlArray, NeomlNet, SolverState};
    matches!(format, CaffeModel | BlobProtoVector | SolverState | MxnetList | NeomlArray | NeomlNet)
        && matches!(fault.reason(), Reason::Truncated | Reason::Malformed)
}
