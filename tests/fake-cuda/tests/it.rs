//! What the driver for tests promises, called as a program would call it: by name, in the library that answers to
//! `libcuda.so`.

#![cfg(target_os = "linux")]

mod arithmetic;
mod driver;
mod faults;
mod kernels;
mod launch;
mod library;
mod support;
