//! Reading a dtype's name. Apart from `dtype`, which errors name and which therefore knows none.

use std::str::FromStr;

use crate::dtype::DType;
use crate::error::Error;

impl FromStr for DType {
    type Err = Error;

    /// Reads a [`name`](DType::name), exactly.
    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|dtype| dtype.name() == name);
        found.copied().ok_or_else(|| Error::UnknownDType { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_exactly() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse::<DType>().unwrap(), dtype);
        }
        for name in ["", "F32", "f32 ", "float", "f8"] {
            match name.parse::<DType>() {
                Err(Error::UnknownDType { name: named }) => assert_eq!(named, name),
                other => panic!("{name:?}: {other:?}"),
            }
        }
        assert_eq!(format!("{:<5}|", DType::F16), "f16  |");
    }
}
