//! `Writer` with tensors of every kind: blobs, views, tensors of a file, and tensors that give other bytes than
//! promised.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

use blob_core::{AnyBlob, Blob, DType, Shape};
use blob_io::{Checkpoint, Error, Format, IfExists, Reason, Writer};

use crate::support::archive::{npy, theirs};
use crate::support::open;
use crate::support::tensors::Tensor;

#[test]
fn blobs_views_and_tensors_of_a_file_are_written_alike() {
    let folder = tempfile::tempdir().unwrap();
    let values = [1.5f32, -2.0, 0.0, 4.0, 5.0, 6.0];
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let blob = Blob::from_slice(Shape::new([3, 2]).unwrap(), &values).unwrap();
    let any = AnyBlob::from_vec(Shape::new([3, 2]).unwrap(), DType::F32, bytes.clone()).unwrap();
    let deflated = theirs(zip::CompressionMethod::Deflated, &[("w.npy", &npy("'<f4'", "(3, 2)", &bytes))]);
    let file = open("x.npz", &deflated).unwrap();
    let stored = file.tensor(file.entry("w").unwrap()).unwrap();
    for format in [Format::Safetensors, Format::Npz] {
        let path = folder.path().join(format.name());
        let (rows, whole) = (any.data().range(2..6).unwrap(), any.data());
        let writer = Writer::new(format).tensor("blob", &blob).tensor("any", &any).tensor("stored", &stored);
        writer.tensor("view", &whole).tensor("range", &rows).write(&path, IfExists::Refuse).unwrap();
        let back = Checkpoint::open(&path).unwrap();
        for name in ["blob", "any", "stored", "view"] {
            let entry = back.entry(name).unwrap();
            assert_eq!((entry.dtype(), entry.shape().dims()), (Some(DType::F32), &[3, 2][..]), "{name}");
            assert_eq!(*back.view(entry).unwrap(), bytes, "{name}");
        }
        assert_eq!(*back.view(back.entry("range").unwrap()).unwrap(), bytes[8..]);
    }
}

/// A tensor of four bytes whose reader can give any bytes.
struct Odd<F>(F);

impl<R: Read + 'static, F: Fn() -> R> blob_io::Tensor for Odd<F> {
    fn dtype(&self) -> DType {
        DType::U8
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(Shape::new([4])?)
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        Ok(Box::new(BufReader::with_capacity(3, (self.0)())))
    }
}

#[test]
fn a_tensor_that_gives_other_bytes_than_its_shape_says_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Safetensors, Format::Npz, Format::Npy] {
        let path = folder.path().join(format.name());
        let refused = |tensor: &dyn blob_io::Tensor| {
            let refused = Writer::new(format).tensor("odd", tensor).write(&path, IfExists::Replace).unwrap_err();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{format}");
            (refused.reason(), refused.to_string())
        };
        let (reason, text) = refused(&Odd(|| &[1, 2, 3][..]));
        assert!(
            reason == Reason::Request && text.ends_with("\"odd\" gave 3 bytes; its dtype and shape say 4"),
            "{text}"
        );
        let (reason, text) = refused(&Odd(|| io::repeat(1)));
        assert!(reason == Reason::Request && text.ends_with("gave more bytes; its dtype and shape say 4"), "{text}");
        let (reason, text) = refused(&Odd(move || Failing(|| io::Error::new(io::ErrorKind::PermissionDenied, "mine"))));
        assert!(reason == Reason::Denied && text.contains("cannot read tensor \"odd\": mine"), "{text}");
        let (reason, _) = refused(&Odd(|| Failing(|| io::Error::other(Error::Interrupted))));
        assert_eq!(reason, Reason::Interrupted);
    }
}

#[test]
fn a_tensor_that_gives_other_bytes_the_second_time_leaves_no_npz() {
    let folder = tempfile::tempdir().unwrap();
    let times = Cell::new(0u8);
    let lies = Odd(|| {
        times.set(times.get() + 1);
        io::Cursor::new([times.get(); 4])
    });
    let honest = Tensor::new("honest", DType::U8, &[2], &[1, 2]);
    let write = |format| {
        let writer = Writer::new(format).tensor("honest", &honest).tensor("lies", &lies);
        writer.write(folder.path().join("x"), IfExists::Refuse)
    };
    let refused = write(Format::Npz).unwrap_err();
    assert_eq!((refused.reason(), times.get()), (Reason::Request, 2));
    assert!(refused.to_string().ends_with("tensor \"lies\" gave other bytes when it was read again"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // The other formats read the tensor once.
    write(Format::Safetensors).unwrap();
    assert_eq!(times.get(), 3);
}

struct Failing<F>(F);

impl<F: Fn() -> io::Error> Read for Failing<F> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err((self.0)())
    }
}
