//! Gives the library the name by which programs ask for a CUDA driver: once it is loaded by its path, the loader
//! answers a later `dlopen("libcuda.so")` with it and looks at no file, even where a real driver is installed.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    }
}
