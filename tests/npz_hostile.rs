//! Archives with false sizes and offsets, and those beyond 16-bit and 32-bit counts.

use std::io::Read;

use blob_core::{DType, Shape};
use blob_io::layout::{Frame, Layout, TensorSpec};
use blob_io::{Checkpoint, Limits, OpenOptions, Source};
use zip::{CompressionMethod, ZipArchive};

use crate::support::archive::{Zip, npy, theirs};
use crate::support::{changed, compare_cases, find, open, unescaped};

/// A long file with bytes at some offsets, and zeros elsewhere.
struct Sparse {
    len: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Source for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for (at, bytes) in &self.parts {
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(())
    }
}

/// The same as a stream, for the zip crate.
struct Stream(Sparse, u64);

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = (buf.len() as u64).min(self.0.len - self.1) as usize;
        self.0.read_at(self.1, &mut buf[..n])?;
        self.1 += n as u64;
        Ok(n)
    }
}

impl std::io::Seek for Stream {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.1 = match to {
            std::io::SeekFrom::Start(n) => n,
            std::io::SeekFrom::End(n) => self.0.len.checked_add_signed(n).unwrap(),
            std::io::SeekFrom::Current(n) => self.1.checked_add_signed(n).unwrap(),
        };
        Ok(self.1)
    }
}

#[test]
fn members_and_places_over_4_gib_take_64_bits() {
    let spec = |name: &str, dims: &[usize]| TensorSpec::new(name, DType::F32, Shape::new(dims).unwrap());
    let specs = [
        spec("small", &[1]),
        spec("large", &[5 << 28]),
        // Both size and offset need 64 bits.
        spec("larger", &[6 << 28]),
        spec("far", &[3]),
    ];
    let metadata = [("blob.receipt".to_owned(), "{}".to_owned())];
    let layout = Layout::new(&specs, Frame::Npz { metadata: &metadata }).unwrap();
    assert!(layout.len() > 11 << 30);
    let source =
        || Sparse { len: layout.len(), parts: layout.frame(&metadata, &[0, 0, 0, crc32fast::hash(&[0; 12])]).unwrap() };
    let file = Checkpoint::from_source("x.npz", Box::new(source())).unwrap();
    let offsets: Vec<_> = file.entries().iter().map(|e| e.offset().unwrap()).collect();
    let planned: Vec<_> = layout.offsets().to_vec();
    assert_eq!(offsets, planned);
    assert_eq!(file.entries()[1].byte_len(), 5 << 30);
    assert_eq!(file.entries()[2].byte_len(), 6 << 30);
    assert_eq!(*file.load(&file.entries()[3]).unwrap().data().elements::<f32>().unwrap(), [0.0; 3]);
    assert_eq!(file.metadata(), metadata);
    let mut archive = ZipArchive::new(Stream(source(), 0)).unwrap();
    assert_eq!(archive.len(), 4);
    assert_eq!(archive.by_name("large.npy").unwrap().size(), (5 << 30) + 128);
    // The data of members are aligned; the npy header has 128 bytes.
    assert_eq!(archive.by_name("far.npy").unwrap().data_start(), Some(planned[3] - 128));
    for place in planned {
        assert_eq!(place % 64, 0);
    }
}

#[test]
fn more_members_than_16_bits_count() {
    let specs: Vec<TensorSpec> =
        (0..70_000).map(|i| TensorSpec::new(format!("t{i}"), DType::U8, Shape::new([0]).unwrap())).collect();
    let layout = Layout::new(&specs, Frame::Npz { metadata: &[] }).unwrap();
    let source = || Sparse {
        len: layout.len(),
        // As one part, because each read searches all parts.
        parts: vec![(0, layout.frame(&[], &vec![0; specs.len()]).unwrap().into_iter().flat_map(|(_, b)| b).collect())],
    };
    let file = Checkpoint::from_source("x.npz", Box::new(source())).unwrap();
    assert_eq!(file.entries().len(), 70_000);
    assert_eq!(file.entries()[69_999].name(), "t69999");
    assert_eq!(ZipArchive::new(Stream(source(), 0)).unwrap().len(), 70_000);
    let limits = Limits { max_arrays: 69_999, ..Limits::default() };
    let refused = OpenOptions::new().limits(limits).open_source("x", Box::new(source())).unwrap_err();
    assert!(refused.to_string().contains("the number of arrays: expected at most 69999, found 70000"), "{refused}");
}

fn small() -> Zip {
    Zip::default().add("a.npy", &npy("'<f4'", "(2,)", &[1; 8])).add("b.npy", &npy("'<f4'", "(3,)", &[2; 12]))
}

/// The offset of the nth record of the central directory.
fn record(bytes: &[u8], n: usize) -> usize {
    let mut found = bytes.windows(4).enumerate().filter(|(_, w)| *w == b"PK\x01\x02");
    found.nth(n).unwrap().0
}

#[test]
fn an_archive_that_does_not_hold_together_is_refused_or_a_member_of_it() {
    let fresh = small().end();
    let (first, second, end) = (record(&fresh, 0), record(&fresh, 1), fresh.len() - 22);
    let local = u32::from_le_bytes(fresh[second + 42..second + 46].try_into().unwrap()) as usize;
    compare_cases("cases/zip.txt", |line| {
        let (place, change) = line.split_once(' ').unwrap();
        let (record, offset) = place.split_once('+').unwrap_or((place, "0"));
        let places = [("first", first), ("second", second), ("local", local), ("end", end)];
        let (_, record) = places.into_iter().find(|(name, _)| *name == record).expect(line);
        let at = record + offset.parse::<usize>().unwrap();
        open("x.npz", &changed(&fresh, at, &unescaped(change))).map_or_else(
            |error| error.to_string(),
            |file| {
                let [a, b] = file.entries() else { panic!("{line}") };
                assert!(file.load(a).is_ok(), "{line}");
                assert_eq!((b.name(), b.dtype()), ("b", None), "{line}");
                format!("b: {}", b.fault().expect(line))
            },
        )
    });
    // An array shorter than the member gives a warning; a longer one is broken, but has a known shape.
    for (shape, warned) in [("(2,)", true), ("(4,)", false)] {
        let at = find(&fresh, b"(3,)");
        let file = open("x", &changed(&fresh, at, shape.as_bytes())).unwrap();
        assert_eq!(file.warnings().len(), usize::from(warned));
        let fault = file.entries()[1].fault().map(ToString::to_string);
        assert_eq!(fault.is_some(), !warned, "{fault:?}");
        assert!(fault.is_none_or(|f| f.contains("the array's data needs 16 bytes, but 12 are left")));
        assert_eq!(file.entries()[1].shape().dims(), if warned { [2] } else { [4] });
    }
}

#[test]
fn a_deflated_member_that_lies_is_a_fault() {
    let array = npy("'<f4'", "(20000,)", &[1; 80_000]);
    let good = theirs(CompressionMethod::Deflated, &[("a.npy", &array)]);
    let file = open("x", &good).unwrap();
    assert_eq!(file.view(&file.entries()[0]).unwrap().len(), 80_000);
    let limits = Limits { max_alloc: 79_999, ..Limits::default() };
    let source = Box::new(blob_io::Bytes(good.clone()));
    let limited = OpenOptions::new().limits(limits).open_source("x", source).unwrap();
    let error = limited.load(&limited.entries()[0]).unwrap_err();
    assert!(error.to_string().contains("expected at most 79999, found 80000"), "{error}");
    // The directory declares more bytes than the stream has.
    let longer = npy("'<f4'", "(20001,)", &[1; 80_000]);
    let bytes = theirs(CompressionMethod::Deflated, &[("a.npy", &longer)]);
    let size = (longer.len() as u32 + 4).to_le_bytes();
    let file = open("x", &changed(&bytes, record(&bytes, 0) + 24, &size)).unwrap();
    assert!(file.entries()[0].fault().is_none());
    let error = file.load(&file.entries()[0]).unwrap_err().to_string();
    assert!(error.contains(&format!("the member's length: expected {}", longer.len() + 4)), "{error}");
}

#[test]
fn what_is_cut_off_is_said_to_be_and_what_follows_is_a_warning() {
    let fresh = small().end();
    let end = fresh.len() - 22;
    for len in [4, 100, fresh.len() - 1] {
        let error = open("x.npz", &fresh[..len]).unwrap_err();
        assert!(error.to_string().ends_with("the zip's end record needs 22 bytes, but 0 are left"), "{error}");
        assert!(error.help().is_some_and(|help| help.contains("cut off")));
    }
    let file = open("x", &[&fresh[..], b"rest"].concat()).unwrap();
    assert_eq!(file.warnings()[0].to_string(), format!("at byte {}: 4 bytes follow the archive", fresh.len()));
    let mut comment = fresh.clone();
    comment[end + 20] = 4;
    comment.extend(b"PK\x05\x06");
    assert!(open("x", &comment).unwrap().warnings().is_empty());
}

/// The end record is looked for near the file's end first: a comment of any length, and other records in it or behind
/// it, change nothing.
#[test]
fn the_end_of_an_archive_is_found_behind_a_comment_of_any_length() {
    let fresh = Zip::default().add("a.npy", &npy("'<f4'", "(2,)", &[1; 8])).end();
    let end = fresh.len() - 22;
    let shapes =
        |bytes: &[u8]| open("x.npz", bytes).unwrap().entries().iter().map(|e| e.byte_len()).collect::<Vec<_>>();
    for len in [0, 1, 233, 234, 235, 256, 4096, 65_535] {
        let mut commented = fresh.clone();
        commented[end + 20..].copy_from_slice(&(len as u16).to_le_bytes());
        // Records that are none: their comments would end before the file does.
        commented.extend(fresh[end..].iter().cycle().take(len));
        assert_eq!(shapes(&commented), [8], "a comment of {len} bytes");
        let known = open("x.npz", &commented).unwrap();
        assert!(known.warnings().is_empty(), "a comment of {len} bytes");
        commented.push(0);
        if len < 65_535 {
            assert_eq!(shapes(&commented), [8], "a byte behind a comment of {len} bytes");
        }
    }
}
