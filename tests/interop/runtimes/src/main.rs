//! Runs an ONNX model in rten or tract: `runtimes rten|tract MODEL < inputs`.
//!
//! A line in or out is a value: the name, the extents with commas, the elements with commas, all with tabs between.

use std::error::Error;
use std::io::{Read, Write};

use rten_tensor::prelude::*;
use tract_onnx::prelude::*;

/// A value of the graph: name, extents, elements.
struct Named {
    name: String,
    dims: Vec<usize>,
    values: Vec<f32>,
}

fn parsed(line: &str) -> Result<Named, Box<dyn Error>> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().ok_or("a name, extents and elements are expected");
    let name = field()?.to_owned();
    let dims = field()?.split(',').filter(|one| !one.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
    let values = field()?.split(',').filter(|one| !one.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
    Ok(Named { name, dims, values })
}

fn by_rten(path: &str, inputs: Vec<Named>) -> Result<Vec<Named>, Box<dyn Error>> {
    let model = rten::Model::load_file(path)?;
    let given: Vec<_> = inputs
        .iter()
        .map(|input| Ok((model.node_id(&input.name)?, rten::Value::from_shape(&input.dims, input.values.clone())?.into())))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let outputs = model.output_ids().to_vec();
    let found = model.run(given, &outputs, None)?;
    let named = outputs.iter().zip(found).map(|(id, value)| {
        let name = model.node_info(*id).and_then(|info| info.name().map(str::to_owned)).unwrap_or_default();
        let (dims, values) = match value {
            rten::Value::FloatTensor(tensor) => (tensor.shape().to_vec(), tensor.to_vec()),
            rten::Value::Int32Tensor(tensor) => (tensor.shape().to_vec(), tensor.iter().map(|one| *one as f32).collect()),
            _ => return Err(format!("{name} is neither of floats nor of integers").into()),
        };
        Ok(Named { name, dims, values })
    });
    named.collect()
}

fn by_tract(path: &str, inputs: Vec<Named>) -> Result<Vec<Named>, Box<dyn Error>> {
    let mut model = tract_onnx::onnx().model_for_path(path)?;
    let places = model.input_outlets()?.to_vec();
    let mut given = tvec!();
    for (place, outlet) in places.iter().enumerate() {
        let name = model.node(outlet.node).name.clone();
        let input = inputs.iter().find(|input| input.name == name).ok_or("an input without values")?;
        model = model.with_input_fact(place, f32::fact(&input.dims).into())?;
        given.push(tract_ndarray::ArrayD::from_shape_vec(input.dims.clone(), input.values.clone())?.into_tensor().into());
    }
    let outlets = model.output_outlets()?.to_vec();
    let names: Vec<String> = outlets
        .iter()
        .map(|outlet| model.outlet_label(*outlet).map_or_else(|| model.node(outlet.node).name.clone(), str::to_owned))
        .collect();
    let found = model.into_optimized()?.into_runnable()?.run(given)?;
    let named = names.into_iter().zip(found.iter()).map(|(name, value)| {
        let value = value.cast_to::<f32>()?;
        let view = value.to_plain_array_view::<f32>()?;
        Ok(Named { name, dims: view.shape().to_vec(), values: view.iter().copied().collect() })
    });
    named.collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let inputs = text.lines().map(parsed).collect::<Result<Vec<_>, _>>()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let found = match &arguments[..] {
        [engine, path] if engine == "rten" => by_rten(path, inputs)?,
        [engine, path] if engine == "tract" => by_tract(path, inputs)?,
        _ => return Err("runtimes rten|tract MODEL < inputs".into()),
    };
    let mut out = std::io::stdout().lock();
    for Named { name, dims, values } in found {
        let joined = |all: Vec<String>| all.join(",");
        let dims = joined(dims.iter().map(usize::to_string).collect());
        writeln!(out, "{name}\t{dims}\t{}", joined(values.iter().map(f32::to_string).collect()))?;
    }
    Ok(())
}
