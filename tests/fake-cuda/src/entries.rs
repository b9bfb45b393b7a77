//! The driver's entry points, as C calls them: each checks arguments for null and passes the call to [`crate::driver`].
//! Only names of CUDA 12.0 are exported, so that the tests detect a program that needs a newer driver. Only
//! [`crate::host`] dereferences pointers.
#![allow(non_snake_case, reason = "the names are C's")]

mod copies;
mod devices;
mod kernels;
mod memory;
mod streams;
mod tests_side;

/// Defines entry points. Each is counted by name, can be made to fail, and requires the state of a kind.
macro_rules! entries {
    ($($kind:ident fn $name:ident($driver:ident $(, $arg:ident: $type:ty)*) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            crate::driver::call(stringify!($name), crate::driver::Kind::$kind, |$driver| $body)
        }
    )* };
}
use entries;
