//! The browser's side: files, which are read at an offset, and places for bytes, which are written at one. The worker
//! keeps both under numbers; a number is all that this side knows of them.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use blob_convert::Watch;
use blob_io::{Sink, Source};
use wasm_bindgen::prelude::wasm_bindgen;

/// Progress is told each time that as many bytes are done.
const TOLD: u64 = 4 << 20;

// Each answer is `undefined`, or why the call failed.
#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = host)]
    fn read(number: u32, offset: f64, buf: &mut [u8]) -> Option<String>;
    #[wasm_bindgen(js_namespace = host)]
    fn write(number: u32, offset: f64, bytes: &[u8]) -> Option<String>;
    #[wasm_bindgen(js_namespace = host, js_name = setLen)]
    fn set_len(number: u32, len: f64) -> Option<String>;
    #[wasm_bindgen(js_namespace = host)]
    fn len(number: u32) -> f64;
    #[wasm_bindgen(js_namespace = host)]
    fn flush(number: u32) -> Option<String>;
    #[wasm_bindgen(js_namespace = host)]
    fn discard(number: u32);
    /// A new place; a negative number where there is none.
    #[wasm_bindgen(js_namespace = host)]
    fn place() -> i32;
    #[wasm_bindgen(js_namespace = host)]
    fn advanced(bytes: f64);
    #[wasm_bindgen(js_namespace = host)]
    pub(crate) fn panicked(message: &str);
}

/// An answer of the browser as a result.
fn answered(answer: Option<String>) -> io::Result<()> {
    answer.map_or(Ok(()), |why| Err(io::Error::other(why)))
}

/// A file of the user's, or the bytes of a place.
pub(crate) struct Stored {
    number: u32,
    len: u64,
}

impl Stored {
    pub(crate) fn new(number: u32, len: f64) -> Self {
        Self { number, len: len as u64 }
    }
}

impl Source for Stored {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= self.len => answered(read(self.number, offset as f64, buf)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A place for the bytes of an output, or of a file that is unpacked.
pub(crate) struct Place(u32);

impl Place {
    /// The place of this number, which the worker has made.
    pub(crate) fn numbered(number: u32) -> Box<dyn Sink> {
        Box::new(Self(number))
    }

    /// A new place.
    pub(crate) fn make() -> io::Result<Box<dyn Sink>> {
        u32::try_from(place()).map(Self::numbered).map_err(|_| io::Error::other("this browser has no room for it"))
    }
}

impl Sink for Place {
    fn set_len(&self, len: u64) -> io::Result<()> {
        answered(set_len(self.0, len as f64))
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        answered(write(self.0, offset as f64, bytes))
    }

    fn source(&self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Stored::new(self.0, len(self.0))))
    }

    fn finish(&self) -> io::Result<()> {
        answered(flush(self.0))
    }

    fn discard(&self) {
        discard(self.0);
    }
}

/// Tells how far a work has come. The page ends a work by ending its worker.
#[derive(Default)]
pub(crate) struct Told(AtomicU64);

impl Watch for Told {
    fn advanced(&self, bytes: u64) {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        if before / TOLD != (before + bytes) / TOLD {
            advanced((before + bytes) as f64);
        }
    }

    fn cancelled(&self) -> bool {
        false
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("number", &self.number).field("len", &self.len).finish()
    }
}
