//! Outputs and unpacked streams that go to a place of the caller's.

use std::io;
use std::sync::{Arc, Mutex};

use crate::checkpoint::OpenOptions;
use crate::output::Output;
use crate::wire::sink::Sink;
use crate::wire::source::{Bytes, Source};

/// A place in memory that tells its calls.
#[derive(Default)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    fate: Mutex<Vec<&'static str>>,
    is_full: bool,
}

impl Sink for Arc<Memory> {
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut all = self.bytes.lock().unwrap();
        let end = offset as usize + bytes.len();
        let len = all.len().max(end);
        all.resize(len, 0);
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn source(&self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Bytes(self.bytes.lock().unwrap().clone())))
    }

    fn finish(&self) -> io::Result<()> {
        self.fate.lock().unwrap().push("finished");
        if self.is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn discard(&self) {
        self.fate.lock().unwrap().push("discarded");
    }
}

fn output(memory: &Arc<Memory>) -> Output {
    Output::to_sink("there", Box::new(Arc::clone(memory)))
}

#[test]
fn a_place_of_the_callers_gets_the_bytes_and_is_finished_once() {
    let memory = Arc::new(Memory::default());
    let mut to = output(&memory);
    assert!(to.is_positioned());
    to.set_len(4).unwrap();
    to.write_all_at(2, b"cd").unwrap();
    to.write_all(b"ab").unwrap();
    let complete = to.complete().unwrap();
    let mut back = [0; 4];
    complete.source().unwrap().unwrap().read_at(0, &mut back).unwrap();
    assert_eq!(&back, b"abcd");
    assert!(memory.fate.lock().unwrap().is_empty());
    complete.publish().unwrap();
    assert_eq!(*memory.fate.lock().unwrap(), ["finished"]);
}

#[test]
fn a_place_of_the_callers_is_discarded_where_the_output_is_given_up() {
    let memory = Arc::new(Memory::default());
    drop(output(&memory));
    let mut short = output(&memory);
    short.set_len(4).unwrap();
    short.write_all_at(4, b"e").unwrap();
    let said = short.complete().unwrap_err().to_string();
    assert!(said.contains("there") && said.contains("is 5 bytes long after writing, not 4"), "{said}");
    drop(output(&memory).complete().unwrap());
    assert_eq!(*memory.fate.lock().unwrap(), ["discarded"; 3]);
    let full = Arc::new(Memory { is_full: true, ..Memory::default() });
    let said = output(&full).finish().unwrap_err().to_string();
    assert!(said.contains("there") && said.contains("keep"), "{said}");
    assert_eq!(*full.fate.lock().unwrap(), ["finished", "discarded"]);
}

#[test]
fn a_long_stream_is_kept_at_a_place_of_the_callers() {
    let mut file = b"\x93NUMPY\x01\0\x76\0{'descr': '|u1', 'fortran_order': False, 'shape': (9437184,), }".to_vec();
    file.resize(127, b' ');
    file.push(b'\n');
    file.extend((0..9 << 20).map(|i| (i % 251) as u8));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, &file).unwrap();
    let memory = Arc::new(Memory::default());
    let scratch = Arc::clone(&memory);
    let options = OpenOptions::new().scratch(move || Ok(Box::new(Arc::clone(&scratch))));
    let opened = options.open_source("x.npy.gz", Box::new(Bytes(gzip.finish().unwrap()))).unwrap();
    assert_eq!(memory.bytes.lock().unwrap().len(), file.len());
    assert!(*opened.view(&opened.entries()[0]).unwrap() == file[128..]);
    assert!(memory.fate.lock().unwrap().is_empty());
    drop(opened);
    assert_eq!(*memory.fate.lock().unwrap(), ["discarded"]);
    let none = OpenOptions::new().scratch(|| Err(io::ErrorKind::StorageFull.into()));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, &file).unwrap();
    let said = none.open_source("x.npy.gz", Box::new(Bytes(gzip.finish().unwrap()))).unwrap_err().to_string();
    assert!(said.contains("x.npy.gz") && said.contains("unpack"), "{said}");
}
