//! The bytes moved: asserts the exact number and size of transfers in common sequences of Caffe, and that none is
//! wasted, on a loopback device that defers its work. NeoML's sequences are in `moved/neoml`, random accesses in
//! `moved/model`. Caffe's own numbers are in the comments, from `caffe.md` and the tables there.

mod model;
mod neoml;

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use synced_mem::loopback::{self, Loopback, Mode, Operation};
use synced_mem::{Arg, Device, Queue, SharedMem, Stats};

/// The number of transfers and bytes: uploads, downloads, and copies between device memories.
type Moved = [(u64, u64); 3];

const NOTHING: Moved = [(0, 0); 3];

fn up(bytes: u64) -> Moved {
    [(1, bytes), (0, 0), (0, 0)]
}

fn down(bytes: u64) -> Moved {
    [(0, 0), (1, bytes), (0, 0)]
}

/// Counts the transfers of memories since the last query.
struct Watch {
    memory: SharedMem,
    seen: Stats,
}

impl Watch {
    fn on(memory: &SharedMem) -> Self {
        let (memory, seen) = (memory.clone(), memory.stats());
        Self { memory, seen }
    }

    fn moved(&mut self) -> Moved {
        let now = self.memory.stats();
        let copies = |stats: &Stats| [stats.uploads, stats.downloads, stats.device_copies];
        let (before, after) = (copies(&self.seen), copies(&now));
        let moved = [0, 1, 2].map(|i| (after[i].count - before[i].count, after[i].bytes - before[i].bytes));
        self.seen = now;
        moved
    }
}

fn blob(dims: &[usize]) -> AnyBlob {
    AnyBlob::new(Shape::new(dims).unwrap(), DType::F32).unwrap()
}

fn machine() -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    (device, queue)
}

/// The elements of a kernel's argument.
fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks(4).map(|cell| f32::from_ne_bytes(cell.try_into().unwrap()))
}

/// Work on the device: stores a function of each element of `from` and `to` in `to`.
fn compute(queue: &Arc<dyn Queue>, from: Arg<'_>, to: Arg<'_>, f: fn(f32, f32) -> f32) {
    loopback::launch(&**queue, [from, to], move |args| {
        let (from, to) = args.split_at_mut(1);
        let cells: Vec<f32> = floats(from[0].bytes()).zip(floats(to[0].bytes())).map(|(a, b)| f(a, b)).collect();
        let bytes: Vec<u8> = cells.into_iter().flat_map(f32::to_ne_bytes).collect();
        to[0].bytes_mut().copy_from_slice(&bytes);
    })
    .unwrap();
}

/// Work on the device: stores one value in every element.
fn set(queue: &Arc<dyn Queue>, to: Arg<'_>, value: f32) {
    loopback::launch(&**queue, [to], move |args| {
        for cell in args[0].bytes_mut().chunks_mut(4) {
            cell.copy_from_slice(&value.to_ne_bytes());
        }
    })
    .unwrap();
}

/// A batch is filled on the host, a layer reads the batch on the device and writes the next blob, the host reads the
/// result. Caffe: the same transfers.
#[test]
fn a_forward_pass_moves_its_input_up_and_its_result_down() {
    let (device, queue) = machine();
    let (mut bottom, mut top) = (blob(&[4, 25]), blob(&[4, 25]));
    let (mut bottom_watch, mut top_watch) = (Watch::on(bottom.memory(Part::Data)), Watch::on(top.memory(Part::Data)));
    for batch in 1..=3 {
        bottom.data_mut().overwrite::<f32>().unwrap().fill(batch as f32);
        {
            let from = bottom.data().device(&queue).unwrap();
            let mut to = top.data_mut().overwrite_device(&queue).unwrap();
            compute(&queue, from.arg(), to.arg_mut(), |from, _| from * 2.0);
        }
        assert_eq!((bottom_watch.moved(), top_watch.moved()), (up(400), NOTHING));
        // Another layer reads both, which moves nothing.
        drop((bottom.data().device(&queue).unwrap(), top.data().device(&queue).unwrap()));
        assert_eq!(*top.data().elements::<f32>().unwrap(), [2.0 * batch as f32; 100]);
        assert_eq!(*bottom.data().elements::<f32>().unwrap(), [batch as f32; 100]);
        assert_eq!((bottom_watch.moved(), top_watch.moved()), (NOTHING, down(400)));
        assert_eq!(top.data().elements::<f32>().unwrap()[99], 2.0 * batch as f32);
        assert_eq!(top_watch.moved(), NOTHING);
    }
    assert!(!bottom.has_diff() && !top.has_diff());
    assert_eq!((device.calls(Operation::Upload), device.calls(Operation::Download)), (3, 3));
    // Overwritten memory is not cleared before. Caffe clears each buffer at the first use.
    assert_eq!(device.calls(Operation::Fill), 0);
    assert_eq!(device.meter().stats().uploads.bytes, 1200);
}

/// Parameters are uploaded once; iterations of `diff = …; data -= diff` on the device move nothing; a snapshot is
/// downloaded once.
#[test]
fn an_update_on_the_device_moves_nothing() {
    let (_device, queue) = machine();
    let mut param = blob(&[10, 10]);
    param.data_mut().overwrite::<f32>().unwrap().fill(50.0);
    let (mut data, mut diff) = (Watch::on(param.memory(Part::Data)), Watch::on(param.memory(Part::Diff)));
    for iteration in 0..5 {
        set(&queue, param.diff_mut().overwrite_device(&queue).unwrap().arg_mut(), 3.0);
        let gradient = param.memory(Part::Diff).device(&queue, 0..400).unwrap();
        let mut values = param.data_mut().device(&queue).unwrap();
        compute(&queue, gradient.arg(), values.arg_mut(), |diff, data| data - diff);
        let expected = if iteration == 0 { up(400) } else { NOTHING };
        assert_eq!((data.moved(), diff.moved()), (expected, NOTHING));
    }
    assert_eq!(*param.data().elements::<f32>().unwrap(), [35.0; 100]);
    assert_eq!((data.moved(), diff.moved()), (down(400), NOTHING));
}

/// Two layers share parameters (`ShareData`): an upload for one also serves the other.
#[test]
fn shared_parameters_move_once() {
    let (_device, queue) = machine();
    let (mut owner, mut sharer) = (blob(&[8, 5]), blob(&[40]));
    owner.data_mut().elements::<f32>().unwrap().fill(1.0);
    sharer.share(&owner, Part::Data).unwrap();
    let mut watch = Watch::on(owner.memory(Part::Data));
    drop((owner.data().device(&queue).unwrap(), sharer.data().device(&queue).unwrap()));
    assert_eq!(watch.moved(), up(160));
    set(&queue, sharer.data_mut().overwrite_device(&queue).unwrap().arg_mut(), 4.0);
    assert_eq!(*owner.data().elements::<f32>().unwrap(), [4.0; 40]);
    assert_eq!(sharer.data().elements::<f32>().unwrap()[39], 4.0);
    assert_eq!(watch.moved(), down(160));
}

/// After a shrinking `Reshape` only the elements move, not the whole capacity. Caffe moves all 4000 bytes each time.
#[test]
fn a_shrunk_blob_moves_its_count_and_not_its_capacity() {
    let (_device, queue) = machine();
    let mut batch = blob(&[1000]);
    batch.data_mut().overwrite::<f32>().unwrap().fill(7.0);
    batch.reshape(Shape::new([10]).unwrap()).unwrap();
    let mut watch = Watch::on(batch.memory(Part::Data));
    drop(batch.data().device(&queue).unwrap());
    assert_eq!(watch.moved(), up(40));
    set(&queue, batch.data_mut().device(&queue).unwrap().arg_mut(), 8.0);
    assert_eq!(*batch.data().elements::<f32>().unwrap(), [8.0; 10]);
    assert_eq!(watch.moved(), down(40));
    // Grown again within the capacity, the tail still has the old values, and only the tail is uploaded.
    batch.reshape(Shape::new([1000]).unwrap()).unwrap();
    drop(batch.data().device(&queue).unwrap());
    assert_eq!(watch.moved(), up(3960));
    assert_eq!(batch.data().elements::<f32>().unwrap()[999], 7.0);
    assert_eq!(watch.moved(), NOTHING);
}
