//! The program of the page `docs/gpu.md`: a file goes through a device that has no room for all of it.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blob_core::{Part, prefetch};
use blob_io::Checkpoint;
use synced_mem::cuda::Cuda;
use synced_mem::{Budget, BudgetStats, Device, DeviceRef, Location};

use crate::{expect_no_leaks, gpu, seed};

fn stream(file: &Path, room: usize, each: impl Fn(&DeviceRef<'_>)) -> Result<BudgetStats, Box<dyn Error>> {
    let gpu = Cuda::open(0)?;
    let (work, ahead) = (gpu.queue()?, gpu.queue()?);
    let budget = Budget::new(Location::Device(gpu.id()), room);
    let checkpoint = Arc::new(Checkpoint::open(file)?);
    let mut layers = Vec::new();
    for entry in checkpoint.entries() {
        let layer = checkpoint.lazy(entry)?; // nothing is read
        budget.add(layer.memory(Part::Data));
        layers.push(layer);
    }
    for (nth, layer) in layers.iter().enumerate() {
        let token = layer.data().device(&work)?; // read from the file, uploaded
        each(&token); // launches kernels, and does not wait for them
        prefetch(&layers[nth + 1..], &ahead, room / 4)?; // the next layers come while they run
    }
    work.synchronize()?;
    Ok(budget.stats())
}

#[test]
fn a_checkpoint_passes_through_a_quarter_of_its_size() {
    const LAYERS: usize = 16;
    const LAYER: usize = 64 << 10;
    let (session, device, queue) = gpu(seed(1));
    let rows = (0..LAYERS).map(|n| {
        format!(
            "\"layer{n}\":{{\"dtype\":\"U8\",\"shape\":[{LAYER}],\"data_offsets\":[{},{}]}}",
            n * LAYER,
            (n + 1) * LAYER
        )
    });
    let header = format!("{{{}}}", rows.collect::<Vec<_>>().join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend((0..LAYERS * LAYER).map(|at| (at % 251) as u8));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    std::fs::write(&file, bytes).unwrap();
    let seen = AtomicUsize::new(0);
    let stats = stream(&file, LAYERS * LAYER / 4, |token| {
        seen.fetch_add(token.arg().range().len(), Ordering::Relaxed);
    });
    let stats = stats.unwrap();
    assert_eq!((seen.into_inner(), device.meter().stats().uploads.bytes), (LAYERS * LAYER, (LAYERS * LAYER) as u64));
    assert_eq!((stats.peak, stats.evicted.count), (LAYERS * LAYER / 4, 12));
    drop((device, queue));
    expect_no_leaks(&session);
}

/// The page has the program that was run.
#[test]
fn the_page_shows_this_program() {
    let (page, own) = (include_str!("../../docs/gpu.md"), include_str!("page.rs"));
    let program = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(own.contains(program) && program.lines().count() < 25);
}
