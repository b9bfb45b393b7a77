//! The cases: names, shapes, operations and inputs. Pure; the names are those that our own benches and `ops.py` print.

use crate::naive;

/// The two shapes of seven axes, at 256 MiB of f32: a broad one and one whose last axis is short.
const A: [usize; 7] = [8, 8, 8, 16, 16, 8, 64];
const B: [usize; 7] = [4, 16, 4, 64, 64, 16, 4];

/// Swapped in either shape: neighbours at the end and at the front, and axes far apart.
const PAIRS: [(usize, usize); 10] = [
    (5, 6),
    (4, 6),
    (3, 6),
    (0, 6),
    (1, 6),
    (3, 4),
    (0, 1),
    (2, 3),
    (0, 5),
    (1, 4),
];

/// Sides of the small shapes, for the check: multiples of every number of parts, and no two neighbours alike.
const SMALL: [usize; 7] = [4, 8, 4, 8, 4, 8, 4];

/// What is done to a tensor `x`. Element-wise operations write into `y`, which begins as a copy of `x`.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Parts of `x` along an axis, put together again.
    Merge {
        /// Counted from the front.
        axis: usize,
        /// Equal parts.
        parts: usize,
    },
    /// The reverse: `x` into equal tensors along an axis.
    Split {
        /// Counted from the front.
        axis: usize,
        /// Equal parts.
        parts: usize,
    },
    /// Axis `i` of the result is axis `order[i]` of `x`.
    Permute(Vec<usize>),
    /// y += x
    Add,
    /// y *= [`SCALE`]
    Scale,
    /// Σ|x|
    Asum,
    /// Σx²
    Sumsq,
    /// y = 1
    Fill,
}

/// Near 1, so that many rounds neither overflow nor vanish.
pub(crate) const SCALE: f32 = 1.0001;

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What all tables call it; the shape in it is that at 256 MiB.
    pub(crate) name: String,
    /// The shape of `x`, row-major.
    pub(crate) shape: Vec<usize>,
    /// What is measured.
    pub(crate) op: Op,
}

impl Case {
    fn new(name: String, shape: &[usize], op: Op) -> Case {
        let shape = shape.to_vec();
        Case { name, shape, op }
    }

    /// The same operation on a shape small enough for index loops.
    pub(crate) fn small(&self) -> Case {
        let sides = self.shape.iter().zip(SMALL);
        let shape = sides.map(|(&side, small)| side.min(small)).collect();
        Case {
            shape,
            ..self.clone()
        }
    }
}

/// All cases, for a payload of so many MiB.
pub(crate) fn all(mib: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (letter, shape) in [("A", scaled(&A, mib)), ("B", scaled(&B, mib))] {
        cases.extend((0..7).flat_map(|axis| merge_and_split(letter, &shape, axis)));
        cases.extend(PAIRS.map(|pair| {
            let name = format!("transpose {letter} {pair:?}");
            Case::new(name, &shape, swap(shape.len(), pair))
        }));
    }
    cases.extend(matrices(mib));
    cases.extend(images(mib));
    let elementwise = [
        ("add", Op::Add),
        ("scale", Op::Scale),
        ("asum", Op::Asum),
        ("sumsq", Op::Sumsq),
        ("fill", Op::Fill),
    ];
    cases.extend(elementwise.map(|(name, op)| Case::new(name.to_string(), &scaled(&A, mib), op)));
    cases
}

/// Four parts where the axis allows it, else two, else no case: a small payload leaves a short first axis.
fn merge_and_split(letter: &str, shape: &[usize], axis: usize) -> Vec<Case> {
    let parts = if shape[axis].is_multiple_of(4) { 4 } else { 2 };
    if !shape[axis].is_multiple_of(parts) {
        return Vec::new();
    }
    let ops = [
        ("merge", Op::Merge { axis, parts }),
        ("split", Op::Split { axis, parts }),
    ];
    let case = |(verb, op)| Case::new(format!("{verb} {letter} d={axis} parts={parts}"), shape, op);
    ops.map(case).into()
}

fn matrices(mib: usize) -> [Case; 2] {
    let count = (4 * mib / 256).max(1);
    [4096, 4000].map(|side| {
        let name = format!("transpose {side}x{side}");
        Case::new(name, &[count, side, side], swap(3, (1, 2)))
    })
}

fn images(mib: usize) -> [Case; 3] {
    let permute = |name: &str, shape: &[usize], order: [usize; 4]| {
        Case::new(
            format!("permute {name}"),
            shape,
            Op::Permute(order.to_vec()),
        )
    };
    [
        permute(
            "nchw-nhwc [64,3,224,224]",
            &scaled(&[64, 3, 224, 224], mib),
            [0, 2, 3, 1],
        ),
        permute(
            "nhwc-nchw [64,224,224,3]",
            &scaled(&[64, 224, 224, 3], mib),
            [0, 3, 1, 2],
        ),
        permute("oihw-hwio [512,512,3,3]", &[512, 512, 3, 3], [2, 3, 1, 0]),
    ]
}

/// The shape with its first axis cut to the payload.
fn scaled(shape: &[usize], mib: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape[0] = (shape[0] * mib / 256).max(1);
    shape
}

fn swap(ndim: usize, (a, b): (usize, usize)) -> Op {
    let mut order: Vec<usize> = (0..ndim).collect();
    order.swap(a, b);
    Op::Permute(order)
}

/// What every peer is given.
pub(crate) struct Input {
    /// `x`, row-major.
    pub(crate) values: Vec<f32>,
    /// Its parts, where the case merges them.
    pub(crate) parts: Vec<Vec<f32>>,
}

impl Input {
    /// Whole numbers around zero: no two alike in a small shape, so that a misplaced one is seen.
    pub(crate) fn new(case: &Case) -> Input {
        const PERIOD: usize = 1 << 20;
        let count: usize = case.shape.iter().product();
        let value = |index: usize| (index % PERIOD) as f32 - (count.min(PERIOD) / 2) as f32;
        let values: Vec<f32> = (0..count).map(value).collect();
        let parts = match case.op {
            Op::Merge { axis, parts } => naive::split(&values, &case.shape, axis, parts),
            _ => Vec::new(),
        };
        Input { values, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_what_was_asked_for() {
        let exact = |case: &Case| !case.name.contains('[') && !case.name.contains("4000");
        for mib in [64, 128, 256] {
            for case in all(mib).into_iter().filter(exact) {
                let bytes = 4 * case.shape.iter().product::<usize>();
                assert_eq!(bytes, mib << 20, "{} at {mib}", case.name);
            }
        }
    }

    #[test]
    fn the_names_are_those_of_the_tables() {
        let names: Vec<String> = all(256).into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 2 * (7 * 2 + 10) + 2 + 3 + 5);
        for name in [
            "merge A d=0 parts=4",
            "split B d=6 parts=4",
            "transpose A (5, 6)",
            "transpose 4096x4096",
            "permute oihw-hwio [512,512,3,3]",
            "fill",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn a_first_axis_of_one_is_not_split() {
        let names: Vec<String> = all(8).into_iter().map(|case| case.name).collect();
        assert!(
            !names.iter().any(|name| name.contains("A d=0")),
            "{names:?}"
        );
        assert!(
            all(64)
                .iter()
                .any(|case| case.name == "merge A d=0 parts=2")
        );
    }

    #[test]
    fn a_small_case_can_still_be_split() {
        for case in all(256) {
            if let Op::Merge { axis, parts } = case.op {
                assert_eq!(case.small().shape[axis] % parts, 0, "{}", case.name);
            }
        }
    }
}
