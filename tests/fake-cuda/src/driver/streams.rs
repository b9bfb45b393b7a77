//! Streams and events. Work is only enqueued. A synchronising call runs the first work of the streams, one piece at a
//! time, in an order that the seed decides, until the work waited for is done. Every piece of work has a ticket.
//! An event has the ticket of the last record, and a stream that waits for the event copies the ticket at the call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::{Driver, Work};
use crate::abi::Code;
use crate::ptx::Kernel;

/// The streams and events by handle, and the pending work.
pub(crate) struct Streams {
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
    pending: BTreeSet<u64>,
    next_ticket: u64,
    next_handle: usize,
}

/// One stream.
struct Stream {
    device: usize,
    /// Whether the stream is ordered with the null stream.
    is_blocking: bool,
    queue: VecDeque<(u64, Work)>,
    last: u64,
    is_destroyed: bool,
}

/// One event.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) device: usize,
    pub(crate) has_time: bool,
    /// The ticket of the last record.
    pub(crate) record: Option<u64>,
}

/// Handles count up from here and are never reused.
const FIRST_HANDLE: usize = 0x5700_0000;
const HANDLE_STEP: usize = 0x10;
/// `CU_STREAM_LEGACY`, which a null handle means.
const LEGACY: usize = 1;

/// The handle under which a device's null stream is kept.
fn null_stream(device: usize) -> usize {
    0x1000 + device
}

impl Streams {
    pub(crate) fn new(devices: usize) -> Streams {
        let nulls = (0..devices).map(|device| {
            let stream = Stream { device, is_blocking: true, queue: VecDeque::new(), last: 0, is_destroyed: false };
            (null_stream(device), stream)
        });
        let (events, pending) = (BTreeMap::new(), BTreeSet::new());
        Streams { streams: nulls.collect(), events, pending, next_ticket: 1, next_handle: FIRST_HANDLE }
    }

    fn handle(&mut self) -> usize {
        self.next_handle += HANDLE_STEP;
        self.next_handle
    }

    pub(crate) fn create(&mut self, device: usize, is_blocking: bool) -> usize {
        let handle = self.handle();
        let stream = Stream { device, is_blocking, queue: VecDeque::new(), last: 0, is_destroyed: false };
        self.streams.insert(handle, stream);
        handle
    }

    pub(crate) fn create_event(&mut self, device: usize, has_time: bool) -> usize {
        let handle = self.handle();
        self.events.insert(handle, Event { device, has_time, record: None });
        handle
    }

    /// The number of streams and events that the caller created.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let own = self.streams.iter().filter(|(handle, stream)| **handle >= FIRST_HANDLE && !stream.is_destroyed);
        (own.count(), self.events.len())
    }

    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        !self.pending.contains(&ticket)
    }

    /// Whether pending work uses host memory in this range.
    pub(crate) fn uses_host(&self, range: &Range<usize>) -> bool {
        self.streams.values().any(|stream| stream.queue.iter().any(|(_, work)| work.uses_host(range)))
    }

    /// Whether pending copies or fills use device memory in this range.
    pub(crate) fn uses_block(&self, range: &Range<u64>) -> bool {
        self.streams.values().any(|stream| stream.queue.iter().any(|(_, work)| work.uses_block(range)))
    }

    /// Whether a launch of a kernel is pending.
    pub(crate) fn runs(&self, kernel: &Arc<Kernel>) -> bool {
        let mut entries = self.streams.values().flat_map(|stream| &stream.queue);
        entries.any(|(_, work)| matches!(work, Work::Launch(launch) if Arc::ptr_eq(&launch.kernel, kernel)))
    }

    /// Drops the pending work of a device whose context has failed.
    pub(crate) fn abandon(&mut self, device: usize) {
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            for (ticket, _) in stream.queue.drain(..) {
                self.pending.remove(&ticket);
            }
        }
    }

    fn push(&mut self, handle: usize, work: Work) -> u64 {
        let ticket = self.next_ticket;
        if let Some(stream) = self.streams.get_mut(&handle) {
            self.next_ticket += 1;
            self.pending.insert(ticket);
            stream.last = ticket;
            stream.queue.push_back((ticket, work));
        }
        ticket
    }

    /// The tickets that new work on a stream waits for, because of the null stream's order with the blocking ones.
    fn implied(&self, handle: usize) -> Vec<u64> {
        let Some(stream) = self.streams.get(&handle).filter(|stream| stream.is_blocking) else { return Vec::new() };
        let is_null = handle == null_stream(stream.device);
        let others = self.streams.iter().filter(|(other, each)| {
            **other != handle
                && each.device == stream.device
                && each.is_blocking
                && (is_null || **other == null_stream(stream.device))
        });
        others.map(|(_, each)| each.last).filter(|ticket| !self.is_done(*ticket)).collect()
    }

    /// The streams whose next work may run.
    fn runnable(&self) -> Vec<usize> {
        let runnable = self.streams.iter().filter(|(_, stream)| match stream.queue.front() {
            Some((_, Work::Wait(ticket))) => self.is_done(*ticket),
            head => head.is_some(),
        });
        runnable.map(|(handle, _)| *handle).collect()
    }

    fn pop(&mut self, handle: usize) -> Option<(usize, u64, Work)> {
        let stream = self.streams.get_mut(&handle)?;
        let (ticket, work) = stream.queue.pop_front()?;
        let device = stream.device;
        if stream.is_destroyed && stream.queue.is_empty() {
            self.streams.remove(&handle);
        }
        Some((device, ticket, work))
    }
}

impl Driver {
    /// The key of a stream that the caller names: null is that of the current context.
    fn stream_key(&mut self, handle: usize) -> Result<usize, Code> {
        if handle <= LEGACY {
            return self.current_device().map(null_stream);
        }
        match self.streams.streams.get(&handle) {
            Some(stream) if !stream.is_destroyed && handle >= FIRST_HANDLE => Ok(handle),
            _ => Err(self.refuse(Code::INVALID_HANDLE, "a stream that was not created, or was destroyed")),
        }
    }

    /// The device of a stream.
    pub(crate) fn stream_device(&mut self, handle: usize) -> Result<usize, Code> {
        let key = self.stream_key(handle)?;
        Ok(self.streams.streams[&key].device)
    }

    /// Appends work to a stream; returns the ticket.
    pub(crate) fn enqueue(&mut self, handle: usize, work: Work) -> Result<u64, Code> {
        let key = self.stream_key(handle)?;
        if let Some(code) = self.devices[self.streams.streams[&key].device].failed {
            return Err(code);
        }
        for ticket in self.streams.implied(key) {
            self.streams.push(key, Work::Wait(ticket));
        }
        Ok(self.streams.push(key, work))
    }

    /// Runs one piece of work of any stream; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let runnable = self.streams.runnable();
        if runnable.is_empty() {
            return false;
        }
        let handle = runnable[self.random.below(runnable.len())];
        let Some((device, ticket, work)) = self.streams.pop(handle) else { return false };
        let planned = match work {
            Work::Wait(_) | Work::Mark => None,
            _ => self.calls.enter_work(),
        };
        let result = match planned {
            Some(code) => Err(code),
            None => self.perform(device, work).map_err(|fault| self.refuse(fault.code, fault.text)),
        };
        self.streams.pending.remove(&ticket);
        if let Err(code) = result {
            self.fail(device, code);
        }
        true
    }

    /// Runs work until everything that the caller waits for is done.
    fn run_while(&mut self, is_waiting: impl Fn(&Streams) -> bool) {
        while is_waiting(&self.streams) && self.step() {}
    }

    /// Runs all pending work.
    pub(crate) fn run_all(&mut self) {
        self.run_while(|_| true);
    }

    /// Runs all pending work of a device.
    pub(crate) fn run_device(&mut self, device: usize) {
        self.run_while(|streams| streams.streams.values().any(|each| each.device == device && !each.queue.is_empty()));
    }

    /// Waits for a ticket of a device. Returns the failure of the context, if any.
    pub(crate) fn wait(&mut self, device: usize, ticket: u64) -> Result<(), Code> {
        self.run_while(|streams| !streams.is_done(ticket));
        self.devices[device].failed.map_or(Ok(()), Err)
    }

    /// Waits for all work of a stream.
    pub(crate) fn synchronise(&mut self, handle: usize) -> Result<(), Code> {
        let key = self.stream_key(handle)?;
        let device = self.streams.streams[&key].device;
        self.run_while(|streams| streams.streams.get(&key).is_some_and(|stream| !stream.queue.is_empty()));
        self.devices[device].failed.map_or(Ok(()), Err)
    }

    /// Whether a stream has no pending work. Each query runs one piece of work, so that a caller that polls makes
    /// progress.
    pub(crate) fn query(&mut self, handle: usize) -> Result<(), Code> {
        let key = self.stream_key(handle)?;
        let device = self.streams.streams[&key].device;
        self.step();
        match self.devices[device].failed {
            Some(code) => Err(code),
            None if self.streams.streams[&key].queue.is_empty() => Ok(()),
            None => Err(Code::NOT_READY),
        }
    }

    /// Destroys a stream; the pending work still runs.
    pub(crate) fn destroy_stream(&mut self, handle: usize) -> Result<(), Code> {
        let key = self.stream_key(handle)?;
        match self.streams.streams.get_mut(&key) {
            Some(stream) if key >= FIRST_HANDLE && !stream.queue.is_empty() => stream.is_destroyed = true,
            Some(_) if key >= FIRST_HANDLE => drop(self.streams.streams.remove(&key)),
            _ => return Err(Code::INVALID_HANDLE),
        }
        Ok(())
    }

    /// An event that the caller names.
    pub(crate) fn event(&mut self, handle: usize) -> Result<&mut Event, Code> {
        if !self.streams.events.contains_key(&handle) {
            return Err(self.refuse(Code::INVALID_HANDLE, "an event that was not created, or was destroyed"));
        }
        self.streams.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Refuses a call about a stream of a device in the context of another.
    fn only_in_its_context(&mut self, device: usize, call: &str) -> Result<(), Code> {
        if self.current_device()? == device {
            return Ok(());
        }
        Err(self.refuse(Code::INVALID_HANDLE, format!("{call} in another context than the stream's")))
    }

    /// Records an event at the current end of a stream.
    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Result<(), Code> {
        let device = self.stream_device(stream)?;
        self.only_in_its_context(device, "an event is recorded")?;
        if self.event(event)?.device != device {
            return Err(self.refuse(Code::INVALID_HANDLE, "an event is recorded on a stream of another device"));
        }
        let ticket = self.enqueue(stream, Work::Mark)?;
        self.event(event)?.record = Some(ticket);
        Ok(())
    }

    /// Makes a stream wait for the event's current record; a later record has no influence.
    pub(crate) fn wait_event(&mut self, stream: usize, event: usize) -> Result<(), Code> {
        let device = self.stream_device(stream)?;
        self.only_in_its_context(device, "an event is waited for")?;
        if let Some(ticket) = self.event(event)?.record.filter(|ticket| !self.streams.is_done(*ticket)) {
            self.enqueue(stream, Work::Wait(ticket))?;
        } else {
            self.stream_key(stream)?;
        }
        Ok(())
    }

    /// Destroys an event; work that waits for the record still waits.
    pub(crate) fn destroy_event(&mut self, handle: usize) -> Result<(), Code> {
        self.event(handle)?;
        self.streams.events.remove(&handle);
        Ok(())
    }
}
