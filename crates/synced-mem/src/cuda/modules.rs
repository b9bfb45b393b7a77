//! The modules of a context: compiled programs, each kept until the context ends, and the kernels of them that were asked for,
//! because finding one means searching the program's text. It knows programs by their text's address and length.

use std::ptr;

use cudarc::driver::sys::{CUfunction, CUmodule};

/// What was loaded, each with the text that it was compiled from.
#[derive(Debug, Default)]
pub(super) struct Modules {
    programs: Vec<(&'static str, Module)>,
    kernels: Vec<(&'static str, &'static str, Found)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Module(pub(super) CUmodule);

// SAFETY: a handle of the driver belongs to no thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel as the driver knows it, the bytes of its parameters, and the threads that a block of it may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) function: CUfunction,
    pub(super) params: usize,
    pub(super) threads: u32,
}

// SAFETY: as above.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

impl Modules {
    /// The module of a text, if it was compiled before.
    pub(super) fn find(&self, text: &'static str) -> Option<Module> {
        self.programs.iter().find(|(known, _)| ptr::eq(*known, text)).map(|(_, module)| *module)
    }

    pub(super) fn add(&mut self, text: &'static str, module: Module) {
        self.programs.push((text, module));
    }

    /// A kernel of a text, if it was asked for before.
    pub(super) fn kernel(&self, text: &'static str, entry: &str) -> Option<Found> {
        self.kernels.iter().find(|(known, name, _)| ptr::eq(*known, text) && *name == entry).map(|(_, _, found)| *found)
    }

    pub(super) fn add_kernel(&mut self, text: &'static str, entry: &'static str, found: Found) {
        self.kernels.push((text, entry, found));
    }

    /// All of them, to be unloaded.
    pub(super) fn take(&mut self) -> impl Iterator<Item = CUmodule> + use<> {
        self.kernels.clear();
        std::mem::take(&mut self.programs).into_iter().map(|(_, module)| module.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_begins_another_is_another_program() {
        let text = "one, two";
        let mut modules = Modules::default();
        modules.add(text, Module(ptr::null_mut()));
        assert!(modules.find(text).is_some() && modules.find(&text[..3]).is_none());
        modules.add_kernel(text, "k", Found { function: ptr::null_mut(), params: 0, threads: 1 });
        assert!(modules.kernel(text, "k").is_some() && modules.kernel(&text[..3], "k").is_none());
    }
}
