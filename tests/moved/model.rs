//! Compares random accesses on two sides with a model that tracks each element: exactly the elements move that a side
//! needs and does not have. Relies on `moved` for the counting.

use std::ops::Range;
use std::sync::Arc;

use blob_core::{AnyBlob, DType, Error, Part, Shape};
use proptest::prelude::*;
use synced_mem::loopback::{self, Loopback, Mode};
use synced_mem::{Device, Queue};

use super::{NOTHING, Watch};

/// The model: for each element, where its newest value is.
struct Model {
    values: Vec<u32>,
    /// Whether the host and the device have the newest value. A value that neither has was never written, and is zero.
    valid: [Vec<bool>; 2],
}

impl Model {
    /// Makes a range valid on a side. Returns the number of runs of elements that must move there, and the number of
    /// elements.
    fn bring(&mut self, side: usize, range: &Range<usize>) -> (u64, u64) {
        let (mut runs, mut elements, mut moving) = (0, 0, false);
        for i in range.clone() {
            let moves = !self.valid[side][i] && self.valid[1 - side][i];
            runs += u64::from(moves && !moving);
            elements += u64::from(moves);
            moving = moves;
            self.valid[side][i] = true;
        }
        (runs, elements)
    }

    fn write(&mut self, side: usize, range: &Range<usize>, value: u32) {
        self.values[range.clone()].fill(value);
        self.valid[side][range.clone()].fill(true);
        self.valid[1 - side][range.clone()].fill(false);
    }
}

/// One access: the side, the kind, and the view.
#[derive(Debug, Clone, Copy)]
enum How {
    Read,
    Update,
    Overwrite,
}

/// Accesses a window, or a buffer of single elements on the host. Returns the elements that the side read.
fn access(
    blob: &mut AnyBlob,
    queue: Option<&Arc<dyn Queue>>,
    steps: &Range<usize>,
    how: How,
    value: u32,
) -> Result<(), Error> {
    let mut window = blob.window_mut(steps.clone())?;
    let Some(queue) = queue else {
        match how {
            How::Read => drop(window.as_ref().part(Part::Data).elements::<u32>()?),
            How::Update => window.part_mut(Part::Data).elements::<u32>()?.fill(value),
            How::Overwrite => window.part_mut(Part::Data).overwrite::<u32>()?.fill(value),
        }
        return Ok(());
    };
    let mut token = match how {
        How::Read => return window.as_ref().part(Part::Data).device(queue).map(drop),
        How::Update => window.part_mut(Part::Data).device(queue)?,
        How::Overwrite => window.part_mut(Part::Data).overwrite_device(queue)?,
    };
    loopback::launch(&**queue, [token.arg_mut()], move |args| {
        for cell in args[0].bytes_mut().chunks_mut(4) {
            cell.copy_from_slice(&value.to_ne_bytes());
        }
    })?;
    Ok(())
}

fn ways() -> impl Strategy<Value = How> {
    prop_oneof![Just(How::Read), Just(How::Update), Just(How::Overwrite)]
}

proptest! {
    /// For any reads and writes of windows on two sides, exactly the bytes move that a side needs and does not have.
    #[test]
    fn random_accesses_move_what_the_model_needs(
        (steps, width) in (1..=8usize, 1..=4usize),
        accesses in proptest::collection::vec((0..2usize, ways(), any::<(u8, u8)>()), 1..40),
        seed in proptest::option::of(any::<u64>()),
    ) {
        let device = Loopback::new(seed.map_or(Mode::Deferred, Mode::Random));
        let queue = device.queue().unwrap();
        // At most 32 elements, that is sixteen ranges per side: a memory does not track more.
        let mut blob = AnyBlob::new(Shape::new([steps, width]).unwrap(), DType::U32).unwrap();
        let mut watch = Watch::on(blob.memory(Part::Data));
        let count = steps * width;
        let mut model = Model { values: vec![0; count], valid: [vec![false; count], vec![false; count]] };
        for (number, (side, how, (a, b))) in (1u32..).zip(accesses) {
            let (a, b) = (usize::from(a) % (steps + 1), usize::from(b) % (steps + 1));
            let window = a.min(b)..a.max(b);
            let range = window.start * width..window.end * width;
            access(&mut blob, (side == 1).then_some(&queue), &window, how, number).unwrap();
            let needed = match how {
                How::Overwrite => (0, 0),
                How::Read | How::Update => model.bring(side, &range),
            };
            if !matches!(how, How::Read) {
                model.write(side, &range, number);
            }
            let mut expected = NOTHING;
            expected[1 - side] = (needed.0, 4 * needed.1);
            prop_assert_eq!(watch.moved(), expected);
        }
        let needed = model.bring(0, &(0..count));
        let data = blob.data().elements::<u32>().unwrap();
        prop_assert_eq!(watch.moved(), [(0, 0), (needed.0, 4 * needed.1), (0, 0)]);
        prop_assert_eq!(&*data, &model.values[..]);
        prop_assert_eq!(device.report().misuses, Vec::<String>::new());
    }
}
