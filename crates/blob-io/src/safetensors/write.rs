//! Lays out a safetensors file and writes the header.

use crate::error::Error;
use crate::metadata;
use crate::safetensors::{DTYPES, LONGEST_HEADER};
use crate::spec::{TensorSpec, refuse, total, unique};

const FORMAT: &str = "safetensors";
/// The alignment of the data: the width of a cache line, and of the widest vector load.
const ALIGN: usize = 64;

/// The tensors' part of the header, and the header's length.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The tensors' part of the header: `"w":{…},"b":{…}`.
    tensors: String,
    keys: Vec<String>,
    /// The length of the JSON, and the length of the whole header with padding and the length field of eight bytes.
    json: usize,
    padded: usize,
}

pub(crate) fn plan(specs: &[TensorSpec], metadata: &[(String, String)]) -> Result<(Plan, Vec<u64>, u64), Error> {
    unique(FORMAT, "the tensor", specs.iter().map(|spec| &*spec.name))?;
    unique(FORMAT, "the metadata key", metadata.iter().map(|(k, _)| k.as_str()))?;
    let mut order: Vec<usize> = (0..specs.len()).collect();
    // Tensors with larger elements come first, so that each tensor is aligned to the size of an element.
    order.sort_by_key(|&i| std::cmp::Reverse(specs[i].dtype.size()));
    let mut offsets = vec![0; specs.len()];
    let mut tensors = String::new();
    let mut end = 0;
    for &i in &order {
        offsets[i] = end;
        end = total(FORMAT, end, specs[i].byte_len())?;
        describe(&specs[i], offsets[i], end, &mut tensors)?;
    }
    let keys = metadata.iter().map(|(key, _)| key.clone()).collect();
    let mut plan = Plan { tensors, keys, json: 0, padded: 0 };
    plan.json = plan.header(metadata).len();
    plan.padded = (8 + plan.json).next_multiple_of(ALIGN);
    let found = plan.padded as u64 - 8;
    if found > LONGEST_HEADER {
        let message = format!("the header takes {found} bytes; the format allows {LONGEST_HEADER}");
        return Err(refuse(FORMAT, message));
    }
    offsets.iter_mut().for_each(|offset| *offset += plan.padded as u64);
    let len = total(FORMAT, plan.padded as u64, end)?;
    Ok((plan, offsets, len))
}

fn describe(spec: &TensorSpec, begin: u64, end: u64, out: &mut String) -> Result<(), Error> {
    if spec.name == "__metadata__" {
        return Err(refuse(FORMAT, "no tensor can be called \"__metadata__\""));
    }
    let dtype = DTYPES.iter().find(|(_, dtype)| *dtype == spec.dtype);
    let (dtype, _) = dtype.ok_or_else(|| {
        let message = format!("tensor {:?}: no {} in this format", spec.name, spec.dtype);
        refuse(FORMAT, message)
    })?;
    if !out.is_empty() {
        out.push(',');
    }
    let dims: Vec<String> = spec.shape.dims().iter().map(usize::to_string).collect();
    out.push_str(&metadata::quoted(&spec.name));
    out.push_str(&format!(r#":{{"dtype":"{dtype}","shape":[{}],"data_offsets":[{begin},{end}]}}"#, dims.join(",")));
    Ok(())
}

impl Plan {
    pub(crate) fn frame(&self, metadata: &[(String, String)]) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        if !self.keys.iter().eq(metadata.iter().map(|(key, _)| key)) {
            return Err(refuse(FORMAT, "the metadata have other keys than in the layout"));
        }
        let json = self.header(metadata);
        if json.len() != self.json {
            let message = format!("the header takes {} bytes of JSON, in the layout it took {}", json.len(), self.json);
            return Err(refuse(FORMAT, message));
        }
        let mut bytes = Vec::with_capacity(self.padded);
        bytes.extend_from_slice(&(self.padded as u64 - 8).to_le_bytes());
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(self.padded, b' ');
        Ok(vec![(0, bytes)])
    }

    fn header(&self, metadata: &[(String, String)]) -> String {
        let mut json = String::from("{");
        if !metadata.is_empty() {
            json += r#""__metadata__":"#;
            json += &metadata::text(metadata);
            if !self.tensors.is_empty() {
                json.push(',');
            }
        }
        json.push_str(&self.tensors);
        json.push('}');
        json
    }
}
