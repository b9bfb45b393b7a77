//! `Shape`: the extents of a tensor, row-major, with a count that is known to fit.
//! It relies on nothing; it names no axes and knows no element type.

use std::fmt;

use crate::Error;

/// The most axes a shape may have (Caffe's `kMaxBlobAxes`).
pub const MAX_AXES: usize = 32;

/// The extents of 0 to [`MAX_AXES`] axes, the last one varying fastest.
///
/// The count is at most `isize::MAX`, and so is the product of the nonzero extents: no stride and no partial product
/// of a shape overflows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Box<[usize]>,
    count: usize,
}

impl Shape {
    /// A shape of these extents.
    ///
    /// # Errors
    /// [`Error::TooManyAxes`]; [`Error::ShapeTooLarge`] when the nonzero extents multiply to more than `isize::MAX`.
    pub fn new(dims: impl AsRef<[usize]>) -> Result<Self, Error> {
        let dims = dims.as_ref();
        if dims.len() > MAX_AXES {
            return Err(Error::TooManyAxes { got: dims.len() });
        }
        let mut product = 1usize;
        for (axis, &extent) in dims.iter().enumerate() {
            product = product
                .checked_mul(extent.max(1))
                .filter(|&product| product <= isize::MAX as usize)
                .ok_or_else(|| Error::ShapeTooLarge {
                    axis,
                    dims: dims.to_vec(),
                })?;
        }
        let count = if dims.contains(&0) { 0 } else { product };
        Ok(Self {
            dims: dims.into(),
            count,
        })
    }

    /// The shape without axes, of one element.
    pub fn scalar() -> Self {
        Self {
            dims: Box::default(),
            count: 1,
        }
    }

    /// The extents.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The number of axes.
    pub fn num_axes(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements: the product of the extents, 1 without axes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The shape as Caffe logs it (`Blob::shape_string`): `2 3 4 5 (120)`, `(1)` without axes.
    pub fn shape_string(&self) -> String {
        let mut text = String::new();
        for extent in &self.dims {
            text += &format!("{extent} ");
        }
        text + &format!("({})", self.count)
    }
}

impl fmt::Display for Shape {
    /// `2×3×4×5`, or `scalar` without axes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<_> = self.dims.iter().map(usize::to_string).collect();
        f.pad(&match extents.is_empty() {
            true => "scalar".into(),
            false => extents.join("×"),
        })
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const _: () = assert!(size_of::<Shape>() <= 3 * size_of::<usize>());

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn counts_and_extents() {
        for (dims, count) in [
            (&[][..], 1),
            (&[7], 7),
            (&[2, 3, 4, 5], 120),
            (&[3, 0, 2], 0),
            (&[0], 0),
            (&[1; 32], 1),
        ] {
            let shape = shape(dims);
            assert_eq!((shape.dims(), shape.count()), (dims, count));
            assert_eq!(shape.num_axes(), dims.len());
        }
        assert_eq!(Shape::scalar(), shape(&[]));
    }

    #[test]
    fn more_than_32_axes_are_an_error() {
        assert!(Shape::new([1; MAX_AXES]).is_ok());
        let error = Shape::new([1; MAX_AXES + 1]).unwrap_err();
        assert!(matches!(error, Error::TooManyAxes { got: 33 }));
    }

    /// Every triple of awkward extents, against arithmetic that cannot overflow.
    #[test]
    fn the_product_is_checked_also_past_a_zero() {
        let max = isize::MAX as usize;
        let extents = [0, 1, 2, 3, 1 << 16, 1 << 21, 1 << 31, max / 2, max, max + 1];
        for a in extents {
            for b in extents {
                for c in extents {
                    let dims = [a, b, c];
                    let mut product = 1u128;
                    let overflow = dims.iter().position(|&extent| {
                        product = product.saturating_mul(extent.max(1) as u128);
                        product > max as u128
                    });
                    match (Shape::new(dims), overflow) {
                        (Ok(shape), None) => {
                            assert_eq!(
                                shape.count() as u128,
                                dims.map(|d| d as u128).iter().product()
                            );
                        }
                        (Err(Error::ShapeTooLarge { axis, dims: named }), Some(expected)) => {
                            assert_eq!((axis, &named[..]), (expected, &dims[..]));
                        }
                        (result, overflow) => panic!("{dims:?}: {result:?}, {overflow:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn texts() {
        assert_eq!(shape(&[2, 3, 4, 5]).shape_string(), "2 3 4 5 (120)");
        assert_eq!(shape(&[]).shape_string(), "(1)");
        assert_eq!(shape(&[10, 0]).shape_string(), "10 0 (0)");
        assert_eq!(shape(&[2, 3, 4, 5]).to_string(), "2×3×4×5");
        assert_eq!(shape(&[9]).to_string(), "9");
        assert_eq!(shape(&[]).to_string(), "scalar");
        assert_eq!(format!("[{:>8}]", shape(&[2, 3])), "[     2×3]");
        assert_eq!(format!("{:?}", shape(&[2, 3])), "Shape(2×3)");
    }

    #[test]
    fn equality_is_of_extents_not_of_counts() {
        let shapes = [shape(&[6]), shape(&[2, 3]), shape(&[3, 2]), shape(&[6, 1])];
        assert_eq!(HashSet::from(shapes).len(), 4);
        assert_eq!(shape(&[2, 3]), shape(&[2, 3]).clone());
    }
}
