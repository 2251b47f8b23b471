//! Ordered indexes of any structure and key width that tests fill.

use entresol_memory::Pool;
use entresol_structures::{IndexStructure, KeyBytes, KeyWidth, OrderedIndex};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const ROOT: &str = "index";
pub(crate) type Content = BTreeMap<Vec<u8>, u64>;

/// A structure and a width of keys that it has.
pub(crate) type Design = (IndexStructure, KeyWidth);

/// All of them.
pub(crate) fn designs() -> impl Iterator<Item = Design> {
    let widths = [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable];
    let all = IndexStructure::ALL.into_iter().flat_map(move |of| widths.map(|width| (of, width)));
    all.filter(|(structure, width)| structure.supports(*width))
}

pub(crate) fn create(pool: &Arc<Pool>, (structure, width): Design) -> OrderedIndex {
    let mut publication = pool.publication();
    let root = OrderedIndex::create_as(pool, structure, width, &mut publication).unwrap();
    publication.set_root(ROOT, root).unwrap();
    publication.publish().unwrap();
    OrderedIndex::open(pool, root).unwrap()
}

pub(crate) fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        KeyWidth::Sixteen => [(number / 7).to_be_bytes(), number.to_be_bytes()].concat(),
        KeyWidth::Variable => format!("a common prefix, then {number:020}").into_bytes(),
    }
}

/// All entries.
pub(crate) fn content(index: &OrderedIndex) -> Content {
    let (mut entries, mut next) = (Vec::new(), Some(KeyBytes::new()));
    while let Some(from) = next {
        next = index.scan_batch(std::ops::Bound::Included(&from), &mut entries).unwrap();
    }
    entries.into_iter().map(|(key, value)| (key.to_vec(), value)).collect()
}
