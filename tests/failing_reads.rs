//! A source whose reads fail now and then: no error of a read is lost, in whichever format, packed or not.

use std::io::{Error, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blob_io::{OpenOptions, Source};

use crate::hostile::{FAMILIES, goldens};
use crate::support::archive::tarred;
use crate::support::report;

/// Fails at one read, and never again.
struct FailsOnce {
    bytes: Arc<[u8]>,
    reads: Arc<AtomicUsize>,
    at: usize,
}

impl Source for FailsOnce {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == self.at {
            return Err(Error::new(ErrorKind::PermissionDenied, "once"));
        }
        let bytes = offset.try_into().ok().and_then(|at: usize| self.bytes.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Opens a source that fails at a read. Returns the number of reads, and the error.
fn opened(name: &str, bytes: &Arc<[u8]>, at: usize) -> (usize, Option<blob_io::Error>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let source = FailsOnce { bytes: bytes.clone(), reads: reads.clone(), at };
    let opened = OpenOptions::new().open_source(name, Box::new(source));
    (reads.load(Ordering::Relaxed), opened.err())
}

#[test]
fn no_error_of_a_read_is_lost_while_a_file_is_opened() {
    let (mut files, mut failed) = (0, 0);
    for family in 0..FAMILIES.len() {
        for golden in goldens(family, 64 << 10) {
            let (name, plain) = (&*golden.name, golden.bytes);
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(&plain).expect("memory");
            let packed = packer.finish().expect("memory");
            let archive = tarred([(name, &*plain)]);
            let kinds = [(name.to_owned(), plain), (format!("{name}.gz"), packed), ("a.tar".to_owned(), archive)];
            for (name, bytes) in kinds {
                let bytes = Arc::from(bytes);
                let (reads, refused) = opened(&name, &bytes, usize::MAX);
                for at in 0..reads.min(200) {
                    let (_, error) = opened(&name, &bytes, at);
                    let error = error.unwrap_or_else(|| panic!("{name}: read {at} of {reads} failed, and opened"));
                    let blob_io::Error::Io { source, .. } = &error else { panic!("{name}: read {at}: {error}") };
                    assert_eq!((source.kind(), &*source.to_string()), (ErrorKind::PermissionDenied, "once"), "{name}");
                    failed += 1;
                }
                files += usize::from(refused.is_none());
            }
        }
    }
    assert!(files > 100, "{files}");
    report(&format!("reads that fail once: {files} files opened, {failed} reads failed"));
}
