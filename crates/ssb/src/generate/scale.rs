//! Scale factors, and the numbers of rows that follow from them.

use std::fmt;
use std::str::FromStr;

const LEAST: f64 = 0.001;
const MOST: f64 = 10_000.0;

/// Scale factor within limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(f64);

impl Scale {
    /// Rows of customer.
    pub fn customers(&self) -> u32 {
        self.times(30_000)
    }

    /// Rows of supplier.
    pub fn suppliers(&self) -> u32 {
        self.times(2_000)
    }

    /// Rows of part: they grow with the logarithm; below scale factor 1, which the specification leaves open,
    /// with the scale factor.
    pub fn parts(&self) -> u32 {
        if self.0 < 1.0 { self.times(200_000) } else { 200_000 * (1.0 + self.0.log2()).floor() as u32 }
    }

    /// Orders, each with 1 to 7 rows of lineorder.
    pub fn orders(&self) -> u64 {
        (self.0 * 1_500_000.0).round() as u64
    }

    fn times(&self, rows: u32) -> u32 {
        (self.0 * f64::from(rows)).round() as u32
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Scale, String> {
        let factor: f64 =
            text.trim().parse().map_err(|_| format!("'{text}' is not a number, such as 1 or 0.05"))?;
        if !(LEAST..=MOST).contains(&factor) {
            return Err(format!("{text} is out of range: use {LEAST} to {MOST}"));
        }
        Ok(Scale(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> (u32, u32, u32, u64) {
        let scale: Scale = text.parse().unwrap();
        (scale.customers(), scale.suppliers(), scale.parts(), scale.orders())
    }

    #[test]
    fn rows_follow_the_specification() {
        assert_eq!(rows("1"), (30_000, 2_000, 200_000, 1_500_000));
        assert_eq!(rows("0.05"), (1_500, 100, 10_000, 75_000));
        assert_eq!(rows("0.001"), (30, 2, 200, 1_500));
        assert_eq!(rows("8"), (240_000, 16_000, 800_000, 12_000_000));
        assert_eq!(rows("10"), (300_000, 20_000, 800_000, 15_000_000));
        assert_eq!(rows("1.5").2, 200_000);
        for text in ["0", "-1", "0.0009", "10001", "NaN", "inf", "one", ""] {
            let error = text.parse::<Scale>().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
