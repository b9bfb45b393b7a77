//! The three messages that Caffe has stored a layer as, and where each has the layer's name, type and blobs.
//!
//! Relies on the schema for the numbers. Reads and writes nothing.

use crate::caffe::proto_fields::{layer_parameter, net_parameter, v0_layer_parameter, v1_layer_parameter};

/// Which message a layer is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// `layers { layer { … } }`, 2013 to March 2014.
    V0,
    /// `layers { … }` with an enum as type, 2014.
    V1,
    /// `layer { … }`, since 2015.
    V2,
}

/// The numbers of the fields that a generation's layer has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// The layer itself, in the net; of V0, in the outer V1 layer.
    pub(crate) layer: u32,
    pub(crate) name: u32,
    pub(crate) layer_type: u32,
    pub(crate) blobs: u32,
}

impl Generation {
    pub(crate) const fn numbers(self) -> Numbers {
        match self {
            Self::V0 => Numbers {
                layer: v1_layer_parameter::LAYER,
                name: v0_layer_parameter::NAME,
                layer_type: v0_layer_parameter::TYPE,
                blobs: v0_layer_parameter::BLOBS,
            },
            Self::V1 => Numbers {
                layer: net_parameter::LAYERS,
                name: v1_layer_parameter::NAME,
                layer_type: v1_layer_parameter::TYPE,
                blobs: v1_layer_parameter::BLOBS,
            },
            Self::V2 => Numbers {
                layer: net_parameter::LAYER,
                name: layer_parameter::NAME,
                layer_type: layer_parameter::TYPE,
                blobs: layer_parameter::BLOBS,
            },
        }
    }

    /// The generation of the layers in this field of a net. A V1 layer may turn out to be the shell of a V0 layer.
    pub(crate) fn of_field(number: u32) -> Option<Self> {
        [Self::V2, Self::V1].into_iter().find(|generation| generation.numbers().layer == number)
    }
}
