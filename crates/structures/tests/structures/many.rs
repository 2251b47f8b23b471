//! Batched inserts of keys, and batched seeks of the first entries from keys on.

use crate::ordered::{Content, Design, ROOT, content, create, designs, key};
use entresol_memory::crash::{CrashOptions, Model, Recorder, check_at, check_seeds};
use entresol_memory::{Env, Pool, PoolOffset, PoolOptions};
use entresol_structures::{IndexStructure, KeyWidth, OrderedIndex, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// First key of the probe of a recovered index.
const LATER: u64 = 1000;
const MORE: u64 = 60;

/// Adds keys, each with an object as its value; returns the values of new keys and of existing ones.
fn add(pool: &Arc<Pool>, index: &OrderedIndex, keys: &[Vec<u8>]) -> Result<(Content, Content)> {
    let (mut new, mut there) = (Content::new(), Content::new());
    let mut objects: Vec<_> = keys.iter().map(|_| Some(pool.reserve(64).unwrap())).collect();
    index.insert_many(
        keys,
        |place, with| {
            let object = with.allocate(objects[place].take().unwrap()).to_word();
            assert!(new.insert(keys[place].clone(), object).is_none());
            object
        },
        |place, value| assert!(there.insert(keys[place].clone(), value).is_none()),
    )?;
    Ok((new, there))
}

/// Verifies that the index is sound, and that it and its values own all allocated objects.
fn sound(pool: &Arc<Pool>, index: &OrderedIndex) {
    let mut own: BTreeSet<PoolOffset> = content(index).into_values().map(PoolOffset::from_word).collect();
    index.check(|object| assert!(own.insert(object), "twice")).unwrap();
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    assert_eq!(own, allocated);
}

#[test]
fn many_at_once_agree_with_a_model() {
    for (seed, design) in (1..).zip(designs()) {
        let (_, width) = design;
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let (index, random) = (create(&pool, design), Env::simulated(seed));
        let below = |max: u64| random.random_u64() % max;
        let mut model = Content::new();
        let mut firsts = Vec::new();
        let mut leaves_max = 0;
        for round in 0..240 {
            // Together in a few leaves, or all over; in any order; more than go down at once.
            let (begin, spread) = (below(4000), [40, 300, 4000][below(3) as usize]);
            let mut numbers: Vec<u64> = (0..1 + below(90)).map(|_| (begin + below(spread)) * 2).collect();
            numbers.sort_unstable();
            numbers.dedup();
            if round % 3 == 0 {
                (1..numbers.len()).for_each(|i| numbers.swap(i, below(i as u64 + 1) as usize));
            }
            let keys: Vec<_> = numbers.iter().map(|&number| key(width, number)).collect();
            let (new, there) = add(&pool, &index, &keys).unwrap();
            for key in &keys {
                assert_eq!(there.get(key), model.get(key));
                assert_eq!(new.contains_key(key), !model.contains_key(key));
            }
            model.extend(new);
            leaves_max = leaves_max.max(index.stats().leaves);
            if round % 4 == 3 {
                let gone: Vec<_> = model.keys().filter(|_| below(3) == 0).cloned().collect();
                for key in gone {
                    let object = model.remove(&key).unwrap();
                    let mut with = pool.publication();
                    with.free(PoolOffset::from_word(object));
                    assert_eq!(index.remove(&key, with).unwrap(), Some(object));
                }
            }
            let asked: Vec<_> = (0..1 + below(100)).map(|_| key(width, below(16_200))).collect();
            index.first_from_each(&asked, &mut firsts).unwrap();
            assert_eq!(firsts.len(), asked.len());
            for (from, first) in asked.iter().zip(&firsts) {
                let expected = model.range(from.clone()..).next();
                let first = first.as_ref().map(|(key, value)| (key.to_vec(), *value));
                assert_eq!(first, expected.map(|(key, value)| (key.clone(), *value)), "from {from:?}");
            }
            let alone = index.first_from(&asked[0]).unwrap();
            assert_eq!(alone, firsts[0]);
        }
        assert_eq!(content(&index), model);
        sound(&pool, &index);
        assert!(leaves_max > 15, "at most {leaves_max} leaves, in the end {:?}", index.stats());
    }
}

/// Writers insert the same keys, each is new for one of them; readers seek the first ones.
#[test]
fn writers_of_the_same_keys_beside_readers() {
    const KEYS: u64 = 1200;
    for design in designs() {
        let (_, width) = design;
        let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
        let index = create(&pool, design);
        let owned: Vec<BTreeSet<u64>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u64)
                .map(|writer| {
                    let (index, pool) = (&index, &pool);
                    scope.spawn(move || {
                        let random = Env::simulated(writer);
                        let mut own = BTreeSet::new();
                        for _ in 0..300 {
                            let begin = random.random_u64() % KEYS;
                            let numbers: BTreeSet<u64> =
                                (0..40).map(|_| begin + random.random_u64() % 200).collect();
                            let numbers: Vec<u64> = numbers.into_iter().collect();
                            let keys: Vec<_> = numbers.iter().map(|&number| key(width, number)).collect();
                            let value = |place: usize| numbers[place] * 4 + writer;
                            let (mut new, mut there) = (Vec::new(), Vec::new());
                            let carried = |place: usize, _: &mut _| {
                                new.push(numbers[place]);
                                value(place)
                            };
                            index
                                .insert_many(&keys, carried, |place, value| there.push((place, value)))
                                .unwrap();
                            for (place, value) in there {
                                assert_eq!(value / 4, numbers[place]);
                                assert!(value % 4 != writer || own.contains(&numbers[place]));
                            }
                            own.extend(new);
                            // Some are removed again, so that leaves are freed.
                            let gone: Vec<u64> = own
                                .iter()
                                .copied()
                                .filter(|_| random.random_u64().is_multiple_of(4))
                                .collect();
                            for number in gone {
                                let removed = index.remove(&key(width, number), pool.publication()).unwrap();
                                assert_eq!(removed, Some(number * 4 + writer));
                                own.remove(&number);
                            }
                        }
                        own
                    })
                })
                .collect();
            let readers = || writers.iter().any(|writer| !writer.is_finished());
            let (random, mut firsts) = (Env::simulated(9), Vec::new());
            while readers() {
                let asked: Vec<_> = (0..50).map(|_| key(width, random.random_u64() % KEYS)).collect();
                index.first_from_each(&asked, &mut firsts).unwrap();
                for (from, (first, value)) in
                    asked.iter().zip(&firsts).filter_map(|(from, first)| Some((from, first.as_ref()?)))
                {
                    assert!(first[..] >= from[..] && first[..] == key(width, value / 4));
                }
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let all: Content = (0..)
            .zip(&owned)
            .flat_map(|(writer, own)| {
                own.iter().map(move |number| (key(width, *number), number * 4 + writer))
            })
            .collect();
        assert_eq!(content(&index), all);
        assert_eq!(all.len(), owned.iter().map(BTreeSet::len).sum::<usize>());
    }
}

/// Batches of added keys, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Batches(Vec<Vec<Vec<u8>>>);

impl Model for Batches {
    type Operation = Vec<Vec<u8>>;

    fn apply(&mut self, batch: &Vec<Vec<u8>>) {
        self.0.push(batch.clone());
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

/// After a crash all returned batches are there, of the next one a prefix of the keys, and nothing leaks.
fn survives(
    design: Design,
    options: &CrashOptions,
) -> entresol_memory::Result<entresol_memory::crash::CrashReport> {
    let (_, width) = design;
    let recorder = Recorder::new(Batches::default());
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let index = create(pool, design);
        let random = Env::simulated(seed);
        for _ in 0..9 {
            let numbers: BTreeSet<u64> = (0..25).map(|_| random.random_u64() % 400).collect();
            let mut batch: Vec<_> = numbers.iter().map(|&number| key(width, number)).collect();
            batch.truncate(1 + random.random_u64() as usize % batch.len());
            recorded.run(batch.clone(), || add(pool, &index, &batch)).unwrap();
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), move |pool, legal| {
        let Some(root) = pool.root(ROOT) else {
            return if legal.returned.0.is_empty() { Ok(()) } else { Err("the index is gone".into()) };
        };
        let index = OrderedIndex::open(pool, root).map_err(|error| error.to_string())?;
        let mut found = content(&index);
        // Keys of probes that crashed themselves: a prefix, too.
        let later = found.split_off(&key(width, LATER));
        if !later.keys().enumerate().all(|(at, found)| *found == key(width, LATER + at as u64)) {
            return Err("what was added after the crash has a gap".into());
        }
        let mut expected: BTreeSet<_> = legal.returned.0.iter().flatten().cloned().collect();
        if let Some((_, after)) = &legal.with_next {
            let next = after.0.last().into_iter().flatten();
            expected.extend(next.take_while(|key| found.contains_key(*key)).cloned());
        }
        if !found.keys().eq(expected.iter()) {
            let all: BTreeSet<_> = found.into_keys().collect();
            let differ: Vec<_> = all.symmetric_difference(&expected).collect();
            return Err(format!("found or not: {differ:?}"));
        }
        sound(pool, &index);
        let more: Vec<_> = (LATER..LATER + MORE).map(|number| key(width, number)).collect();
        let (new, there) = add(pool, &index, &more).map_err(|error| error.to_string())?;
        if there.keys().ne(later.keys())
            || new.len() + there.len() != more.len()
            || more.iter().any(|key| index.get(key).ok().flatten().is_none())
        {
            return Err("nothing can be added".into());
        }
        sound(pool, &index);
        Ok(())
    })
}

#[test]
fn batches_survive_whole_or_in_part() {
    let chosen = [
        (IndexStructure::FpTree, KeyWidth::Sixteen, 2),
        (IndexStructure::FpTree, KeyWidth::Variable, 2),
        (IndexStructure::WbTree, KeyWidth::Sixteen, 1),
        (IndexStructure::HybridPbpTree, KeyWidth::Eight, 1),
    ];
    for (structure, width, seeds) in chosen {
        let design = (structure, width);
        let report = check_seeds(&format!("batches, {design:?}"), seeds, |seed| {
            survives(design, &CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) })
        });
        let report = report.unwrap();
        println!("{design:?}: {report:?}");
        assert!(report.explored(1_000), "{report:?}");
    }
}
