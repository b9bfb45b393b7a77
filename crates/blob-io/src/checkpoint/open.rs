//! Opens a file as a checkpoint: detects the format and lists the arrays. Streams are spooled first, gzip files are
//! unpacked, and the only tensor file of an archive is used.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::scratch::Scratch;
use super::stop::Stop;
use super::{Checkpoint, Home, Packed, split_at_file};
use crate::archive::{Archive, Member};
use crate::codec::Found;
use crate::error::{Error, Fault, Reason};
use crate::expected::Expected;
use crate::folder;
use crate::format::{Files, Format};
use crate::limits::{Limits, MAX_OTHERS};
use crate::names::NameTable;
use crate::notes::FOLDER_LIST;
use crate::warning::Warning;
use crate::wire::gunzip;
use crate::wire::source::{FileSource, Input, Joined, Source};
use crate::wire::spool::Spool;
use crate::words::joined;
use crate::{onnx, shards, sniff};

/// How to open a file: the format, if you do not want detection, and the limits on the cost of opening.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub(super) from: Option<Format>,
    pub(super) limits: Limits,
    pub(super) salvage: bool,
    member: Option<String>,
    redirected_from: Option<PathBuf>,
    pub(super) stop: Stop,
    pub(super) scratch: Scratch,
    path: Option<PathBuf>,
    /// The file beside an ONNX model, by the name there.
    beside: Option<(String, Input)>,
    /// The plan of a file that was just written: entries as planned are dropped, and `Checkpoint::as_planned` tells.
    pub(crate) expected: Option<Arc<Expected>>,
}

impl OpenOptions {
    /// The defaults: the format is found by content, the limits are [`Limits::default`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the file, or the content of a gzip file, as this format, without detection.
    #[must_use]
    pub fn from(mut self, format: Format) -> Self {
        self.from = Some(format);
        self
    }

    /// Bounds the cost of opening and loading.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens a Caffe, MXNet, NeoML or safetensors file that is cut, or a gzip file of one, with the arrays there are;
    /// [`Checkpoint::check_whole`] then says where and why the file ends.
    #[must_use]
    pub fn salvage(mut self) -> Self {
        self.salvage = true;
        self
    }

    /// Opens this member of a tar or zip archive; `name` is the path within the archive. Otherwise the archive must
    /// hold exactly one tensor file, besides any other files.
    #[must_use]
    pub fn member(mut self, name: impl Into<String>) -> Self {
        self.member = Some(name.into());
        self
    }

    /// Takes this for the file `name` beside an ONNX model, which has no folder yet.
    pub(crate) fn beside(mut self, name: impl Into<String>, file: Input) -> Self {
        self.beside = Some((name.into(), file));
        self
    }

    /// Says which file a stream is redirected from: [`Checkpoint::path`] then has this path, and no output replaces the
    /// file.
    #[must_use]
    pub fn redirected_from(mut self, path: impl Into<PathBuf>) -> Self {
        self.redirected_from = Some(path.into());
        self
    }

    /// Opens a file, or a folder of npy files that a conversion wrote: its notes say which tensor lies in which
    /// file. A pipe or another file that cannot seek is a stream. A path that continues after an archive names a
    /// member: `model.tar.gz/net-0000.params`. An index of safetensors shards (`model.safetensors.index.json`), or a
    /// folder with exactly one, is opened as one file: the concatenated shards beside the index.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let path = path.as_ref();
        let mut opened = self.open_path(path)?;
        opened.path.get_or_insert_with(|| path.to_owned());
        Ok(opened)
    }

    fn open_path(&self, path: &Path) -> Result<Checkpoint, Error> {
        let name = path.display().to_string();
        let refuse = |source| Error::Open { file: name.clone(), source };
        let file = match std::fs::File::open(path) {
            // Some systems do not open a folder as a file.
            Err(_) if path.is_dir() => return self.open_folder(path, name),
            Err(e)
                if self.member.is_none()
                    && matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                let Some((archive, member)) = split_at_file(path) else { return Err(refuse(e)) };
                return self.clone().member(member).open(archive);
            }
            file => file.map_err(refuse)?,
        };
        let meta = file.metadata().map_err(refuse)?;
        if meta.is_dir() {
            return self.open_folder(path, name);
        }
        if !meta.is_file() {
            return self.open_stream(name, file);
        }
        let source = Box::new(FileSource::of(file, &meta).map_err(refuse)?);
        if shards::is_index(path)
            && self.may_be(Files::Shards)
            && let Some(opened) = self.open_shards(path, &source)?
        {
            return Ok(opened);
        }
        let opened = Self { path: Some(path.to_owned()), ..self.clone() }.open_source(name, source);
        let mut opened = opened?;
        if opened.member().is_none() {
            opened.home = Home::of_file(path);
        }
        Ok(opened)
    }

    /// Opens the shards of an index; `None` for other JSON.
    fn open_shards(&self, path: &Path, index: &FileSource) -> Result<Option<Checkpoint>, Error> {
        let name = path.display().to_string();
        let mut table = NameTable::new(&self.limits);
        let folder = path.parent().unwrap_or(Path::new(""));
        let Some(mut shards) = shards::open(index, folder, &name, &mut table)? else {
            return Ok(None);
        };
        shards.listed_in(path.to_owned(), index);
        let files: Vec<String> = shards.files().map(str::to_owned).collect();
        let plural = if files.len() == 1 { "" } else { "s" };
        let kind = Found::new(Format::Safetensors, format!("{} shard{plural}", files.len()));
        let opened = self.opened(&name, kind, Input::new(Box::new(shards)), table);
        Ok(Some(Checkpoint { home: Home::of_file(path), shards: files, ..opened }))
    }

    /// Opens a folder of npy files that a conversion wrote, or the shards of the folder's one index.
    fn open_folder(&self, path: &Path, name: String) -> Result<Checkpoint, Error> {
        if self.may_be(Files::Shards) && !path.join(FOLDER_LIST).exists() {
            let found = shards::find(path)?;
            match &found.indices[..] {
                [] => {}
                [index] => {
                    let mut opened = self.open(path.join(index))?;
                    opened.warn_of_others(&found.others);
                    return Ok(opened);
                }
                several => {
                    let names = joined(MAX_OTHERS, several);
                    let message = format!("is a folder with several indices of shards; name one: {names}");
                    return Err(Error::Request { file: name, message });
                }
            }
        }
        if let Some(other) = self.from.filter(|from| from.holds().files != Files::Folder) {
            let message = format!("is a folder, and holds npy files, not {}", other.name());
            return Err(Error::Request { file: name, message });
        }
        let mut table = NameTable::new(&self.limits);
        let folder = folder::open(path, &name, &mut table)?;
        let plural = if folder.count() == 1 { "" } else { "s" };
        let kind = Found::new(Format::Npy, format!("folder of {} file{plural}", folder.count()));
        let opened = self.opened(&name, kind, Input::new(Box::new(folder)), table);
        Ok(Checkpoint { home: Home::Folder(path.to_owned()), ..opened })
    }

    /// Opens a stream (standard input, a pipe): reads to the end and keeps the bytes, the first 8 MiB in memory, a
    /// longer stream in an unnamed temporary file. A stream whose beginning rules out a tensor file is refused before
    /// that file is made.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; a stream of more than [`Limits::max_spool`] bytes; where the temporary file cannot be
    /// written.
    pub fn open_stream(&self, name: impl Into<String>, mut stream: impl Read) -> Result<Checkpoint, Error> {
        let name = name.into();
        let mut spool = self.spool(&name, &name);
        spool.read(&mut stream)?;
        let source = spool.finish()?;
        let opened = self.open_source(name, source)?;
        Ok(Checkpoint { path: self.redirected_from.clone(), ..opened })
    }

    /// Opens the bytes of a source.
    pub(super) fn open_input(&self, name: String, stored: Input) -> Result<Checkpoint, Error> {
        let hint = gunzip::inner_name(&name);
        let file = self.unpacked(&name, hint, stored.clone())?;
        let is_gzip = file.is_gzip;
        if let (Some(cut), Some(_)) = (&file.cut, &self.member) {
            return Err(Error::of_fault(&name, Fault::clone(cut), None));
        }
        let packed = |member| Packed { stored: stored.clone(), is_gzip, member };
        let listed = || self.listed(&name, hint, file.clone(), is_gzip.then(|| packed(None)));
        // If the caller names a format, the file is read as that format. Exception: of a file that is certainly an
        // archive, the member is. In values, only a tar's checksum comes about by chance.
        let is_npz = self.may_be(Files::Members);
        if file.cut.is_some() || self.member.is_none() && self.misnames_npz(&name, hint, &file) {
            return listed();
        }
        if self.member.is_none() && (is_npz || !Archive::is_certain(&file.input)) {
            let done = listed();
            let is_archive = match &done {
                Ok(_) => false,
                // A tar from before 1988 has no magic: a file whose bytes are not of the caller's format counts as one.
                Err(_) if self.from.is_some() => !is_npz,
                Err(error) => error.reason() == Reason::Archive,
            };
            if !is_archive {
                return done;
            }
        }
        let Some(archive) = Archive::of(&file.input, &self.limits) else {
            let Some(member) = &self.member else { return listed() };
            let message = format!("is not a tar or zip archive, so there is no {member:?} in it");
            return Err(Error::Request { file: name, message });
        };
        let member = match &self.member {
            Some(member) => archive.member(&name, member),
            None => archive.only(&name),
        };
        let member = member.map_err(|error| if is_gzip { gunzip::inside(error) } else { error })?;
        let packed = packed(Some(member.name.clone()));
        self.open_member(&name, archive, &member, packed)
    }

    /// Whether the caller names another format for an npz. Its members are no tensor files to choose from, unless as
    /// npy files.
    fn misnames_npz(&self, name: &str, hint: &str, file: &Unpacked) -> bool {
        let is_named = !self.may_be(Files::Members) && !self.may_be(Files::Folder);
        let detect = Self { from: None, ..self.clone() };
        is_named && Archive::is_zip(&file.input) && detect.listed(name, hint, file.clone(), None).is_ok()
    }

    /// Opens a file within an archive.
    fn open_member(&self, name: &str, archive: Archive, member: &Member, packed: Packed) -> Result<Checkpoint, Error> {
        let full = format!("{name}/{}", member.name);
        let hint = gunzip::inner_name(&member.name);
        let content = archive.open(name, member, self.spool(&full, hint));
        let content = content.map_err(|error| if packed.is_gzip { gunzip::inside(error) } else { error })?;
        let file = self.unpacked(&full, hint, content)?;
        let mut opened = self.listed(&full, hint, file, Some(packed))?;
        if member.is_cut {
            opened
                .warnings
                .push(Warning::new(None, "the archive does not end with zeros: it may be cut, and lack files"));
        }
        let folder = member.name.rfind('/').map_or(0, |slash| slash + 1);
        let home = Home::Archive { archive, folder: member.name[..folder].to_owned() };
        Ok(Checkpoint { home, ..opened })
    }

    /// The input, or the content of a gzip file.
    fn unpacked(&self, name: &str, hint: &str, input: Input) -> Result<Unpacked, Error> {
        if !gunzip::begins_as_gzip(&input) {
            return Ok(Unpacked { input, is_gzip: false, cut: None });
        }
        let mut spool = self.spool(name, hint);
        let cut = match gunzip::unpack(name, &input, &mut spool) {
            Err(Error::Malformed { subject, fault, .. }) if fault.reason() == Reason::Truncated => {
                Some(fault.about(subject))
            }
            done => {
                done?;
                None
            }
        };
        let input = Input::new(spool.finish().map_err(gunzip::inside)?);
        Ok(Unpacked { input, is_gzip: true, cut })
    }

    /// Lists the arrays of a file; the extension of `hint` is a hint of the format.
    fn listed(
        &self,
        name: &str,
        hint: &str,
        Unpacked { input, is_gzip, cut }: Unpacked,
        packed: Option<Packed>,
    ) -> Result<Checkpoint, Error> {
        let mut table = NameTable::new(&self.limits);
        table.expect(self.expected.clone());
        if let Some(packed) = &packed {
            table.set_stored_len(packed.stored.len());
        }
        let found = self.list(&input, name, hint, &mut table);
        let found = if is_gzip { found.map_err(gunzip::inside) } else { found };
        let opened = match (cut, found) {
            (Some(cut), found) => self.of_cut_gzip(name, hint, input, found, cut, table)?,
            (None, Err(Error::Malformed { subject, fault, .. })) if self.salvage && table.intact() > 0 => {
                self.salvaged(name, hint, input, fault.about(subject), table)?
            }
            (None, kind) => {
                let mut kind = kind?;
                if packed.is_none() && !kind.outside.is_empty() {
                    let len = input.len();
                    let (input, shards) = self.with_others(&mut kind, input, &mut table)?;
                    let model_len = (!shards.is_empty()).then_some(len);
                    Checkpoint { shards, model_len, ..self.opened(name, kind, input, table) }
                } else {
                    self.opened(name, kind, input, table)
                }
            }
        };
        Ok(Checkpoint { packed, ..opened })
    }

    /// An ONNX model with the files of its values behind it, and their names.
    fn with_others(
        &self,
        kind: &mut Found,
        model: Input,
        table: &mut NameTable,
    ) -> Result<(Input, Vec<String>), Error> {
        let outside = std::mem::take(&mut kind.outside);
        if let Some((name, other)) = &self.beside {
            onnx::join(&outside, name, other.len(), model.len(), table);
            kind.dialect += &onnx::dialect(1);
            let joined = Joined { first: model, second: other.clone() };
            return Ok((Input::new(Box::new(joined)), vec![name.clone()]));
        }
        let attached = self.path.as_ref().map(|path| onnx::attach(&outside, path, model.len(), table)).transpose()?;
        let Some(folder) = attached.flatten() else { return Ok((model, Vec::new())) };
        // The first file is the model.
        let names: Vec<String> = folder.files().skip(1).map(str::to_owned).collect();
        kind.dialect += &onnx::dialect(names.len());
        Ok((Input::new(Box::new(folder)), names))
    }

    /// Reads the headers; the extension of `hint` is a hint of the format.
    fn list(&self, input: &Input, name: &str, hint: &str, table: &mut NameTable) -> Result<Found, Error> {
        let found = sniff::read(input, hint, self.from, table);
        input.listed();
        found.map_err(|refusal| {
            let mut error = refusal.into_error(name);
            match &mut error {
                // Only where `salvage` gives intact arrays: in other formats no array is certain before the end.
                Error::Malformed { intact, fault, .. } if self.salvageable(input, hint, fault).is_some() => {
                    *intact = Some(table.intact());
                }
                Error::LimitExceeded { intact, .. } => *intact = Some(table.intact()),
                _ => {}
            }
            error
        })
    }

    fn spool<'a>(&self, name: &'a str, hint: &'a str) -> Spool<'a> {
        // If the caller gave a format, the first bytes are not checked.
        let is_detected = self.from.is_none();
        let spool = Spool::new(
            name,
            move |begin| {
                let refusal = is_detected.then(|| sniff::hopeless(begin, hint)).flatten();
                refusal.map(|refusal| refusal.into_error(name))
            },
            self.limits.max_spool,
        );
        self.scratch.on(self.stop.on(spool))
    }
}

/// The bytes to read, and whether a gzip file was unpacked to get these bytes.
#[derive(Clone)]
pub(super) struct Unpacked {
    pub(super) input: Input,
    pub(super) is_gzip: bool,
    /// Why the gzip file ends before its content does.
    pub(super) cut: Option<Box<Fault>>,
}
