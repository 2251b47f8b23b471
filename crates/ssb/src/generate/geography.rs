//! Customers and suppliers: names, addresses, cities, nations and regions.

use super::line::Line;
use super::random::{Random, table_seed};
use super::{Rows, Scale};
use std::ops::Range;

/// Nations and their regions, in the order of their telephone codes from [`FIRST_CODE`].
const NATIONS: [(&str, &str); 25] = [
    ("ALGERIA", "AFRICA"),
    ("ARGENTINA", "AMERICA"),
    ("BRAZIL", "AMERICA"),
    ("CANADA", "AMERICA"),
    ("EGYPT", "MIDDLE EAST"),
    ("ETHIOPIA", "AFRICA"),
    ("FRANCE", "EUROPE"),
    ("GERMANY", "EUROPE"),
    ("INDIA", "ASIA"),
    ("INDONESIA", "ASIA"),
    ("IRAN", "MIDDLE EAST"),
    ("IRAQ", "MIDDLE EAST"),
    ("JAPAN", "ASIA"),
    ("JORDAN", "MIDDLE EAST"),
    ("KENYA", "AFRICA"),
    ("MOROCCO", "AFRICA"),
    ("MOZAMBIQUE", "AFRICA"),
    ("PERU", "AMERICA"),
    ("CHINA", "ASIA"),
    ("ROMANIA", "EUROPE"),
    ("SAUDI ARABIA", "MIDDLE EAST"),
    ("VIETNAM", "ASIA"),
    ("RUSSIA", "EUROPE"),
    ("UNITED KINGDOM", "EUROPE"),
    ("UNITED STATES", "AMERICA"),
];
const FIRST_CODE: u32 = 10;

const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"];

/// Rows of customer or supplier.
pub(super) struct Addresses {
    rows: u32,
    seed: u64,
    /// Name without the number.
    name: &'static str,
    /// Set for customers.
    has_segment: bool,
}

impl Addresses {
    pub(super) fn customers(scale: &Scale, seed: u64) -> Addresses {
        let seed = table_seed(seed, "customer");
        Addresses { rows: scale.customers(), seed, name: "Customer#", has_segment: true }
    }

    pub(super) fn suppliers(scale: &Scale, seed: u64) -> Addresses {
        let seed = table_seed(seed, "supplier");
        Addresses { rows: scale.suppliers(), seed, name: "Supplier#", has_segment: false }
    }
}

impl Rows for Addresses {
    fn units(&self) -> u64 {
        self.rows.into()
    }

    fn write(&self, units: Range<u64>, bytes: &mut Vec<u8>) -> u64 {
        for row in units.clone() {
            let mut random = Random::of_row(self.seed, row);
            let key = row as u32 + 1;
            let nation_at = random.below(NATIONS.len() as u32);
            let (nation, region) = NATIONS[nation_at as usize];
            let mut line = Line::new(bytes);
            line.number(key).numbered(self.name, key).address(&mut random).city(nation, random.below(10));
            line.text(nation).text(region).phone(FIRST_CODE + nation_at, &mut random);
            if self.has_segment {
                line.text(random.pick(&SEGMENTS));
            }
            line.end();
        }
        units.end - units.start
    }
}
