//! Conditions on the codes of a dimension.

/// Bits of a set, at most; sets that span more are searched.
const SET_BITS_MAX: u32 = 1 << 20;

/// Set of codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSet {
    /// Sorted, each once.
    codes: Box<[u32]>,
    /// Bit for each code from the least to the greatest; none if they span too many.
    bits: Box<[u64]>,
}

impl CodeSet {
    /// Set of these codes.
    pub fn new(mut codes: Vec<u32>) -> CodeSet {
        codes.sort_unstable();
        codes.dedup();
        let mut bits = Vec::new();
        if let (Some(least), Some(greatest)) = (codes.first(), codes.last())
            && greatest - least < SET_BITS_MAX
        {
            bits.resize(((greatest - least) / 64 + 1) as usize, 0);
            codes
                .iter()
                .map(|code| code - least)
                .for_each(|bit| bits[(bit / 64) as usize] |= 1_u64 << (bit % 64));
        }
        CodeSet { codes: codes.into_boxed_slice(), bits: bits.into_boxed_slice() }
    }

    /// Codes of the set, sorted.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Tells whether a code is in the set.
    #[inline]
    pub fn contains(&self, code: u32) -> bool {
        let Some(bit) = self.codes.first().and_then(|least| code.checked_sub(*least)) else { return false };
        if self.bits.is_empty() {
            return self.codes.binary_search(&code).is_ok();
        }
        self.bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

/// Condition on the codes of a dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CodeCondition {
    /// No condition.
    #[default]
    Any,
    /// Codes between two, included; none if the least is above the greatest.
    Between {
        /// Least code.
        least: u32,
        /// Greatest code.
        greatest: u32,
    },
    /// Codes of a set.
    Among(CodeSet),
}

impl CodeCondition {
    /// Condition that one code meets.
    pub fn equals(code: u32) -> CodeCondition {
        CodeCondition::Between { least: code, greatest: code }
    }

    /// Tells whether a code meets it.
    #[inline]
    pub fn is_met(&self, code: u32) -> bool {
        match self {
            CodeCondition::Any => true,
            CodeCondition::Between { least, greatest } => (*least..=*greatest).contains(&code),
            CodeCondition::Among(set) => set.contains(code),
        }
    }

    /// Least and greatest code that may meet it; none if none does.
    pub(super) fn bounds(&self) -> Option<(u32, u32)> {
        match self {
            CodeCondition::Any => Some((0, u32::MAX)),
            CodeCondition::Between { least, greatest } => (least <= greatest).then_some((*least, *greatest)),
            CodeCondition::Among(set) => Some((*set.codes.first()?, *set.codes.last()?)),
        }
    }
}
