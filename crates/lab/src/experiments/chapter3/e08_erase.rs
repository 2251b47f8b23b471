//! E8, erase from a full node (figure 3.14): the entry first, in the middle, last. The search is not part of
//! it.

use super::claims::{differs, holds};
use super::operation::{Entries, NodeOperation, PLACES, even_keys, place};
use super::points::Points;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::node::{Layout, Medium, Node};

struct Erase;

impl NodeOperation for Erase {
    fn variants(&self) -> &'static [&'static str] {
        &PLACES
    }

    /// One place is free and was the last to become so: in a full node erasing would be a single word
    /// everywhere.
    fn before(&self, _: usize, capacity: usize) -> Vec<Entries> {
        vec![even_keys(0..capacity)]
    }

    fn after(&self, variant: usize, capacity: usize) -> Entries {
        let mut entries = even_keys(0..capacity);
        entries.remove(place(variant, capacity));
        entries
    }

    fn act<L: Layout>(
        &self,
        variant: usize,
        nodes: &[Node<'_>],
        _: Option<Node<'_>>,
        medium: &mut Medium<'_, '_>,
    ) -> Result<(), Error> {
        let capacity = L::geometry::<u64>().capacity;
        let (key, _) = even_keys(0..capacity)[place(variant, capacity)];
        let slot = L::find(nodes[0], key).expect("the node is full");
        Ok(L::erase::<u64>(nodes[0], slot, medium)?)
    }
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    super::operation::measure(&Erase, "E8, erase from a full node", options)
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let ns = |what: &str, size| points.mean(what, size, |cost| cost.ns);
    for what in ["sorted", "unsorted"] {
        let name = format!("4 KiB, {what} to bitmap, modelled Optane");
        let source = "dissertation, figure 3.14";
        report.paper(source, &name, "well above 1", Some(ns(what, 4096) / ns("bitmap", 4096)));
    }
    let best = |size| {
        ["sorted", "unsorted", "indirection", "hashing"]
            .map(|what| ns(what, size))
            .into_iter()
            .fold(f64::MAX, f64::min)
    };
    holds(
        report,
        "a bitmap is vital for fast erasures: there is never a case it is not the best",
        points.at_all_sizes(|size| ns("bitmap", size) <= 1.02 * best(size)),
    );
    holds(
        report,
        "combined with hashing not much changes",
        points.at_all_sizes(|size| (ns("hashing", size) / ns("bitmap", size) - 1.0).abs() < 0.05),
    );
    holds(
        report,
        "indirection has to shift its slots: slower than the pure bitmap",
        points.at_all_sizes(|size| ns("indirection", size) > ns("bitmap", size)),
    );
    differs(
        report,
        "sorted and unsorted nodes are slow, because entries move",
        "erasing from a full node is one word in all layouts but indirection",
        points.at_all_sizes(|size| {
            ["sorted", "unsorted"].iter().all(|what| {
                points.mean(what, size, |cost| cost.written_bytes) == 64.0
                    && ns(what, size) <= 1.02 * ns("bitmap", size)
            })
        }),
        "A sorted node's gap opens where the entry was, and an unsorted node names a hole: nothing moves until the next \
         change of that node, which then carries the move.",
    );
}
