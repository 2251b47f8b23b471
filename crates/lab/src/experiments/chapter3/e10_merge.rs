//! E10, merge of two nodes (figure 3.16): all of the right one goes to the left one, which has smaller keys.
//! Freeing the right one is not part of it.

use super::claims::{differs, holds};
use super::operation::{Entries, NodeOperation, even_keys};
use super::points::Points;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::node::{Layout, Medium, Node, merge};

struct Merge;

impl NodeOperation for Merge {
    fn variants(&self) -> &'static [&'static str] {
        &[""]
    }

    fn before(&self, _: usize, capacity: usize) -> Vec<Entries> {
        let half = capacity / 2;
        vec![even_keys(0..half), even_keys(half..2 * half - 1)]
    }

    /// The right one keeps its words; it is freed with the commit in a tree.
    fn after(&self, _: usize, capacity: usize) -> Entries {
        let half = capacity / 2;
        let mut entries = even_keys(0..2 * half - 1);
        entries.extend(even_keys(half..2 * half - 1));
        entries.sort_unstable();
        entries
    }

    fn reads_all(&self) -> bool {
        true
    }

    fn act<L: Layout>(
        &self,
        _: usize,
        nodes: &[Node<'_>],
        _: Option<Node<'_>>,
        medium: &mut Medium<'_, '_>,
    ) -> Result<(), Error> {
        Ok(merge::<L, u64>(nodes[0], nodes[1], medium)?)
    }
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    super::operation::measure(&Merge, "E10, merge of two nodes", options)
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let cost = |what: &str, size| points.cost(what, "", size);
    let bitmap = cost("bitmap", 4096).ns / cost("unsorted", 4096).ns;
    let source = "dissertation, figure 3.16";
    report.paper(source, "4 KiB, bitmap to appending, modelled Optane", "4", Some(bitmap));
    holds(
        report,
        "the approaches without auxiliary structures are the most suitable: fewest bytes and flushes",
        points.at_all_sizes(|size| {
            ["indirection", "hashing"].iter().all(|what| {
                cost("unsorted", size).written_bytes <= cost(what, size).written_bytes
                    && cost("unsorted", size).flushes <= cost(what, size).flushes
                    && cost("unsorted", size).ns <= cost(what, size).ns
            })
        }),
    );
    holds(
        report,
        "hashing has its fingerprints to write as well",
        points.at_all_sizes(|size| {
            cost("hashing", size).modified_bytes > cost("bitmap", size).modified_bytes * 0.99
        }),
    );
    differs(
        report,
        "at 4 KiB bitmap layouts take four times as long as appending",
        "they take two to three times as long",
        cost("bitmap", 4096).ns < 3.0 * cost("unsorted", 4096).ns,
        "Free slots are taken in order, so that entries that come together stand together; what remains is a flush for \
         each entry instead of each line.",
    );
}
