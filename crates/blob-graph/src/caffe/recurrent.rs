//! LSTM: the markers of continuation are taken to say that one sequence begins with the first step and goes on.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::need::Make;
use crate::operand::{Operand, count, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

pub(super) fn lstm(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, markers) = (site.x(), site.inputs[1].clone());
    let hidden = site.size("num_output")?;
    if site.flag("expose_hidden")? {
        return site.refuse("expose_hidden", "is not supported");
    }
    site.rank(&x, 3..=8)?;
    if markers.shape != x.shape[..2] {
        return Err(Refusal::shape(format!("markers of {} for {}", shown(&markers.shape), shown(&x.shape))));
    }
    if site.body.values.iter().any(|own| own.name == markers.name) {
        return Err(Refusal::shape("the markers of where sequences begin are computed".to_owned()));
    }
    if site.target.dynamic_batch {
        return Err(Refusal::shape(
            "the first extent is that of the steps, and no batch that can be left open".to_owned(),
        ));
    }
    let (steps, batch, inputs) = (x.shape[0], x.shape[1], count(&x.shape[2..])?);
    let gates = hidden.checked_mul(4).ok_or_else(|| Refusal::parameter("num_output is too large"))?;
    let sequence = site.reshape(&x, &[steps, batch, inputs])?;
    let weight = site.weight(0, Make::LstmGates, &[1, gates, inputs])?;
    let bias = site.weight(1, Make::LstmBias, &[1, gates * 2])?;
    let state = site.weight(2, Make::LstmGates, &[1, gates, hidden])?;
    let attributes = vec![("hidden_size", Attribute::Int(hidden as i64))];
    let outputs = vec![(DType::F32, vec![steps, 1, batch, hidden])];
    let all = site.ops("LSTM", &[&sequence, &weight, &state, &bias], attributes, outputs)?;
    let axes = site.ints_of(&[1])?;
    Ok(vec![site.op("Squeeze", &[&all[0], &axes], vec![], vec![steps, batch, hidden])?])
}
