//! Operators that move values: joined, split, reshaped, cut, gathered, scattered, resized, ranked.

use super::model::Node;
use super::tensor::{Kind, Tensor, broadcast, canonical, flat, indices};

/// The values of `x` at the places that a function of the output's index names.
fn moved(x: &Tensor, dims: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Tensor {
    Tensor::of(dims, |index| x.at(&from(index))).with_kind(x.kind)
}

pub(super) fn concat(node: &Node, inputs: &[&Tensor]) -> Tensor {
    let axis = inputs[0].axis(node.int("axis", i64::MAX));
    let mut dims = inputs[0].dims.clone();
    dims[axis] = inputs.iter().map(|x| x.dims[axis]).sum();
    for x in inputs {
        let is_like = (0..dims.len()).all(|i| i == axis || x.dims[i] == dims[i]) && x.dims.len() == dims.len();
        assert!(is_like && x.kind == inputs[0].kind, "{}: {:?}", node.name, x.dims);
    }
    Tensor::of(&dims, |index| {
        let mut at = index.to_vec();
        let which = inputs.iter().find(|x| {
            let is_here = at[axis] < x.dims[axis];
            at[axis] -= if is_here { 0 } else { x.dims[axis] };
            is_here
        });
        which.expect("an input").at(&at)
    })
    .with_kind(inputs[0].kind)
}

pub(super) fn split(node: &Node, x: &Tensor, sizes: Option<&Tensor>) -> Vec<Tensor> {
    let axis = x.axis(node.int("axis", 0));
    let (count, dim) = (node.outputs.len(), x.dims[axis]);
    let sizes: Vec<usize> = sizes.map_or_else(
        || {
            assert_eq!(dim % count, 0, "{}: equal parts", node.name);
            vec![dim / count; count]
        },
        |sizes| sizes.whole().iter().map(|size| *size as usize).collect(),
    );
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (count, dim), "{}: parts", node.name);
    let mut before = 0;
    sizes
        .iter()
        .map(|size: &usize| {
            let (from, mut dims) = (before, x.dims.clone());
            dims[axis] = *size;
            before += size;
            moved(x, &dims, |index| {
                index.iter().enumerate().map(|(i, at)| at + if i == axis { from } else { 0 }).collect()
            })
        })
        .collect()
}

pub(super) fn reshape(node: &Node, x: &Tensor, shape: &Tensor) -> Tensor {
    assert_eq!(node.int("allowzero", 0), 0);
    let shape = shape.whole();
    let dims = shape.iter().enumerate().map(|(i, dim): (usize, &i64)| if *dim == 0 { x.dims[i] as i64 } else { *dim });
    let dims: Vec<i64> = dims.collect();
    let known: i64 = dims.iter().filter(|dim| **dim != -1).product();
    assert!(dims.iter().filter(|dim| **dim == -1).count() < 2, "{}: {shape:?}", node.name);
    let dims: Vec<usize> =
        dims.iter().map(|dim| if *dim == -1 { x.values.len() / known as usize } else { *dim as usize }).collect();
    x.reshaped(&dims)
}

pub(super) fn flatten(node: &Node, x: &Tensor) -> Tensor {
    let axis = x.axis(node.int("axis", 1));
    x.reshaped(&[x.dims[..axis].iter().product(), x.dims[axis..].iter().product()])
}

pub(super) fn transpose(node: &Node, x: &Tensor) -> Tensor {
    let perm: Vec<usize> = node
        .ints("perm")
        .map_or((0..x.dims.len()).rev().collect(), |list| list.iter().map(|axis| *axis as usize).collect());
    let dims: Vec<usize> = perm.iter().map(|axis| x.dims[*axis]).collect();
    assert_eq!(dims.len(), x.dims.len(), "{}: perm", node.name);
    moved(x, &dims, |index| {
        let mut from = vec![0; index.len()];
        perm.iter().zip(index).for_each(|(axis, at)| from[*axis] = *at);
        from
    })
}

pub(super) fn tile(x: &Tensor, repeats: &Tensor) -> Tensor {
    let repeats = repeats.whole();
    assert_eq!(repeats.len(), x.dims.len());
    let dims: Vec<usize> = x.dims.iter().zip(&repeats).map(|(dim, times)| dim * *times as usize).collect();
    moved(x, &dims, |index| index.iter().zip(&x.dims).map(|(i, dim)| i % dim).collect())
}

pub(super) fn expand(x: &Tensor, shape: &Tensor) -> Tensor {
    let shape: Vec<usize> = shape.whole().iter().map(|dim| *dim as usize).collect();
    Tensor::of(&broadcast(&x.dims, &shape), |index| x.broadcast_at(index)).with_kind(x.kind)
}

pub(super) fn slice(x: &Tensor, inputs: [&Tensor; 2], axes: Option<&Tensor>, steps: Option<&Tensor>) -> Tensor {
    let [starts, ends] = inputs.map(Tensor::whole);
    let axes: Vec<usize> =
        axes.map_or((0..starts.len()).collect(), |axes| axes.whole().iter().map(|axis| x.axis(*axis)).collect());
    let steps = steps.map_or(vec![1; starts.len()], Tensor::whole);
    let (mut dims, mut from) = (x.dims.clone(), vec![(0, 1); x.dims.len()]);
    for (i, axis) in axes.into_iter().enumerate() {
        let (dim, step) = (x.dims[axis] as i64, steps[i]);
        let counted = |at: i64| if at < 0 { at.saturating_add(dim) } else { at };
        let (low, high) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
        let (start, end) = (counted(starts[i]).clamp(low.max(0), high), counted(ends[i]).clamp(low, high));
        let span = if step > 0 { end - start } else { start - end };
        dims[axis] = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as usize;
        from[axis] = (start, step);
    }
    moved(x, &dims, |index| {
        index.iter().zip(&from).map(|(i, (start, step))| (start + *i as i64 * step) as usize).collect()
    })
}

pub(super) fn pad(node: &Node, x: &Tensor, pads: &Tensor, value: Option<&Tensor>) -> Tensor {
    let (pads, axes, mode) = (pads.whole(), x.dims.len(), node.text("mode", "constant"));
    let fill = value.map_or(0.0, |value| value.values[0]);
    let dims: Vec<usize> = (0..axes).map(|i| (x.dims[i] as i64 + pads[i] + pads[i + axes]) as usize).collect();
    Tensor::of(&dims, |index| {
        let mut is_inside = true;
        let at = |i: usize| {
            let (at, last) = (index[i] as i64 - pads[i], x.dims[i] as i64 - 1);
            is_inside &= (0..=last).contains(&at);
            match &*mode {
                "reflect" => last - (last - at.abs()).abs(),
                // Nothing lies within an axis of 0.
                _ => at.min(last).max(0),
            }
        };
        let from: Vec<usize> = (0..axes).map(at).map(|at| at as usize).collect();
        if is_inside || mode != "constant" { x.at(&from) } else { fill }
    })
    .with_kind(x.kind)
}

pub(super) fn gather(node: &Node, x: &Tensor, places: &Tensor) -> Tensor {
    let (axis, count) = (x.axis(node.int("axis", 0)), places.dims.len());
    let whole = places.whole();
    moved(x, &[&x.dims[..axis], &places.dims[..], &x.dims[axis + 1..]].concat(), |index| {
        let place = whole[flat(&index[axis..axis + count], &places.dims)];
        let place = if place < 0 { place + x.dims[axis] as i64 } else { place } as usize;
        [&index[..axis], &[place], &index[axis + count..]].concat()
    })
}

pub(super) fn gather_nd(node: &Node, x: &Tensor, places: &Tensor) -> Tensor {
    assert_eq!(node.int("batch_dims", 0), 0);
    let (depth, outer) = places.dims.split_last().expect("an axis of indices");
    let whole = places.whole();
    moved(x, &[outer, &x.dims[*depth..]].concat(), |index| {
        let row = flat(&index[..outer.len()], outer) * depth;
        let own = whole[row..row + depth].iter().zip(&x.dims);
        let own = own.map(|(at, dim)| if *at < 0 { at + *dim as i64 } else { *at } as usize).collect::<Vec<_>>();
        [&own[..], &index[outer.len()..]].concat()
    })
}

pub(super) fn scatter_elements(node: &Node, x: &Tensor, places: &Tensor, updates: &Tensor) -> Tensor {
    let axis = x.axis(node.int("axis", 0));
    assert_eq!(node.text("reduction", "none"), "none");
    let (whole, mut y) = (places.whole(), x.clone());
    for (at, index) in indices(&places.dims).enumerate() {
        let place = if whole[at] < 0 { whole[at] + x.dims[axis] as i64 } else { whole[at] } as usize;
        y.values[flat(&[&index[..axis], &[place], &index[axis + 1..]].concat(), &x.dims)] = updates.values[at];
    }
    y
}

pub(super) fn depth_to_space(node: &Node, x: &Tensor) -> Tensor {
    let (block, is_crd) = (node.int("blocksize", 0) as usize, node.text("mode", "DCR") == "CRD");
    let [n, c, h, w] = x.dims[..] else { panic!("{}: four axes", node.name) };
    let depth = c / block / block;
    moved(x, &[n, depth, h * block, w * block], |index| {
        let inner = index[2] % block * block + index[3] % block;
        let channel = if is_crd { index[1] * block * block + inner } else { inner * depth + index[1] };
        vec![index[0], channel, index[2] / block, index[3] / block]
    })
}

/// With axes of extent one, or without them.
pub(super) fn squeeze(node: &Node, x: &Tensor, axes: Option<&Tensor>) -> Tensor {
    if node.kind == "Unsqueeze" {
        let axes = axes.expect("axes").whole();
        let count = x.dims.len() + axes.len();
        let axes: Vec<usize> = axes.iter().map(|axis| canonical(*axis, count)).collect();
        let mut own = x.dims.iter();
        let dims = (0..count).map(|i| if axes.contains(&i) { 1 } else { *own.next().expect("an axis") });
        return x.reshaped(&dims.collect::<Vec<_>>());
    }
    let axes = axes.map(|axes| axes.whole().iter().map(|axis| x.axis(*axis)).collect::<Vec<_>>());
    x.reshaped(
        &(0..x.dims.len())
            .filter(|i| !axes.as_ref().map_or(x.dims[*i] == 1, |axes| axes.contains(&*i)))
            .map(|i| x.dims[i])
            .collect::<Vec<_>>(),
    )
}

/// The places of the values along an axis in order, equal values in the order of their places.
fn ranked(x: &Tensor, axis: usize, index: &[usize], is_largest: bool) -> Vec<usize> {
    let along = |at: usize| x.at(&[&index[..axis], &[at], &index[axis + 1..]].concat());
    let mut order: Vec<usize> = (0..x.dims[axis]).collect();
    order.sort_by(|a, b| {
        let order = along(*a).partial_cmp(&along(*b)).expect("no NaN");
        if is_largest { order.reverse() } else { order }
    });
    order
}

pub(super) fn top_k(node: &Node, x: &Tensor, k: &Tensor) -> Vec<Tensor> {
    let (axis, is_largest) = (x.axis(node.int("axis", -1)), node.int("largest", 1) == 1);
    assert_eq!((node.int("sorted", 1), &k.dims[..]), (1, &[1][..]), "{}", node.name);
    let mut dims = x.dims.clone();
    assert!(k.whole()[0] as usize <= dims[axis], "{}: k of {dims:?}", node.name);
    dims[axis] = k.whole()[0] as usize;
    let places = Tensor::of(&dims, |index| ranked(x, axis, index, is_largest)[index[axis]] as f64);
    let values = moved(x, &dims, |index| [&index[..axis], &[places.at(index) as usize], &index[axis + 1..]].concat());
    vec![values, places.with_kind(Kind::Integer)]
}

pub(super) fn arg_max(node: &Node, x: &Tensor) -> Tensor {
    let (axis, is_kept) = (x.axis(node.int("axis", 0)), node.int("keepdims", 1) == 1);
    let is_last = node.int("select_last_index", 0) == 1;
    let mut dims = x.dims.clone();
    dims[axis] = 1;
    let places = Tensor::of(&dims, |index: &[usize]| {
        let along = |at: usize| x.at(&[&index[..axis], &[at], &index[axis + 1..]].concat());
        let order = ranked(x, axis, index, true);
        let equal = order.iter().take_while(|at| along(**at) == along(order[0]));
        *if is_last { equal.last() } else { order.first() }.expect("the largest") as f64
    })
    .with_kind(Kind::Integer);
    if is_kept {
        return places;
    }
    dims.remove(axis);
    places.reshaped(&dims)
}

/// Linear or nearest, each axis apart from the others. With sizes the scale is their quotient.
pub(super) fn resize(node: &Node, x: &Tensor, scales: Option<&Tensor>, sizes: Option<&Tensor>) -> Tensor {
    let (mode, how) = (node.text("mode", "nearest"), node.text("coordinate_transformation_mode", "half_pixel"));
    let rounding = node.text("nearest_mode", "round_prefer_floor");
    let (dims, scales): (Vec<usize>, Vec<f64>) = match (scales, sizes) {
        (None, Some(sizes)) => {
            let dims: Vec<usize> = sizes.whole().iter().map(|size| *size as usize).collect();
            let scales = dims.iter().zip(&x.dims).map(|(to, from)| *to as f64 / *from as f64).collect();
            (dims, scales)
        }
        (Some(scales), None) => (
            x.dims.iter().zip(&scales.values).map(|(dim, by)| (*dim as f64 * by) as usize).collect(),
            scales.values.clone(),
        ),
        _ => panic!("{}: scales or sizes", node.name),
    };
    Tensor::of(&dims, |index| {
        let start = vec![(Vec::new(), 1.0)];
        let corners = index.iter().enumerate().fold(start, |corners: Vec<(Vec<usize>, f64)>, (axis, at)| {
            let last = (x.dims[axis] - 1) as f64;
            let place = match &*how {
                _ if dims[axis] == x.dims[axis] => *at as f64,
                "align_corners" | "pytorch_half_pixel" if dims[axis] == 1 => 0.0,
                "align_corners" => *at as f64 * last / (dims[axis] - 1) as f64,
                "asymmetric" => *at as f64 / scales[axis],
                "half_pixel" | "pytorch_half_pixel" => (*at as f64 + 0.5) / scales[axis] - 0.5,
                other => panic!("{}: {other}", node.name),
            };
            let rounded = match (&*mode, &*rounding) {
                ("linear", _) => place.clamp(0.0, last),
                ("nearest", "floor") => place.floor(),
                ("nearest", "ceil") => place.ceil(),
                ("nearest", "round_prefer_floor") => (place - 0.5).ceil(),
                ("nearest", "round_prefer_ceil") => (place + 0.5).floor(),
                other => panic!("{}: {other:?}", node.name),
            };
            // Between two places each has a part.
            let (low, part) = (rounded.clamp(0.0, last).floor(), rounded.clamp(0.0, last).fract());
            let own = [(low as usize, 1.0 - part), ((low + 1.0).min(last) as usize, part)];
            corners
                .iter()
                .flat_map(|(place, weight): &(Vec<usize>, f64)| {
                    own.iter()
                        .map(|(at, by): &(usize, f64)| ([&place[..], &[*at]].concat(), weight * by))
                        .collect::<Vec<_>>()
                })
                .collect()
        });
        corners.iter().filter(|(_, weight)| *weight != 0.0).map(|(place, weight)| weight * x.at(place)).sum()
    })
}
