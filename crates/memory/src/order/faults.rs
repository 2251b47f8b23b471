//! Faults at ordering points, one at a time for the whole process: a test selects it, or the environment
//! does, as `ENTRESOL_MUTANT=name-of-the-point:name-of-the-fault`.

use super::Fault;
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The environment variable that selects a fault when the process starts.
pub const SELECT: &str = "ENTRESOL_MUTANT";

/// All faults, in the order of their numbers.
const FAULTS: [Fault; 10] = [
    Fault::LeftOut,
    Fault::InPart,
    Fault::Split,
    Fault::Reversed,
    Fault::InTwo,
    Fault::StoredOnly,
    Fault::Swapped,
    Fault::Early,
    Fault::TakenForTrue,
    Fault::Wrong,
];

impl Fault {
    const fn number(self) -> u64 {
        self as u64 + 1
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::LeftOut => "left-out",
            Fault::InPart => "in-part",
            Fault::Split => "split",
            Fault::Reversed => "reversed",
            Fault::InTwo => "in-two",
            Fault::StoredOnly => "stored-only",
            Fault::Swapped => "swapped",
            Fault::Early => "early",
            Fault::TakenForTrue => "taken-for-true",
            Fault::Wrong => "wrong",
        })
    }
}

/// A point as it was declared.
#[derive(Debug)]
pub struct DeclaredPoint {
    /// Its name, in capitals.
    pub name: &'static str,
    /// The rule of the protocol.
    pub rule: &'static str,
    /// Faults that are possible there.
    pub faults: &'static [Fault],
}

/// A fault at a point.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// The point.
    pub point: &'static DeclaredPoint,
    /// The deviation from its rule.
    pub fault: Fault,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}:{}", self.point.name.to_ascii_lowercase().replace('_', "-"), self.fault);
        f.pad(&name)
    }
}

/// All faults at these points.
pub fn mutants(points: &'static [DeclaredPoint]) -> impl Iterator<Item = Mutant> {
    points.iter().flat_map(|point| point.faults.iter().map(move |&fault| Mutant { point, fault }))
}

/// Outcome of a mutant in the test that reaches it.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedOutcome<T> {
    /// Caught by the test.
    Caught(T),
    /// Harmless, and so caught by no test, for this reason.
    Harmless(T, &'static str),
    /// Not caught by a test so far, for this reason: a gap of the tests.
    Missed(T, &'static str),
}

/// Runs `work` with each mutant that the list gives to this test, and asserts that it does as the list says:
/// an error or a panic where it is caught, else none. In both cases the code must come by. Prints a line for
/// each. If the environment names a mutant, looks at that one alone. Returns how many were caught.
pub fn check_all<T: Copy + PartialEq, R, E: fmt::Display>(
    points: &'static [DeclaredPoint],
    list: &[(&str, ExpectedOutcome<T>)],
    test: T,
    work: impl Fn() -> Result<R, E>,
) -> usize {
    let asked_for = std::env::var(SELECT).unwrap_or_default();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut caught, mut wrong) = (0, Vec::new());
    for (mutant, expected) in listed(points, list) {
        let (of, reason) = match expected {
            ExpectedOutcome::Caught(of) => (of, None),
            ExpectedOutcome::Harmless(of, reason) | ExpectedOutcome::Missed(of, reason) => (of, Some(reason)),
        };
        if of != test || !(asked_for.is_empty() || asked_for == mutant.to_string()) {
            continue;
        }
        let (error, reached) = run_with(mutant, std::panic::AssertUnwindSafe(&work));
        let says = error.as_deref().or(reason).unwrap_or("nothing");
        let line = says.trim_start_matches("crash check failed: ").lines().next().unwrap_or_default();
        println!("{mutant:50} {}", line.chars().take(130).collect::<String>());
        caught += usize::from(error.is_some());
        if reached == 0 || error.is_some() == reason.is_some() {
            wrong.push(format!("{mutant}, reached {reached} times: {line}"));
        }
    }
    std::panic::set_hook(hook);
    assert!(wrong.is_empty(), "not as the list says: {wrong:#?}");
    caught
}

/// All faults at these points, each with what the list says of it. An entry names a point, which stands for
/// all its faults that no other entry names, or a point and a fault, as [`Mutant`] prints it. Panics if the
/// list leaves out a fault, or names one that there is not, or one twice.
pub fn listed<T: Copy>(points: &'static [DeclaredPoint], list: &[(&str, T)]) -> Vec<(Mutant, T)> {
    let mut used = vec![false; list.len()];
    let mut find = |name: &str| {
        let mut places = list.iter().enumerate().filter(|(_, (listed, _))| *listed == name);
        let (place, (_, says)) = places.next()?;
        assert!(places.next().is_none(), "the list has '{name}' twice");
        used[place] = true;
        Some(*says)
    };
    let all: Vec<_> = mutants(points)
        .map(|mutant| {
            let name = mutant.to_string();
            let point = name.split(':').next().unwrap_or_default();
            let says = find(&name).or_else(|| find(point));
            (mutant, says.unwrap_or_else(|| panic!("the list does not say what becomes of '{name}'")))
        })
        .collect();
    let unused: Vec<_> = list.iter().zip(used).filter(|(_, used)| !used).map(|((name, _), _)| name).collect();
    assert!(unused.is_empty(), "the list has what no point can do: {unused:?}");
    let mut ids: Vec<_> = points.iter().map(|point| id_of(point.name.as_bytes())).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "two points have one number");
    all
}

/// A number for the name of a point, the same for capitals and for small letters; its low byte is free.
pub(super) const fn id_of(name: &[u8]) -> u64 {
    // FNV-1a.
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut at = 0;
    while at < name.len() {
        let byte = if name[at] == b'-' { b'_' } else { name[at].to_ascii_uppercase() };
        hash = (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01B3);
        at += 1;
    }
    hash << 8
}

/// Value before the first question: the environment decides.
const UNKNOWN: u64 = u64::MAX;

/// The number of the point and of the fault; 0: none.
static SELECTED: AtomicU64 = AtomicU64::new(UNKNOWN);

/// Number of times that the selected fault was asked for.
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// Returns true if this is the selected fault.
#[inline]
pub(super) fn asked_for(id: u64, fault: Fault) -> bool {
    let selected = match SELECTED.load(Ordering::Relaxed) {
        UNKNOWN => selected_by_environment(),
        selected => selected,
    };
    if selected != id | fault.number() {
        return false;
    }
    REACHED.fetch_add(1, Ordering::Relaxed);
    true
}

#[cold]
fn selected_by_environment() -> u64 {
    let asked_for = std::env::var(SELECT).ok().filter(|name| name.contains(':'));
    let selected = asked_for.map_or(0, |name| {
        let (point, fault) = name.split_once(':').expect("it was asked for");
        let fault = FAULTS.into_iter().find(|known| known.to_string() == fault);
        let fault = fault.unwrap_or_else(|| panic!("{SELECT}={name}: no fault is called that"));
        id_of(point.as_bytes()) | fault.number()
    });
    SELECTED.store(selected, Ordering::Relaxed);
    selected
}

/// Keeps other tests of this process from selecting faults while the guard lives.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

/// Selects a fault for the whole process, or none.
pub fn select(mutant: Option<Mutant>) {
    REACHED.store(0, Ordering::Relaxed);
    let selected = mutant.map_or(0, |mutant| id_of(mutant.point.name.as_bytes()) | mutant.fault.number());
    SELECTED.store(selected, Ordering::Relaxed);
}

/// Number of times that the code reached the selected fault.
pub fn reached() -> usize {
    REACHED.load(Ordering::Relaxed)
}

/// Runs `work` with a fault; a panic counts as an error. Returns the error, if there was one, and how often
/// the code came by the fault.
pub fn run_with<T, E: fmt::Display>(
    mutant: Mutant,
    work: impl FnOnce() -> Result<T, E> + std::panic::UnwindSafe,
) -> (Option<String>, usize) {
    select(Some(mutant));
    let outcome = std::panic::catch_unwind(work);
    let reached = reached();
    select(None);
    let error = match outcome {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("a panic".to_string()),
    };
    (error, reached)
}
