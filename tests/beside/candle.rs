//! The program of the page `docs/gpu.md`, beside candle: the layers of a checkpoint go through a GPU that has no room
//! for all, each also becomes a tensor of candle's, and neither place ever has more than its budget.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use blob_core::{AnyBlob, Part, prefetch};
use blob_io::Checkpoint;
use candle_core::{DType, Device as Candle, Tensor};
use synced_mem::cuda::Cuda;
use synced_mem::{Budget, BudgetStats, Device, Location, Queue};

use crate::{expect_no_leaks, session};

fn stream(
    file: &Path,
    room: usize,
    mut each: impl FnMut(&str, &AnyBlob, Tensor, &Arc<dyn Queue>) -> Result<(), Box<dyn Error>>,
) -> Result<[BudgetStats; 2], Box<dyn Error>> {
    let gpu = Cuda::open(0)?;
    let (work, ahead) = (gpu.queue()?, gpu.queue()?);
    let budgets = [Location::Device(gpu.id()), Location::Host].map(|place| Budget::new(place, room));
    let checkpoint = Arc::new(Checkpoint::open(file)?);
    let mut layers = Vec::new();
    for entry in checkpoint.entries() {
        let layer = checkpoint.lazy(entry)?; // nothing is read
        budgets.iter().for_each(|budget| budget.add(layer.memory(Part::Data)));
        layers.push((entry.name(), layer));
    }
    for (nth, (name, layer)) in layers.iter().enumerate() {
        let (shape, bytes) = (layer.shape().dims(), layer.data().bytes()?); // from the file, or the GPU
        let tensor = Tensor::from_raw_buffer(&bytes, DType::F32, shape, &Candle::Cpu)?;
        drop(bytes);
        each(name, layer, tensor, &work)?; // launches kernels, and computes with candle
        prefetch(layers[nth + 1..].iter().map(|(_, layer)| layer), &ahead, room / 4)?;
    }
    work.synchronize()?;
    Ok(budgets.map(|budget| budget.stats()))
}

const SIDE: usize = 128;
const LAYERS: usize = 64;
/// Of an eighth of the bytes.
const ROOM: usize = LAYERS * SIDE * SIDE * 4 / 8;

/// Layers of small whole numbers, whose sums are the same in any order.
fn model(file: &Path) {
    let layers = (0..LAYERS).map(|nth: usize| {
        let values: Vec<f32> = (0..SIDE * SIDE).map(|at| ((at * 7 + nth * 13) % 31) as f32 - 15.0).collect();
        (format!("layer{nth:02}"), Tensor::from_vec(values, (SIDE, SIDE), &Candle::Cpu).unwrap())
    });
    let layers: HashMap<String, Tensor> = layers.collect();
    candle_core::safetensors::save(&layers, file).unwrap();
}

fn sum(tensor: &Tensor) -> f64 {
    tensor.abs().unwrap().to_dtype(DType::F64).unwrap().sum_all().unwrap().to_scalar().unwrap()
}

#[test]
fn layers_pass_through_a_gpu_and_candle_an_eighth_of_the_bytes_at_a_time() {
    let session = session(1, 2 * ROOM as u64);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    model(&file);
    let whole = candle_core::safetensors::load(&file, &Candle::Cpu).unwrap();
    let mut seen = Vec::new();
    let stats = stream(&file, ROOM, |name, layer, tensor, work| {
        assert_eq!(tensor.to_vec2::<f32>()?, whole[name].to_vec2::<f32>()?, "{name}");
        // The same sum by a kernel on the GPU and by candle.
        let on_gpu = blob_ops::at(work).asum(layer, Part::Data)?.as_f64();
        assert_eq!(on_gpu, sum(&tensor), "{name}");
        assert_eq!(layer.memory(Part::Data).stats().origin_reads.bytes, (SIDE * SIDE * 4) as u64, "{name}");
        seen.push(name.to_owned());
        Ok(())
    });
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), LAYERS);
    for BudgetStats { peak, evicted, .. } in stats.unwrap() {
        assert!(peak <= ROOM && evicted.count >= LAYERS as u64 * 3 / 4, "{peak} of {ROOM}, {evicted:?}");
    }
    expect_no_leaks(&session);
}

/// The page has the loop that was run.
#[test]
fn the_page_shows_this_loop() {
    let (page, own) = (include_str!("../../docs/gpu.md"), include_str!("candle.rs"));
    let program = page.split("```rust\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(program.lines().count() > 10 && own.contains(program));
}
