//! A tensor of the interpreter: extents and values in f64, which holds every index and every f32 exactly.

/// How the values of a tensor compute: `Div` of integers truncates, and `Cast` to bool is a comparison with zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Integer,
    Bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) dims: Vec<usize>,
    pub(crate) values: Vec<f64>,
    pub(crate) kind: Kind,
}

impl Tensor {
    pub(crate) fn new(dims: &[usize], values: Vec<f64>, kind: Kind) -> Self {
        assert_eq!(dims.iter().product::<usize>(), values.len(), "{dims:?}");
        Self { dims: dims.to_vec(), values, kind }
    }

    pub(crate) fn float(dims: &[usize], values: Vec<f64>) -> Self {
        Self::new(dims, values, Kind::Float)
    }

    pub(crate) fn integers(values: &[usize]) -> Self {
        Self::new(&[values.len()], values.iter().map(|value| *value as f64).collect(), Kind::Integer)
    }

    /// A float tensor whose value at each index is computed.
    pub(crate) fn of(dims: &[usize], mut value: impl FnMut(&[usize]) -> f64) -> Self {
        let values = indices(dims).map(|index| value(&index)).collect();
        Self::float(dims, values)
    }

    pub(crate) fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The same values in another shape.
    pub(crate) fn reshaped(&self, dims: &[usize]) -> Self {
        Self::new(dims, self.values.clone(), self.kind)
    }

    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        self.values[flat(index, &self.dims)]
    }

    /// The value that broadcasting puts at an index of a shape with at least as many axes.
    pub(crate) fn broadcast_at(&self, index: &[usize]) -> f64 {
        let own = &index[index.len() - self.dims.len()..];
        let own: Vec<usize> = own.iter().zip(&self.dims).map(|(i, dim)| if *dim == 1 { 0 } else { *i }).collect();
        self.at(&own)
    }

    pub(crate) fn map(&self, value: impl Fn(f64) -> f64) -> Self {
        Self::new(&self.dims, self.values.iter().map(|x| value(*x)).collect(), self.kind)
    }

    /// The values as signed integers, for shapes, axes and indices.
    pub(crate) fn whole(&self) -> Vec<i64> {
        assert_ne!(self.kind, Kind::Float, "integers are needed");
        self.values.iter().map(|value| *value as i64).collect()
    }

    /// An axis that may count from the end.
    pub(crate) fn axis(&self, axis: i64) -> usize {
        canonical(axis, self.dims.len())
    }
}

/// An axis that may count from the end, of a tensor of this many axes.
pub(crate) fn canonical(axis: i64, axes: usize) -> usize {
    let counted = if axis < 0 { axis + axes as i64 } else { axis };
    assert!((0..=axes as i64).contains(&counted), "axis {axis} of {axes}");
    counted as usize
}

/// The place of an index in row-major order.
pub(crate) fn flat(index: &[usize], dims: &[usize]) -> usize {
    assert_eq!(index.len(), dims.len(), "{index:?} in {dims:?}");
    index.iter().zip(dims).fold(0, |at, (i, dim)| {
        assert!(i < dim, "{index:?} in {dims:?}");
        at * dim + i
    })
}

/// Every index of a shape, in row-major order.
pub(crate) fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..dims.iter().product()).map(move |at| {
        let (mut index, mut rest): (Vec<usize>, usize) = (vec![0; dims.len()], at);
        for (place, dim) in index.iter_mut().zip(dims).rev() {
            *place = rest % dim;
            rest /= dim;
        }
        index
    })
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let axes = a.len().max(b.len());
    let dim = |dims: &[usize], axis: usize| if axis + dims.len() < axes { 1 } else { dims[axis + dims.len() - axes] };
    (0..axes)
        .map(|axis| match (dim(a, axis), dim(b, axis)) {
            (x, y) if x == y || y == 1 => x,
            (1, y) => y,
            _ => panic!("{a:?} and {b:?} do not broadcast"),
        })
        .collect()
}
