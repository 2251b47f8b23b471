//! Tools for the files of a database: `entresol check`, `entresol info`, `entresol backup`.
//!
//! They change no byte: check and info open a database [offline](entresol::offline).

pub mod backup;
pub mod check;
pub mod info;

/// The UUID of a pool in its usual form.
fn uuid_text(uuid: [u64; 2]) -> String {
    let [high, low] = uuid;
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

/// A number of bytes with a unit.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_uuids_are_readable() {
        assert_eq!([0, 1023, 1024, 1_572_864].map(bytes_text), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]);
        let uuid = uuid_text([0x0123_4567_89ab_cdef, 0x0011_2233_4455_6677]);
        assert_eq!(uuid, "01234567-89ab-cdef-0011-223344556677");
    }
}
