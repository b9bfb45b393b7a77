//! Measures the way of a model from its file to the GPU, in turn with reads of the file alone and with uploads from
//! pinned memory alone; then what users of Python do. The files lie in memory, where the machine has such a folder, so
//! that no disk is measured.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use blob_core::{AnyBlob, DType, Part, Shape, prefetch};
use blob_io::{Checkpoint, Format, IfExists, Writer};
use synced_mem::cuda::Cuda;
use synced_mem::{Budget, Device, HostPool, Location, Queue, SharedMem, SyncedMem};

use crate::bench::{Run, in_turn};
use crate::{Sizes, child, words};

const LAYERS: usize = 128;
/// How many of the measurements' tensors a model has.
const TENSORS: usize = 8;
const THREADS: usize = 4;
const CHUNK: usize = 1 << 20;

/// A file of a model, and what its bytes pass through.
struct Model<'a> {
    file: &'a Path,
    layer: &'a [u8],
    gpu: &'a Arc<Cuda>,
    queue: &'a Arc<dyn Queue>,
    /// As much as a tensor of the measurements.
    pinned: &'a SharedMem,
    /// A chunk for each thread.
    chunks: &'a SharedMem,
}

pub(crate) fn run(sizes: &Sizes) -> Result<()> {
    let gpu = Cuda::open(0)?;
    let queue = gpu.queue()?;
    let device: Arc<dyn Device> = gpu.clone();
    let pinned = |len| SharedMem::from(SyncedMem::new_in(len, &HostPool::of(&device, len)));
    let (pinned, chunks) = (pinned(sizes.bytes), pinned(THREADS * CHUNK));
    pinned.host_overwrite(..)?.fill(1);
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let len = TENSORS * sizes.bytes / LAYERS;
    let layer = AnyBlob::from_vec(Shape::new([len])?, DType::U8, (0..len).map(|at| (at % 251) as u8).collect())?;
    for (name, format) in [("safetensors", Format::Safetensors), (".params", Format::MxnetList)] {
        let file = folder.path().join(format!("model.{}", name.trim_start_matches('.')));
        let writer = (0..LAYERS).fold(Writer::new(format), |writer, nth| writer.tensor(format!("layer{nth}"), &layer));
        writer.write(&file, IfExists::Replace)?;
        let layer = layer.data().bytes()?;
        let model = Model { file: &file, layer: &layer, gpu: &gpu, queue: &queue, pinned: &pinned, chunks: &chunks };
        println!("check\t{name}: its bits on the GPU\t{}", words(model.is_equal().map(|()| "the file's".to_string())));
        model.measure(name, sizes)?;
        if format == Format::Safetensors {
            model.peers(name, sizes)?;
        }
        std::fs::remove_file(&file)?;
    }
    Ok(())
}

impl Model<'_> {
    fn measure(&self, name: &str, sizes: &Sizes) -> Result<()> {
        forget_peak();
        let before = peak();
        self.to_the_gpu()?;
        if let Some((before, after)) = before.zip(peak()) {
            println!("figure\t{name}: host memory on the way, MiB\t{:e}", (after - before).max(0.0) / 1024.0);
        }
        let mut ours = |_| self.to_the_gpu().map(drop);
        let mut quarter = |_| self.through_a_quarter();
        let mut reads = |_| self.reads();
        let mut uploads = |_| self.uploads();
        let mut runs = [
            Run("ours", &mut ours),
            Run("a quarter", &mut quarter),
            Run("reads", &mut reads),
            Run("uploads", &mut uploads),
        ];
        let times = in_turn(&mut runs, sizes, 1)?;
        let [ours, quarter, reads, uploads] = &times[..] else { return Ok(()) };
        println!(
            "figure\t{name} to the GPU, of the lesser of its parts\t{:e}",
            reads.median.max(uploads.median) / ours.median
        );
        println!("figure\t{name} through a quarter of its bytes, of reads\t{:e}", reads.median / quarter.median);
        let rate = |time: &crate::bench::Time| time.rate(TENSORS * sizes.bytes);
        println!(
            "about\t{name} to the GPU: {}, through a quarter of its bytes {}, reads alone {}, pinned memory alone {}",
            rate(ours),
            rate(quarter),
            rate(reads),
            rate(uploads)
        );
        Ok(())
    }

    fn layers(&self) -> Result<Vec<AnyBlob>> {
        let checkpoint = Arc::new(Checkpoint::open(self.file)?);
        Ok(checkpoint.entries().iter().map(|entry| checkpoint.lazy(entry)).collect::<Result<_, _>>()?)
    }

    fn to_the_gpu(&self) -> Result<Vec<AnyBlob>> {
        let layers = self.layers()?;
        layers.iter().try_for_each(|layer| layer.upload(self.queue))?;
        self.queue.synchronize()?;
        Ok(layers)
    }

    fn is_equal(&self) -> Result<()> {
        for nth in [LAYERS / 2, LAYERS - 1] {
            let layer = self.to_the_gpu()?.swap_remove(nth);
            let is_on_host = layer.memory(Part::Data).valid_on(Location::Host, ..1);
            ensure!(!is_on_host && *layer.data().bytes()? == *self.layer, "other bytes");
        }
        Ok(())
    }

    fn through_a_quarter(&self) -> Result<()> {
        let (layers, ahead) = (self.layers()?, self.gpu.queue()?);
        let room = LAYERS * self.layer.len() / 4;
        let budget = Budget::new(Location::Device(self.gpu.id()), room);
        layers.iter().for_each(|layer| budget.add(layer.memory(Part::Data)));
        for (nth, layer) in layers.iter().enumerate() {
            layer.upload(self.queue)?;
            prefetch(&layers[nth + 1..], &ahead, room / 4)?;
        }
        ahead.synchronize()?;
        self.queue.synchronize()?;
        ensure!(budget.stats().peak <= room, "{:?} of {room}", budget.stats());
        Ok(())
    }

    /// Reads the file as our threads do, into chunks that are used again, and uploads nothing.
    fn reads(&self) -> Result<()> {
        let len = std::fs::metadata(self.file)?.len() as usize;
        let share = len.div_ceil(THREADS);
        let mut chunks = self.chunks.host_overwrite(..)?;
        thread::scope(|scope| {
            let shares = chunks.chunks_mut(CHUNK).zip((0..len).step_by(share));
            let threads =
                shares.map(|(chunk, from)| scope.spawn(move || read(self.file, chunk, from..len.min(from + share))));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a read does not panic"))
        })
    }

    fn uploads(&self) -> Result<()> {
        for _ in 0..TENSORS {
            // Writing on the host makes the copy on the device stale.
            drop(self.pinned.host_mut(..)?);
            self.pinned.upload(self.queue, ..)?;
        }
        Ok(self.queue.synchronize()?)
    }

    /// The same file with the libraries of Python.
    fn peers(&self, name: &str, sizes: &Sizes) -> Result<()> {
        let script = std::env::current_exe()?.with_file_name("gpu.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(self.file).arg(sizes.rounds.to_string());
        let Ok((text, why)) = child::run(&mut command, "", Duration::from_secs(90)) else {
            println!("about\tabsent: safe_open: no python3 can be started");
            return Ok(());
        };
        why.iter().for_each(|why| println!("about\tabsent: more of Python's files, because {why}"));
        let mut ours = |_| self.to_the_gpu().map(drop);
        let ours = in_turn(&mut [Run("ours", &mut ours)], sizes, 1)?[0].median;
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["file", who, seconds] => {
                    let theirs: f64 = seconds.parse().with_context(|| line.to_string())?;
                    println!("figure\t{name} to the GPU, of {who}'s speed\t{:e}", theirs / ours);
                }
                _ => println!("{line}"),
            }
        }
        Ok(())
    }
}

/// Reads a range of a file, all of it into the one chunk.
fn read(file: &Path, chunk: &mut [u8], range: Range<usize>) -> Result<()> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(range.start as u64))?;
    for at in range.clone().step_by(CHUNK) {
        file.read_exact(&mut chunk[..CHUNK.min(range.end - at)])?;
    }
    Ok(())
}

/// The most memory that this process has had since [`forget_peak`], in KiB, where Linux says so.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// From now on the peak is counted anew.
fn forget_peak() {
    // Where Linux refuses, the figure is that of the whole process, which is no less.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
