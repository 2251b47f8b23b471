//! Repeatable noise: a value for every (seed, stream, index), without state, so that any reading can be
//! computed without those before it.

/// A well mixed word for three numbers (splitmix64 finaliser).
pub fn word(seed: u64, stream: u64, index: u64) -> u64 {
    let mut x = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(stream.wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x8CB9_2BA7_2F3D_8DD7));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Even in [0, 1).
pub fn unit(seed: u64, stream: u64, index: u64) -> f64 {
    // A double can tell 53 bits apart in [0, 1).
    (word(seed, stream, index) >> 11) as f64 / (1u64 << 53) as f64
}

/// Bell shaped around 0 with a standard deviation of about 1, never beyond 3.5 (sum of four even values).
pub fn bell(seed: u64, stream: u64, index: u64) -> f64 {
    let bits = word(seed, stream, index);
    let sum: u64 = (0..4).map(|part| (bits >> (16 * part)) & 0xFFFF).sum();
    (sum as f64 / 65535.0 - 2.0) * 3f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_even_and_repeatable() {
        let values: Vec<f64> = (0..10_000).map(|i| unit(7, 3, i)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "mean {mean}");
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        assert_eq!(unit(7, 3, 5), values[5]);
        assert_ne!(unit(8, 3, 5), values[5]);
    }

    #[test]
    fn bell_has_unit_deviation() {
        let values: Vec<f64> = (0..10_000).map(|i| bell(1, 2, i)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        assert!(mean.abs() < 0.05, "mean {mean}");
        assert!((deviation - 1.0).abs() < 0.05, "deviation {deviation}");
    }
}
