//! Sums, differences and products of decimals that fit 64 bits, as those of columns do.
//!
//! Arrow's kernels check each 128-bit product for an overflow, which takes several times as long as the product; they also bring
//! operands of different scales to one by such products. Of operands that fit 64 bits no result leaves 128.

use arrow_array::{Array, Decimal128Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};

/// Operation on two decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecimalOperation {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
}

/// Operand: an array, or one value for all rows, which is an array of one that is not NULL.
#[derive(Debug, Clone, Copy)]
pub struct DecimalOperand<'a> {
    /// Its values.
    pub values: &'a Decimal128Array,
    /// True if it is one value for all rows.
    pub is_scalar: bool,
}

/// Result of an operation, with a precision and scale of its own to be given: that of a sum is the larger one of both, of a product
/// their sum. None if a value does not fit 64 bits, or scales are too far apart.
pub fn decimal_operation(
    operation: DecimalOperation,
    left: DecimalOperand<'_>,
    right: DecimalOperand<'_>,
) -> Option<Decimal128Array> {
    let (of_left, of_right) = (left.values.scale(), right.values.scale());
    let factor = |scale: i8, other: i8| match operation {
        DecimalOperation::Multiply => Some(1),
        _ => 10_i64.checked_pow(u32::try_from((other - scale).max(0)).ok()?),
    };
    let factors = (factor(of_left, of_right)?, factor(of_right, of_left)?);
    let nulls = match (left.is_scalar, right.is_scalar) {
        (false, false) => NullBuffer::union(left.values.nulls(), right.values.nulls()),
        (true, false) => right.values.nulls().cloned(),
        (false, true) => left.values.nulls().cloned(),
        (true, true) => return None,
    };
    let (left_factor, right_factor) = (i128::from(factors.0), i128::from(factors.1));
    let values = match operation {
        DecimalOperation::Add => computed(left, right, |left, right| {
            i128::from(left) * left_factor + i128::from(right) * right_factor
        }),
        DecimalOperation::Subtract => computed(left, right, |left, right| {
            i128::from(left) * left_factor - i128::from(right) * right_factor
        }),
        DecimalOperation::Multiply => {
            computed(left, right, |left, right| i128::from(left) * i128::from(right))
        }
    };
    Some(Decimal128Array::new(ScalarBuffer::from(values?), nulls))
}

/// Results for all rows; none if a value does not fit.
fn computed(
    left: DecimalOperand<'_>,
    right: DecimalOperand<'_>,
    of: impl Fn(i64, i64) -> i128,
) -> Option<Vec<i128>> {
    // Bits that are lost, of any value: looked at once.
    let mut lost = 0_i64;
    let mut narrow = |value: i128| {
        let low = value as i64;
        lost |= (value >> 64) as i64 ^ (low >> 63);
        low
    };
    let values: Vec<i128> = match (left.is_scalar, right.is_scalar) {
        (true, _) => {
            let value = narrow(*left.values.values().first()?);
            right.values.values().iter().map(|&other| of(value, narrow(other))).collect()
        }
        (false, true) => {
            let value = narrow(*right.values.values().first()?);
            left.values.values().iter().map(|&other| of(narrow(other), value)).collect()
        }
        (false, false) => {
            let pairs = left.values.values().iter().zip(right.values.values());
            pairs.map(|(&left, &right)| of(narrow(left), narrow(right))).collect()
        }
    };
    (lost == 0).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimals(values: &[Option<i128>], scale: i8) -> Decimal128Array {
        let array: Decimal128Array = values.iter().copied().collect();
        array.with_precision_and_scale(38, scale).unwrap()
    }

    fn results(
        operation: DecimalOperation,
        (left, right): (&Decimal128Array, &Decimal128Array),
        scalars: (bool, bool),
    ) -> Option<Vec<Option<i128>>> {
        let left = DecimalOperand { values: left, is_scalar: scalars.0 };
        let right = DecimalOperand { values: right, is_scalar: scalars.1 };
        Some(decimal_operation(operation, left, right)?.iter().collect())
    }

    #[test]
    fn operations_are_exact() {
        use DecimalOperation::{Add, Multiply, Subtract};
        let (most, least) = (i128::from(i64::MAX), i128::from(i64::MIN));
        let left = decimals(&[Some(150), None, Some(most), Some(least)], 2);
        let right = decimals(&[Some(-3), Some(1), Some(most), Some(most)], 0);
        let of_columns = |operation| results(operation, (&left, &right), (false, false)).unwrap();
        assert_eq!(of_columns(Add), [Some(-150), None, Some(most + 100 * most), Some(least + 100 * most)]);
        assert_eq!(
            of_columns(Subtract),
            [Some(450), None, Some(most - 100 * most), Some(least - 100 * most)]
        );
        assert_eq!(of_columns(Multiply), [Some(-450), None, Some(most * most), Some(least * most)]);
        let one = decimals(&[Some(1)], 0);
        let found = results(Subtract, (&one, &left), (true, false)).unwrap();
        assert_eq!(found, [Some(-50), None, Some(100 - most), Some(100 - least)]);
        let found = results(Multiply, (&left, &one), (false, true)).unwrap();
        assert_eq!(found, [Some(150), None, Some(most), Some(least)]);
    }

    #[test]
    fn values_that_do_not_fit_are_left_to_others() {
        let one = decimals(&[Some(1)], 0);
        for value in [i128::from(i64::MAX) + 1, i128::from(i64::MIN) - 1, i128::MAX, i128::MIN, 1 << 64] {
            let wide = decimals(&[Some(0), Some(value)], 0);
            for scalars in [(false, true), (true, false)] {
                let operands = if scalars.0 { (&one, &wide) } else { (&wide, &one) };
                assert_eq!(results(DecimalOperation::Multiply, operands, scalars), None, "{value}");
            }
        }
        let far = decimals(&[Some(1)], 30);
        assert_eq!(results(DecimalOperation::Add, (&far, &one), (false, false)), None);
        assert_eq!(results(DecimalOperation::Add, (&one, &one), (true, true)), None);
    }
}
