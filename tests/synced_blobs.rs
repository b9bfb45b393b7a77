//! Compares blobs on a device with a table of the real Caffe: the state and the transfers after an operation, for every
//! head of data and of diff. [`Why`] has the reasons for differences; there are never more transfers over the bus than
//! in Caffe. Other crates test sums, scaling, updates and messages, and Caffe's device mirror of the shape has no
//! counterpart.

use std::collections::BTreeMap;
use std::sync::Arc;

use blob_core::{Blob, Part, Shape};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Head, Queue, Stats};

use crate::support::{data, report, rows};

const VALUES: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const OTHERS: [f32; 6] = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0];

/// Every deliberate difference, with the reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    /// Caffe copies on the side of the thread's mode, and first moves source and destination there. Our copy runs where
    /// the source's newest bytes are, and overwritten bytes are not moved.
    WhereTheBytesAre,
    /// In Caffe a copy onto itself moves the head and the bytes. Ours changes nothing.
    OntoItself,
    /// Caffe allocates zeros to copy zeros. Our copy leaves both untouched.
    Untouched,
}

#[derive(Clone, PartialEq, Debug)]
struct Outcome {
    data: Head,
    diff: Head,
    /// Blocks allocated on the device, uploads, downloads, copies between blocks.
    costs: [u64; 4],
    /// The head of the other blob's part, if that is in the table.
    other: Option<Head>,
}

struct Row {
    at: String,
    data: Head,
    diff: Head,
    op: String,
    caffe: Outcome,
    result: String,
}

fn head(name: &str) -> Head {
    match name {
        "UNINITIALIZED" => Head::Uninitialized,
        "HEAD_AT_CPU" => Head::AtHost,
        "HEAD_AT_GPU" => Head::AtDevice,
        "SYNCED" => Head::Synced,
        other => panic!("{other}: a head that is not known here"),
    }
}

fn row_of(row: &[String]) -> Row {
    let costs = [6, 7, 8, 9].map(|column: usize| row[column].parse().expect("a count"));
    Row {
        at: row[..4].join(", "),
        data: head(&row[1]),
        diff: head(&row[2]),
        op: row[3].clone(),
        caffe: Outcome { data: head(&row[4]), diff: head(&row[5]), costs, other: row[10].strip_prefix("c=").map(head) },
        result: row[10].clone(),
    }
}

impl Row {
    /// Our outcome, and the reason of a difference from Caffe's.
    fn ours(&self) -> (Outcome, Option<Why>) {
        let (outcome, why) = match self.op.as_str() {
            "c.CopyFrom(b)" => self.copied(self.data),
            "c.CopyFrom(b,diff)" => self.copied(self.diff),
            "b.CopyFrom(b)" => (self.unchanged(), Why::OntoItself),
            "b.CopyFrom(c)" => {
                let mut outcome = self.unchanged();
                outcome.data = Head::AtHost;
                (outcome, Why::WhereTheBytesAre)
            }
            _ => return (self.caffe.clone(), None),
        };
        let why = (outcome != self.caffe).then_some(why);
        (outcome, why)
    }

    fn unchanged(&self) -> Outcome {
        let (data, diff) = (self.data, self.diff);
        let (costs, other) = ([0; 4], None);
        Outcome { data, diff, costs, other }
    }

    /// The outcome of a copy to an untouched blob, from a part with this head.
    fn copied(&self, from: Head) -> (Outcome, Why) {
        let mut outcome = self.unchanged();
        let (to, why) = match from {
            Head::Uninitialized => (Head::Uninitialized, Why::Untouched),
            Head::AtDevice => (Head::AtDevice, Why::WhereTheBytesAre),
            _ => (Head::AtHost, Why::WhereTheBytesAre),
        };
        outcome.other = Some(to);
        if from == Head::AtDevice {
            outcome.costs = [1, 0, 0, 1];
        }
        (outcome, why)
    }
}

fn blob() -> Blob<f32> {
    Blob::new(Shape::new([6]).expect("a shape")).expect("a blob")
}

fn prepared(row: &Row, queue: &Arc<dyn Queue>) -> Blob<f32> {
    let mut blob = blob();
    for (part, head) in [(Part::Data, row.data), (Part::Diff, row.diff)] {
        if head != Head::Uninitialized {
            blob.part_mut(part).elements().expect("elements").copy_from_slice(&VALUES);
        }
        match head {
            Head::AtDevice => drop(blob.part_mut(part).device(queue).expect("a device")),
            Head::Synced => drop(blob.part(part).device(queue).expect("a device")),
            _ => {}
        }
    }
    assert_eq!(heads(&blob), (row.data, row.diff), "{}", row.at);
    blob
}

fn heads(blob: &Blob<f32>) -> (Head, Head) {
    (blob.memory(Part::Data).head(), blob.memory(Part::Diff).head())
}

fn costs(stats: Stats) -> [u64; 4] {
    let (up, down) = (stats.uploads, stats.downloads);
    [stats.allocations, up, down, stats.device_copies].map(|traffic| traffic.count)
}

/// Runs an operation. Returns the head of the other blob's part if a copy was made to it; `None` for an operation that
/// another crate tests.
fn run(row: &Row, b: &mut Blob<f32>, c: &mut Blob<f32>) -> Option<Option<Head>> {
    let mut other = None;
    match row.op.as_str() {
        "c.CopyFrom(b)" => {
            c.copy_from(b, Part::Data).expect("a copy");
            other = Some(c.memory(Part::Data).head());
        }
        "c.CopyFrom(b,diff)" => {
            c.copy_from(b, Part::Diff).expect("a copy");
            other = Some(c.memory(Part::Diff).head());
        }
        "b.CopyFrom(c)" => b.copy_from(c, Part::Data).expect("a copy"),
        "b.CopyFrom(b)" => {
            c.share(b, Part::Data).expect("equal counts");
            b.copy_from(c, Part::Data).expect("a copy");
        }
        "c.ShareData(b)" => {
            c.share(b, Part::Data).expect("equal counts");
            assert!(c.memory(Part::Data).ptr_eq(b.memory(Part::Data)));
        }
        "data_at" => {
            let element = b.part(Part::Data).at::<f32>(&[1]).expect("an element");
            assert_eq!(format!("{element:.6}"), row.result, "{}", row.at);
        }
        "Reshape bigger" => b.reshape(Shape::new([7]).expect("a shape")).expect("a shape"),
        "Reshape smaller" => b.reshape(Shape::new([2]).expect("a shape")).expect("a shape"),
        _ => return None,
    }
    Some(other)
}

/// Runs a row. Returns the reason if the outcome differs from Caffe's; `None` for an operation that another crate
/// tests.
fn check(row: &Row, mode: Mode) -> Option<Option<Why>> {
    let device = Loopback::new(mode);
    let queue = device.queue().expect("a queue");
    let (mut b, mut c) = (prepared(row, &queue), blob());
    if row.op == "b.CopyFrom(c)" {
        c.data_mut().expect("data").copy_from_slice(&OTHERS);
    }
    let before = costs(device.meter().stats());
    let other = run(row, &mut b, &mut c)?;
    let after = costs(device.meter().stats());
    let costs = std::array::from_fn(|i| after[i] - before[i]);
    let (data, diff) = heads(&b);
    let (expected, why) = row.ours();
    let outcome = Outcome { data, diff, costs, other };
    assert_eq!(outcome, expected, "{} ({why:?})", row.at);
    let bus = |costs: [u64; 4]| costs[1] + costs[2];
    assert!(bus(costs) <= bus(row.caffe.costs), "{}: more transfers", row.at);
    check_elements(row, &b, &c);
    assert_eq!(device.report().misuses, [""; 0], "{}", row.at);
    Some(why)
}

/// Checks the final elements of the blobs.
fn check_elements(row: &Row, b: &Blob<f32>, c: &Blob<f32>) {
    let values = |head: Head| match (head, row.op.as_str()) {
        (Head::Uninitialized, _) | (_, "Reshape bigger") => [0.0; 7],
        _ => [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0],
    };
    let (data, diff) = (values(row.data), values(row.diff));
    let count = b.count();
    match row.op.as_str() {
        "b.CopyFrom(c)" => assert_eq!(*b.data().expect("data"), OTHERS, "{}", row.at),
        _ => assert_eq!(*b.data().expect("data"), data[..count], "{}", row.at),
    }
    assert_eq!(*b.diff().expect("diff"), diff[..count], "{}", row.at);
    let zeros = [0.0; 6];
    let (c_data, c_diff) = match row.op.as_str() {
        "c.CopyFrom(b)" | "c.ShareData(b)" | "b.CopyFrom(b)" => (&data[..6], &zeros[..]),
        "c.CopyFrom(b,diff)" => (&zeros[..], &diff[..6]),
        "b.CopyFrom(c)" => (&OTHERS[..], &zeros[..]),
        _ => (&zeros[..], &zeros[..]),
    };
    assert_eq!(*c.data().expect("data"), *c_data, "{}", row.at);
    assert_eq!(*c.diff().expect("diff"), *c_diff, "{}", row.at);
}

#[test]
fn every_operation_on_blobs_costs_what_it_costs_caffe_or_less() {
    let table = rows(&data("caffe/syncedmem/blob_fake_cuda.tsv"));
    let mut reasons: BTreeMap<Why, usize> = BTreeMap::new();
    let (mut equal, mut elsewhere) = (0, 0);
    for row in table.iter().map(|row| row_of(row)) {
        let answers = [Mode::Immediate, Mode::Deferred].map(|mode| check(&row, mode));
        match answers[0] {
            None => elsewhere += 1,
            Some(None) => equal += 1,
            Some(Some(why)) => *reasons.entry(why).or_default() += 1,
        }
    }
    let different: usize = reasons.values().sum();
    report(&format!(
        "caffe blobs on a device: {} rows, {equal} equal, {different} better by design: {reasons:?}, {elsewhere} of other crates",
        table.len()
    ));
    let expected = [(Why::WhereTheBytesAre, 33), (Why::OntoItself, 19), (Why::Untouched, 11)];
    assert_eq!((equal, elsewhere), (117, 236));
    assert_eq!(reasons, BTreeMap::from(expected));
}
