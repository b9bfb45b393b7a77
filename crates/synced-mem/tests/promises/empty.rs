//! No bytes: every access of them is answered, and nothing is allocated, moved, waited for or counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use synced_mem::loopback::launch;
use synced_mem::{Device, Error, Head, HostBuffer, Location, SharedMem, Stats, SyncedMem};

use crate::device;

/// Counts its end.
struct Counted(Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_memory_of_no_bytes_answers_every_access_and_touches_nothing() {
    let (device, queue) = device();
    let place = Location::Device(device.id());
    let (mut owned, ended) = (SyncedMem::from(Vec::new()), Arc::new(AtomicUsize::new(0)));
    assert!(owned.is_empty());
    assert!(owned.host(..).unwrap().is_empty() && owned.host_mut(0..0).unwrap().is_empty());
    assert!(owned.host_overwrite(..=0).is_err() && owned.host_overwrite(..).unwrap().is_empty());
    assert_eq!(owned.host(..).unwrap().as_ptr().addr() % 64, 0);
    let mut token = owned.device_mut(&queue, ..).unwrap();
    assert!(token.arg().range().is_empty() && token.arg().block().is_none() && token.arg().slice(..).is_ok());
    launch(&*queue, [token.arg_mut()], |args| assert!(args[0].bytes_mut().is_empty())).unwrap();
    drop(token);
    owned.device(&queue, ..).unwrap();
    owned.prefetch_host(..).unwrap();
    owned.adopt(HostBuffer::from_owner(Counted(ended.clone()))).unwrap();
    // SAFETY: no bytes are adopted.
    unsafe { owned.adopt_device(&queue, 0, 0, Box::new(Counted(ended.clone()))) }.unwrap();
    assert!(matches!(owned.adopt(vec![1]), Err(Error::WrongLength { wanted: 0, got: 1, .. })));
    assert_eq!(ended.load(Ordering::Relaxed), 2);
    owned.evict(Location::Host, ..).unwrap();
    owned.evict_clean(place, ..).unwrap();
    owned.shrink();
    assert!(owned.valid_on(Location::Host, ..) && owned.valid_on(place, 0..0) && !owned.valid_on(place, 0..1));
    assert_eq!((owned.head(), owned.stats()), (Head::Uninitialized, Stats::default()));

    let shared = SharedMem::from(owned);
    let guards = (shared.host_mut(..).unwrap(), shared.host_overwrite(..).unwrap(), shared.host(0..0).unwrap());
    assert_eq!((guards.0.len(), guards.1.len(), guards.2.len()), (0, 0, 0));
    let addresses = [guards.0.as_ptr().addr(), guards.1.as_ptr().addr(), guards.2.as_ptr().addr()];
    assert!(addresses.iter().all(|address| address % 64 == 0), "{addresses:?}");
    assert!(shared.device_overwrite(&queue, ..).unwrap().arg().block().is_none());
    shared.adopt(HostBuffer::from_owner(Counted(ended.clone()))).unwrap();
    // SAFETY: no bytes are adopted.
    unsafe { shared.adopt_device(&queue, 0, 0, Box::new(Counted(ended.clone()))) }.unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 4);
    shared.copy_from(0, &SharedMem::new(8), 8..8).unwrap();
    shared.evict(place, ..).unwrap();
    assert!(shared.check_write(..).is_ok() && shared.check_write(..1).is_err());
    assert_eq!((shared.head(), shared.stats()), (Head::Uninitialized, Stats::default()));
    assert_eq!(device.meter().stats(), Stats::default());
}

#[test]
fn no_bytes_of_a_memory_are_in_no_ones_way() {
    let (_device, queue) = device();
    let memory = SharedMem::from(vec![1; 8]);
    let writer = memory.host_mut(..).unwrap();
    assert!(memory.host(8..).unwrap().is_empty() && memory.device_mut(&queue, 3..3).unwrap().arg().block().is_none());
    memory.evict(Location::Host, 4..4).unwrap();
    memory.copy_from(8, &memory.clone(), 2..2).unwrap();
    assert!(memory.host(9..9).is_err() && memory.copy_from(9, &SharedMem::new(1), 0..0).is_err());
    drop(writer);
    assert_eq!(memory.handles(), 1);
}
