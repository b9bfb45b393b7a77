//! The axes of convolutions' weights are those that MXNet infers in each layout. All extents of the golden differ, and
//! so a shape tells the axes.

use std::collections::HashMap;
use std::fs;

use blob_convert::transform::Layout;

use crate::channels_last::{DATA, following, params, symbol, told};
use crate::support::data;
use crate::support::floats::{run, values};

/// A row of the golden: operator, layout, groups, kernel and the weight's shape.
struct Row {
    op: String,
    layout: String,
    groups: String,
    kernel: String,
    weight: Vec<usize>,
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(data("mxnet/symbol/weights.tsv")).expect("the golden");
    text.lines()
        .skip(1)
        .map(|line| {
            let [op, layout, groups, kernel, _, weight] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line:?}")
            };
            let weight = weight.split(',').map(|extent| extent.parse().expect("an extent")).collect();
            let [op, layout, groups, kernel] = [op, layout, groups, kernel].map(str::to_owned);
            Row { op, layout, groups, kernel, weight }
        })
        .collect()
}

/// The values of an array with other axes: `to` has the extents of `from` in another order, and all differ.
fn turned(all: &[f32], from: &[usize], to: &[usize]) -> Vec<f32> {
    let axes: Vec<usize> =
        to.iter().map(|extent| from.iter().position(|own| own == extent).expect("an axis")).collect();
    let place = |mut at: usize| {
        let mut place = 0;
        for (extent, axis) in to.iter().zip(&axes).rev() {
            place += at % extent * (from[*axis + 1..].iter().product::<usize>());
            at /= extent;
        }
        place
    };
    (0..all.len()).map(|at| all[place(at)]).collect()
}

#[test]
fn the_axes_of_a_weight_are_those_that_mxnet_infers() {
    let rows = rows();
    let first: HashMap<_, _> = rows
        .iter()
        .filter(|row| !row.layout.ends_with('C'))
        .map(|row| ((&*row.op, &*row.groups, row.layout.len()), &row.weight))
        .collect();
    for Row { op, layout, groups, kernel, weight } in &rows {
        let attributes = format!("kernel=({kernel}); num_filter=22; num_group={groups}; no_bias=True; layout={layout}");
        let nodes = [DATA, ("null", "c_weight", "", &[][..]), (&**op, "c", &*attributes, &[0, 1])];
        let (net, source) = (symbol(&nodes, &[2]), params(&[("arg:c_weight", weight)]));
        let all = values(&source, "arg:c_weight");
        let torch = first[&(&**op, &**groups, layout.len())];
        let made = run(&source, &following(&net).transform(Layout::Oihw));
        let shape = |file: &blob_io::Checkpoint| file.entry("arg:c_weight").expect("it").shape().dims().to_vec();
        assert_eq!(&shape(&made), torch, "{op} {layout} {groups}");
        assert_eq!(values(&made, "arg:c_weight"), turned(&all, weight, torch), "{op} {layout} {groups}");
        // TensorFlow's order is that of images: other weights stay, and that is told.
        let options = following(&net).transform(Layout::Hwio);
        let made = run(&source, &options);
        let is_image = kernel.split(',').count() == 2;
        let keras: Vec<usize> = torch[2..].iter().chain([&torch[1], &torch[0]]).copied().collect();
        let expected = if is_image { &keras } else { weight };
        assert_eq!(&shape(&made), expected, "{op} {layout} {groups}");
        assert_eq!(values(&made, "arg:c_weight"), turned(&all, weight, expected), "{op} {layout} {groups}");
        let is_told = told(&source, &options).contains("weights of convolutions that have not four axes stay: 1");
        assert_eq!(is_told, !is_image, "{op} {layout} {groups}");
    }
}
