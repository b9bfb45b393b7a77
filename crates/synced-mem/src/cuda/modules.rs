//! The modules of a context: compiled programs, each kept until the context ends, and the kernels that were
//! asked for, because finding one means searching the program's text. Knows programs by the text's address and
//! length.

use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUfunction, CUjit_option, CUmodule};

use super::failure::{Failure, answer};

/// The loaded modules, each with the text before compilation.
#[derive(Debug, Default)]
pub(super) struct Modules {
    programs: Vec<(&'static str, Slot)>,
    kernels: Vec<(&'static str, String, Found)>,
}

/// A module, once compiled. Locked meanwhile: other threads wait instead of compiling the same.
#[derive(Debug, Clone, Default)]
struct Slot(Arc<Mutex<Option<Module>>>);

#[derive(Debug, Clone, Copy)]
pub(super) struct Module(pub(super) CUmodule);

// SAFETY: a handle of the driver belongs to no thread.
unsafe impl Send for Module {}
// SAFETY: a shared reference gives a copy of the handle alone, and the driver takes the handle from any thread.
unsafe impl Sync for Module {}

/// A kernel's handle, the bytes of the parameters, and the most threads of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) function: CUfunction,
    pub(super) params: usize,
    pub(super) threads: u32,
    /// Bytes of shared memory that the kernel itself declares for each block.
    pub(super) shared: u32,
}

// SAFETY: a kernel's handle belongs to no thread; the other fields are plain numbers.
unsafe impl Send for Found {}
// SAFETY: a shared reference gives a copy of the kernel's handle alone, and the driver takes the handle from any
// thread.
unsafe impl Sync for Found {}

impl Modules {
    fn slot(&mut self, text: &'static str) -> Slot {
        if let Some((_, slot)) = self.programs.iter().find(|(known, _)| ptr::eq(*known, text)) {
            return slot.clone();
        }
        let slot = Slot::default();
        self.programs.push((text, slot.clone()));
        slot
    }

    /// A kernel of a text, if asked for before.
    pub(super) fn kernel(&self, text: &'static str, entry: &str) -> Option<Found> {
        self.kernels.iter().find(|(known, name, _)| ptr::eq(*known, text) && *name == entry).map(|(_, _, found)| *found)
    }

    /// Another thread may have added the same meanwhile.
    pub(super) fn add_kernel(&mut self, text: &'static str, entry: &str, found: Found) {
        if self.kernel(text, entry).is_none() {
            self.kernels.push((text, entry.to_string(), found));
        }
    }

    /// All modules, to be unloaded.
    pub(super) fn take(&mut self) -> impl Iterator<Item = CUmodule> + use<> {
        self.kernels.clear();
        let slots = std::mem::take(&mut self.programs).into_iter();
        slots.filter_map(|(_, slot)| Some((*lock(&slot.0))?.0))
    }
}

/// The module of a text, compiled the first time. Other programs are found, loaded and launched meanwhile.
pub(super) fn find_or<E>(
    modules: &Mutex<Modules>,
    text: &'static str,
    compile: impl FnOnce() -> Result<Module, E>,
) -> Result<Module, E> {
    let slot = lock(modules).slot(text);
    let mut slot = lock(&slot.0);
    if let Some(module) = *slot {
        return Ok(module);
    }
    compile().inspect(|module| *slot = Some(*module))
}

/// The locked value is whole between two statements, also where a thread has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads code in the calling thread's context: a text with a zero byte at its end, or a whole cubin.
pub(super) fn compile(code: &[u8]) -> Result<Module, Refused> {
    let (mut module, mut log) = (ptr::null_mut(), vec![0u8; 4096]);
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver takes the length itself in place of a pointer.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
    // SAFETY: a text ends with a zero byte, a cubin where its headers say, and either is read during the call; the call
    // writes a handle, at most the given number of bytes of the log, and into the values, one for each option.
    let code = unsafe {
        let (count, image) = (options.len() as u32, code.as_ptr().cast());
        sys::cuModuleLoadDataEx(&mut module, image, count, options.as_mut_ptr(), values.as_mut_ptr())
    };
    answer("cuModuleLoadDataEx", code).map(|()| Module(module)).map_err(|failure| {
        let words = log.split(|byte| *byte == 0).next().unwrap_or_default();
        Refused { failure, log: String::from_utf8_lossy(words).trim().to_string() }
    })
}

/// A text that was not compiled, and the compiler's words.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) failure: Failure,
    log: String,
}

impl Refused {
    /// The failure itself where there are no words.
    pub(super) fn into_error(self) -> Box<dyn Error + Send + Sync> {
        if self.log.is_empty() { self.failure.into() } else { self.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.failure, self.log)
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.failure)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const COMPILED: Result<Module, ()> = Ok(Module(ptr::null_mut()));

    #[test]
    fn a_text_that_begins_another_is_another_program() {
        let text = "one, two";
        let modules = Mutex::new(Modules::default());
        assert!(find_or(&modules, text, || COMPILED).is_ok());
        assert!(find_or(&modules, text, || Err(())).is_ok() && find_or(&modules, &text[..3], || Err(())).is_err());
        let mut modules = modules.into_inner().unwrap();
        modules.add_kernel(text, "k", Found { function: ptr::null_mut(), params: 0, threads: 1, shared: 0 });
        assert!(modules.kernel(text, "k").is_some() && modules.kernel(&text[..3], "k").is_none());
        assert_eq!(modules.take().count(), 1, "the one that was compiled");
    }

    /// Every launch looks for a program: one that takes long to compile must not hold the others up.
    #[test]
    fn another_program_is_found_while_one_is_compiled() {
        let modules = &Mutex::new(Modules::default());
        thread::scope(|scope| {
            let (say, heard) = mpsc::channel();
            let compiled = find_or(modules, "slow", || {
                scope.spawn(move || find_or(modules, "other", || COMPILED).map(|_| say.send(())));
                heard.recv_timeout(Duration::from_secs(5)).map_err(|_| ())?;
                COMPILED
            });
            assert!(compiled.is_ok());
        });
    }

    #[test]
    fn threads_that_want_one_program_compile_it_once() {
        let (modules, times) = (Mutex::new(Modules::default()), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    find_or(&modules, "one", || {
                        times.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(20));
                        COMPILED
                    })
                });
            }
        });
        assert_eq!(times.into_inner(), 1);
    }
}
