//! The options of a conversion to an ONNX model.

use std::collections::BTreeMap;

use blob_convert::recipe;
use blob_io::words::quoted;
use clap::ValueEnum;

use crate::failure::Failure;

/// How a net becomes an ONNX model.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "ONNX models")]
pub(crate) struct Onnx {
    /// The shape of an input, as data=1,3,224,224 [default: the net's own]; may be repeated
    #[arg(long = "input", value_name = "NAME=N,C,H,W", value_parser = input, hide_short_help = true)]
    pub(crate) input_shape: Vec<(String, Vec<u64>)>,
    /// Leave the first extent of inputs and outputs open
    #[arg(long, hide_short_help = true)]
    pub(crate) dynamic_batch: bool,
    /// An SSD's boxes by ONNX's operators (`standard`), by the nodes PriorBox and DetectionOutput of OpenCV (`opencv`),
    /// or not at all: locations, confidences and prior boxes are the outputs (`raw`)
    #[arg(long, value_name = "FORM", hide_short_help = true)]
    pub(crate) ssd: Option<Ssd>,
    /// The version of ONNX's operators, 13 to 17 [default: 17]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(13..=17), hide_short_help = true)]
    pub(crate) opset: Option<u8>,
    /// Put values of 1,024 bytes and more into a file beside the model, `net.onnx.data`; past 2 GiB this is done anyway
    #[arg(long, hide_short_help = true)]
    pub(crate) external_data: bool,
}

/// The forms of an SSD's boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ssd {
    Standard,
    Opencv,
    Raw,
}

impl Onnx {
    /// The settings; `None` where no option gives any.
    pub(crate) fn settings(&self) -> Result<Option<recipe::Onnx>, Failure> {
        let mut settings = recipe::Onnx::default();
        settings.inputs = inputs(&self.input_shape)?;
        (settings.dynamic_batch, settings.opset) = (self.dynamic_batch, self.opset);
        settings.external_data = self.external_data;
        settings.ssd = match self.ssd {
            None | Some(Ssd::Standard) => recipe::Ssd::Standard,
            Some(Ssd::Opencv) => recipe::Ssd::Opencv,
            Some(Ssd::Raw) => recipe::Ssd::Raw,
        };
        let is_given = settings != recipe::Onnx::default() || self.ssd.is_some();
        Ok(is_given.then_some(settings))
    }
}

/// The shapes of inputs by name.
pub(crate) fn inputs(shapes: &[(String, Vec<u64>)]) -> Result<BTreeMap<String, Vec<u64>>, Failure> {
    let mut inputs = BTreeMap::new();
    for (name, shape) in shapes {
        if inputs.insert(name.clone(), shape.clone()).is_some() {
            let name = quoted(name);
            return Err(Failure::new(format!("--input gives {name} two shapes")).help("give each input one shape"));
        }
    }
    Ok(inputs)
}

/// A name and extents.
pub(super) fn input(text: &str) -> Result<(String, Vec<u64>), String> {
    let (name, extents) = text.rsplit_once('=').ok_or("a name and extents are expected, as in data=1,3,224,224")?;
    let extents: Option<Vec<u64>> =
        extents.split(',').map(|extent| extent.trim().parse().ok().filter(|extent| *extent > 0)).collect();
    let extents = extents.ok_or("extents of 1 or more are expected, as in data=1,3,224,224")?;
    Ok((name.to_owned(), extents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_a_name_and_extents() {
        assert_eq!(input("a=b=1, 3"), Ok(("a=b".to_owned(), vec![1, 3])));
        for wrong in ["data", "data=", "data=1,x", "data=0,3", "data=-1"] {
            assert!(input(wrong).is_err(), "{wrong}");
        }
    }
}
