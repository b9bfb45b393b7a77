//! What is handed out: addresses of parts, and what is no longer borrowed when a memory is shared.

use synced_mem::{SharedMem, SyncedMem};

use super::{device, fill};

#[test]
fn a_part_has_its_own_address() {
    let (_device, queue) = device();
    let memory = SharedMem::new(64);
    let mut token = memory.device_mut(&queue, 16..48).unwrap();
    let (block, start) = {
        let all = token.arg();
        (all.block().unwrap().address(), all.address())
    };
    assert_eq!(start, block + 16);
    assert_eq!(token.arg().slice(4..8).unwrap().address(), block + 20);
    assert_eq!(token.arg_mut().slice(0..8).unwrap().address(), block + 16);
    let (front, back) = token.arg_mut().split_at(10).unwrap();
    assert_eq!((front.range(), back.range()), (16..26, 26..48));
    assert_eq!(back.address(), block + 26);
}

#[test]
fn what_one_owner_wrote_is_borrowed_no_more_when_it_is_shared() {
    let (_device, queue) = device();
    let mut memory = SyncedMem::new(8 << 10);
    fill(&mut memory.device_overwrite(&queue, ..).unwrap(), 1);
    for start in (0..600).map(|n| 13 * n) {
        memory.host_mut(start..start + 1).unwrap().fill(2);
    }
    let shared = SharedMem::from(memory);
    assert!(shared.check_write(0..shared.len()).is_ok());
    assert_eq!(shared.host_mut(0..shared.len()).unwrap()[13..15], [2, 1]);
}
