//! Layer types of the old generations, in the CamelCase names of V2 (UpgradeV0LayerType, UpgradeV1LayerType in
//! BVLC/caffe `9b891540`, `upgrade_proto.cpp`).

use crate::caffe::proto::v1_layer_parameter::LayerType as T;

/// The names of a layer's type in the three generations.
struct TypeNames {
    v2: &'static str,
    v1: T,
    /// Empty for a type that came later.
    v0: &'static str,
}

const fn of(v2: &'static str, v1: T, v0: &'static str) -> TypeNames {
    TypeNames { v2, v1, v0 }
}

static TYPES: [TypeNames; 40] = [
    of("", T::None, ""),
    of("AbsVal", T::Absval, ""),
    of("Accuracy", T::Accuracy, "accuracy"),
    of("ArgMax", T::Argmax, ""),
    of("BNLL", T::Bnll, "bnll"),
    of("Concat", T::Concat, "concat"),
    of("ContrastiveLoss", T::ContrastiveLoss, ""),
    of("Convolution", T::Convolution, "conv"),
    of("Deconvolution", T::Deconvolution, ""),
    of("Data", T::Data, "data"),
    of("Dropout", T::Dropout, "dropout"),
    of("DummyData", T::DummyData, ""),
    of("EuclideanLoss", T::EuclideanLoss, "euclidean_loss"),
    of("Eltwise", T::Eltwise, ""),
    of("Exp", T::Exp, ""),
    of("Flatten", T::Flatten, "flatten"),
    of("HDF5Data", T::Hdf5Data, "hdf5_data"),
    of("HDF5Output", T::Hdf5Output, "hdf5_output"),
    of("HingeLoss", T::HingeLoss, ""),
    of("Im2col", T::Im2col, "im2col"),
    of("ImageData", T::ImageData, "images"),
    of("InfogainLoss", T::InfogainLoss, "infogain_loss"),
    of("InnerProduct", T::InnerProduct, "innerproduct"),
    of("LRN", T::Lrn, "lrn"),
    of("MemoryData", T::MemoryData, ""),
    of("MultinomialLogisticLoss", T::MultinomialLogisticLoss, "multinomial_logistic_loss"),
    of("MVN", T::Mvn, ""),
    of("Pooling", T::Pooling, "pool"),
    of("Power", T::Power, ""),
    of("ReLU", T::Relu, "relu"),
    of("Sigmoid", T::Sigmoid, "sigmoid"),
    of("SigmoidCrossEntropyLoss", T::SigmoidCrossEntropyLoss, ""),
    of("Silence", T::Silence, ""),
    of("Softmax", T::Softmax, "softmax"),
    of("SoftmaxWithLoss", T::SoftmaxLoss, "softmax_loss"),
    of("Split", T::Split, "split"),
    of("Slice", T::Slice, ""),
    of("TanH", T::Tanh, "tanh"),
    of("WindowData", T::WindowData, "window_data"),
    of("Threshold", T::Threshold, ""),
];

/// The V2 name of a V0 layer's lower-case type; a type that Caffe did not know is returned unchanged.
pub(crate) fn v0_type(text: &str) -> &str {
    TYPES.iter().find(|names| names.v0 == text).map_or(text, |names| names.v2)
}

/// The V2 name of a V1 layer's enum number; `None` for a fork's number, which proto2 treats as an unknown field.
pub(crate) fn v1_type(number: u64) -> Option<&'static str> {
    TYPES.iter().find(|names| names.v1 as u64 == number).map(|names| names.v2)
}

/// The V2 name of a V1 layer's type in a prototxt: `INNER_PRODUCT`.
pub(crate) fn v1_name(text: &str) -> Option<&'static str> {
    v1_type(T::from_str_name(text)? as u64)
}

/// The V1 number of a V2 type.
pub(crate) fn v1_number(layer_type: &str) -> Option<i32> {
    TYPES.iter().find(|names| names.v2 == layer_type).map(|names| names.v1 as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_names() {
        let unnamed = |number: &i32| T::try_from(*number).is_ok() != v1_type(*number as u64).is_some();
        assert_eq!((0..100).filter(unnamed).count(), 0);
        assert_eq!((v0_type("images"), v0_type(""), v0_type("mine")), ("ImageData", "", "mine"));
        assert_eq!((v1_name("SOFTMAX_LOSS"), v1_number("SoftmaxWithLoss")), (Some("SoftmaxWithLoss"), Some(21)));
    }
}
