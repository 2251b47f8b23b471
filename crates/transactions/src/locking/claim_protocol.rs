//! Registration of a snapshot, checked in every interleaving with commits that become visible and with scans
//! that decide which versions no snapshot needs. Each step is one access of [`crate::visibility::active`] to
//! a shared word, and all orders of the threads' steps are tried (memory orderings weaker than that are not).
//!
//! ```text
//! of each class, version i is valid from i until i + 1; visible = n ends all below n
//!   reader    load each number, exchange FREE by the first, store the others, load each number again (not the same: store all
//!             of them, again...), read its versions, release the slot
//!   commits   some number + 1
//!   scan      load all of visible (the horizon) until it is the same twice, load the slot, take every version that neither
//!             needs
//! ```
//! Errors are a version that is freed while its reader is registered, and a snapshot that never was.

use std::collections::HashSet;

/// Number of classes: more than two, so that some are loaded between others.
const CLASSES: usize = 3;
/// Maximum of the numbers of `visible`, and the number of runs of the reader and of the scan.
const COMMITS: u8 = 2;
const COMMITS_OF_ALL: u8 = 3;
const READS: u8 = 2;
const SCANS: u8 = 1;

/// Deliberate faults of the registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The reader does not check whether `visible` moved before it was registered.
    NotCheckedAgain,
    /// The reader checks one of the numbers only.
    CheckedOneOnly,
    /// The reader that finds `visible` moved returns the new one without storing it.
    NotStoredAgain,
    /// The scan loads the slot before the horizon.
    SlotBeforeHorizon,
}

/// A number of each class.
type ClassCounters = [u8; CLASSES];

/// Next step of the reader; with a number: on the word of that class.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    LoadsHorizon(u8),
    Claims,
    Stores(u8),
    LooksAgain(u8),
    Reads,
    Releases,
}

/// Next step of the scan.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Scan {
    LoadsHorizon(u8),
    LooksAgain(u8),
    LoadsSlot(u8),
    Takes,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    visible: ClassCounters,
    /// The visible numbers when the number of a class became so much: what that commit may have built on.
    built_on: [[ClassCounters; COMMITS as usize + 1]; CLASSES],
    is_claimed: bool,
    slot: ClassCounters,
    /// Versions freed by the scan, as bits, of each class; from then on their slots hold other versions.
    taken: [u8; CLASSES],
    reader: Reader,
    reads: u8,
    snapshot: ClassCounters,
    again: ClassCounters,
    scan: Scan,
    scans: u8,
    horizon: ClassCounters,
    horizon_again: ClassCounters,
    seen: Option<ClassCounters>,
}

impl World {
    fn new(fault: Fault) -> World {
        World {
            visible: ClassCounters::default(),
            built_on: Default::default(),
            is_claimed: false,
            slot: ClassCounters::default(),
            taken: [0; CLASSES],
            reader: Reader::LoadsHorizon(0),
            reads: 0,
            snapshot: ClassCounters::default(),
            again: ClassCounters::default(),
            scan: World::first_of_scan(fault),
            scans: 0,
            horizon: ClassCounters::default(),
            horizon_again: ClassCounters::default(),
            seen: None,
        }
    }

    fn first_of_scan(fault: Fault) -> Scan {
        if fault == Fault::SlotBeforeHorizon { Scan::LoadsSlot(0) } else { Scan::LoadsHorizon(0) }
    }

    /// One step of the reader; false if it has ended.
    fn read(&mut self, fault: Fault) -> Result<bool, String> {
        const LAST: u8 = CLASSES as u8 - 1;
        if self.reads == READS {
            return Ok(false);
        }
        self.reader = match self.reader {
            Reader::LoadsHorizon(class) => {
                self.snapshot[usize::from(class)] = self.visible[usize::from(class)];
                if class == LAST { Reader::Claims } else { Reader::LoadsHorizon(class + 1) }
            }
            Reader::Claims => {
                (self.is_claimed, self.slot[0]) = (true, self.snapshot[0]);
                Reader::Stores(1)
            }
            Reader::Stores(class) => {
                self.slot[usize::from(class)] = self.snapshot[usize::from(class)];
                match class {
                    LAST if fault == Fault::NotCheckedAgain => Reader::Reads,
                    LAST => Reader::LooksAgain(0),
                    _ => Reader::Stores(class + 1),
                }
            }
            Reader::LooksAgain(class) => {
                self.again[usize::from(class)] = self.visible[usize::from(class)];
                if class == LAST { self.check_again(fault) } else { Reader::LooksAgain(class + 1) }
            }
            Reader::Reads => {
                self.check()?;
                Reader::Releases
            }
            Reader::Releases => {
                self.check()?;
                self.is_claimed = false;
                self.reads += 1;
                (self.snapshot, self.again) = Default::default();
                Reader::LoadsHorizon(0)
            }
        };
        Ok(true)
    }

    fn check_again(&mut self, fault: Fault) -> Reader {
        let is_same = match fault {
            Fault::CheckedOneOnly => self.again[0] == self.snapshot[0],
            _ => self.again == self.snapshot,
        };
        if !is_same {
            self.snapshot = self.again;
        }
        self.again = ClassCounters::default();
        if is_same || fault == Fault::NotStoredAgain { Reader::Reads } else { Reader::Stores(0) }
    }

    fn check(&self) -> Result<(), String> {
        let snapshot = self.snapshot;
        for (class, &number) in snapshot.iter().enumerate() {
            if self.taken[class] & 1 << number != 0 {
                return Err(format!("a version was taken from the reader at {snapshot:?}"));
            }
            let built_on = self.built_on[class][usize::from(number)];
            if built_on.iter().zip(snapshot).any(|(needed, seen)| seen < *needed) {
                return Err(format!("{snapshot:?} sees a commit without what it built on"));
            }
        }
        Ok(())
    }

    /// One step of the scan; false if it has ended.
    fn scan(&mut self, fault: Fault) -> bool {
        const LAST: u8 = CLASSES as u8 - 1;
        if self.scans == SCANS {
            return false;
        }
        let slot_first = fault == Fault::SlotBeforeHorizon;
        self.scan = match self.scan {
            Scan::LoadsHorizon(class) => {
                self.horizon[usize::from(class)] = self.visible[usize::from(class)];
                if class == LAST { Scan::LooksAgain(0) } else { Scan::LoadsHorizon(class + 1) }
            }
            Scan::LooksAgain(class) => {
                self.horizon_again[usize::from(class)] = self.visible[usize::from(class)];
                match class {
                    LAST if self.horizon != self.horizon_again => {
                        self.horizon = self.horizon_again;
                        Scan::LooksAgain(0)
                    }
                    LAST if slot_first => Scan::Takes,
                    LAST => Scan::LoadsSlot(0),
                    _ => Scan::LooksAgain(class + 1),
                }
            }
            Scan::LoadsSlot(class) => {
                let word = self.slot[usize::from(class)];
                match class {
                    0 => self.seen = self.is_claimed.then_some([word; CLASSES]),
                    _ => self.seen.iter_mut().for_each(|seen| seen[usize::from(class)] = word),
                }
                match class {
                    LAST if slot_first => Scan::LoadsHorizon(0),
                    LAST => Scan::Takes,
                    _ => Scan::LoadsSlot(class + 1),
                }
            }
            Scan::Takes => {
                // As `Snapshots::needs`: a version ends at its number + 1.
                for (class, horizon) in self.horizon.into_iter().enumerate() {
                    let is_seen = |version: &u8| self.seen.is_some_and(|seen| seen[class] == *version);
                    for version in (0..horizon).filter(|version| !is_seen(version)) {
                        self.taken[class] |= 1 << version;
                    }
                }
                self.scans += 1;
                self.seen = None;
                (self.horizon, self.horizon_again) = Default::default();
                World::first_of_scan(fault)
            }
        };
        true
    }

    /// Next commits to become visible, one of each class: each may have built on all that is visible.
    fn commits(&self) -> impl Iterator<Item = World> {
        let may_go_on = self.visible.into_iter().sum::<u8>() < COMMITS_OF_ALL;
        (0..CLASSES).filter(move |class| may_go_on && self.visible[*class] < COMMITS).map(|class| {
            let mut next = self.clone();
            next.visible[class] += 1;
            next.built_on[class][usize::from(next.visible[class])] = self.visible;
            next
        })
    }
}

/// Tries every order; returns the first that frees a version of its reader, or gives it a snapshot that never
/// was.
fn explore(fault: Fault) -> Result<usize, String> {
    let (mut seen, mut open) = (HashSet::new(), vec![World::new(fault)]);
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
        [Fault::NotCheckedAgain, Fault::CheckedOneOnly, Fault::NotStoredAgain, Fault::SlotBeforeHorizon]
    {
        assert!(explore(fault).is_err(), "{fault:?}");
    }
}
