//! Layer types of the old generations, in the CamelCase names of V2 (UpgradeV0LayerType, UpgradeV1LayerType in
//! BVLC/caffe `9b891540`, `upgrade_proto.cpp`).

use crate::caffe::proto::v1_layer_parameter::LayerType as T;

/// The V2 name of a V0 layer's lower-case type; a type that Caffe did not know is returned unchanged.
pub(crate) fn v0_type(text: &str) -> &str {
    match text {
        "accuracy" => "Accuracy",
        "bnll" => "BNLL",
        "concat" => "Concat",
        "conv" => "Convolution",
        "data" => "Data",
        "dropout" => "Dropout",
        "euclidean_loss" => "EuclideanLoss",
        "flatten" => "Flatten",
        "hdf5_data" => "HDF5Data",
        "hdf5_output" => "HDF5Output",
        "im2col" => "Im2col",
        "images" => "ImageData",
        "infogain_loss" => "InfogainLoss",
        "innerproduct" => "InnerProduct",
        "lrn" => "LRN",
        "multinomial_logistic_loss" => "MultinomialLogisticLoss",
        "pool" => "Pooling",
        "relu" => "ReLU",
        "sigmoid" => "Sigmoid",
        "softmax" => "Softmax",
        "softmax_loss" => "SoftmaxWithLoss",
        "split" => "Split",
        "tanh" => "TanH",
        "window_data" => "WindowData",
        other => other,
    }
}

/// The V2 name of a V1 layer's enum number; `None` for a fork's number, which proto2 treats as an unknown field.
pub(crate) fn v1_type(number: u64) -> Option<&'static str> {
    let layer_type = T::try_from(i32::try_from(number).ok()?).ok()?;
    Some(match layer_type {
        T::None => "",
        T::Absval => "AbsVal",
        T::Accuracy => "Accuracy",
        T::Argmax => "ArgMax",
        T::Bnll => "BNLL",
        T::Concat => "Concat",
        T::ContrastiveLoss => "ContrastiveLoss",
        T::Convolution => "Convolution",
        T::Deconvolution => "Deconvolution",
        T::Data => "Data",
        T::Dropout => "Dropout",
        T::DummyData => "DummyData",
        T::EuclideanLoss => "EuclideanLoss",
        T::Eltwise => "Eltwise",
        T::Exp => "Exp",
        T::Flatten => "Flatten",
        T::Hdf5Data => "HDF5Data",
        T::Hdf5Output => "HDF5Output",
        T::HingeLoss => "HingeLoss",
        T::Im2col => "Im2col",
        T::ImageData => "ImageData",
        T::InfogainLoss => "InfogainLoss",
        T::InnerProduct => "InnerProduct",
        T::Lrn => "LRN",
        T::MemoryData => "MemoryData",
        T::MultinomialLogisticLoss => "MultinomialLogisticLoss",
        T::Mvn => "MVN",
        T::Pooling => "Pooling",
        T::Power => "Power",
        T::Relu => "ReLU",
        T::Sigmoid => "Sigmoid",
        T::SigmoidCrossEntropyLoss => "SigmoidCrossEntropyLoss",
        T::Silence => "Silence",
        T::Softmax => "Softmax",
        T::SoftmaxLoss => "SoftmaxWithLoss",
        T::Split => "Split",
        T::Slice => "Slice",
        T::Tanh => "TanH",
        T::WindowData => "WindowData",
        T::Threshold => "Threshold",
    })
}

/// The V2 name of a V1 layer's type in a prototxt: `INNER_PRODUCT`.
pub(crate) fn v1_name(text: &str) -> Option<&'static str> {
    v1_type(T::from_str_name(text)? as u64)
}

/// The V1 number of a V2 type.
pub(crate) fn v1_number(layer_type: &str) -> Option<i32> {
    (0..=39).find(|number| v1_type(*number) == Some(layer_type)).map(|number| number as i32)
}
