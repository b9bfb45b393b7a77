//! The budget that each device has of its own: a memory for which the device has no block gets what others can give for
//! nothing, though nobody has made a budget.

use synced_mem::{Budget, Error, SharedMem, SyncedMem};

use super::budget::{is_there, place};
use super::{device, fill};

/// Nobody has made a budget, and what the device alone holds stays.
#[test]
fn each_device_has_a_budget_of_its_own_without_a_limit() {
    let (device, queue) = device();
    device.set_limit(3 * 1024);
    let own = Budget::of(&*device);
    assert_eq!((own.stats().limit, own.stats().in_use), (usize::MAX, 0));
    let memories: Vec<_> = (0..5).map(|nth| SharedMem::from(vec![nth; 1024])).collect();
    fill(&mut memories[0].device_mut(&queue, ..).unwrap(), 9);
    for nth in [1, 2, 3, 4, 1] {
        memories[nth].upload(&queue, ..).unwrap();
    }
    assert_eq!(is_there(&memories, place(&*device)), [0, 1, 4]);
    let stats = own.stats();
    assert_eq!((stats.in_use, stats.peak, stats.evictable, stats.evicted.count), (3072, 3072, 2048, 3));
    // One that is borrowed stays, and one that is in two budgets counts once in each.
    let token = memories[1].device(&queue, ..8).unwrap();
    [own.clone(), Budget::new(place(&*device), usize::MAX)].iter().for_each(|budget| budget.add(&memories[2]));
    memories[2].upload(&queue, ..).unwrap();
    assert_eq!((is_there(&memories, place(&*device)), own.stats().in_use), (vec![0, 1, 2], 3072));
    memories[3].upload(&queue, ..).unwrap();
    assert_eq!(is_there(&memories, place(&*device)), [0, 1, 3]);
    let late = SyncedMem::from(vec![7; 2048]);
    let refused = late.device(&queue, ..).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Exhausted { bytes: 2048, in_use: 2048, borrowed: 1, dirty: 1, .. }), "{refused}");
    drop(token);
    late.device(&queue, ..).unwrap();
    assert_eq!(is_there(&memories, place(&*device)), [0]);
    assert_eq!(*memories[0].host(..).unwrap(), [9; 1024]);
    drop(memories);
    assert_eq!(own.stats().in_use, 0);
}
