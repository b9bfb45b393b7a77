//! Compares `SyncedMem` and `SharedMem` with tables of the real Caffe's `SyncedMemory`: every state, every operation,
//! and the cost of each.
//!
//! Device 0 is a loopback device, "another device" one beside it. Each row prepares a state, runs an operation and
//! compares the head, the blocks, the transfers and the newest byte. Where we differ, [`Why`] says why, and the row
//! asserts exactly our own behaviour: never more transfers over the bus than Caffe makes.

mod rig;

use std::collections::BTreeMap;

use rig::{Rig, Shell};
use synced_mem::loopback::Mode;
use synced_mem::{Event, EventKind, Stats};

use crate::support::{data, report, rows};

/// Every deliberate difference, with the reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    /// Caffe aborts at a failed allocation; here it is [`Error::OutOfMemory`] or [`Error::DeviceOutOfMemory`], and
    /// nothing has changed.
    OutOfMemory,
    /// `set_*_data(NULL)`: memory that can be adopted is never null here. The closest mistake is memory of another
    /// length, which is [`Error::WrongLength`] and changes nothing.
    NoNull,
    /// `async_gpu_push` aborts unless the head is at the host; `device` works from any state and moves the missing
    /// bytes.
    PushFromAnywhere,
    /// Caffe supports one device. On another one it returns the first one's pointer, or aborts if built with DEBUG.
    /// Here each device has a copy of its own, copied directly from the first device's if that is valid.
    EachDeviceItsCopy,
    /// In DEBUG builds, Caffe's host bytes can only be accessed while the memory's device is the current one. Here
    /// there is no current device.
    HostHasNoDevice,
    /// A host block that a queue may still read is freed once that queue is synchronized. Caffe frees it at once, which
    /// after `async_gpu_push` is a use after free.
    FreedWhenRead,
    /// A build of Caffe without GPUs aborts if one is used. Here there would be no queue to use.
    NoDevice,
}

/// The events, as counted in the tables. Plain and pinned host blocks count as one kind, and so do both kinds of
/// upload.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Costs {
    host_blocks: u64,
    device_blocks: u64,
    uploads: u64,
    downloads: u64,
    /// Copies between devices, or from adopted bytes to our own, which Caffe does not have.
    other_copies: u64,
    device_fills: u64,
    host_frees: u64,
    device_frees: u64,
}

impl Costs {
    fn add(&mut self, event: &Event) {
        let on_host = event.device.is_none();
        *match event.kind {
            EventKind::Allocate if on_host => &mut self.host_blocks,
            EventKind::Allocate => &mut self.device_blocks,
            EventKind::Upload => &mut self.uploads,
            EventKind::Download => &mut self.downloads,
            EventKind::DeviceCopy | EventKind::HostCopy => &mut self.other_copies,
            EventKind::Fill if !on_host => &mut self.device_fills,
            EventKind::Free if on_host => &mut self.host_frees,
            EventKind::Free => &mut self.device_frees,
            EventKind::Leak => panic!("a leak: {:?}", event.error),
            _ => return,
        } += 1;
    }

    /// From the memory's own counters.
    fn from_stats(stats: &Stats) -> [u64; 4] {
        let copies = stats.device_copies.count + stats.host_copies.count;
        let blocks = stats.allocations.count;
        let (up, down) = (stats.uploads.count, stats.downloads.count);
        [blocks, up, down, copies]
    }

    fn as_stats(&self) -> [u64; 4] {
        let blocks = self.host_blocks + self.device_blocks;
        [blocks, self.uploads, self.downloads, self.other_copies]
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Outcome {
    head: &'static str,
    costs: Costs,
    /// The name of the error.
    error: Option<&'static str>,
}

struct Row {
    at: String,
    gpu_mode: bool,
    state: String,
    before: &'static str,
    op: String,
    caffe: Outcome,
    /// The first byte on the host and on the device, stale or not.
    bytes: [Option<u8>; 2],
}

const HEADS: [&str; 5] = ["UNINITIALIZED", "HEAD_AT_CPU", "HEAD_AT_GPU", "SYNCED", "(destroyed)"];

fn head_name(cell: &str) -> &'static str {
    HEADS.into_iter().find(|head| *head == cell).expect("a head")
}

fn read(file: &str) -> Vec<Row> {
    let table = rows(&data(&format!("caffe/syncedmem/{file}.tsv")));
    table.iter().map(|row| row_of(file, row)).collect()
}

fn row_of(file: &str, row: &[String]) -> Row {
    let n: Vec<u64> = row[5..15].iter().map(|cell| cell.parse().expect("a count")).collect();
    let costs = Costs {
        host_blocks: n[0] + n[1],
        device_blocks: n[2],
        uploads: n[3] + n[5],
        downloads: n[4],
        other_copies: 0,
        device_fills: n[6],
        host_frees: n[7] + n[8],
        device_frees: n[9],
    };
    Row {
        at: format!("{file}: {}, {}, {}", row[0], row[1], row[3]),
        gpu_mode: row[0] == "GPU",
        state: row[1].clone(),
        before: head_name(&row[2]),
        op: row[3].clone(),
        caffe: Outcome { head: head_name(&row[4]), costs, error: (row[19] != "-").then_some("DIE") },
        bytes: [row[17].parse().ok(), row[18].parse().ok()],
    }
}

impl Row {
    fn died(&self) -> bool {
        self.caffe.error.is_some()
    }

    fn host_has_block(&self) -> bool {
        !["U", "GPU", "GPUr (after gpu_data() only)", "extGPU"].contains(&self.state.as_str())
    }

    fn unchanged(&self, error: Option<&'static str>) -> Outcome {
        let costs = Costs::default();
        Outcome { head: self.before, costs, error }
    }

    /// Our outcome, and the reason of a difference from Caffe's.
    fn ours(&self, mode: Mode) -> (Outcome, Option<Why>) {
        let different = |outcome, why| (outcome, Some(why));
        match self.op.as_str() {
            "set_cpu_data(NULL)" | "set_gpu_data(NULL)" => different(self.unchanged(Some("WrongLength")), Why::NoNull),
            "cpu_data when malloc fails" if self.died() => {
                different(self.unchanged(Some("OutOfMemory")), Why::OutOfMemory)
            }
            "gpu_data when cudaMalloc fails" if self.died() => {
                different(self.unchanged(Some("DeviceOutOfMemory")), Why::OutOfMemory)
            }
            "async_gpu_push" if self.died() => different(self.pushed(), Why::PushFromAnywhere),
            "cpu_data on another device" if self.died() => different(self.read_on_host(), Why::HostHasNoDevice),
            "mutable_gpu_data on another device" => match self.written_on_another_device() {
                outcome if outcome == self.caffe => (outcome, None),
                outcome => different(outcome, Why::EachDeviceItsCopy),
            },
            // A device that works at once has already read the host bytes, and they are freed as in Caffe.
            "set_cpu_data(ext)" if mode != Mode::Immediate && self.is_uploaded() && self.caffe.costs.host_frees > 0 => {
                let mut outcome = self.caffe.clone();
                outcome.costs.host_frees = 0;
                different(outcome, Why::FreedWhenRead)
            }
            _ => (self.caffe.clone(), None),
        }
    }

    /// Whether the state results from an upload that was not synchronized.
    fn is_uploaded(&self) -> bool {
        ["SYNCED from CPU", "async pushed", "GPU with stale CPU copy"].contains(&self.state.as_str())
    }

    fn pushed(&self) -> Outcome {
        let mut outcome = self.unchanged(None);
        if self.before == "UNINITIALIZED" {
            outcome.head = "HEAD_AT_GPU";
            (outcome.costs.device_blocks, outcome.costs.device_fills) = (1, 1);
        }
        outcome
    }

    fn read_on_host(&self) -> Outcome {
        let mut outcome = self.unchanged(None);
        outcome.costs.host_blocks = u64::from(!self.host_has_block());
        match self.before {
            "UNINITIALIZED" => outcome.head = "HEAD_AT_CPU",
            "HEAD_AT_GPU" => (outcome.head, outcome.costs.downloads) = ("SYNCED", 1),
            _ => {}
        }
        outcome
    }

    fn written_on_another_device(&self) -> Outcome {
        let mut outcome = self.unchanged(None);
        outcome.head = "HEAD_AT_GPU";
        outcome.costs.device_blocks = 1;
        *match self.before {
            "UNINITIALIZED" => &mut outcome.costs.device_fills,
            "HEAD_AT_CPU" => &mut outcome.costs.uploads,
            _ => &mut outcome.costs.other_copies,
        } = 1;
        outcome
    }
}

/// Runs a row. Returns the reason if the outcome differs from Caffe's.
fn check(row: &Row, mode: Mode, shell: Shell) -> Option<Why> {
    let mut rig = Rig::new(mode, shell);
    rig.prepare(&row.state).expect("a state");
    assert_eq!(rig.head(), row.before, "{}", row.at);
    rig.forget_costs();
    let stats = Costs::from_stats(&rig.memory().stats());
    let error = rig.run(&row.op, row.gpu_mode).err();
    let error = error.as_ref().map(rig::error_name);
    let (head, costs) = (rig.head(), rig.costs());
    let (expected, why) = row.ours(mode);
    assert_eq!(Outcome { head, costs, error }, expected, "{} ({why:?})", row.at);
    let bus = costs.uploads + costs.downloads;
    let caffes = row.caffe.costs.uploads + row.caffe.costs.downloads;
    assert!(row.died() || bus <= caffes, "{}: more transfers", row.at);
    if head != "(destroyed)" {
        check_counters(row, &mut rig, stats);
        check_bytes(row, &mut rig, why);
    }
    assert_eq!(rig.misuses(), [""; 0], "{}", row.at);
    why
}

/// Checks that the memory's counters agree with the events.
fn check_counters(row: &Row, rig: &mut Rig, before: [u64; 4]) {
    let after = Costs::from_stats(&rig.memory().stats());
    let counted: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(counted, rig.costs().as_stats(), "{}", row.at);
}

/// Checks that the valid copies have Caffe's bytes, and that memory which Caffe frees at once is freed in the end.
fn check_bytes(row: &Row, rig: &mut Rig, why: Option<Why>) {
    let costs = rig.costs();
    let newest = rig.newest();
    let valid = match rig.head() {
        "HEAD_AT_CPU" => [true, false],
        "HEAD_AT_GPU" => [false, true],
        head => [head == "SYNCED"; 2],
    };
    assert_eq!(newest.map(|byte| byte.is_some()), valid, "{}", row.at);
    for (ours, caffes) in newest.iter().zip(row.bytes) {
        if let (Some(ours), Some(caffes)) = (ours, caffes) {
            assert_eq!(*ours, caffes, "{}", row.at);
        }
    }
    let bus = |costs: Costs| (costs.uploads, costs.downloads, costs.other_copies);
    assert_eq!(bus(rig.costs()), bus(costs), "{}: reading moved bytes", row.at);
    if why == Some(Why::FreedWhenRead) {
        rig.memory().shrink();
        assert_eq!(rig.costs().host_frees, row.caffe.costs.host_frees, "{}", row.at);
    }
}

/// Runs a row in every mode and shell. The outcome depends on neither, except for when host bytes are freed. Returns
/// the reason for a device that works later.
fn check_everywhere(row: &Row) -> Option<Why> {
    let modes = [Mode::Immediate, Mode::Deferred, Mode::Random(1)];
    let answers = modes.map(|mode| [Shell::Sole, Shell::Shared].map(|shell| check(row, mode, shell)));
    answers[1][0]
}

#[test]
fn every_transition_costs_what_it_costs_caffe_or_less() {
    let tables = ["fake_cuda", "fake_cuda_debug"].map(read);
    let mut reasons: BTreeMap<Why, usize> = BTreeMap::new();
    let mut equal = 0;
    for row in tables.iter().flatten() {
        match check_everywhere(row) {
            None => equal += 1,
            Some(why) => *reasons.entry(why).or_default() += 1,
        }
    }
    for row in read("cpu_only") {
        if row.op.contains("gpu") {
            assert!(row.died(), "{}", row.at);
            *reasons.entry(Why::NoDevice).or_default() += 1;
        } else {
            match check_everywhere(&row) {
                None => equal += 1,
                Some(why) => *reasons.entry(why).or_default() += 1,
            }
        }
    }
    let different: usize = reasons.values().sum();
    report(&format!(
        "caffe SyncedMemory: {} rows, {equal} equal, {different} different by design: {reasons:?}",
        equal + different
    ));
    let expected = [
        (Why::OutOfMemory, 17),
        (Why::NoNull, 98),
        (Why::PushFromAnywhere, 28),
        (Why::EachDeviceItsCopy, 36),
        (Why::HostHasNoDevice, 16),
        (Why::FreedWhenRead, 8),
        (Why::NoDevice, 16),
    ];
    assert_eq!((equal, reasons), (382, BTreeMap::from(expected)));
}
