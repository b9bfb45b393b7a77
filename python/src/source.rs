//! The things that `open` takes besides a path: bytes, and file objects of any kind as sources of positioned reads.

mod blocks;

use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use blob_io::{Bytes, Checkpoint, FileSource, OpenOptions, Source};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

use crate::error::Stop;
use crate::mapping::duplicate;
use crate::work::opening;
use blocks::Blocks;

/// Something open, and the file behind it where there is one.
pub(crate) struct Opening {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) file: Option<std::fs::File>,
    pub(crate) kept: Weak<Kept>,
}

/// The file object of a source; `None` once Python has collected it, when nobody can ask for a value any more. The lock
/// is held for a copy of the reference alone.
pub(crate) struct Kept(pub(crate) Mutex<Option<Py<PyAny>>>);

/// Opens bytes, a buffer or a file object; `None` for a path.
pub(crate) fn open(object: &Bound<'_, PyAny>, options: &OpenOptions) -> Result<Option<Opening>, Stop> {
    let py = object.py();
    let from = |source: Box<dyn Source>, file: Option<std::fs::File>, kept: Weak<Kept>, name: String| {
        let checkpoint = opening(py, options.clone(), move |options| options.open_source(name, source))?;
        Ok(Some(Opening { checkpoint, file, kept }))
    };
    if object.is_instance_of::<PyString>() || object.hasattr("__fspath__")? {
        return Ok(None);
    }
    // A mapping of Python's `mmap` is a buffer, too, and is read as a file.
    if !object.hasattr("read")? {
        let Ok(bytes) = bytes_of(object) else {
            let kind = object.get_type().name()?;
            let text = format!("open takes a path, bytes or a file object in binary mode, not {kind}");
            return Err(PyTypeError::new_err(text).into());
        };
        let name = if object.is_instance_of::<PyBytes>() { "bytes" } else { "buffer" };
        return from(Box::new(Bytes(bytes)), None, Weak::new(), name.to_owned());
    }
    let described = py.import("blob_io._files")?.call_method1("described", (object,))?;
    let (name, plain, can_seek): (String, Option<Bound<'_, PyAny>>, bool) = described.extract()?;
    // Others have a descriptor, too: of bz2 the compressed file's.
    let file = plain.map(|plain| duplicate(&plain)).transpose()?.flatten();
    if let Some(file) = file.filter(|file| file.metadata().is_ok_and(|meta| meta.is_file())) {
        let source = FileSource::try_from(file.try_clone().map_err(PyErr::from)?).map_err(PyErr::from)?;
        return from(Box::new(source), Some(file), Weak::new(), name);
    }
    if can_seek {
        let (source, kept) = Seekable::new(object)?;
        return from(Box::new(source), None, kept, name);
    }
    stream(object, name, options.clone()).map(Some)
}

/// Opens what lies at a path and is read once, as a pipe: by Python, so that Ctrl-C ends the wait for the other end.
pub(crate) fn open_pipe(object: &Bound<'_, PyAny>, path: &Path, options: &OpenOptions) -> Result<Opening, Stop> {
    let pipe = object.py().import("io")?.call_method1("open", (object, "rb", 0))?;
    let opened = stream(&pipe, path.display().to_string(), options.clone().redirected_from(path));
    pipe.call_method0("close")?;
    opened
}

fn stream(object: &Bound<'_, PyAny>, name: String, options: OpenOptions) -> Result<Opening, Stop> {
    let stream = Stream(object.clone().unbind());
    let checkpoint = opening(object.py(), options, move |options| options.open_stream(name, stream))?;
    Ok(Opening { checkpoint, file: None, kept: Weak::new() })
}

/// The bytes of a buffer: copied, since Python may change these, but for `bytes` itself, which refers to nothing.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if object.is_exact_instance_of::<PyBytes>() {
        return object.extract().map_err(PyErr::from);
    }
    PyMemoryView::from(object)?.call_method0("tobytes")?.extract().map_err(PyErr::from)
}

/// Bytes that a call of `read` has returned, as `bytes` or, as obstore does, as a buffer.
fn read(object: &Bound<'_, PyAny>, bytes: usize) -> PyResult<PyBackedBytes> {
    bytes_of(&object.call_method1("read", (bytes,))?)
        .map_err(|_| PyTypeError::new_err("read() of the file object returned no bytes; open it in binary mode"))
}

/// A file object that can seek, read under a lock: the object has one place.
struct Seekable {
    object: Arc<Kept>,
    len: u64,
    /// The bytes that were read ahead. Nobody waits for the lock with the interpreter's lock held: every read is done
    /// without it.
    blocks: Mutex<Blocks>,
    /// The thread whose read the object is in. A read of the object's own, of the same file, would wait for itself.
    reading: Mutex<Option<ThreadId>>,
}

impl Seekable {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<(Self, Weak<Kept>)> {
        object.call_method1("seek", (0, 2))?;
        let len = object.call_method0("tell")?.extract()?;
        let object = Arc::new(Kept(Mutex::new(Some(object.clone().unbind()))));
        let kept = Arc::downgrade(&object);
        Ok((Self { object, len, blocks: Mutex::default(), reading: Mutex::default() }, kept))
    }

    /// Fills `out` from the object.
    fn fetch(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        *locked(&self.reading) = Some(thread::current().id());
        let fetched = self.read(offset, out);
        *locked(&self.reading) = None;
        fetched
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Python::attach(|py| {
            let object = locked(&self.object.0).as_ref().map(|object| object.clone_ref(py));
            let object = object.ok_or_else(|| io::Error::other("Python has collected the file object"))?;
            let object = object.bind(py);
            object.call_method1("seek", (offset,))?;
            let mut filled = 0;
            while filled < out.len() {
                let bytes = read(object, out.len() - filled)?;
                let n = bytes.len().min(out.len() - filled);
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                out[filled..filled + n].copy_from_slice(&bytes[..n]);
                filled += n;
            }
            Ok(())
        })
    }
}

impl Source for Seekable {
    fn len(&self) -> u64 {
        self.len
    }

    fn expect(&self, begins: &[u64]) {
        locked(&self.blocks).expected = begins.iter().copied().collect();
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if *locked(&self.reading) == Some(thread::current().id()) {
            return Err(io::Error::other("the file object's read() reads the file that it is read for"));
        }
        let mut blocks = locked(&self.blocks);
        if let Some(bytes) = blocks.found(offset, out.len()) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let Some((begin, window)) = blocks.window(offset, out.len(), self.len) else { return self.fetch(offset, out) };
        let mut bytes = vec![0; (self.len - begin).min(window as u64) as usize];
        self.fetch(begin, &mut bytes)?;
        out.copy_from_slice(&bytes[(offset - begin) as usize..][..out.len()]);
        blocks.keep(begin, bytes);
        Ok(())
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file object that cannot seek, read once from its place to the end.
struct Stream(Py<PyAny>);

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let bytes = read(self.0.bind(py), out.len())?;
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            Ok(n)
        })
    }
}
