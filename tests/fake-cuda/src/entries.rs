//! The driver's entry points, as C calls them: exported names, arguments checked for null, the rest left to
//! [`crate::driver`]. Only names of CUDA 12.0 are here, so that a program that needs a newer driver is found out.
//! Pointers are behind [`crate::host`].
#![allow(non_snake_case, reason = "the names are C's")]

mod copies;
mod devices;
mod kernels;
mod memory;
mod streams;
mod tests_side;

/// Defines entry points: each is counted by its name, may be told to fail, and needs what its kind says.
macro_rules! entries {
    ($($kind:ident fn $name:ident($driver:ident $(, $arg:ident: $type:ty)*) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            crate::driver::call(stringify!($name), crate::driver::Kind::$kind, |$driver| $body)
        }
    )* };
}
use entries;
