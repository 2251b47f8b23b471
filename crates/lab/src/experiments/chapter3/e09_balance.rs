//! E9, balance (figure 3.15): a full node gives a quarter to a neighbour that is one below half. With the
//! left: it gets the smallest of the right one; with the right: it gets the largest of the left one.

use super::claims::{differs, holds};
use super::operation::{Entries, NodeOperation, even_keys};
use super::points::Points;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::node::{Layout, Medium, Node, balance};

struct Balance;

const TO_LEFT: &str = "the left one receives";
const TO_RIGHT: &str = "the right one receives";

impl NodeOperation for Balance {
    fn variants(&self) -> &'static [&'static str] {
        &[TO_LEFT, TO_RIGHT]
    }

    fn before(&self, variant: usize, capacity: usize) -> Vec<Entries> {
        let few = capacity / 2 - 1;
        let left = if variant == 0 { few } else { capacity };
        vec![even_keys(0..left), even_keys(left..capacity + few)]
    }

    fn after(&self, _: usize, capacity: usize) -> Entries {
        even_keys(0..capacity + capacity / 2 - 1)
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
        balance::<L, u64>(nodes[0], nodes[1], medium)?;
        Ok(())
    }
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    super::operation::measure(&Balance, "E9, balance of two nodes", options)
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let mean = |what: &str, size, of: fn(&super::points::Cost) -> f64| points.mean(what, size, of);
    let hashing = mean("hashing", 4096, |cost| cost.ns) / mean("sorted", 4096, |cost| cost.ns);
    let source = "dissertation, figure 3.15";
    report.paper(source, "4 KiB, hashing to sorted, modelled Optane", "4", Some(hashing));
    holds(
        report,
        "fewer bytes are modified with indirection than with directly sorted nodes",
        points.at_all_sizes(|size| {
            size < 1024
                || mean("indirection", size, |cost| cost.modified_bytes)
                    < mean("sorted", size, |cost| cost.modified_bytes)
        }),
    );
    holds(
        report,
        "unsorted nodes without a bitmap are slower than those with one, which only reset bits of the donor",
        points.at_all_sizes(|size| {
            mean("unsorted", size, |cost| cost.ns) > mean("bitmap", size, |cost| cost.ns)
        }),
    );
    holds(
        report,
        "directly sorted nodes are the fastest, from 1 KiB on",
        points.at_all_sizes(|size| {
            let ns = |what: &str| mean(what, size, |cost| cost.ns);
            size < 1024
                || ["unsorted", "indirection", "hashing", "bitmap"]
                    .iter()
                    .all(|other| ns("sorted") <= ns(other))
        }),
    );
    differs(
        report,
        "hashing takes up to four times as long as direct sorting",
        "it takes at most one and a half times as long",
        points.at_all_sizes(|size| {
            mean("hashing", size, |cost| cost.ns) <= 1.5 * mean("sorted", size, |cost| cost.ns)
        }),
        "The paper searches an unsorted node anew for every entry that moves (it names quickselect as future work); ours \
         are ordered once, in DRAM, and taken out of the donor by one word.",
    );
    differs(
        report,
        "indirection is the best primitive up to 2 KiB",
        "it writes the least after direct sorting and takes longer than that",
        points.at_all_sizes(|size| {
            mean("indirection", size, |cost| cost.ns) >= mean("sorted", size, |cost| cost.ns)
        }),
        "Ours is failure-atomic: the slot arrays of both nodes are invalidated before they change, which is a fence each, \
         where the paper persists its changes in no order.",
    );
}
