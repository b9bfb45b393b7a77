//! Windows: NeoML's own tests, movement, nesting, conflicts. `windows/table` has the real NeoML's table,
//! `windows/model` a plain vector as a model. Misuses of NeoML's windows are in `neoml_misuse`, transfers by windows in
//! `moved`.

mod model;
mod table;

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Error, Part, Window};
use synced_mem::loopback::{self, Loopback, Mode};
use synced_mem::{Device, Queue};

use crate::support::blobs::{counting, shape};

fn queue(mode: Mode) -> Arc<dyn Queue> {
    Loopback::new(mode).queue().unwrap()
}

/// `DnnBlobTest`, `InitWindowBlob`: nothing is allocated or copied, and addresses and values are the blob's.
#[test]
fn upstream_init_window_blob() {
    let blob = counting(&[5, 3, 2]);
    let before = blob.memory(Part::Data).stats();
    let whole = blob.make_window(5).unwrap();
    assert_eq!(
        whole.part(Part::Data).elements::<f32>().unwrap().as_ptr(),
        blob.data().elements::<f32>().unwrap().as_ptr()
    );
    assert_eq!(*whole.part(Part::Data).elements::<f32>().unwrap(), *blob.data().elements::<f32>().unwrap());
    let mut window = blob.make_window(1).unwrap();
    for step in 0..5 {
        window.set_pos(step).unwrap();
        let (data, all) = (window.part(Part::Data).elements::<f32>().unwrap(), blob.data().elements::<f32>().unwrap());
        assert_eq!(data.as_ptr(), all[step * 6..].as_ptr());
        assert_eq!(*data, all[step * 6..][..6]);
    }
    let after = blob.memory(Part::Data).stats();
    assert_eq!((after.allocations, after.host_copies), (before.allocations, before.host_copies));
    assert!(!blob.has_diff() && !window.as_ref().owner().has_diff());
}

/// `DnnCtcTest` and every recurrent layer: step t − 1 is read while step t is written, on either side.
#[test]
fn a_step_is_read_while_the_next_is_written() {
    for device in [None, Some(Mode::Deferred), Some(Mode::Random(3))] {
        let queue = device.map(queue);
        let blob = AnyBlob::new(shape(&[6, 2]), DType::F32).unwrap();
        let (mut last, mut step) = (blob.make_window(1).unwrap(), blob.make_window(1).unwrap());
        step.part_mut(Part::Data).elements::<f32>().unwrap().copy_from_slice(&[1.0, 5.0]);
        for t in 1..6 {
            last.set_pos(t - 1).unwrap();
            step.shift(1).unwrap();
            advance(&last, &mut step, queue.as_ref());
        }
        let expected: Vec<f32> = (0..6).flat_map(|t| [1.0 + t as f32, 5.0 + t as f32]).collect();
        assert_eq!(*blob.data().elements::<f32>().unwrap(), expected[..]);
    }
}

/// Stores the last step plus one in a step, with both borrowed at once.
fn advance(last: &Window, step: &mut Window, queue: Option<&Arc<dyn Queue>>) {
    let Some(queue) = queue else {
        let (from, mut to) =
            (last.part(Part::Data).elements::<f32>().unwrap(), step.part_mut(Part::Data).overwrite::<f32>().unwrap());
        to.iter_mut().zip(&*from).for_each(|(to, from)| *to = from + 1.0);
        return;
    };
    let from = last.part(Part::Data).device(queue).unwrap();
    let mut to = step.part_mut(Part::Data).overwrite_device(queue).unwrap();
    loopback::launch(&**queue, [from.arg(), to.arg_mut()], |args| {
        let (from, to) = args.split_at_mut(1);
        let cells = to[0].bytes_mut().chunks_mut(4).zip(from[0].bytes().chunks(4));
        for (to, from) in cells {
            let value = f32::from_ne_bytes(from.try_into().unwrap()) + 1.0;
            to.copy_from_slice(&value.to_ne_bytes());
        }
    })
    .unwrap();
}

#[test]
fn windows_that_overlap_conflict_and_others_do_not() {
    let blob = AnyBlob::new(shape(&[8, 3]), DType::I64).unwrap();
    let (mut a, mut b) = (blob.make_window(3).unwrap(), blob.make_window(2).unwrap());
    for (pos_a, pos_b) in (0..=5).flat_map(|a| (0..=6).map(move |b| (a, b))) {
        a.set_pos(pos_a).unwrap();
        b.set_pos(pos_b).unwrap();
        let overlap = pos_a < pos_b + 2 && pos_b < pos_a + 3;
        {
            let _reading = a.part(Part::Data).elements::<i64>().unwrap();
            assert!(b.part(Part::Data).elements::<i64>().is_ok());
            // The diff is a separate memory.
            assert!(b.part_mut(Part::Diff).elements::<i64>().is_ok());
            let conflict = matches!(
                b.part_mut(Part::Data).elements::<i64>(),
                Err(Error::Memory(synced_mem::Error::Conflict { .. }))
            );
            assert_eq!(conflict, overlap, "{pos_a} {pos_b}");
        }
        let _writing = a.part_mut(Part::Data).elements::<i64>().unwrap();
        assert_eq!(b.part(Part::Data).elements::<i64>().is_err(), overlap);
        assert_eq!(b.part_mut(Part::Data).overwrite::<i64>().is_err(), overlap);
    }
}

#[test]
fn a_window_in_a_window_moves_along_at_any_depth() {
    let blob = counting(&[32, 1]);
    let mut chain = vec![blob.make_window(30).unwrap()];
    for len in (2..30).rev() {
        let mut inner = chain.last().unwrap().make_window(len).unwrap();
        inner.set_pos(usize::from(len % 3 == 0)).unwrap();
        chain.push(inner);
    }
    let inside: usize = chain[1..].iter().map(Window::pos).sum();
    for by in [2, -1, -1, 1] {
        chain[0].shift(by).unwrap();
        let innermost = chain.last().unwrap();
        assert_eq!(innermost.as_ref().steps().start, chain[0].pos() + inside);
        assert_eq!(innermost.part(Part::Data).elements::<f32>().unwrap()[0] as usize, innermost.as_ref().steps().start);
    }
    // Moving a window in the middle of the chain moves the windows inside, and not those around.
    let before = chain[9].as_ref().steps().start;
    let other = 1 - chain[10].pos();
    chain[10].set_pos(other).unwrap();
    assert_eq!(chain[9].as_ref().steps().start, before);
    let (innermost, parent) = (chain.last().unwrap(), chain[chain.len() - 2].pos());
    let mut handle = innermost.parent().unwrap();
    let (pos, other) = (innermost.as_ref().steps().start, 1 - parent);
    handle.set_pos(other).unwrap();
    assert_eq!(chain[chain.len() - 2].pos(), other);
    assert_eq!(innermost.as_ref().steps().start, pos + other - parent);
}

#[test]
fn a_moving_parent_never_takes_a_window_out_of_the_blob() {
    let blob = counting(&[64]);
    let mut outer = blob.make_window(16).unwrap();
    let mut inner = outer.make_window(4).unwrap();
    inner.set_pos(12).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || (0..20_000).for_each(|i| outer.set_pos(i % 49).unwrap()));
        scope.spawn(move || {
            for _ in 0..2_000 {
                let data = inner.part(Part::Data).elements::<f32>().unwrap();
                assert!((12.0..=60.0).contains(&data[0]) && data[3] == data[0] + 3.0);
            }
        });
    });
}

#[test]
fn positions_out_of_range_are_errors_that_name_them_and_move_nothing() {
    let mut window = counting(&[5, 2]).make_window(2).unwrap();
    window.set_pos(3).unwrap();
    let big = i64::MAX;
    let cases: [(Result<(), Error>, i64, i64); 6] = [
        (window.set_pos(4), 4, 6),
        (window.set_pos(usize::MAX), big, big),
        (window.shift(1), 4, 6),
        (window.shift(-4), -1, 1),
        (window.shift(isize::MIN), i64::MIN + 3, i64::MIN + 5),
        (window.shift(isize::MAX), big, big),
    ];
    for (result, from, to) in cases {
        match result {
            Err(Error::StepsOutOfRange { start, end, extent, .. }) => {
                assert_eq!((start, end, extent), (from, to, 5));
            }
            other => panic!("{from}..{to}: {other:?}"),
        }
    }
    let message = window.shift(-4).unwrap_err().to_string();
    assert_eq!(message, "steps -1..1 of the outermost axis out of range; there are 5");
    assert_eq!((window.pos(), window.as_ref().steps().start), (3, 3));
    let inner = window.make_window(3).unwrap_err();
    assert!(matches!(inner, Error::StepsOutOfRange { start: 0, end: 3, extent: 2, .. }));
}

#[test]
fn scalars_have_no_windows_and_empty_blobs_have_ordinary_ones() {
    let mut scalar = counting(&[]);
    assert!(matches!(scalar.window(0..1), Err(Error::AxisOutOfRange { .. })));
    assert!(scalar.window_mut(0..0).is_err() && scalar.windows(1).is_err());
    assert!(scalar.make_window(1).is_err());
    for dims in [&[0][..], &[0, 3], &[4, 0], &[3, 2]] {
        let blob = counting(dims);
        let mut window = blob.make_window(0).unwrap();
        assert!(
            window.as_ref().steps().is_empty() && window.part_mut(Part::Data).elements::<f32>().unwrap().is_empty()
        );
        window.set_pos(dims[0]).unwrap();
        assert!(window.set_pos(dims[0] + 1).is_err());
        assert_eq!(window.as_ref().to_blob().unwrap().count(), 0);
        assert_eq!(blob.windows(0).unwrap().len(), dims[0] + 1);
        assert_eq!(blob.windows(dims[0] + 1).unwrap().count(), 0);
        assert_eq!(blob.window(0..dims[0]).unwrap().shape(), *blob.shape());
    }
    let queue = queue(Mode::Deferred);
    let empty = counting(&[4, 0]);
    assert!(empty.window(1..3).unwrap().part(Part::Data).device(&queue).unwrap().arg().block().is_none());
}

#[test]
fn every_window_of_a_size_from_either_end() {
    let blob = counting(&[6, 2]);
    for size in 0..=7 {
        let windows = blob.windows(size).unwrap();
        let positions: Vec<usize> = windows.clone().map(|window| window.steps().start).collect();
        let expected: Vec<usize> = (0..=6).take_while(|pos| pos + size <= 6).collect();
        assert_eq!((windows.len(), &positions), (expected.len(), &expected));
        let mut back: Vec<usize> = windows.rev().map(|window| window.steps().start).collect();
        back.reverse();
        assert_eq!(back, expected);
    }
}

#[test]
fn a_window_over_a_shrunk_blob_sees_its_steps_only() {
    let mut blob = counting(&[10, 4]);
    blob.reshape(shape(&[3, 2])).unwrap();
    let mut window = blob.make_window(1).unwrap();
    window.set_pos(2).unwrap();
    assert_eq!(*window.part(Part::Data).elements::<f32>().unwrap(), [4.0, 5.0]);
    assert!(window.set_pos(3).is_err());
    assert_eq!(window.as_ref().owner().shape(), blob.shape());
}

#[test]
fn copies_between_windows_need_the_same_shape_and_dtype() {
    let (source, mut target) = (counting(&[4, 3]), counting(&[5, 3]));
    target.window_mut(2..4).unwrap().copy_from(source.window(0..2).unwrap(), Part::Data).unwrap();
    let expected = [0., 1., 2., 3., 4., 5., 0., 1., 2., 3., 4., 5., 12., 13., 14.];
    assert_eq!(*target.data().elements::<f32>().unwrap(), expected);
    assert!(!target.has_diff());
    let mut window = target.window_mut(0..2).unwrap();
    let longer = window.copy_from(source.window(0..3).unwrap(), Part::BOTH);
    assert!(matches!(longer, Err(Error::ShapeMismatch { axis: 0, .. })));
    let ints = AnyBlob::new(shape(&[4, 3]), DType::I32).unwrap();
    let other = window.copy_from(ints.window(0..2).unwrap(), Part::BOTH);
    assert!(matches!(other, Err(Error::WrongDType { .. })));
    let mut source = source;
    source.diff_mut().elements::<f32>().unwrap().fill(8.0);
    window.copy_from(source.window(2..4).unwrap(), Part::Diff).unwrap();
    assert_eq!(*target.diff().elements::<f32>().unwrap(), [[8.0; 6].as_slice(), &[0.0; 9]].concat());
    assert_eq!(target.data().elements::<f32>().unwrap()[..6], expected[..6]);
}
