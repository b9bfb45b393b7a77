//! Lists the GPUs: name, compute capability, memory, driver; or says why there is none, and what to do.
//!
//! `cargo run -p synced-mem --example devices --features cuda-newest`. Nothing is computed or allocated.

use synced_mem::cuda::{Absent, Info, list};

fn main() {
    print!("{}", report());
}

/// A line for each GPU, or the reason why there is none.
pub(crate) fn report() -> String {
    match list() {
        Ok(gpus) => gpus.iter().map(line).collect(),
        Err(absent) => format!("{absent}\n  help: {}\n", help(&absent)),
    }
}

fn line(gpu: &Info) -> String {
    let (major, minor) = gpu.capability;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    format!(
        "{}  {}  capability {major}.{minor}  memory {}, free {}  CUDA {}.{}\n",
        gpu.ordinal,
        gpu.name,
        mib(gpu.total),
        gpu.free.map_or_else(|| "-".to_owned(), mib),
        gpu.driver / 1000,
        gpu.driver % 1000 / 10,
    )
}

/// The next step of somebody who expected a GPU.
fn help(absent: &Absent) -> &'static str {
    match absent {
        Absent::NoDriver { .. } => {
            "install the driver of the NVIDIA GPU, a toolkit is not needed; a container gets the driver of its host, \
             with docker by `--gpus all`; a static program can load no driver"
        }
        Absent::Stub => {
            "install the driver of the NVIDIA GPU; where it is installed, take the toolkit's folder `stubs` out of \
             LD_LIBRARY_PATH"
        }
        Absent::NoDevice { .. } => {
            "`nvidia-smi` lists the GPUs; where it shows some, see whether CUDA_VISIBLE_DEVICES hides them"
        }
        Absent::TooOld { .. } => "update the driver of the NVIDIA GPU",
        Absent::Incomplete { .. } => "install the driver of the NVIDIA GPU again",
        // `Failed`, and reasons that a later version of the library adds.
        _ => "`nvidia-smi` may say more; after an update of the driver, restart the machine",
    }
}
