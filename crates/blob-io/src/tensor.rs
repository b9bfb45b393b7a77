//! The trait that writers take: anything with a dtype, a shape and bytes.
//!
//! Implemented for blobs and for views of blobs; `checkpoint` adds the tensors of an open file. Knows no format.

use std::io::{BufRead, Cursor};

use blob_core::{AnyBlob, Blob, DType, Element, Ref, Shape, View};

use crate::error::Error;
use crate::payload;

/// A tensor that can be written to a file: implement the trait for a type of your own.
///
/// ```
/// use std::io::BufRead;
///
/// use blob_core::{DType, Shape};
/// use blob_io::{Error, Tensor};
///
/// struct Image {
///     rows: usize,
///     pixels: Vec<u8>,
/// }
///
/// impl Tensor for Image {
///     fn dtype(&self) -> DType {
///         DType::U8
///     }
///
///     fn shape(&self) -> Result<Shape, Error> {
///         Ok(Shape::new([self.rows, self.pixels.len() / self.rows])?)
///     }
///
///     fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
///         Ok(Box::new(&self.pixels[..]))
///     }
/// }
/// ```
pub trait Tensor {
    /// The element type.
    fn dtype(&self) -> DType;

    /// The shape, row-major, outermost axis first.
    ///
    /// # Errors
    /// Extents that do not form a valid shape.
    fn shape(&self) -> Result<Shape, Error>;

    /// The elements' bytes from the first on, row-major and little-endian, as many as dtype and shape say.
    ///
    /// A writer may ask for the bytes twice: for a checksum that stands before the bytes, and for the file.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error>;

    /// The type of the layer that the blob belongs to, by Caffe's name: a `.caffemodel` stores the type with the layer.
    fn layer_type(&self) -> Option<&str> {
        None
    }
}

/// The elements of a blob's data or diff, or of a window.
impl Tensor for View<'_> {
    fn dtype(&self) -> DType {
        Self::dtype(self)
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(Self::shape(self))
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        little_endian(*self)
    }
}

/// A view's bytes, borrowed if the machine has the files' byte order.
fn little_endian(view: View<'_>) -> Result<Box<dyn BufRead + '_>, Error> {
    let bytes = view.bytes()?;
    if !payload::BIG_ENDIAN {
        return Ok(Box::new(Cursor::new(Bytes(bytes))));
    }
    let mut bytes = bytes.to_vec();
    payload::swap(&mut bytes, view.dtype().size());
    Ok(Box::new(Cursor::new(bytes)))
}

struct Bytes<'a>(Ref<'a, [u8]>);

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A blob's data, without the diff.
impl Tensor for AnyBlob {
    fn dtype(&self) -> DType {
        Self::dtype(self)
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(Self::shape(self).clone())
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        little_endian(self.data())
    }
}

/// A blob's data, without the diff.
impl<T: Element> Tensor for Blob<T> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn shape(&self) -> Result<Shape, Error> {
        Tensor::shape(&**self)
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        (**self).reader()
    }
}
