//! E5, split of a full leaf (figure 3.11): *move* takes the upper half to a fresh node, *copy* copies the
//! whole node and resets bits. With the allocation of the fresh node; `allocation` says how much of a split
//! that is.

use super::claims::{differs, holds};
use super::operation::{Entries, NodeOperation, even_keys};
use super::points::Points;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::node::{Layout, Medium, Node, split_copy, split_move};

struct Split;

const MOVE: &str = "move";
const COPY: &str = "copy";

impl NodeOperation for Split {
    fn variants(&self) -> &'static [&'static str] {
        &[MOVE, COPY]
    }

    fn before(&self, _: usize, capacity: usize) -> Vec<Entries> {
        vec![even_keys(0..capacity)]
    }

    fn after(&self, _: usize, capacity: usize) -> Entries {
        even_keys(0..capacity)
    }

    fn reads_all(&self) -> bool {
        true
    }

    fn takes_fresh(&self) -> bool {
        true
    }

    fn act<L: Layout>(
        &self,
        variant: usize,
        nodes: &[Node<'_>],
        fresh: Option<Node<'_>>,
        medium: &mut Medium<'_, '_>,
    ) -> Result<(), Error> {
        let fresh = fresh.expect("a split takes a fresh node");
        match variant {
            0 => split_move::<L, u64>(nodes[0], fresh, medium)?,
            _ => split_copy::<L, u64>(nodes[0], fresh, medium)?,
        };
        Ok(())
    }
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    super::operation::measure(&Split, "E5, split of a node", options)
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let ns = |what: &str, at: &str, size| points.ns(what, at, size);
    let written = |what: &str, at: &str, size| points.cost(what, at, size).written_bytes;
    let source = "dissertation, figure 3.11";
    let copied = ns("bitmap", COPY, 4096) / ns("bitmap", MOVE, 4096);
    report.paper(source, "4 KiB, bitmap, copy to move, modelled Optane", "below 1", Some(copied));
    let unsorted = ns("unsorted", MOVE, 4096) / ns("sorted", MOVE, 4096);
    report.paper(source, "4 KiB, unsorted to sorted, modelled Optane", "above 1", Some(unsorted));
    holds(
        report,
        "the copy strategy modifies more bytes than the move strategy",
        points.at_all_sizes(|size| {
            ["indirection", "hashing", "bitmap"].iter().all(|what| {
                points.cost(what, COPY, size).modified_bytes > points.cost(what, MOVE, size).modified_bytes
            })
        }),
    );
    holds(
        report,
        "sorted nodes are split faster than unsorted ones",
        points.at_all_sizes(|size| ns("sorted", MOVE, size) <= ns("unsorted", MOVE, size)),
    );
    differs(
        report,
        "the copy strategy is faster than the move strategy where there is a bitmap",
        "moving writes less, or the same where hashing spreads the entries, and takes the same time",
        points.at_all_sizes(|size| {
            written("bitmap", MOVE, size) <= written("bitmap", COPY, size)
                && written("hashing", MOVE, size) <= 1.01 * written("hashing", COPY, size)
                && ["hashing", "bitmap"]
                    .iter()
                    .all(|what| ns(what, MOVE, size) <= 1.05 * ns(what, COPY, size))
        }),
        "The paper copies while PMDK allocates, which hides the copy; our allocation is a bit and hides nothing, and \
         moving leaves the old node as it is but for its bitmap, in one word. Hashing gives entries a home, so those that \
         move or are copied are in nearly all lines of the new node.",
    );
    differs(
        report,
        "sorted variants, direct and indirect, are always better when splitting",
        "up to 1 KiB nodes with a bitmap are split in the same time, above in at most a fifth more; indirection is slower",
        points.at_all_sizes(|size| {
            let most = if size <= 1024 { 1.02 } else { 1.2 };
            ns("bitmap", MOVE, size) <= most * ns("sorted", MOVE, size)
                && ns("indirection", MOVE, size) >= ns("bitmap", MOVE, size)
        }),
        "What remains of an old node with a bitmap is one word; entries are ordered in DRAM, which costs processor time \
         only. Indirection has to invalidate its slot array first, which is a fence more.",
    );
}
