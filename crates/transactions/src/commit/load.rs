//! The commit of a bulk load ([`crate::load`]): one publication.
//!
//! The caller of the commit holds the group, so no other commit into it is in flight. The timestamp is announced as that of any
//! commit. The publication has the exchange of all indexes and `LastCTS`: a crash leaves the states empty, or
//! loaded. Only then are readers led to the new content, which counts from the timestamp on.

use crate::commit::{Commit, complete};
use crate::context::StateContext;
use crate::load::Load;
use crate::points::{COMMIT_ANNOUNCED, LOADED_STATES_TOGETHER};
use crate::visibility::in_flight::CommitsInFlight;
use crate::visibility::snapshot::{Class, Snapshot};
use crate::{Result, interleave};
use entresol_memory::Durability;
use entresol_memory::order::step;

/// Commits a load.
pub(crate) fn commit_load(
    context: &StateContext,
    (slot, snapshot): (usize, Snapshot),
    load: &Load,
    durability: Durability,
) -> Result<Commit> {
    context.make_room_for_ranges()?;
    context.pool().wait_for_room();
    let group = &*load.states.first().expect("a load has a state").state().group;
    let held = group.hold();
    context.check_accepts_commits()?;
    load.check(snapshot, context.directory.last_cts(group.id))?;
    let mut publication = context.pool().publication();
    let mut contents = Vec::with_capacity(load.states.len());
    for state in &load.states {
        publication.barrier(LOADED_STATES_TOGETHER);
        contents.push(state.exchange(&mut publication)?);
    }
    if context.keeps_history() {
        context.active.catch_up(context.clock.now());
    }
    let (entry, stamp) = CommitsInFlight::enter(std::iter::once(&*group.in_flight), || {
        let stamp = context.active.stamp(slot, Class::Slow);
        step(COMMIT_ANNOUNCED, || context.directory.announce(group, stamp.cts()));
        (stamp.cts(), stamp)
    });
    let cts = stamp.cts();
    interleave::point();
    let mut is_published = false;
    entry.end(|last| {
        is_published = true;
        let last = last.iter().flatten().map(|&last| (group.id, last)).collect::<Vec<_>>();
        context.directory.add_last_cts(&last, &mut publication);
        Ok(publication.publish()?)
    })?;
    assert!(is_published, "no other commit into a group that is held moves its LastCTS");
    for (load, content) in load.states.iter().zip(contents) {
        let state = load.state();
        // Before readers find the first row.
        state.set_loaded(cts);
        state.live.note(cts, load.keys() as i64);
        state.index.use_content(content);
    }
    drop(held);
    complete(context, stamp, Some(durability))?;
    for state in &load.states {
        // A reader opens the part that it comes to.
        if let Err(error) = state.state().index.open_more(usize::MAX) {
            tracing::warn!(%error, "a part of a loaded index could not be opened");
        }
    }
    Ok(Commit { cts, states: load.states.len(), keys: load.keys() })
}
