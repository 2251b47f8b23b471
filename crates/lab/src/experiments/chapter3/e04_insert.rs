//! E4, insert into a node (figure 3.10): one entry into the only free place, its key the first, in the
//! middle, the last. The search is not part of it.

use super::claims::{differs, holds};
use super::operation::{Entries, NodeOperation, PLACES, even_keys, place};
use super::points::Points;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::node::{Layout, Medium, Node};

struct Insert;

impl NodeOperation for Insert {
    fn variants(&self) -> &'static [&'static str] {
        &PLACES
    }

    fn before(&self, variant: usize, capacity: usize) -> Vec<Entries> {
        let mut entries = even_keys(0..capacity);
        entries.remove(place(variant, capacity));
        vec![entries]
    }

    fn after(&self, _: usize, capacity: usize) -> Entries {
        even_keys(0..capacity)
    }

    fn act<L: Layout>(
        &self,
        variant: usize,
        nodes: &[Node<'_>],
        _: Option<Node<'_>>,
        medium: &mut Medium<'_, '_>,
    ) -> Result<(), Error> {
        let capacity = L::geometry::<u64>().capacity;
        let (key, value) = even_keys(0..capacity)[place(variant, capacity)];
        Ok(L::insert(nodes[0], key, value, medium)?)
    }
}

pub(super) fn measure(options: &RunOptions) -> Result<Points, Error> {
    super::operation::measure(&Insert, "E4, insert into a node", options)
}

pub(super) fn claims(points: &Points, report: &mut Report) {
    let written = |what: &str, size| points.mean(what, size, |cost| cost.written_bytes);
    let ns = |what: &str, size| points.mean(what, size, |cost| cost.ns);
    let large = |size: usize| size >= 1024;
    let source = "dissertation, figure 3.10";
    let (sorted, indirection) = (ns("sorted", 4096), ns("indirection", 4096));
    let unsorted = ns("unsorted", 4096);
    report.paper(
        source,
        "4 KiB, sorted to unsorted, modelled Optane",
        "well above 1",
        Some(sorted / unsorted),
    );
    let name = "4 KiB, sorted to indirection, modelled Optane";
    report.paper(source, name, "well above 1", Some(sorted / indirection));
    holds(
        report,
        "direct sorting worsens as the node grows, corresponding to the bytes written",
        ns("sorted", 4096) > 2.0 * ns("sorted", 256)
            && written("sorted", 4096) > 4.0 * written("sorted", 256),
    );
    holds(
        report,
        "the unsorted variants perform significantly better than the sorted one and equally well among themselves",
        points.at_all_sizes(|size| {
            let unsorted = ["unsorted", "hashing", "bitmap"].map(|what| ns(what, size));
            let (least, most) = (
                unsorted.iter().copied().fold(f64::MAX, f64::min),
                unsorted.iter().copied().fold(0.0, f64::max),
            );
            most <= 1.5 * least && (!large(size) || most < ns("sorted", size))
        }),
    );
    holds(
        report,
        "indirection modifies far fewer bytes than direct sorting, and is faster in larger nodes",
        points.at_all_sizes(|size| {
            !large(size)
                || (points.mean("indirection", size, |cost| cost.modified_bytes)
                    < points.mean("sorted", size, |cost| cost.modified_bytes)
                    && ns("indirection", size) < ns("sorted", size))
        }),
    );
    holds(
        report,
        "maintaining the indirection costs more than the other unsorted layouts",
        points.at_all_sizes(|size| ns("indirection", size) > ns("bitmap", size)),
    );
    differs(
        report,
        "with the key at the back, direct sorting is as cheap as appending, wherever the node's free place was",
        "the first key costs no more than the last",
        points.at_all_sizes(|size| {
            points.ns("sorted", "first", size) <= 1.05 * points.ns("sorted", "last", size)
                || points.ns("sorted", "last", size) <= 1.05 * points.ns("sorted", "first", size)
        }),
        "Our free places form a gap that stays where the last change was; entries move across it, failure-atomically \
         and without a log, so the cost depends on the distance to the gap and not to the end.",
    );
}
