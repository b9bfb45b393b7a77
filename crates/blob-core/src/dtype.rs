//! `DType` and `Element`: the element types that a blob may hold, at run time and at compile time.
//! Both sides come from one table, and so agree. No file format's codes are known here.

use std::fmt;

use half::{bf16, f16};

/// Writes the enum, its tables, the trait's implementations and `with_dtype!` from one list, in the order of
/// `DType::ALL`. `$d` is a dollar sign, for the macro that this one writes.
macro_rules! dtypes {
    (@types $($variant:ident $element:ty, $name:literal, $doc:literal;)*) => {
        /// The type of a blob's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            /// Every dtype.
            pub const ALL: &[DType] = &[$(DType::$variant,)*];

            /// The bytes that one element takes.
            pub const fn size(self) -> usize {
                match self {
                    $(DType::$variant => size_of::<$element>(),)*
                }
            }

            /// The name, as Rust spells the type: `f32`, `bf16`, `bool`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DType::$variant => $name,)*
                }
            }
        }

        $(impl Element for $element {
            const DTYPE: DType = DType::$variant;
        })*
    };
    ($d:tt numbers { $($variant:ident $element:ty, $name:literal, $doc:literal;)* } bools { $($bools:tt)* }) => {
        dtypes! { @types $($variant $element, $name, $doc;)* $($bools)* }

        /// Runs an expression with a name for the type of a dtype's elements: [`f32`] for [`DType::F32`]. For
        /// [`DType::Bool`], which is no number, there may be another expression.
        ///
        /// The body is compiled for every dtype, so the compiler names the gaps of a new one. A crate that uses this
        /// depends on the crate `half`, which has the types of two dtypes.
        ///
        /// ```
        /// use blob_core::{DType, with_dtype};
        ///
        /// let size = |dtype: DType| with_dtype!(dtype, T => size_of::<T>());
        /// assert_eq!((size(DType::BF16), size(DType::Bool)), (2, 1));
        /// let least = |dtype: DType| with_dtype!(dtype, T => T::MIN.to_string(), Bool => "false".to_string());
        /// assert_eq!((least(DType::I8), least(DType::Bool)), ("-128".to_string(), "false".to_string()));
        /// ```
        #[macro_export]
        macro_rules! with_dtype {
            ($d dtype:expr, $d element:ident => $d body:expr) => {
                $crate::with_dtype!($d dtype, $d element => $d body, Bool => {
                    type $d element = bool;
                    $d body
                })
            };
            ($d dtype:expr, $d element:ident => $d body:expr, Bool => $d bool:expr) => {
                match $d dtype {
                    $($crate::DType::$variant => {
                        type $d element = $element;
                        $d body
                    })*
                    $crate::DType::Bool => $d bool,
                    // No crate but this may match without it.
                    _ => unreachable!("every dtype is listed"),
                }
            };
        }
    };
}

dtypes! {
    $ numbers {
        U8 u8, "u8", "Unsigned, 8 bits.";
        I8 i8, "i8", "Signed, 8 bits.";
        I16 i16, "i16", "Signed, 16 bits.";
        U16 u16, "u16", "Unsigned, 16 bits.";
        I32 i32, "i32", "Signed, 32 bits.";
        U32 u32, "u32", "Unsigned, 32 bits.";
        I64 i64, "i64", "Signed, 64 bits.";
        U64 u64, "u64", "Unsigned, 64 bits.";
        F16 half::f16, "f16", "IEEE 754 binary16.";
        BF16 half::bf16, "bf16", "bfloat16: the upper half of an `f32`.";
        F32 f32, "f32", "IEEE 754 binary32.";
        F64 f64, "f64", "IEEE 754 binary64.";
    }
    bools {
        Bool bool, "bool", "One byte, 0 or 1.";
    }
}

/// A Rust type that a blob's elements may be read and written as. Sealed: the types of [`DType`] and no others.
pub trait Element:
    sealed::Sealed
    + bytemuck::NoUninit
    + bytemuck::CheckedBitPattern
    + Default
    + PartialEq
    + PartialOrd
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// The dtype of this type.
    const DTYPE: DType;
}

/// Keeps `Element` to the types listed here, and says which of their bytes are values.
pub(crate) mod sealed {
    pub trait Sealed {
        /// Whether every sequence of bytes is a value.
        const ANY_BYTES: bool = true;

        /// The first element of these bytes that is not a value of the type.
        fn first_invalid(_: &[u8]) -> Option<usize> {
            None
        }
    }
}

macro_rules! any_bytes {
    ($($element:ty)*) => { $(impl sealed::Sealed for $element {})* };
}

any_bytes!(u8 i8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64);

impl sealed::Sealed for bool {
    const ANY_BYTES: bool = false;

    fn first_invalid(bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|&byte| byte > 1)
    }
}

impl DType {
    /// Whether the elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;

    use super::*;

    #[test]
    fn sizes_and_names_by_hand() {
        let table: Vec<_> = DType::ALL.iter().map(|dtype| (dtype.name(), dtype.size(), dtype.is_float())).collect();
        let expected = [
            ("u8", 1, false),
            ("i8", 1, false),
            ("i16", 2, false),
            ("u16", 2, false),
            ("i32", 4, false),
            ("u32", 4, false),
            ("i64", 8, false),
            ("u64", 8, false),
            ("f16", 2, true),
            ("bf16", 2, true),
            ("f32", 4, true),
            ("f64", 8, true),
            ("bool", 1, false),
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn types_and_dtypes_agree() {
        fn check<T: Element>(dtype: DType) {
            assert_eq!(T::DTYPE, dtype);
            let name = type_name::<T>();
            assert_eq!(name.rsplit("::").next(), Some(dtype.name()));
            assert_eq!(dtype.size(), size_of::<T>());
            assert!(align_of::<T>() <= size_of::<T>(), "AnyBlob::from_vec relies on it");
            // Typed access relies on both.
            assert_eq!(T::first_invalid(&[0; 8]), None);
            assert_eq!(T::first_invalid(&[0xFF; 8]).is_none(), T::ANY_BYTES);
        }
        check::<u8>(DType::U8);
        check::<i8>(DType::I8);
        check::<i16>(DType::I16);
        check::<u16>(DType::U16);
        check::<i32>(DType::I32);
        check::<u32>(DType::U32);
        check::<i64>(DType::I64);
        check::<u64>(DType::U64);
        check::<f16>(DType::F16);
        check::<bf16>(DType::BF16);
        check::<f32>(DType::F32);
        check::<f64>(DType::F64);
        check::<bool>(DType::Bool);
    }
}
