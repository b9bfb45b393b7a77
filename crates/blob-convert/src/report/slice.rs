//! Parses NumPy's slices of a tensor: `0,:,::2`, `-1`, `...,0`.
//!
//! Pure: turns a text and a shape into a view, that is a start and one stride per axis. Reads no file.

/// A strided view of a row-major tensor. Offsets and strides are counted in elements, not in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The view's shape: an axis taken at one index is gone.
    pub dims: Vec<usize>,
    /// The stride of each axis.
    pub strides: Vec<i64>,
    /// The first element, if there is one.
    pub start: i64,
}

impl View {
    /// The whole tensor.
    pub fn whole(dims: &[usize]) -> Self {
        Self { dims: dims.to_vec(), strides: strides(dims), start: 0 }
    }

    /// Parses a slice of a tensor of shape `dims`.
    pub fn parse(text: &str, dims: &[usize]) -> Result<Self, String> {
        let items: Vec<Item> = match text.trim() {
            "" => Vec::new(),
            text => text.split(',').map(|part| Item::parse(part.trim())).collect::<Result<_, _>>()?,
        };
        let named = items.iter().filter(|i| **i != Item::Ellipsis).count();
        if items.len() - named > 1 {
            return Err("`...` can stand once".to_owned());
        }
        if named > dims.len() {
            return Err(format!("{named} indices for a tensor of {} axes", dims.len()));
        }
        // Axes that are not named are taken whole: those at the ellipsis, or else the last ones.
        let at = items.iter().position(|i| *i == Item::Ellipsis).unwrap_or(items.len());
        let mut full: Vec<&Item> = items[..at].iter().collect();
        full.extend(std::iter::repeat_n(&Item::ALL, dims.len() - named));
        full.extend(items.iter().skip(at + 1));
        let mut view = Self { dims: Vec::new(), strides: Vec::new(), start: 0 };
        for (axis, (item, stride)) in full.into_iter().zip(strides(dims)).enumerate() {
            view.push(axis, item, dims[axis], stride)?;
        }
        Ok(view)
    }

    fn push(&mut self, axis: usize, item: &Item, extent: usize, stride: i64) -> Result<(), String> {
        let n = extent as i64;
        match item {
            Item::At(index) => {
                let at = if *index < 0 { index.saturating_add(n) } else { *index };
                if !(0..n).contains(&at) {
                    return Err(format!("index {index} is out of axis {axis}, which has {extent}"));
                }
                self.start += at * stride;
            }
            Item::Range { from, to, step } => {
                let (first, count) = range(*from, *to, *step, n);
                self.dims.push(count as usize);
                if count > 0 {
                    self.start += first * stride;
                }
                // An axis of at most one index is never stepped along, and any step is allowed there.
                self.strides.push(if count > 1 { step * stride } else { stride });
            }
            Item::Ellipsis => {}
        }
        Ok(())
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The rows of the first `n` elements.
    pub fn head(&self, n: usize) -> impl Iterator<Item = TensorRow> + '_ {
        self.rows().scan(n, |remaining, mut row| {
            row.len = row.len.min(*remaining);
            *remaining -= row.len;
            (row.len > 0).then_some(row)
        })
    }

    /// The rows of the corners: `edge` indices from each end of every axis.
    pub fn corners(&self, edge: usize) -> Vec<TensorRow> {
        let mut starts = vec![self.start];
        let Some((last, outer)) = self.dims.split_last() else {
            return self.rows().collect();
        };
        for (extent, step) in outer.iter().zip(&self.strides) {
            let (head, tail) = head_and_tail(*extent, Some(edge));
            let indices: Vec<i64> = head.chain(tail).map(|i| i as i64).collect();
            starts = starts.iter().flat_map(|start| indices.iter().map(move |i| start + i * step)).collect();
        }
        let step = self.strides[outer.len()];
        let (head, tail) = head_and_tail(*last, Some(edge));
        let part = |range: &std::ops::Range<usize>, start: i64| TensorRow {
            start: start + range.start as i64 * step,
            step,
            len: range.len(),
        };
        let both = starts.iter().flat_map(|start| [part(&head, *start), part(&tail, *start)]);
        both.filter(|row| row.len > 0).collect()
    }

    /// The rows of the last axis, in row-major order. A view without axes is one row of one element.
    pub fn rows(&self) -> impl Iterator<Item = TensorRow> + '_ {
        let (outer, len, step) = match self.dims.split_last() {
            Some((last, outer)) => (outer, *last, self.strides[outer.len()]),
            None => (&[][..], 1, 1),
        };
        let rows: usize = outer.iter().product();
        (0..if len == 0 { 0 } else { rows }).map(move |mut row| {
            let mut start = self.start;
            for (extent, step) in outer.iter().zip(&self.strides).rev() {
                start += (row % extent) as i64 * step;
                row /= extent;
            }
            TensorRow { start, step, len }
        })
    }
}

/// The first and last `edge` indices of an axis. Without `edge`, or on a shorter axis, all of them and an empty range.
pub fn head_and_tail(extent: usize, edge: Option<usize>) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    match edge {
        Some(edge) if extent > 2 * edge => (0..edge, extent - edge..extent),
        _ => (0..extent, extent..extent),
    }
}

/// Elements at a constant stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRow {
    pub start: i64,
    pub step: i64,
    pub len: usize,
}

impl TensorRow {
    /// Splits the row into parts of at most `most` elements, each with whether no other follows. An empty row has no
    /// parts.
    pub fn parts(self, most: usize) -> impl Iterator<Item = (TensorRow, bool)> {
        (0..self.len).step_by(most.max(1)).map(move |done| {
            let len = most.max(1).min(self.len - done);
            let start = self.start + done as i64 * self.step;
            let step = self.step;
            (TensorRow { start, step, len }, done + len == self.len)
        })
    }
}

/// One item between commas.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    At(i64),
    Range { from: Option<i64>, to: Option<i64>, step: i64 },
    Ellipsis,
}

impl Item {
    const ALL: Self = Self::Range { from: None, to: None, step: 1 };

    fn parse(text: &str) -> Result<Self, String> {
        if text == "..." {
            return Ok(Self::Ellipsis);
        }
        let parts = text.split(':').map(|part| match part.trim() {
            "" => Ok(None),
            part => part.parse::<i64>().map(Some).map_err(|_| format!("{part:?} is no whole number")),
        });
        let parts: Vec<Option<i64>> = parts.collect::<Result<_, _>>()?;
        match parts[..] {
            [Some(index)] => Ok(Self::At(index)),
            [None] => Err("an index is missing between the commas; `:` takes a whole axis".to_owned()),
            [from, to] => Ok(Self::Range { from, to, step: 1 }),
            [_, _, Some(0)] => Err("the step must not be 0".to_owned()),
            [from, to, step] => Ok(Self::Range { from, to, step: step.unwrap_or(1) }),
            _ => Err(format!("{text:?} has more than two colons")),
        }
    }
}

/// The first index and the number of indices of a slice of an axis of length `n`, by Python's rules (`slice.indices`).
fn range(from: Option<i64>, to: Option<i64>, step: i64, n: i64) -> (i64, i64) {
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let clamp = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(b) if b < 0 => b.saturating_add(n).clamp(low, high),
        Some(b) => b.clamp(low, high),
    };
    let (first, end) = if step > 0 { (clamp(from, low), clamp(to, high)) } else { (clamp(from, high), clamp(to, low)) };
    let distance = if step > 0 { end - first } else { first - end };
    let count = if distance > 0 { (distance as u64).div_ceil(step.unsigned_abs()) as i64 } else { 0 };
    (first, count)
}

/// The strides of a contiguous tensor. 63 bits are enough, because the product of a shape's nonzero extents fits there.
fn strides(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis].max(1) as i64;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of a view and the elements.
    fn taken(text: &str, dims: &[usize]) -> Result<(Vec<usize>, Vec<i64>), String> {
        let view = View::parse(text, dims)?;
        let elements = view.rows().flat_map(|row| (0..row.len as i64).map(move |i| row.start + i * row.step)).collect();
        Ok((view.dims, elements))
    }

    #[test]
    fn slices_take_what_numpy_takes() {
        // Each was compared with numpy.arange(24).reshape(2, 3, 4)[…].
        let cases: &[(&str, &[usize], &[i64])] = &[
            ("0,0", &[4], &[0, 1, 2, 3]),
            ("1,-1,-1", &[], &[23]),
            ("0,:,0", &[3], &[0, 4, 8]),
            ("...,0", &[2, 3], &[0, 4, 8, 12, 16, 20]),
            ("1,...", &[3, 4], &[12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
            ("1, 2 ,::2", &[2], &[20, 22]),
            ("0,0,::-1", &[4], &[3, 2, 1, 0]),
            ("0,0,5:1:-2", &[1], &[3]),
            ("0,0,-3:-1", &[2], &[1, 2]),
            ("0,::2,1:3", &[2, 2], &[1, 2, 9, 10]),
            ("0,2:1", &[0, 4], &[]),
            (":,1:2,3", &[2, 1], &[7, 19]),
            ("0,0,100:", &[0], &[]),
            ("0,0,::-9223372036854775808", &[1], &[3]),
        ];
        for (text, dims, elements) in cases {
            let expected = Ok((dims.to_vec(), elements.to_vec()));
            assert_eq!(taken(text, &[2, 3, 4]), expected, "{text}");
        }
        for step in [i64::MIN, -(1 << 62), 1 << 62, i64::MAX] {
            let view = View::parse(&format!("::{step},0,::{step}"), &[2, 3, 4]).unwrap();
            assert_eq!(view.strides, [12, 1], "{step}");
        }
        assert_eq!(taken("", &[2]), Ok((vec![2], vec![0, 1])));
        assert_eq!(taken("...", &[]), Ok((vec![], vec![0])));
    }

    #[test]
    fn corners_are_the_elements_near_the_ends() {
        let view = View::whole(&[7, 2, 8]);
        let near = |i: i64, n: i64| i < 3 || i >= n - 3;
        let expected: Vec<i64> = (0..112).filter(|e| near(e / 16, 7) && near(e % 8, 8)).collect();
        let found: Vec<i64> = view
            .corners(3)
            .into_iter()
            .flat_map(|row| (0..row.len as i64).map(move |i| row.start + i * row.step))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(View::whole(&[]).corners(3).len(), 1);
        assert!(View::whole(&[9, 0]).corners(3).is_empty());
    }

    #[test]
    fn the_head_ends_within_a_row() {
        let view = View::whole(&[3, 4]);
        let lens = |n| view.head(n).map(|row| row.len).collect::<Vec<_>>();
        assert_eq!((lens(0), lens(6), lens(99)), (vec![], vec![4, 2], vec![4, 4, 4]));
    }

    #[test]
    fn malformed_and_out_of_range_slices_are_refused() {
        for text in ["2", "0,3", "-3", "0,0,0,0", "a", "1.5", "0,,0", "::0", "1:2:3:4", "...,..."] {
            assert!(taken(text, &[2, 3, 4]).is_err(), "{text}");
        }
        assert!(taken("0", &[]).is_err());
        assert!(taken("0", &[0, 3]).is_err());
    }

    #[test]
    fn ranges_agree_with_stepping() {
        for n in 0..5i64 {
            for step in [-3, -2, -1, 1, 2, 3] {
                let bounds = || (-7..7).map(Some).chain([None]);
                for (from, to) in bounds().flat_map(|f| bounds().map(move |t| (f, t))) {
                    let (first, count) = range(from, to, step, n);
                    let indices: Vec<i64> = (0..count).map(|i| first + i * step).collect();
                    assert_eq!(indices, stepped(from, to, step, n), "{from:?}:{to:?}:{step} of {n}");
                }
            }
        }
    }

    /// Python's rule, index by index from the start until the end is reached.
    fn stepped(from: Option<i64>, to: Option<i64>, step: i64, n: i64) -> Vec<i64> {
        let wrap = |b: i64| if b < 0 { b + n } else { b };
        let up = step > 0;
        let mut at = match from.map(wrap) {
            Some(b) if up => b.max(0),
            Some(b) => b.min(n - 1),
            None => {
                if up {
                    0
                } else {
                    n - 1
                }
            }
        };
        let mut indices = Vec::new();
        loop {
            let continues = match to.map(wrap) {
                Some(end) if up => at < end && at < n,
                Some(end) => at > end && at >= 0,
                None => (0..n).contains(&at),
            };
            if !continues {
                return indices;
            }
            indices.push(at);
            at += step;
        }
    }
}
