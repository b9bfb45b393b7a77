//! Files within a tar or zip archive: which files hold tensors, and the bytes of one.
//!
//! A stored member is a range of the archive, a deflated one is unpacked into a spool; opening either compares the
//! CRC-32 in the zip. Archives within an archive are not opened, and an npz is a format of its own.

use crate::entry::Checksum;
use crate::error::{Error, Fault, FaultKind, ReadError, Reason, check_limit};
use crate::format::Format;
use crate::limits::{Limit, Limits};
use crate::names::name_from_bytes;
use crate::npz::archive::Archive as Zip;
use crate::npz::{index, zip};
use crate::payload::member;
use crate::sniff;
use crate::wire::cursor::Cursor;
use crate::wire::gunzip;
use crate::wire::source::{Bytes, Input, Source, read};
use crate::wire::spool::Spool;
use crate::wire::tar::{self, MemberKind};
use crate::words::shown;

/// How many of the members that hold tensors an error can list.
const MAX_CHOICES: usize = 256;
/// How many bytes of one compressed member are unpacked to detect the format, and of all members together.
const BEGINNING: usize = 64 << 10;
const ALL_BEGINNINGS: usize = 64 << 20;

/// An archive and the limits on reading its members.
#[derive(Debug)]
pub(crate) struct Archive {
    input: Input,
    is_tar: bool,
    limits: Limits,
}

/// A file of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The path in the archive, without empty parts and `.`; never opened as a path of the file system.
    pub(crate) name: String,
    /// Whether the archive is cut off: a later member, even of this name, may be lost.
    pub(crate) is_cut: bool,
    place: Place,
}

/// Where a member's bytes lie.
#[derive(Clone, Debug)]
enum Place {
    /// In a tar.
    Stored { at: u64, len: u64 },
    /// In a zip, which has the CRC-32 of the bytes: stored or deflated.
    Zipped(Checksum),
    /// The bytes cannot be read.
    Broken(Fault),
    /// A link, which has no bytes.
    Link(Fault),
}

/// The members of an archive that may be opened. Of several members with one name the last counts, as when unpacking.
struct Choice {
    members: Vec<Member>,
    /// How many members there are beyond the listed ones.
    more: u64,
    /// How many bytes may still be unpacked to detect formats.
    left: usize,
    /// Whether the name of a member without tensors has an extension of `ARCHIVES`.
    has_archive: bool,
}

/// The extensions of archives and of compressed files.
const ARCHIVES: [&str; 9] = ["zip", "tar", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar"];

impl Archive {
    /// The input as an archive, if the input begins like one.
    pub(crate) fn of(input: &Input, limits: &Limits) -> Option<Self> {
        let head = head(input)?;
        let is_tar = tar::is_tar(&head);
        let is_archive = is_tar || is_zip(&head);
        is_archive.then(|| Self { input: input.clone(), is_tar, limits: limits.clone() })
    }

    /// Whether the input begins like an archive, and values cannot look so by chance.
    pub(crate) fn is_certain(input: &Input) -> bool {
        head(input).is_some_and(|head| tar::is_certain(&head) || is_zip(&head))
    }

    /// Whether the input begins like a zip.
    pub(crate) fn is_zip(input: &Input) -> bool {
        head(input).is_some_and(|head| is_zip(&head))
    }

    /// The one member that holds tensors.
    pub(crate) fn only(&self, name: &str) -> Result<Member, Error> {
        let mut choice = Choice { members: Vec::new(), more: 0, left: ALL_BEGINNINGS, has_archive: false };
        let each = self.each(&mut |member| choice.note(self, member));
        let has_end = each.map_err(|stop| stop.into_error(name))?;
        if let ([_], 0) = (&choice.members[..], choice.more) {
            return Ok(Member { is_cut: !has_end, ..choice.members.remove(0) });
        }
        Err(self.no_single_member(name, &choice))
    }

    /// The member of this name.
    pub(crate) fn member(&self, name: &str, wanted: &str) -> Result<Member, Error> {
        let found = self.find(wanted).map_err(|stop| stop.into_error(name))?;
        found.ok_or_else(|| {
            let message = format!("has no file {wanted:?} in it");
            Error::Request { file: name.to_owned(), message }
        })
    }

    /// The last member of this name, where there is one.
    pub(crate) fn find(&self, wanted: &str) -> Result<Option<Member>, ReadError> {
        let mut found = None;
        let has_end = self.each(&mut |member| {
            if member.name == wanted {
                found = Some(member);
            }
        })?;
        Ok(found.map(|member| Member { is_cut: !has_end, ..member }))
    }

    /// Opens a member's bytes: a range of the archive, or a spool.
    pub(crate) fn open(&self, name: &str, member: &Member, mut spool: Spool<'_>) -> Result<Input, Error> {
        let own = |stop: ReadError| stop.within(format!("member {:?}", shown(&member.name))).into_error(name);
        match &member.place {
            Place::Stored { at, len } => Ok(self.input.window(*at, *len)),
            Place::Broken(fault) | Place::Link(fault) => Err(own(fault.clone().into())),
            Place::Zipped(checksum) => {
                let is_deflated = checksum.packed.is_some();
                let mut content = member::Content::open(&self.input, checksum);
                let mut piece = Vec::new();
                // A stored member is read for the checksum alone: the member's format need not have one.
                loop {
                    match content.step(&mut piece).map_err(own)? {
                        0 => break,
                        n if is_deflated => spool.push(&piece[..n])?,
                        _ => {}
                    }
                }
                content.finish().map_err(own)?;
                if is_deflated {
                    Ok(Input::new(spool.finish()?))
                } else {
                    Ok(self.input.window(checksum.offset, checksum.size))
                }
            }
        }
    }

    /// Reads a member of at most `limit` bytes.
    pub(crate) fn bytes(&self, member: &Member, limit: u64) -> Result<Vec<u8>, ReadError> {
        let (at, len) = match &member.place {
            Place::Stored { at, len } => (*at, *len),
            Place::Zipped(checksum) => (checksum.offset, checksum.size),
            Place::Broken(fault) | Place::Link(fault) => return Err(fault.clone().into()),
        };
        check_limit(at, Limit::Fixed, "the file's length", len, limit)?;
        match &member.place {
            Place::Zipped(checksum) => member::bytes(&self.input, checksum),
            _ => {
                let mut bytes = vec![0; len as usize];
                read(&self.input, at, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// Calls `take` with each file in the order of the archive; returns whether the archive is complete.
    fn each(&self, take: &mut dyn FnMut(Member)) -> Result<bool, ReadError> {
        if !self.is_tar {
            return self.each_of_zip(take);
        }
        let mut cursor = Cursor::new(&self.input);
        let (mut members, mut count) = (tar::Members::new(&mut cursor), 0);
        while let Some(member) = members.next()? {
            count += 1;
            self.check_count(count, member.header)?;
            let place = match member.kind {
                MemberKind::File => Place::Stored { at: member.at, len: member.len },
                MemberKind::Other => continue,
                MemberKind::Link if self.is_link_to_itself(&member.name, member.header)? => continue,
                MemberKind::Link => Place::Link(self.link(member.header)?),
                MemberKind::Sparse => {
                    let what = FaultKind::unsupported("a file that is stored whole", "a sparse one, without its zeros");
                    Place::Broken(Fault::new(member.header, what))
                }
            };
            take(Member::new(&member.name, place));
        }
        Ok(members.has_end)
    }

    /// Whether a link points to an earlier file of the link's own name: tar writes such a link for a file that is given
    /// twice.
    fn is_link_to_itself(&self, name: &[u8], header: u64) -> Result<bool, ReadError> {
        let mut target = [0; 1 + tar::LINK.1];
        read(&self.input, header + tar::LINK.0 - 1, &mut target)?;
        let (is_hard, target) = (target[0] == b'1', &target[1..]);
        let end = target.iter().position(|byte| *byte == 0).unwrap_or(target.len());
        Ok(is_hard && target[..end] == *name)
    }

    /// The fault for the link with this header.
    fn link(&self, header: u64) -> Result<Fault, ReadError> {
        let mut target = [0; tar::LINK.1];
        read(&self.input, header + tar::LINK.0, &mut target)?;
        let to = match target.iter().position(|byte| *byte == 0) {
            Some(end) => format!(" to {:?}", name_from_bytes(&target[..end])),
            // A longer name comes in a record before the header.
            None => String::new(),
        };
        let found = format!("a link{to}: links in archives are not followed");
        Ok(Fault::new(header, FaultKind::unsupported("a file", found)))
    }

    fn each_of_zip(&self, take: &mut dyn FnMut(Member)) -> Result<bool, ReadError> {
        let mut cursor = Cursor::new(&self.input);
        let directory = zip::directory(&mut cursor)?;
        self.check_count(directory.count, directory.begin)?;
        let (slots, _) = index::read(&mut cursor, directory)?;
        let mut zip = Zip::new(&self.input, &mut cursor, directory, &self.limits);
        for slot in slots {
            let member = zip.member(slot)?;
            // A folder is a member too.
            if member.name.ends_with(b"/") {
                continue;
            }
            let place = match zip.content(&member) {
                Ok(content) => Place::Zipped(content.checksum(&member)),
                Err(ReadError::Fault(fault)) => Place::Broken(fault),
                Err(stop) => return Err(stop),
            };
            take(Member::new(&member.name, place));
        }
        Ok(true)
    }

    fn check_count(&self, count: u64, at: u64) -> Result<(), ReadError> {
        Ok(check_limit(at, Limit::Arrays, "the number of the archive's members", count, self.limits.max_arrays)?)
    }

    /// The error for an archive with no tensor file or with several.
    fn no_single_member(&self, name: &str, choice: &Choice) -> Error {
        if choice.members.is_empty() {
            let kind = if self.is_tar { "tar" } else { "zip" };
            return Error::NotTensors {
                file: name.to_owned(),
                reason: Reason::Archive,
                what: format!("a {kind} archive without a tensor file in it"),
                help: Some(if choice.has_archive {
                    "an archive within it has to be unpacked first"
                } else {
                    "look for the archive with the weights: none of its files is of a format that blob reads"
                }),
            };
        }
        let members = choice.members.iter().map(|member| member.name.clone()).collect();
        Error::Several { file: name.to_owned(), is_stream: false, members, more: choice.more }
    }
}

/// The first bytes of a file, in which an archive's marks lie.
fn head(input: &Input) -> Option<Vec<u8>> {
    let mut head = vec![0; input.len().min(512) as usize];
    input.read_at(0, &mut head).ok()?;
    Some(head)
}

fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04")
}

impl Member {
    fn new(name: &[u8], place: Place) -> Self {
        let name = name_from_bytes(name);
        let parts: Vec<&str> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        // A file's whole name may be `.`.
        let name = if parts.is_empty() { name.to_string() } else { parts.join("/") };
        Self { name, is_cut: false, place }
    }

    pub(crate) fn is_link(&self) -> bool {
        matches!(self.place, Place::Link(_))
    }

    /// Whether the member's name has the extension of a tensor file.
    fn has_known_extension(&self) -> bool {
        let name = std::path::Path::new(gunzip::inner_name(&self.name));
        Format::of_path(name).is_some()
    }
}

impl Choice {
    fn note(&mut self, archive: &Archive, member: Member) {
        let same = self.members.iter().position(|other| other.name == member.name);
        if let Some(same) = same {
            self.members.remove(same);
        }
        if !self.holds_tensors(archive, &member) {
            let extension = std::path::Path::new(&member.name).extension().and_then(|extension| extension.to_str());
            self.has_archive |= extension.is_some_and(|e| ARCHIVES.iter().any(|known| known.eq_ignore_ascii_case(e)));
            return;
        }
        if self.members.len() < MAX_CHOICES { self.members.push(member) } else { self.more += 1 }
    }

    /// Whether a member is a tensor file, by the first bytes, or by the name if these bytes cannot be read.
    fn holds_tensors(&mut self, archive: &Archive, member: &Member) -> bool {
        let name = gunzip::inner_name(&member.name);
        let window = match &member.place {
            Place::Stored { at, len } => Some(archive.input.window(*at, *len)),
            Place::Zipped(Checksum { offset, packed: None, size, .. }) => Some(archive.input.window(*offset, *size)),
            Place::Link(_) => return false,
            Place::Zipped(_) | Place::Broken(_) => None,
        };
        if let Some(plain) = window.as_ref().filter(|window| !gunzip::begins_as_gzip(*window)) {
            return sniff::format(plain, name).is_some();
        }
        let Some(left) = self.left.checked_sub(BEGINNING) else {
            return member.has_known_extension();
        };
        self.left = left;
        let mut begin = Vec::new();
        let begun = match (&member.place, &window) {
            (Place::Zipped(checksum), None) => {
                member::Content::open(&archive.input, checksum).extend(&mut begin, BEGINNING)
            }
            (_, Some(window)) => gunzip::beginning(window, BEGINNING, &mut begin),
            _ => return member.has_known_extension(),
        };
        if begun.is_err() {
            return member.has_known_extension();
        }
        if gunzip::is_gzip(&begin) {
            member.has_known_extension()
        } else if begin.len() < BEGINNING {
            sniff::format(&Bytes(begin), name).is_some()
        } else {
            sniff::hopeless(&begin, name).is_none()
        }
    }
}
