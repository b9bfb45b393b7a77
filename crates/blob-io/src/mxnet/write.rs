//! The layout of an MXNet list or bare record.
//!
//! Byte for byte like the output of `mx.nd.save` (`NDArray::Save` of apache/mxnet, `src/ndarray/ndarray.cc`): the
//! records, each with a header and values, then the keys. Nothing is aligned, and there is no place for metadata.

use blob_core::Shape;

use crate::entry::SparseKind;
use crate::error::{Error, Remedy};
use crate::mxnet::flags;
use crate::mxnet::list::{Array, ArrayContent, List};
use crate::mxnet::read::LIST_MAGIC;
use crate::mxnet::record::Version;
use crate::parts::{self, FilePart, Placed};
use crate::spec::{Problems, TensorSpec, refuse, unique};

/// The names in errors of a list and of a bare record.
const FORMATS: [&str; 2] = ["params", "mxnet-record"];

/// Lays out a list; if `is_bare`, only the single record, without keys.
pub(crate) fn plan(specs: &[TensorSpec], list: &List, is_bare: bool) -> Result<Placed, Error> {
    let format = FORMATS[usize::from(is_bare)];
    let keys = list.keys.as_ref().filter(|_| !is_bare);
    if let (Some(keys), false) = (keys, list.has_found_keys) {
        let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        unique(format, "the array", keys.iter().map(|key| &**key))?;
    }
    let mut laid = ListParts { specs, head: Vec::new(), parts: Vec::new() };
    if is_bare && list.arrays.len() != 1 {
        let found = list.arrays.len();
        return Err(refuse(format, format!("a record without a list holds one array, not {found}")));
    }
    if !is_bare {
        for word in [LIST_MAGIC, 0, list.arrays.len() as u64] {
            laid.head.extend(word.to_le_bytes());
        }
    }
    let mut problems = Problems::default();
    for (index, array) in list.arrays.iter().enumerate() {
        let key = keys.map(|keys| &keys[index]);
        let is_cut = !list.has_found_keys && key.is_some_and(|key| key.contains(&0));
        let cut = is_cut.then(|| "has a NUL in its name, where MXNet cuts it".to_owned());
        for problem in cut.into_iter().chain(laid.array(array).err()) {
            let name = key.map_or_else(|| format!("@{index}"), |key| String::from_utf8_lossy(key).into_owned());
            let remedy = match &array.stored {
                ArrayContent::Dense(tensor) if array.version < Version::V3 => {
                    let has_axes = specs.get(*tensor).is_none_or(|spec| spec.shape.num_axes() > 0);
                    (!has_axes).then_some(Remedy::Version3)
                }
                ArrayContent::Sparse { .. } if array.version != Version::V2 => Some(Remedy::Version2),
                _ => None,
            };
            problems.add_with(&name, problem, remedy);
        }
    }
    problems.refused(format)?;
    if !is_bare {
        let keys = keys.map_or(&[][..], Vec::as_slice);
        laid.head.extend((keys.len() as u64).to_le_bytes());
        for key in keys {
            laid.head.extend((key.len() as u64).to_le_bytes());
            laid.head.extend(key);
        }
    }
    laid.parts.push(FilePart::Bytes(laid.head));
    parts::place(format, &laid.parts, specs, u64::MAX)
}

/// Whether the parts of a sparse array have the shapes that a reader will compute.
fn check_parts(
    kind: SparseKind,
    dense: &[usize],
    values: &[usize],
    index_arrays: &[&TensorSpec],
) -> Result<(), String> {
    let lengths: Vec<usize> = index_arrays.iter().map(|spec| spec.shape.count()).collect();
    let (wanted, count) = match (kind, dense, &lengths[..]) {
        (SparseKind::RowSparse, [_, inner @ ..], &[count]) => ([&[count], inner].concat(), [count].to_vec()),
        (SparseKind::Csr, &[rows, _], &[_, count]) => (vec![count], vec![rows + 1, count]),
        _ => return Err(format!("is a {} array, and none has the shape {dense:?}", kind.name())),
    };
    if index_arrays.iter().any(|spec| spec.shape.num_axes() != 1) || lengths != count || values != wanted {
        return Err(format!(
            "has parts that do not fit a {} array of {dense:?} with index arrays of {lengths:?}: values of {values:?}",
            kind.name()
        ));
    }
    Ok(())
}

/// The parts of a list laid out so far.
struct ListParts<'a> {
    specs: &'a [TensorSpec],
    /// The bytes since the last values.
    head: Vec<u8>,
    parts: Vec<FilePart>,
}

impl<'a> ListParts<'a> {
    fn array(&mut self, array: &Array) -> Result<(), String> {
        match &array.stored {
            ArrayContent::None(dims) => {
                if !array.is_found && array.version > Version::V1 {
                    return Err("is a missing array; MXNet's V2 and V3 cannot store one, V0 and V1 can".to_owned());
                }
                self.begin(array.version, None);
                // V0 and V1 mark a missing array by a shape without axes.
                self.dims(array.version, if array.is_found { dims } else { &[] })
            }
            ArrayContent::Dense(tensor) => {
                let spec = self.spec(*tensor)?;
                let shape = &spec.shape;
                if !array.is_found && array.version < Version::V3 && shape.num_axes() == 0 {
                    return Err("has no axes, which only a record of V3 (np-shape) holds".to_owned());
                }
                self.begin(array.version, None);
                self.shape(array.version, shape)?;
                self.context(array);
                self.flag(spec)?;
                self.values(*tensor);
                Ok(())
            }
            ArrayContent::Sparse { kind, shape, stale, parts } => {
                self.sparse(array, *kind, shape, stale.as_deref(), parts)
            }
        }
    }

    fn sparse(
        &mut self,
        array: &Array,
        kind: SparseKind,
        shape: &Shape,
        stale: Option<&[i64]>,
        parts: &[usize],
    ) -> Result<(), String> {
        if array.version != Version::V2 {
            return Err("is sparse, which only a record of V2 holds".to_owned());
        }
        let (&[values, ref index_arrays @ ..], true) = (parts, parts.len() == kind.parts().len()) else {
            let (wanted, found) = (kind.parts().len(), parts.len());
            return Err(format!("is a {} array, which has {wanted} parts, not {found}", kind.name()));
        };
        let stored = self.spec(values)?;
        let index_arrays = index_arrays.iter().map(|&index| self.spec(index)).collect::<Result<Vec<_>, _>>()?;
        if !array.is_found {
            check_parts(kind, shape.dims(), stored.shape.dims(), &index_arrays)?;
        }
        self.begin(array.version, Some(kind));
        match stale {
            Some(dims) => self.dims(array.version, dims)?,
            None => self.shape(array.version, &stored.shape)?,
        }
        self.shape(array.version, shape)?;
        self.context(array);
        self.flag(stored)?;
        for spec in index_arrays {
            self.flag(spec)?;
            self.shape(array.version, &spec.shape)?;
        }
        parts.iter().for_each(|&part| self.values(part));
        Ok(())
    }

    /// The words before the shape. V0 has none: a V0 record begins with the number of axes.
    fn begin(&mut self, version: Version, sparse: Option<SparseKind>) {
        if let Some(magic) = version.magic() {
            self.head.extend(magic.to_le_bytes());
        }
        if version >= Version::V2 {
            let storage = match sparse {
                None => 0i32,
                Some(SparseKind::RowSparse) => 1,
                Some(SparseKind::Csr) => 2,
            };
            self.head.extend(storage.to_le_bytes());
        }
    }

    fn shape(&mut self, version: Version, shape: &Shape) -> Result<(), String> {
        // No extent is above `isize::MAX`.
        let dims: Vec<i64> = shape.dims().iter().map(|&extent| extent as i64).collect();
        self.dims(version, &dims)
    }

    /// The number of axes and the extents: of 32 bits in V0, of 64 in the others.
    fn dims(&mut self, version: Version, dims: &[i64]) -> Result<(), String> {
        self.head.extend((dims.len() as u32).to_le_bytes());
        for &extent in dims {
            match (version, u32::try_from(extent)) {
                (Version::V0, Ok(extent)) => self.head.extend(extent.to_le_bytes()),
                (Version::V0, Err(_)) => {
                    return Err(format!("has an extent of {extent}, and a record of V0 holds 32 bits"));
                }
                _ => self.head.extend(extent.to_le_bytes()),
            }
        }
        Ok(())
    }

    fn context(&mut self, array: &Array) {
        self.head.extend(array.context.dev_type.to_le_bytes());
        self.head.extend(array.context.dev_id.to_le_bytes());
    }

    fn flag(&mut self, spec: &TensorSpec) -> Result<(), String> {
        let flag = flags::flag(spec.dtype).ok_or_else(|| format!("is {}, which MXNet does not have", spec.dtype))?;
        self.head.extend(flag.to_le_bytes());
        Ok(())
    }

    /// Leaves room for a tensor's bytes.
    fn values(&mut self, tensor: usize) {
        self.parts.push(FilePart::Bytes(std::mem::take(&mut self.head)));
        self.parts.push(FilePart::Values(tensor));
    }

    fn spec(&self, tensor: usize) -> Result<&'a TensorSpec, String> {
        self.specs.get(tensor).ok_or_else(|| format!("is tensor {tensor}, which does not exist"))
    }
}
