//! How a snapshot is registered, looked at in every interleaving with commits that become visible and with scans that decide
//! which versions nobody needs. Each step is one access of [`crate::active`] to a shared word, and all orders of the
//! threads' steps are tried (memory orderings weaker than that are not).
//!
//! ```text
//! of each class, version i is valid from i until i + 1; visible = n ends all below n
//!   reader    load whole, load quick, load whole again (until it is the same), exchange FREE by whole, store quick,
//!             load all of visible again (store it, again...), read its versions, let go
//!   commits   quick + 1, or whole + 1 while quick is not behind
//!   scan      load all of visible (the horizon), load the slot, take every version that neither needs
//! ```
//! A version that is taken while its reader is registered is what must not be, and a snapshot that no moment had.

use std::collections::HashSet;

/// How far the two numbers of `visible` go, and how often the reader and the scan begin.
const COMMITS: u8 = 2;
const READS: u8 = 2;
const SCANS: u8 = 2;

/// What may be done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The reader does not look whether `visible` moved before it was registered.
    NotLookedAgain,
    /// The reader looks at one of the two only.
    LookedAtWholeOnly,
    /// The reader that finds `visible` moved returns the new one without storing it.
    NotStoredAgain,
    /// The scan loads the slot before the horizon.
    SlotBeforeHorizon,
}

/// Both numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Pair {
    whole: u8,
    quick: u8,
}

/// Loading both numbers at one moment: what was loaded, and the next step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Load {
    pair: Pair,
    step: u8,
}

impl Load {
    /// One step; true when it has ended.
    fn advance(&mut self, visible: Pair) -> bool {
        match self.step {
            0 => self.pair.whole = visible.whole,
            1 => self.pair.quick = visible.quick,
            _ if self.pair.whole != visible.whole => {
                (self.pair.whole, self.step) = (visible.whole, 1);
                return false;
            }
            _ => (),
        }
        let ended = self.step == 2;
        self.step = if ended { 0 } else { self.step + 1 };
        ended
    }
}

/// What the reader does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    Begins,
    Claims,
    StoresQuick,
    LooksAgain,
    StoresQuickAgain,
    StoresWholeAgain,
    Reads,
    LetsGo,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    visible: Pair,
    /// What `whole` was when `quick` became so much: what that commit may have built on.
    built_on: [u8; COMMITS as usize + 1],
    is_claimed: bool,
    slot: Pair,
    /// Versions that were taken, as bits, of each class; one that is taken holds another version from then on.
    taken: [u8; 2],
    reader: Reader,
    reads: u8,
    snapshot: Pair,
    load: Load,
    scan_step: u8,
    scans: u8,
    scan_load: Load,
    horizon: Pair,
    seen_whole: Option<u8>,
    seen: Option<Pair>,
}

impl World {
    fn new() -> World {
        World {
            visible: Pair::default(),
            built_on: [0; COMMITS as usize + 1],
            is_claimed: false,
            slot: Pair::default(),
            taken: [0; 2],
            reader: Reader::Begins,
            reads: 0,
            snapshot: Pair::default(),
            load: Load::default(),
            scan_step: 0,
            scans: 0,
            scan_load: Load::default(),
            horizon: Pair::default(),
            seen_whole: None,
            seen: None,
        }
    }

    /// One step of the reader; false if it has ended.
    fn read(&mut self, fault: Fault) -> Result<bool, String> {
        if self.reads == READS {
            return Ok(false);
        }
        self.reader = match self.reader {
            Reader::Begins if !self.load.advance(self.visible) => Reader::Begins,
            Reader::Begins => {
                self.snapshot = self.load.pair;
                Reader::Claims
            }
            Reader::Claims => {
                (self.is_claimed, self.slot.whole) = (true, self.snapshot.whole);
                Reader::StoresQuick
            }
            Reader::StoresQuick => {
                self.slot.quick = self.snapshot.quick;
                if fault == Fault::NotLookedAgain { Reader::Reads } else { Reader::LooksAgain }
            }
            Reader::LooksAgain if !self.load.advance(self.visible) => Reader::LooksAgain,
            Reader::LooksAgain => {
                let now = self.load.pair;
                let is_same = match fault {
                    Fault::LookedAtWholeOnly => now.whole == self.snapshot.whole,
                    _ => now == self.snapshot,
                };
                if !is_same {
                    self.snapshot = now;
                }
                match is_same || fault == Fault::NotStoredAgain {
                    true => Reader::Reads,
                    false => Reader::StoresQuickAgain,
                }
            }
            Reader::StoresQuickAgain => {
                self.slot.quick = self.snapshot.quick;
                Reader::StoresWholeAgain
            }
            Reader::StoresWholeAgain => {
                self.slot.whole = self.snapshot.whole;
                Reader::LooksAgain
            }
            Reader::Reads => {
                self.check()?;
                Reader::LetsGo
            }
            Reader::LetsGo => {
                self.check()?;
                self.is_claimed = false;
                self.reads += 1;
                Reader::Begins
            }
        };
        Ok(true)
    }

    fn check(&self) -> Result<(), String> {
        let Pair { whole, quick } = self.snapshot;
        if self.taken[0] & 1 << whole != 0 || self.taken[1] & 1 << quick != 0 {
            return Err(format!("a version was taken from the reader at {:?}", self.snapshot));
        }
        if whole < self.built_on[usize::from(quick)] {
            return Err(format!("{:?} sees a commit without what it built on", self.snapshot));
        }
        Ok(())
    }

    /// One step of the scan; false if it has ended.
    fn scan(&mut self, fault: Fault) -> bool {
        if self.scans == SCANS {
            return false;
        }
        let slot_first = fault == Fault::SlotBeforeHorizon;
        match (self.scan_step, slot_first) {
            (0, false) | (2, true) => {
                if !self.scan_load.advance(self.visible) {
                    return true;
                }
                self.horizon = self.scan_load.pair;
            }
            (1, false) | (0, true) => self.seen_whole = self.is_claimed.then_some(self.slot.whole),
            (2, false) | (1, true) => {
                self.seen = self.seen_whole.map(|whole| Pair { whole, quick: self.slot.quick });
            }
            _ => {
                // As `Snapshots::needs`: a version ends at its number + 1.
                let seen = self.seen.map(|seen| [seen.whole, seen.quick]);
                for (class, horizon) in [self.horizon.whole, self.horizon.quick].into_iter().enumerate() {
                    for version in (0..horizon).filter(|version| seen.is_none_or(|at| at[class] != *version))
                    {
                        self.taken[class] |= 1 << version;
                    }
                }
                self.scans += 1;
                (self.scan_step, self.seen_whole, self.seen) = (0, None, None);
                return true;
            }
        }
        self.scan_step += 1;
        true
    }

    /// What becomes visible next: of either class. A quick commit may have built on all that is visible.
    fn commits(&self) -> impl Iterator<Item = World> {
        let Pair { whole, quick } = self.visible;
        let quick_one = (quick < COMMITS).then(|| {
            let mut next = self.clone();
            next.visible.quick += 1;
            next.built_on[usize::from(quick) + 1] = whole;
            next
        });
        let slow_one = (whole < quick).then(|| {
            let mut next = self.clone();
            next.visible.whole += 1;
            next
        });
        quick_one.into_iter().chain(slow_one)
    }
}

/// Tries every order; the first that takes a version from its reader, or gives it a snapshot of no moment.
fn explore(fault: Fault) -> Result<usize, String> {
    let (mut seen, mut open) = (HashSet::new(), vec![World::new()]);
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let mut next = world.clone();
        if next.read(fault)? {
            open.push(next);
        }
        let mut next = world.clone();
        if next.scan(fault) {
            open.push(next);
        }
        open.extend(world.commits());
    }
    Ok(seen.len())
}

#[test]
fn no_scan_takes_a_version_from_a_registered_reader() {
    let states = explore(Fault::None).unwrap();
    assert!(states > 1000, "{states} states are no search");
}

#[test]
fn each_wrong_order_is_found() {
    for fault in
        [Fault::NotLookedAgain, Fault::LookedAtWholeOnly, Fault::NotStoredAgain, Fault::SlotBeforeHorizon]
    {
        assert!(explore(fault).is_err(), "{fault:?}");
    }
}
