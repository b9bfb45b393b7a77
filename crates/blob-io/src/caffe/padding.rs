//! Folds the padding layers of V0 nets into the convolutions and poolings that read them (UpgradeV0PaddingLayers in
//! BVLC/caffe `9b891540`, `upgrade_proto.cpp`).

use std::collections::HashMap;

use crate::net::{Draft, LayerKind};

/// The reader of a padding layer in a net that Caffe takes.
pub(super) const NO_PADDING: &str = "a convolution or a pooling of one input behind a padding layer of one";

/// The values that a padding layer has written last.
#[derive(Debug, Default)]
pub(super) struct Paddings(HashMap<String, Padding>);

/// A padding layer.
#[derive(Clone, Debug)]
struct Padding {
    /// The value that the layer reads; `None` where the layer has several inputs or outputs.
    bottom: Option<String>,
    pad: Vec<u64>,
}

impl Paddings {
    /// The layer as Caffe upgrades it: a reader of a padding layer reads the layer's input, and pads itself. `None`
    /// for a padding layer. The error describes the reader that was found where Caffe refuses the net.
    pub(super) fn fold(
        &mut self,
        mut draft: Draft<String>,
        is_padding: bool,
    ) -> Result<Option<Draft<String>>, &'static str> {
        let pads = draft.kind == LayerKind::Convolution || draft.type_name == "Pooling";
        if let Some(padding) = draft.bottoms.iter().find_map(|bottom| self.0.get(bottom)) {
            let Some(bottom) = &padding.bottom else { return Err("one with several inputs or outputs") };
            if !pads || draft.bottoms.len() != 1 {
                return Err("another layer");
            }
            draft.bottoms = vec![bottom.clone()];
            draft.settings.window.pad.clone_from(&padding.pad);
        }
        let own = is_padding.then(|| {
            let bottom = match (&draft.bottoms[..], &draft.tops[..]) {
                ([bottom], [_]) => Some(bottom.clone()),
                _ => None,
            };
            Padding { bottom, pad: draft.settings.window.pad.clone() }
        });
        for top in &draft.tops {
            match &own {
                Some(padding) => _ = self.0.insert(top.clone(), padding.clone()),
                None => _ = self.0.remove(top),
            }
        }
        Ok((!is_padding).then_some(draft))
    }
}
