//! Elements at strides: which bytes they lie in, whether row after row, and a copy of them row after row. Pure: places
//! are offsets from the lowest element.

/// The places of a tensor's elements.
pub(super) struct Strided {
    /// Extent and stride in bytes of each axis that has more than one step, from the outermost.
    axes: Vec<(usize, isize)>,
    /// How many bytes the first element lies behind the lowest.
    below: usize,
    /// The bytes from the lowest element to the end of the highest.
    len: usize,
    is_plain: bool,
}

impl Strided {
    /// Of extents and strides in elements; without strides row after row. None where the bytes are more than memory
    /// can be.
    pub(super) fn new(dims: &[usize], strides: Option<&[i64]>, size: usize) -> Option<Self> {
        let (mut axes, mut row, mut is_plain) = (Vec::new(), size, true);
        let (mut below, mut above) = (0_usize, 0_usize);
        if dims.contains(&0) {
            return Some(Self { axes, below, len: 0, is_plain });
        }
        for (axis, &extent) in dims.iter().enumerate().rev() {
            if extent == 1 {
                continue;
            }
            let plain = isize::try_from(row).ok()?;
            let stride = match strides {
                None => plain,
                Some(strides) => isize::try_from(strides[axis]).ok()?.checked_mul(size as isize)?,
            };
            is_plain &= stride == plain;
            row = row.checked_mul(extent)?;
            let reach = stride.unsigned_abs().checked_mul(extent - 1)?;
            let side = if stride < 0 { &mut below } else { &mut above };
            *side = side.checked_add(reach)?;
            axes.push((extent, stride));
        }
        axes.reverse();
        let len = below.checked_add(above)?.checked_add(size).filter(|len| isize::try_from(*len).is_ok())?;
        Some(Self { axes, below, len, is_plain })
    }

    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(super) fn below(&self) -> usize {
        self.below
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies the elements, of `size` bytes each, row after row: `read` is told the place of each, counted from the
    /// lowest, within [`len`](Self::len) bytes.
    pub(super) fn gather(&self, size: usize, out: &mut [u8], read: impl Fn(usize, &mut [u8])) {
        let mut index = vec![0; self.axes.len()];
        let mut at = self.below;
        for element in out.chunks_exact_mut(size) {
            read(at, element);
            for (place, &(extent, stride)) in index.iter_mut().zip(&self.axes).rev() {
                *place += 1;
                at = at.wrapping_add_signed(stride);
                if *place < extent {
                    break;
                }
                *place = 0;
                at = at.wrapping_add_signed(stride.wrapping_mul(extent as isize).wrapping_neg());
            }
        }
    }
}
