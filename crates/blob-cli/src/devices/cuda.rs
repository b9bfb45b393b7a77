//! Lists the GPUs through `synced_mem`. If there is none, explains why in words for users.

use synced_mem::cuda::{self, Absent, Info};

use super::{Absence, Gpu};

// A static program has no dynamic loader, so it cannot load the driver even if the machine has one.
#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
mod linked {
    pub(super) const STATICALLY: bool = true;
}
#[cfg(not(all(target_env = "musl", target_feature = "crt-static")))]
mod linked {
    pub(super) const STATICALLY: bool = false;
}

pub(super) fn list() -> Result<Vec<Gpu>, Absence> {
    match cuda::list() {
        Ok(found) => Ok(found.into_iter().map(gpu).collect()),
        Err(absent) => Err(absence(&absent, linked::STATICALLY)),
    }
}

fn gpu(info: Info) -> Gpu {
    let Info { ordinal, name, capability, total, free, driver, .. } = info;
    Gpu { ordinal, name, capability, total, free, cuda: driver }
}

fn absence(absent: &Absent, is_static: bool) -> Absence {
    if is_static {
        return Absence {
            reason: "static",
            message: "this `blob` is a static program, and such a program cannot load a CUDA driver".to_owned(),
            help: "use a `blob` that was built for the machine's own C library",
        };
    }
    let (reason, help) = match absent {
        Absent::NoDriver { .. } => (
            "no-driver",
            "install the driver of the NVIDIA GPU, a toolkit is not needed; a container gets the driver of its host, \
             with docker by `--gpus all`",
        ),
        Absent::Stub => (
            "stub",
            "install the driver of the NVIDIA GPU; where it is installed, take the toolkit's folder `stubs` out of \
             LD_LIBRARY_PATH",
        ),
        Absent::NoDevice { .. } => (
            "no-device",
            "`nvidia-smi` lists the GPUs; where it shows some, see whether CUDA_VISIBLE_DEVICES hides them",
        ),
        Absent::TooOld { .. } => ("too-old", "update the driver of the NVIDIA GPU"),
        Absent::Incomplete { .. } => ("incomplete", "install the driver of the NVIDIA GPU again"),
        // `Failed`, and reasons that a later version of the library adds.
        _ => ("failed", "`nvidia-smi` may say more; after an update of the driver, restart the machine"),
    };
    let message = match absent {
        Absent::NoDevice { .. } => "the CUDA driver finds no GPU".to_owned(),
        absent => absent.to_string(),
    };
    Absence { reason, message, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_does_not_blame_the_machine() {
        let absence = absence(&Absent::Stub, true);
        assert!(absence.reason == "static" && absence.message.contains("static"), "{}", absence.message);
    }
}
