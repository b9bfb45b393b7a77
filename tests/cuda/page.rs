//! The program of the page `docs/gpu.md`: a file goes through a device that has no room for all of it.

use std::error::Error;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use blob_core::{Part, prefetch};
use blob_io::Checkpoint;
use fake_cuda::control::Setup;
use synced_mem::cuda::Cuda;
use synced_mem::{Budget, BudgetStats, Device, DeviceRef, Location, SharedMem};

use crate::launch::add_one_of;
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

/// A sparse file of layers of 16 MiB of zeros, each of which begins with 64 bytes of its number.
fn sparse(file: &Path, layers: usize) {
    let rows = (0..layers).map(|n| {
        let [from, to] = [n, n + 1].map(|n| n * LAYER);
        format!("\"layer{n:03}\":{{\"dtype\":\"U8\",\"shape\":[{LAYER}],\"data_offsets\":[{from},{to}]}}")
    });
    let header = format!("{{{}}}", rows.collect::<Vec<_>>().join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    let mut out = fs::File::create(file).unwrap();
    out.write_all(&bytes).unwrap();
    for n in 0..layers {
        out.seek(SeekFrom::Start((bytes.len() + n * LAYER) as u64)).unwrap();
        out.write_all(&[(n % 251) as u8; MARK]).unwrap();
    }
    out.set_len((bytes.len() + layers * LAYER) as u64).unwrap();
}

const LAYER: usize = 16 << 20;
const MARK: usize = 64;

/// How many GiB the model has: `cargo xtask ci` says `BLOB_PAGE_GIB=30`, which takes a minute.
fn gib() -> usize {
    std::env::var("BLOB_PAGE_GIB").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Each layer is on the GPU when its kernels run, whose work is waited for at the end alone.
#[test]
fn a_checkpoint_passes_through_an_eighth_of_its_size() {
    let layers = gib() * (1 << 30) / LAYER;
    let room = layers / 8 * LAYER;
    let (session, device, queue) = gpu(Setup { memory: 2 * room as u64, ..seed(1) });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    sparse(&file, layers);
    let (marks, seen) = (SharedMem::new(layers * MARK), AtomicUsize::new(0));
    let start = Instant::now();
    let stats = stream(&file, room, |token| {
        let nth = seen.fetch_add(1, Ordering::Relaxed);
        let mut to = marks.device_overwrite(token.queue(), nth * MARK..(nth + 1) * MARK).unwrap();
        add_one_of(token.queue(), token.arg().slice(..MARK).unwrap(), to.arg_mut()).unwrap();
    });
    let (stats, took) = (stats.unwrap(), start.elapsed());
    println!("a model of {layers} layers of 16 MiB through {} MiB of a GPU: {took:.1?}", room >> 20);
    let wanted: Vec<u8> = (0..layers).flat_map(|n| [(n % 251) as u8 + 1; MARK]).collect();
    assert!(marks.host(..).unwrap()[..] == wanted, "the layers came in another order, or not whole");
    assert_eq!((seen.into_inner(), device.meter().stats().uploads.bytes), (layers, (layers * LAYER) as u64));
    assert_eq!((stats.peak, stats.evicted.count), (room, (layers - layers / 8) as u64));
    let rings = session.calls("cuMemHostAlloc");
    assert!((1..=8).contains(&rings), "{rings} rings of 8 MiB for two streams");
    drop((marks, device, queue));
    expect_no_leaks(&session);
}

/// The page has the program that was run.
#[test]
fn the_page_shows_this_program() {
    let (page, own) = (include_str!("../../docs/gpu.md"), include_str!("page.rs"));
    let program = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(own.contains(program) && program.lines().count() <= 20);
}
