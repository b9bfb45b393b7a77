//! Which arrays of a file count as parameters: the same ones in every format, because a conversion keeps names.
//!
//! Caffe's diffs and the indices of sparse arrays have separate kinds where the format stores such arrays; elsewhere
//! the name tells, if the array of the diff or the indices is there too.

use crate::checkpoint::Checkpoint;
use crate::entry::{Entry, Kind};
use crate::tensor_name::TensorName;

impl Checkpoint {
    /// How many parameters the file holds: the elements of all arrays, without diffs and without the indices of sparse
    /// arrays.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let counted = self.entries().iter().filter(|entry| self.is_parameter(entry));
        counted.map(|entry| entry.shape().count() as u64).fold(0, u64::saturating_add)
    }

    /// Whether an array's elements are parameters: the array has bytes, and is neither a diff nor the indices of a
    /// sparse array.
    #[must_use]
    pub fn is_parameter(&self, entry: &Entry) -> bool {
        entry.byte_len() > 0 && matches!(self.kind_of(entry), Kind::Data | Kind::Values)
    }

    /// What an array is, as its file says. In a file that stores names alone, `w.diff` beside an array `w` of the same
    /// shape is a diff, `w#indices` and `w#indptr` beside `w#values` are indices, and `w#values` beside `w#indices`
    /// values of a sparse array.
    #[must_use]
    pub fn kind_of(&self, entry: &Entry) -> Kind {
        if entry.kind() != Kind::Data {
            return entry.kind();
        }
        let name = TensorName::of(entry.name());
        let other = match name.kind {
            Kind::Diff => self.entry(name.array).filter(|data| data.shape() == entry.shape()),
            Kind::Indices | Kind::Indptr => self.entry(&name.with(Kind::Values).to_string()),
            Kind::Values => self.entry(&name.with(Kind::Indices).to_string()),
            _ => None,
        };
        let is_told = other.is_some_and(|other| !matches!(other.kind(), Kind::Diff | Kind::None));
        if is_told { name.kind } else { Kind::Data }
    }
}

#[cfg(test)]
mod tests {
    use blob_core::{DType, Shape};

    use crate::layout::{Frame, Layout, TensorSpec};
    use crate::{Bytes, Checkpoint};

    /// A safetensors file of zeros.
    fn file(tensors: &[(&str, DType, &[usize])]) -> Checkpoint {
        let spec = |(name, dtype, dims): &(&str, DType, &[usize])| {
            TensorSpec::new(*name, *dtype, Shape::new(*dims).expect("a shape"))
        };
        let specs: Vec<TensorSpec> = tensors.iter().map(spec).collect();
        let layout = Layout::new(&specs, Frame::Safetensors { metadata: &[] }).expect("fits");
        let mut bytes = vec![0; layout.len() as usize];
        for (at, part) in layout.frame(&[], &[]).expect("a frame") {
            bytes[at as usize..][..part.len()].copy_from_slice(&part);
        }
        Checkpoint::from_source("x.safetensors", Box::new(Bytes(bytes))).expect("opens")
    }

    #[test]
    fn diffs_and_indices_are_no_parameters_in_any_format() {
        let f = DType::F32;
        for (tensors, parameters, kinds) in [
            (&[("w", f, &[2, 3][..]), ("w.diff", f, &[2, 3])][..], 6, "data diff"),
            (&[("w", f, &[2, 3]), ("w.diff", f, &[3])], 9, "data data"),
            (&[("w.diff", f, &[2, 3])], 6, "data"),
            (&[("w#values", f, &[2, 3]), ("w#indices", DType::I64, &[2])], 6, "values indices"),
            (
                &[("w#values", f, &[2]), ("w#indptr", DType::I64, &[2]), ("w#indices", DType::I64, &[2])],
                2,
                "values indptr indices",
            ),
            (&[("w#indices", DType::I64, &[2])], 2, "data"),
            (&[("w#values", f, &[2])], 2, "data"),
            (&[("w", f, &[0, 3])], 0, "data"),
        ] {
            let file = file(tensors);
            // The file has them in an order of its own.
            let entries = tensors.iter().map(|(name, ..)| file.entry(name).expect("there"));
            let found: Vec<&str> = entries.map(|entry| file.kind_of(entry).name()).collect();
            assert_eq!((file.parameters(), found.join(" ")), (parameters, kinds.to_owned()), "{tensors:?}");
        }
    }
}
