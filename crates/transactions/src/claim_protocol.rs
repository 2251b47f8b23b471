//! How a snapshot is registered, looked at in every interleaving with commits that become visible and with scans that decide
//! which versions nobody needs. Each step is one access of [`crate::active`] to a shared word, and all orders of the
//! threads' steps are tried (memory orderings weaker than that are not).
//!
//! ```text
//! version i is valid from i until i + 1; visible = n ends all below n
//!   reader    load visible, exchange FREE by it, load visible again (store it, again...), read its version, let go
//!   commits   visible + 1
//!   scan      load visible (the horizon), load the slot, take every version that neither needs
//! ```
//! A version that is taken while its reader is registered is what must not be.

use std::collections::HashSet;

/// How far `visible` goes, and how often the reader and the scan begin.
const COMMITS: u8 = 3;
const READS: u8 = 2;
const SCANS: u8 = 3;

/// What may be done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The reader does not look whether `visible` moved before it was registered.
    NotLookedAgain,
    /// The reader that finds `visible` moved returns the new one without storing it.
    NotStoredAgain,
    /// The scan loads the slot before the horizon.
    SlotBeforeHorizon,
}

/// What the reader does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    Begins,
    Claims,
    LooksAgain,
    Stores,
    Reads,
    LetsGo,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    visible: u8,
    /// None: free.
    slot: Option<u8>,
    /// Versions that were taken, as bits; one that is taken holds another version from then on.
    taken: u8,
    reader: Reader,
    reads: u8,
    snapshot: u8,
    scan_step: u8,
    scans: u8,
    horizon: u8,
    seen: Option<u8>,
}

impl World {
    fn new() -> World {
        World {
            visible: 0,
            slot: None,
            taken: 0,
            reader: Reader::Begins,
            reads: 0,
            snapshot: 0,
            scan_step: 0,
            scans: 0,
            horizon: 0,
            seen: None,
        }
    }

    /// One step of the reader; false if it has ended.
    fn read(&mut self, fault: Fault) -> Result<bool, String> {
        if self.reads == READS {
            return Ok(false);
        }
        self.reader = match self.reader {
            Reader::Begins => {
                self.snapshot = self.visible;
                Reader::Claims
            }
            Reader::Claims => {
                self.slot = Some(self.snapshot);
                if fault == Fault::NotLookedAgain { Reader::Reads } else { Reader::LooksAgain }
            }
            Reader::LooksAgain if self.visible == self.snapshot => Reader::Reads,
            Reader::LooksAgain => {
                self.snapshot = self.visible;
                if fault == Fault::NotStoredAgain { Reader::Reads } else { Reader::Stores }
            }
            Reader::Stores => {
                self.slot = Some(self.snapshot);
                Reader::LooksAgain
            }
            Reader::Reads => {
                self.check_not_taken()?;
                Reader::LetsGo
            }
            Reader::LetsGo => {
                self.check_not_taken()?;
                self.slot = None;
                self.reads += 1;
                Reader::Begins
            }
        };
        Ok(true)
    }

    fn check_not_taken(&self) -> Result<(), String> {
        let taken = self.taken & 1 << self.snapshot != 0;
        if taken { Err(format!("version {} was taken from its reader", self.snapshot)) } else { Ok(()) }
    }

    /// One step of the scan; false if it has ended.
    fn scan(&mut self, fault: Fault) -> bool {
        if self.scans == SCANS {
            return false;
        }
        let horizon_first = fault != Fault::SlotBeforeHorizon;
        match (self.scan_step, horizon_first) {
            (0, true) | (1, false) => self.horizon = self.visible,
            (1, true) | (0, false) => self.seen = self.slot,
            _ => {
                // As `Snapshots::needs`: a version ends at its number + 1.
                for version in (0..self.horizon).filter(|version| self.seen != Some(*version)) {
                    self.taken |= 1 << version;
                }
                self.scans += 1;
                (self.scan_step, self.seen) = (0, None);
                return true;
            }
        }
        self.scan_step += 1;
        true
    }
}

/// Tries every order; the first that takes a version from its reader.
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
        if world.visible < COMMITS {
            open.push(World { visible: world.visible + 1, ..world });
        }
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
    for fault in [Fault::NotLookedAgain, Fault::NotStoredAgain, Fault::SlotBeforeHorizon] {
        assert!(explore(fault).is_err(), "{fault:?}");
    }
}
