//! One power failure after the other, also during recovery: invalid ranges pile up, are searched, and
//! scrubbed.

use crate::common::{Rows, key, rows};
use entresol_memory::crash::{CrashPoint, Survivors};
use entresol_memory::{Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{INVALID_RANGES_MAX, StateContext, StateId};
use std::sync::{Arc, Mutex};

const KEYS: u64 = 40;
const CRASHES: u64 = 1000;

/// Image that the next power failure will leave: chosen and taken at a fence, while the run goes on unaware.
#[derive(Default)]
struct Storm {
    fences_left: u64,
    seed: u64,
    image: Option<Vec<u64>>,
    reported: [Rows; 2],
    in_flight: Option<[Rows; 2]>,
    /// `reported` and `in_flight` at the last failure, until a run has found one of them.
    legal: Vec<[Rows; 2]>,
}

impl Storm {
    fn fence(&mut self, point: &CrashPoint<'_>) {
        if self.image.is_some() {
            return;
        }
        if self.fences_left > 0 {
            self.fences_left -= 1;
            return;
        }
        let survivors =
            [Survivors::Fenced, Survivors::Flushed, Survivors::Everything, Survivors::OnlyEvicted];
        let survivors =
            survivors.get(self.seed as usize % 8).copied().unwrap_or(Survivors::Random(self.seed));
        self.image = Some(point.image(survivors));
        // A failure during recovery leaves what was legal before.
        if self.legal.is_empty() {
            self.legal = vec![self.reported.clone()];
            self.legal.extend(self.in_flight.clone());
        }
    }
}

fn options(seed: u64) -> PoolOptions {
    PoolOptions {
        extent_bytes: 256 << 10,
        address_space_bytes: 64 << 20,
        env: Env::simulated(seed),
        ..PoolOptions::default()
    }
}

/// One run until the next failure. Returns the number of invalid ranges and of objects scrubbed in it.
fn run(storm: &Arc<Mutex<Storm>>, image: Option<Vec<u64>>, random: &Env) -> (usize, u64) {
    let observed = Arc::clone(storm);
    let observer = Box::new(move |point: &CrashPoint<'_>| observed.lock().unwrap().fence(point));
    // The same seed each time: the clock stands still over restarts, or goes back.
    let pool = Pool::crashing(&options(1), image, Some(observer)).unwrap();
    let context = StateContext::open_or_create(pool).unwrap();
    if context.states().is_empty() {
        let group = context.create_group().unwrap();
        context.create_state(group, KeyWidth::Eight).unwrap();
        context.create_state(group, KeyWidth::Variable).unwrap();
    }
    let states = [0, 1].map(|id| context.state(StateId(id)).unwrap());
    let found = {
        let reader = context.begin().unwrap();
        [0, 1].map(|state| rows(&reader, &states[state]))
    };
    {
        let mut storm = storm.lock().unwrap();
        assert!(
            storm.legal.is_empty() || storm.legal.contains(&found),
            "found {found:?}, legal {:?}",
            storm.legal
        );
        // Recovered content stays, if the power fails again before the first commit.
        storm.legal.clear();
        if storm.image.is_some() {
            storm.legal.push(found.clone());
        }
        storm.reported = found;
    }
    while storm.lock().unwrap().image.is_none() {
        let transaction = context.begin().unwrap();
        let mut after = storm.lock().unwrap().reported.clone();
        for _ in 0..1 + random.random_u64() % 3 {
            let key = key(random.random_u64() % KEYS);
            let value = vec![random.random_u64() as u8; [3, 8, 40][(random.random_u64() % 3) as usize]];
            let value = (!random.random_u64().is_multiple_of(5)).then_some(value);
            for (state, rows) in states.iter().zip(&mut after) {
                transaction.write(state, &key, value.as_deref()).unwrap();
                match &value {
                    Some(value) => drop(rows.insert(key.to_vec(), value.clone())),
                    None => drop(rows.remove(&key[..])),
                }
            }
        }
        storm.lock().unwrap().in_flight = Some(after.clone());
        transaction.commit(Durability::Sync).unwrap();
        let mut storm = storm.lock().unwrap();
        storm.reported = after;
        storm.in_flight = None;
    }
    (context.recovery().invalid_ranges, context.recovery().objects_scrubbed)
}

#[test]
fn storms_of_power_failures() {
    (7..crate::common::soak(9, 60)).for_each(power_failures);
}

fn power_failures(seed: u64) {
    let random = Env::simulated(seed);
    let storm = Arc::new(Mutex::new(Storm::default()));
    let (mut image, mut ranges_most, mut scrubbed) = (None, 0, 0);
    for crash in 0..CRASHES {
        {
            let mut storm = storm.lock().unwrap();
            storm.seed = random.random_u64();
            // The first failure comes after the states are there.
            storm.fences_left = if crash == 0 { 200 } else { random.random_u64() % 24 };
            storm.in_flight = None;
        }
        let (ranges, objects) = run(&storm, image.take(), &random);
        ranges_most = ranges_most.max(ranges);
        scrubbed += objects;
        image = storm.lock().unwrap().image.take();
    }
    println!("seed {seed}: up to {ranges_most} invalid ranges, {scrubbed} objects scrubbed");
    assert!(
        ranges_most > INVALID_RANGES_MAX / 4 && scrubbed > 0,
        "{ranges_most} ranges, {scrubbed} scrubbed"
    );
}
