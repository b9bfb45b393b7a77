//! `blob-web-bindgen MODULE FOLDER`: writes the module for a browser and the JavaScript around it into the folder.
//! The same as wasm-bindgen's own program, whose version would have to be kept equal by hand.

#![forbid(unsafe_code)]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder] = &arguments[..] else { return Err("blob-web-bindgen MODULE FOLDER".into()) };
    let mut bindgen = wasm_bindgen_cli_support::Bindgen::new();
    let bindgen = bindgen
        .input_path(module)
        .no_modules(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true);
    Ok(bindgen.generate(folder)?)
}
