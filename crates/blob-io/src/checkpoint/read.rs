//! Values of an array as a plain vector of any element type.

use blob_core::Shape;

use super::Checkpoint;
use crate::error::{Error, check_limit};
use crate::limits::Limit;
use crate::number::{Number, convert};

impl Checkpoint {
    /// The shape and the values of the array of this name, row-major, each as the nearest `T`: see [`Number`].
    ///
    /// ```
    /// # let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
    /// # let checkpoint = blob_io::Checkpoint::from_bytes("two.binaryproto", &file[..])?;
    /// let (shape, values) = checkpoint.read::<f64>("@0")?;
    /// assert_eq!((shape.dims(), &values[..]), (&[2][..], &[1.0, 2.0][..]));
    /// # Ok::<(), blob_io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Request`] for a name that no array of the file has; as [`Checkpoint::load`]; values that take more
    /// bytes than the array and than [`Limits::max_alloc`](crate::Limits::max_alloc).
    pub fn read<T: Number>(&self, name: &str) -> Result<(Shape, Vec<T>), Error> {
        let refuse = |message: String| Error::Request { file: self.name.clone(), message };
        let entry = self.entry(name).ok_or_else(|| refuse(format!("has no array {name:?}")))?;
        entry.loadable(&self.name)?;
        let (mut values, count) = (Vec::new(), entry.shape().count());
        let needed = (count as u64).saturating_mul(size_of::<T>() as u64);
        let allowed = self.limits.max_alloc.max(entry.byte_len());
        check_limit(entry.offset().unwrap_or(0), Limit::Alloc, "its values", needed, allowed)
            .map_err(|fault| entry.error(&self.name, fault.into()))?;
        let bytes = self.view(entry)?;
        values.try_reserve_exact(count).map_err(|_| Error::Memory {
            file: self.name.clone(),
            message: format!("array {name:?} needs memory for {count} values"),
        })?;
        let converted = entry.dtype().and_then(|dtype| convert(dtype, &bytes, &mut values));
        converted.ok_or_else(|| refuse(format!("array {name:?} has no elements")))?;
        Ok((entry.shape().clone(), values))
    }
}
