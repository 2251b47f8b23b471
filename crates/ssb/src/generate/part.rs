//! Parts: manufacturers, categories, brands, colours, types, containers and prices.

use super::line::Line;
use super::random::{Random, table_seed};
use super::{Rows, Scale};
use std::ops::Range;

/// Colours of names and of `p_color`: the words of TPC-H's part names.
#[rustfmt::skip]
const COLOURS: [&str; 92] = [
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue", "blush",
    "brown", "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral", "cornflower",
    "cornsilk", "cream", "cyan", "dark", "deep", "dim", "dodger", "drab", "firebrick", "floral",
    "forest", "frosted", "gainsboro", "ghost", "goldenrod", "green", "grey", "honeydew", "hot", "indian",
    "ivory", "khaki", "lace", "lavender", "lawn", "lemon", "light", "lime", "linen", "magenta", "maroon",
    "medium", "metallic", "midnight", "mint", "misty", "moccasin", "navajo", "navy", "olive", "orange",
    "orchid", "pale", "papaya", "peach", "peru", "pink", "plum", "powder", "puff", "purple", "red",
    "rose", "rosy", "royal", "saddle", "salmon", "sandy", "seashell", "sienna", "sky", "slate", "smoke",
    "snow", "spring", "steel", "tan", "thistle", "tomato", "turquoise", "violet", "wheat", "white",
    "yellow",
];
const SIZES: [&str; 6] = ["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"];
const FINISHES: [&str; 5] = ["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"];
const METALS: [&str; 5] = ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"];
const CONTAINER_SIZES: [&str; 5] = ["SM", "LG", "MED", "JUMBO", "WRAP"];
const CONTAINERS: [&str; 8] = ["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"];
const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Price of a part in cents (TPC-H, 4.2.3).
pub(super) fn retail_price(key: u32) -> u32 {
    90_000 + (key / 10) % 20_001 + 100 * (key % 1_000)
}

/// Rows of part.
pub(super) struct Parts {
    rows: u32,
    seed: u64,
}

impl Parts {
    pub(super) fn new(scale: &Scale, seed: u64) -> Parts {
        Parts { rows: scale.parts(), seed: table_seed(seed, "part") }
    }
}

impl Rows for Parts {
    fn units(&self) -> u64 {
        self.rows.into()
    }

    fn write(&self, units: Range<u64>, bytes: &mut Vec<u8>) -> u64 {
        for row in units.clone() {
            let mut random = Random::of_row(self.seed, row);
            let mut line = Line::new(bytes);
            let [first, second, colour] = three_colours(&mut random);
            line.number(row + 1).texts(&[first, " ", second]);
            let manufacturer = DIGITS[random.between(1, 5) as usize];
            let category = DIGITS[random.between(1, 5) as usize];
            let brand = random.between(1, 40) as usize;
            let tens = if brand < 10 { "" } else { DIGITS[brand / 10] };
            line.texts(&["MFGR#", manufacturer]).texts(&["MFGR#", manufacturer, category]);
            line.texts(&["MFGR#", manufacturer, category, tens, DIGITS[brand % 10]]).text(colour);
            let (size, finish, metal) = (random.pick(&SIZES), random.pick(&FINISHES), random.pick(&METALS));
            line.texts(&[size, " ", finish, " ", metal]).number(random.between(1, 50));
            line.texts(&[random.pick(&CONTAINER_SIZES), " ", random.pick(&CONTAINERS)]).end();
        }
        units.end - units.start
    }
}

/// Three different colours.
fn three_colours(random: &mut Random) -> [&'static str; 3] {
    let count = COLOURS.len() as u32;
    let first = random.below(count);
    // Distances from the first, different from each other and not 0.
    let second = random.between(1, count - 1);
    let mut third = random.between(1, count - 2);
    third += u32::from(third >= second);
    [0, second, third].map(|distance| COLOURS[((first + distance) % count) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_a_part_are_different() {
        for row in 0..20_000 {
            let [a, b, c] = three_colours(&mut Random::of_row(1, row));
            assert!(a != b && b != c && a != c, "{a} {b} {c}");
        }
    }
}
