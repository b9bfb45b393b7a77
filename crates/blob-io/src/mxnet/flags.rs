//! MXNet's numbers for element types and devices (mshadow's `TypeFlag`, `Context::DeviceType`).

use blob_core::DType;

/// The element types by type flag. Flag 0 has always existed, 1 to 4 since 2015, 5 and 6 since MXNet 0.11, 7 since 1.6,
/// 12 since 1.7, the others since 2.0.
const TYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::U8,
    DType::I32,
    DType::I8,
    DType::I64,
    DType::Bool,
    DType::I16,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::BF16,
];

/// The element type that a flag stands for.
pub(crate) fn dtype(flag: i32) -> Option<DType> {
    TYPES.get(usize::try_from(flag).ok()?).copied()
}

/// The flag of an element type; `None` for a type that MXNet does not have.
pub(crate) fn flag(dtype: DType) -> Option<i32> {
    TYPES.iter().position(|known| *known == dtype).map(|flag| flag as i32)
}

/// The device that an array was on when MXNet saved the array. Only displayed, because files come from machines with
/// other devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) dev_type: i32,
    pub(crate) dev_id: i32,
}

impl Context {
    /// The device in all known files but one.
    pub(crate) const CPU: Self = Self { dev_type: 1, dev_id: 0 };

    pub(crate) fn is_cpu(self) -> bool {
        self.dev_type == 1
    }
}

impl std::fmt::Display for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.dev_type {
            1 => write!(f, "cpu({})", self.dev_id),
            2 => write!(f, "gpu({})", self.dev_id),
            3 => write!(f, "cpu_pinned({})", self.dev_id),
            5 => write!(f, "cpu_shared({})", self.dev_id),
            other => write!(f, "device type {other}({})", self.dev_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_outside_the_table_are_no_types() {
        assert_eq!(dtype(0), Some(DType::F32));
        assert_eq!(dtype(7), Some(DType::Bool));
        assert_eq!(dtype(12), Some(DType::BF16));
        for flag in [-1, 13, i32::MIN, i32::MAX] {
            assert_eq!(dtype(flag), None);
        }
    }
}
