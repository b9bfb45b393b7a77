//! The transfers in NeoML's sequences: recurrent steps through windows, and buffers at an offset, in each mode.

use blob_core::Part;
use synced_mem::Location;
use synced_mem::loopback::Operation;

use super::{NOTHING, Watch, blob, compute, down, machine, set, up};

/// A recurrent layer moves windows: only each step's input is uploaded, and only each result is downloaded, in place.
#[test]
fn recurrent_steps_move_step_by_step() {
    let (_device, queue) = machine();
    let (input, output) = (blob(&[6, 4, 5]), blob(&[6, 4, 5]));
    let (mut input_watch, mut output_watch) =
        (Watch::on(input.memory(Part::Data)), Watch::on(output.memory(Part::Data)));
    let (mut x, mut y) = (input.make_window(1).unwrap(), output.make_window(1).unwrap());
    let mut last = output.make_window(1).unwrap();
    for t in 0..6 {
        x.set_pos(t).unwrap();
        y.set_pos(t).unwrap();
        x.part_mut(Part::Data).overwrite::<f32>().unwrap().fill(1.0);
        {
            let from = x.part(Part::Data).device(&queue).unwrap();
            let mut to = y.part_mut(Part::Data).overwrite_device(&queue).unwrap();
            compute(&queue, from.arg(), to.arg_mut(), |x, _| x);
        }
        if t > 0 {
            last.set_pos(t - 1).unwrap();
            let before = last.part(Part::Data).device(&queue).unwrap();
            let mut to = y.part_mut(Part::Data).device(&queue).unwrap();
            compute(&queue, before.arg(), to.arg_mut(), |last, y| last + y);
        }
        assert_eq!((input_watch.moved(), output_watch.moved()), (up(80), NOTHING));
        assert_eq!(*y.part(Part::Data).elements::<f32>().unwrap(), [t as f32 + 1.0; 20]);
        assert_eq!((input_watch.moved(), output_watch.moved()), (NOTHING, down(80)));
    }
    drop((input.data().device(&queue).unwrap(), output.data().elements::<f32>().unwrap()));
    assert_eq!((input_watch.moved(), output_watch.moved()), (NOTHING, NOTHING));
    assert_eq!(input.memory(Part::Data).stats().fills.bytes + output.memory(Part::Data).stats().fills.bytes, 0);
}

/// The backward pass: the diff of each step is accumulated on the device, from the last step to the first. It needs
/// only one clearing of the diffs on the device and one download.
#[test]
fn a_backward_pass_through_time_stays_on_the_device() {
    let (device, queue) = machine();
    let states = blob(&[5, 10]);
    let (mut step, mut next) = (states.make_window(1).unwrap(), states.make_window(1).unwrap());
    let mut watch = Watch::on(states.memory(Part::Diff));
    drop(states.diff().device(&queue).unwrap());
    for t in (0..5).rev() {
        step.set_pos(t).unwrap();
        set(&queue, step.part_mut(Part::Diff).device(&queue).unwrap().arg_mut(), 1.0);
        if t < 4 {
            next.set_pos(t + 1).unwrap();
            let from = next.part(Part::Diff).device(&queue).unwrap();
            compute(&queue, from.arg(), step.part_mut(Part::Diff).device(&queue).unwrap().arg_mut(), |next, own| {
                next + own
            });
        }
    }
    assert_eq!((watch.moved(), device.calls(Operation::Fill)), (NOTHING, 1));
    step.set_pos(0).unwrap();
    assert_eq!(*step.part(Part::Diff).elements::<f32>().unwrap(), [5.0; 10]);
    assert_eq!(watch.moved(), down(40));
    assert!(!states.memory(Part::Data).is_initialized());
}

/// `GetBuffer` at an offset, in each mode, of a blob whose newest bytes are on the device. NeoML's CUDA engine copies
/// from the start of the blob instead, so an update there corrupts it.
#[test]
fn buffers_move_their_range_and_honour_their_offset() {
    let (_device, queue) = machine();
    let mut blob = blob(&[4, 25]);
    blob.data_mut().elements::<f32>().unwrap().iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
    drop(blob.data_mut().device(&queue).unwrap());
    let mut watch = Watch::on(blob.memory(Part::Data));
    watch.moved();

    let read: Vec<f32> = blob.data().range(30..40).unwrap().elements::<f32>().unwrap().to_vec();
    assert_eq!(read, (30..40).map(|i| i as f32).collect::<Vec<_>>());
    assert_eq!(watch.moved(), down(40));
    assert_eq!(blob.data().range(35..38).unwrap().elements::<f32>().unwrap()[2], 37.0);
    assert_eq!(watch.moved(), NOTHING);

    blob.data_mut().range(50..60).unwrap().overwrite::<f32>().unwrap().fill(-1.0);
    assert_eq!(watch.moved(), NOTHING);
    drop(blob.data().device(&queue).unwrap());
    assert_eq!(watch.moved(), up(40));

    blob.data_mut().range(70..90).unwrap().elements::<f32>().unwrap()[3] += 0.5;
    assert_eq!(watch.moved(), down(80));
    drop(blob.data().device(&queue).unwrap());
    assert_eq!(watch.moved(), up(80));

    assert_eq!(
        *blob.data().elements::<f32>().unwrap(),
        (0..100)
            .map(|i: usize| match i {
                50..60 => -1.0,
                73 => 73.5,
                _ => i as f32,
            })
            .collect::<Vec<_>>()[..]
    );
    // 10, 10 and 20 of the 100 elements are already on the host, in three ranges; the four ranges between them are not.
    assert_eq!(watch.moved(), [(0, 0), (4, 240), (0, 0)]);
    assert!(!blob.has_diff());
}

/// One step of a blob of 256 MiB. Caffe first downloads 256 MiB, and then uploads 256 MiB.
#[test]
fn a_window_of_4_kib_of_a_blob_of_256_mib_moves_4_kib() {
    let (_device, queue) = machine();
    let blob = blob(&[65_536, 1024]);
    assert_eq!(blob.byte_len(), 256 << 20);
    drop(blob.data().device(&queue).unwrap());
    let mut watch = Watch::on(blob.memory(Part::Data));
    let mut window = blob.make_window(1).unwrap();
    for (pos, before) in [(40_000, NOTHING), (40_001, NOTHING), (0, NOTHING), (65_535, NOTHING)] {
        window.set_pos(pos).unwrap();
        window.part_mut(Part::Data).overwrite::<f32>().unwrap().fill(1.0);
        assert_eq!(watch.moved(), before);
        assert!(!blob.memory(Part::Data).valid_on(Location::Device(queue.device().id()), ..));
        drop(blob.data().device(&queue).unwrap());
        assert_eq!(watch.moved(), up(4096));
    }
    // A step that is changed in place is downloaded first.
    window.set_pos(7).unwrap();
    window.part_mut(Part::Data).elements::<f32>().unwrap()[1023] = 2.0;
    assert_eq!(watch.moved(), down(4096));
    drop(blob.data().device(&queue).unwrap());
    assert_eq!(watch.moved(), up(4096));
    assert_eq!(blob.memory(Part::Data).stats().peak, 2 * (256 << 20));
}
