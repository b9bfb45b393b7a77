//! The tool starts, and is this package's. That a test of this package runs the program has `cargo test --workspace`
//! build it with the features of all other tests, so that no library is compiled once more for it.

use std::process::Command;

#[test]
fn tells_the_version_of_the_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_blob")).arg("--version").output().expect("the tool starts");
    let told = String::from_utf8(output.stdout).expect("the version is text");
    assert!(output.status.success(), "{:?}", output.status);
    assert!(told.starts_with(concat!("blob ", env!("CARGO_PKG_VERSION"))), "{told:?}");
}
