//! Operators with a loop of their own: LSTM over time, NonMaxSuppression over ranked boxes.

use super::model::Node;
use super::tensor::{Kind, Tensor};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Forward, gates i, o, f, c; the outputs are all steps, the last state and the last cell.
pub(super) fn lstm(node: &Node, inputs: &[Option<&Tensor>]) -> Vec<Tensor> {
    let input = |at: usize| inputs.get(at).copied().flatten();
    let (x, w, r) = (input(0).expect("X"), input(1).expect("W"), input(2).expect("R"));
    let hidden = node.int("hidden_size", 0) as usize;
    assert_eq!((node.text("direction", "forward").as_str(), node.int("layout", 0)), ("forward", 0));
    assert!(input(4).is_none() && input(7).is_none(), "{}: lengths and peepholes are not read", node.name);
    let [steps, batch, width] = x.dims[..] else { panic!("{}: three axes", node.name) };
    assert_eq!(
        (&w.dims[..], &r.dims[..]),
        (&[1, 4 * hidden, width][..], &[1, 4 * hidden, hidden][..]),
        "{}",
        node.name
    );
    let state = |at: usize| input(at).map_or(vec![0.0; batch * hidden], |tensor| tensor.values.clone());
    let (mut h, mut c, mut all) = (state(5), state(6), Vec::new());
    for step in 0..steps {
        let before = h.clone();
        for b in 0..batch {
            for j in 0..hidden {
                let [i, o, f, g] = [0, 1, 2, 3].map(|block| {
                    let row = block * hidden + j;
                    let from_input = (0..width).map(|i| w.at(&[0, row, i]) * x.at(&[step, b, i])).sum::<f64>();
                    let from_state = (0..hidden).map(|i| r.at(&[0, row, i]) * before[b * hidden + i]).sum::<f64>();
                    let bias = input(3).map_or(0.0, |bias| bias.at(&[0, row]) + bias.at(&[0, 4 * hidden + row]));
                    from_input + from_state + bias
                });
                let at = b * hidden + j;
                c[at] = sigmoid(f) * c[at] + sigmoid(i) * g.tanh();
                h[at] = sigmoid(o) * c[at].tanh();
            }
        }
        all.extend_from_slice(&h);
    }
    let last = [1, batch, hidden];
    vec![Tensor::float(&[steps, 1, batch, hidden], all), Tensor::float(&last, h), Tensor::float(&last, c)]
}

/// A box as the least and greatest y and x.
fn corners(values: &[f64], is_centered: bool) -> [f64; 4] {
    let [a, b, c, d] = values[..] else { unreachable!() };
    if is_centered {
        return [b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0];
    }
    [a.min(c), b.min(d), a.max(c), b.max(d)]
}

fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let area = |q: [f64; 4]| (q[2] - q[0]) * (q[3] - q[1]);
    let (height, width) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    let shared = height.max(0.0) * width.max(0.0);
    if shared > 0.0 { shared / (area(a) + area(b) - shared) } else { 0.0 }
}

/// For each batch and class, the kept boxes in the order of their scores.
pub(super) fn suppress(node: &Node, inputs: &[Option<&Tensor>]) -> Tensor {
    let (boxes, scores) = (inputs[0].expect("boxes"), inputs[1].expect("scores"));
    let number = |at: usize| inputs.get(at).copied().flatten().map(|tensor| tensor.values[0]);
    let (most, limit) = (number(2).unwrap_or(0.0) as usize, number(3).unwrap_or(0.0));
    let (threshold, is_centered) = (number(4).unwrap_or(f64::NEG_INFINITY), node.int("center_point_box", 0) == 1);
    let [batches, classes, count] = scores.dims[..] else { panic!("{}: three axes", node.name) };
    assert_eq!(boxes.dims, [batches, count, 4], "{}: boxes", node.name);
    let mut found = Vec::new();
    for (batch, class) in (0..batches).flat_map(|batch| (0..classes).map(move |class| (batch, class))) {
        let score = |at: usize| scores.at(&[batch, class, at]);
        let place = |at: usize| corners(&boxes.values[(batch * count + at) * 4..][..4], is_centered);
        let mut order: Vec<usize> = (0..count).filter(|at| score(*at) > threshold).collect();
        order.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).expect("no NaN"));
        let mut kept: Vec<usize> = Vec::new();
        for at in order {
            if kept.len() < most && kept.iter().all(|other| overlap(place(at), place(*other)) <= limit) {
                kept.push(at);
            }
        }
        found.extend(kept.into_iter().flat_map(|at| [batch as f64, class as f64, at as f64]));
    }
    Tensor::new(&[found.len() / 3, 3], found, Kind::Integer)
}
