use super::*;
use crate::timestamp::at;
use crate::visibility::active::ActiveTransactions;
use entresol_memory::PoolOffset;
use entresol_memory::{DomainChoice, PoolOptions};
use std::sync::Arc;

fn pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() }).unwrap()
}

fn object(pool: &Pool, value: &[u8], cts: Timestamp) -> PoolOffset {
    let reservation = pool.reserve(ObjectLayout::for_new(value.len(), 2).bytes()).unwrap();
    let layout = ObjectLayout::for_new(value.len(), 2).filling(reservation.bytes());
    VersionedObject::initialise(pool, reservation.offset(), layout).build(None, Some((cts, value)));
    let mut publication = pool.publication();
    let offset = publication.allocate(reservation);
    publication.publish().unwrap();
    offset
}

fn seen(object: &VersionedObject<'_>, snapshot: Timestamp, invalid: &InvalidRanges) -> Option<Vec<u8>> {
    let mut value = ValueBuffer::new();
    let slot = object.visible(Snapshot::at(snapshot), invalid)?;
    assert!(object.copy_value(slot, &mut value));
    Some(value.to_vec())
}

#[test]
fn values_of_every_length_come_back() {
    let pool = pool();
    let invalid = InvalidRanges::new();
    for bytes in (0..40).chain([255, 256, 257, 4000, 100_000]) {
        let value: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        let object = VersionedObject::try_open(&pool, object(&pool, &value, at(7))).unwrap();
        assert!(object.holds(bytes));
        assert_eq!(seen(&object, at(7), &invalid).as_deref(), Some(&value[..]));
        assert_eq!(seen(&object, at(6), &invalid), None);
    }
}

#[test]
fn a_snapshot_sees_the_version_of_its_time() {
    let pool = pool();
    let invalid = InvalidRanges::new();
    let object = VersionedObject::try_open(&pool, object(&pool, b"first", at(10))).unwrap();
    object.write(1, at(20), b"second", Some(0));
    object.activate(1);
    assert_eq!(seen(&object, at(9), &invalid), None);
    assert_eq!(seen(&object, at(10), &invalid).unwrap(), b"first");
    assert_eq!(seen(&object, at(19), &invalid).unwrap(), b"first");
    assert_eq!(seen(&object, at(20), &invalid).unwrap(), b"second");
    object.end(1, at(30));
    assert_eq!(seen(&object, at(29), &invalid).unwrap(), b"second");
    assert_eq!(seen(&object, at(30), &invalid), None);
    assert!(
        object.seems_dead(Snapshot::at(at(30)), &invalid)
            && !object.seems_dead(Snapshot::at(at(29)), &invalid)
    );
}

#[test]
fn writes_of_an_invalid_commit_never_count() {
    let pool = pool();
    let invalid = InvalidRanges::new();
    let object = VersionedObject::try_open(&pool, object(&pool, b"first", at(10))).unwrap();
    object.write(1, at(20), b"lost", Some(0));
    object.activate(1);
    assert!(invalid.add(at(15), at(25)));
    for snapshot in [10, 19, 20, 25, 1000].map(at) {
        assert_eq!(seen(&object, snapshot, &invalid).unwrap(), b"first", "at {snapshot}");
    }
    let census = object.census(&invalid, &ActiveTransactions::new(at(40)).snapshots());
    assert_eq!((census.current, census.newest, census.dead), (Some(0), at(10), 0b10));
    assert!(object.scrub(&invalid));
    assert!(!object.scrub(&invalid), "idempotent");
    let none = InvalidRanges::new();
    assert_eq!(seen(&object, at(1000), &none).unwrap(), b"first");
}

#[test]
fn a_bigger_object_keeps_what_snapshots_need() {
    let pool = pool();
    let invalid = InvalidRanges::new();
    let active = ActiveTransactions::new(at(12));
    let (_, snapshot) = active.claim().unwrap();
    assert_eq!(snapshot, Snapshot::at(at(11)));
    let old = VersionedObject::try_open(&pool, object(&pool, b"first", at(10))).unwrap();
    old.write(1, at(20), b"second", Some(0));
    old.activate(1);
    let census = old.census(&invalid, &active.snapshots());
    assert_eq!((census.current, census.needed, census.dead), (Some(1), 0b11, 0));
    assert_eq!(old.free_slot(&census), None);
    let layout = old.layout().grown(3, 600, 64).unwrap();
    assert!(layout.slots() == 4 && layout.capacity >= 600);
    let reservation = pool.reserve(layout.bytes()).unwrap();
    let new = VersionedObject::initialise(&pool, reservation.offset(), layout);
    new.build(Some((&old, &census)), Some((at(30), &[7; 600])));
    assert_eq!(seen(&new, at(10), &invalid).unwrap(), b"first");
    assert_eq!(seen(&new, at(29), &invalid).unwrap(), b"second");
    assert_eq!(seen(&new, at(30), &invalid).unwrap(), [7; 600]);
    assert_eq!(seen(&old, at(1000), &invalid).unwrap(), b"second", "the old object is not changed");
}

#[test]
fn layouts_have_limits() {
    let layout = ObjectLayout::for_new(0, 2);
    assert_eq!(layout, ObjectLayout { slots: 2, capacity: 0 });
    assert_eq!(layout.grown(3, 0, 64).unwrap().slots(), 4);
    assert_eq!(layout.grown(64, 0, 64).unwrap().slots(), 64);
    assert!(layout.grown(65, 0, 64).is_none());
    let long = ObjectLayout::for_new(VALUE_BYTES_MAX, 2);
    assert_eq!(long.grown(3, 1, 64).unwrap().slots(), 3, "doubling does not fit an object");
    assert!(long.grown(4, 1, 64).is_none());
    assert_eq!(ObjectLayout::try_decode(long.encode()), Some(long));
    for bytes in [64, 128, 200, 4096] {
        assert!(layout.filling(bytes).bytes() <= bytes);
    }
}
