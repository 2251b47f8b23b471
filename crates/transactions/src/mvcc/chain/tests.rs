use super::*;
use crate::timestamp::at;
use crate::visibility::active::ActiveTransactions;
use crate::visibility::snapshot::Class;
use entresol_memory::{DomainChoice, PoolOptions};
use std::sync::Arc;

fn pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() }).unwrap()
}

/// A chain with these versions, oldest first.
fn chain(pool: &Pool, versions: &[(Timestamp, Option<&[u8]>)]) -> PoolOffset {
    versions.iter().fold(PoolOffset::NULL, |next, (cts, value)| {
        let reservation = pool.reserve(version_bytes(*value)).unwrap();
        Version::write(pool, reservation.offset(), next.to_word(), *cts, *value);
        let mut publication = pool.publication();
        let offset = publication.allocate(reservation);
        publication.publish().unwrap();
        offset
    })
}

fn seen(chain: Chain<'_>, snapshot: Timestamp, invalid: &InvalidRanges) -> Option<Vec<u8>> {
    let mut value = ValueBuffer::new();
    chain.copy_visible(Snapshot::at(snapshot), invalid, &mut value).unwrap().then(|| value.to_vec())
}

#[test]
fn a_snapshot_sees_the_version_of_its_time() {
    let pool = pool();
    let invalid = InvalidRanges::new();
    let long = vec![3; 70_000];
    let versions: [(_, Option<&[u8]>); 4] =
        [(at(10), Some(b"first")), (at(20), Some(&long)), (at(30), None), (at(40), Some(b""))];
    let chain = Chain::at(&pool, chain(&pool, &versions));
    for (snapshot, expected) in [
        (9, None),
        (10, Some(&b"first"[..])),
        (19, Some(b"first")),
        (29, Some(&long)),
        (39, None),
        (40, Some(b"")),
    ] {
        assert_eq!(seen(chain, at(snapshot), &invalid).as_deref(), expected, "at {snapshot}");
    }
    assert_eq!(chain.newest(&invalid), Ok(at(40)));
    assert!(!chain.seems_dead(Snapshot::at(at(50)), &invalid));
    assert!(invalid.add(at(35), at(45)));
    assert_eq!(seen(chain, at(50), &invalid), None);
    assert!(
        chain.seems_dead(Snapshot::at(at(30)), &invalid) && !chain.seems_dead(Snapshot::at(at(29)), &invalid)
    );
    assert!(chain.scrub(&invalid) && !chain.scrub(&invalid), "idempotent");
    assert_eq!(chain.newest(&InvalidRanges::new()), Ok(at(30)));
}

#[test]
fn only_versions_that_no_snapshot_needs_are_unlinked() {
    let pool = pool();
    let invalid = InvalidRanges::new();
    let active = ActiveTransactions::new(at(26));
    let (_reader, snapshot) = active.claim().unwrap();
    assert_eq!(snapshot, Snapshot::at(at(27)));
    let (writer, _) = active.claim().unwrap();
    while active.visible(Class::Quick) < at(60) {
        active.stamp(writer, Class::Quick).finish();
    }
    active.release(writer);
    active.advanced();
    let versions: Vec<(Timestamp, Option<&[u8]>)> =
        [10, 20, 30, 40, 50, 60].into_iter().map(|cts| (at(cts), Some(&b"value"[..]))).collect();
    let head = chain(&pool, &versions);
    let chain = Chain::at(&pool, head);
    let all: Vec<PoolOffset> = chain.offsets().collect();
    let census = chain.census(&invalid, &active.snapshots()).unwrap();
    assert_eq!((census.lives, census.newest, census.needed), (true, at(60), 2));
    assert_eq!(census.pruned.freed[..], [all[1], all[2], all[3], all[5]]);
    let mut publication = pool.publication();
    census.pruned.add_to(&mut publication);
    publication.publish().unwrap();
    assert_eq!(chain.offsets().collect::<Vec<_>>(), [all[0], all[4]]);
    assert_eq!(seen(chain, at(25), &invalid).unwrap(), b"value");
    assert!(chain.census(&invalid, &active.snapshots()).unwrap().pruned.is_empty());
}

#[test]
fn long_chains_are_unlinked_in_parts() {
    let pool = pool();
    let versions: Vec<(Timestamp, Option<&[u8]>)> = (1..100).map(|cts| (at(cts), None)).collect();
    let chain = Chain::at(&pool, chain(&pool, &versions));
    let before = pool.stats().allocated_bytes;
    let mut rounds = 0;
    loop {
        let mut publication = pool.publication();
        let last = chain.unlink_behind_first(&mut publication);
        publication.publish().unwrap();
        rounds += 1;
        if last {
            break;
        }
    }
    assert_eq!((rounds, chain.offsets().count()), (4, 1));
    assert!(pool.stats().allocated_bytes < before);
}

#[test]
fn damage_ends_a_walk() {
    let pool = pool();
    let head = chain(&pool, &[(at(10), Some(b"first")), (at(20), Some(b"second"))]);
    let chain = Chain::at(&pool, head);
    pool.word(head).store(head.to_word(), Ordering::Relaxed);
    assert_eq!(chain.offsets().count(), 1, "no circle");
    assert!(
        chain.copy_visible(Snapshot::at(at(15)), &InvalidRanges::new(), &mut ValueBuffer::new()).is_err()
    );
    assert!(chain.check(&mut |_, _| Ok(())).is_err());
    assert!(Chain::at(&pool, PoolOffset::new(3)).newest(&InvalidRanges::new()).is_err());
}
