//! Flipped bits in data at rest: detected, reported, not covered up by later checkpoints.

use entresol_memory::env::{Env, OverlayFiles};
use entresol_memory::{DomainChoice, Error, JournalOptions, PagesReport, Pool, PoolOffset, PoolOptions};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const OBJECT_BYTES: usize = 4096;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 1 << 20,
            journal_bytes_max: 4 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

/// Creates a closed pool of `objects` objects of a page, ordered by their words; returns their offsets.
fn database(objects: u64) -> (TempDir, Vec<PoolOffset>) {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options()).unwrap();
    let mut offsets = Vec::new();
    for number in 0..objects {
        let object = pool.reserve(OBJECT_BYTES).unwrap();
        let words = pool.words(object.offset(), OBJECT_BYTES / 8);
        words.iter().for_each(|word| word.store(number, Ordering::Relaxed));
        pool.flush(object.offset(), OBJECT_BYTES);
        let mut publication = pool.publication();
        offsets.push(publication.allocate(object));
        publication.set_root("newest", offsets[number as usize]).unwrap();
        publication.publish().unwrap();
    }
    pool.close().unwrap();
    (dir, offsets)
}

fn flip(path: &Path, offset: PoolOffset, bit: u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset.bytes()).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset.bytes()).unwrap();
}

/// Verifies the pages without changing anything.
fn look(dir: &Path) -> PagesReport {
    let env = Env::real().with_files(Arc::new(OverlayFiles::new()));
    let pool = Pool::open(dir, &PoolOptions { env, ..options() }).unwrap();
    pool.verify_pages(|_| {}).unwrap().unwrap()
}

fn pool_file(dir: &TempDir) -> PathBuf {
    dir.path().join("pool.entresol")
}

#[test]
fn every_flipped_bit_under_live_data_is_found_where_it_is() {
    let (dir, offsets) = database(300);
    let sound = look(dir.path());
    assert!(sound.sound > 300 && sound.damaged.is_empty() && !sound.forgotten, "{sound:?}");
    let random = Env::simulated(5);
    for _ in 0..40 {
        let object = offsets[random.random_u64() as usize % offsets.len()];
        let byte = object.plus(random.random_u64() % OBJECT_BYTES as u64);
        let bit = (random.random_u64() % 8) as u8;
        flip(&pool_file(&dir), byte, bit);
        assert_eq!(look(dir.path()).damaged, [byte.aligned_down(4096)]);
        flip(&pool_file(&dir), byte, bit);
    }
    assert_eq!(look(dir.path()), sound);
}

#[test]
fn what_is_about_to_be_trusted_is_verified_and_the_rest_goes_on() {
    let (dir, offsets) = database(300);
    flip(&pool_file(&dir), offsets[100].plus(77), 3);
    let pool = Pool::open(dir.path(), &options()).unwrap();
    let error = pool.verify(offsets[100], OBJECT_BYTES).unwrap_err();
    let Error::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((file, *offset), (&pool_file(&dir), offsets[100].bytes()));
    for object in offsets.iter().filter(|object| **object != offsets[100]) {
        pool.verify(*object, OBJECT_BYTES).unwrap();
        pool.verify(*object, OBJECT_BYTES).unwrap();
    }
}

#[test]
fn a_checkpoint_does_not_cover_damage_up() {
    let (dir, offsets) = database(300);
    flip(&pool_file(&dir), offsets[7].plus(2000), 0);
    let pool = Pool::open(dir.path(), &options()).unwrap();
    for object in &offsets[..20] {
        pool.word(*object).store(999, Ordering::Relaxed);
        pool.flush(*object, 8);
    }
    pool.checkpoint().unwrap();
    drop(pool);
    assert_eq!(look(dir.path()).damaged, [offsets[7]]);
    let pool = Pool::open(dir.path(), &options()).unwrap();
    assert!(pool.verify(offsets[7], 8).is_err());
    pool.verify(offsets[8], 8).unwrap();
}

#[test]
fn damage_to_the_allocator_is_never_opened() {
    let (dir, _) = database(300);
    for offset in [4096 + 8, 20_480 + 8, 22_600, (1 << 20) + 22_600].map(PoolOffset::new) {
        flip(&pool_file(&dir), offset, 1);
        let error = Pool::open(dir.path(), &options()).unwrap_err();
        assert!(
            matches!(error, Error::Corrupt { .. }) && error.to_string().contains("pool.entresol"),
            "{error}"
        );
        flip(&pool_file(&dir), offset, 1);
    }
    Pool::open(dir.path(), &options()).unwrap();
}

#[test]
fn lost_or_foreign_checksums_are_forgotten_and_come_back() {
    let (dir, offsets) = database(50);
    let path = dir.path().join("checksums.entresol");
    let good = fs::read(&path).unwrap();
    let mut torn = good.clone();
    torn[..8192].fill(7);
    let foreign = fs::read(database(60).0.path().join("checksums.entresol")).unwrap();
    for content in [None, Some(Vec::new()), Some(good[..5000].to_vec()), Some(torn), Some(foreign)] {
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let report = look(dir.path());
        assert!(report.forgotten && report.sound == 0 && report.damaged.is_empty(), "{report:?}");
    }
    // New writes have checksums again.
    let pool = Pool::open(dir.path(), &options()).unwrap();
    pool.word(offsets[3]).store(1, Ordering::Relaxed);
    pool.flush(offsets[3], 8);
    pool.close().unwrap();
    drop(pool);
    let report = look(dir.path());
    assert!(!report.forgotten && report.sound >= 2 && report.damaged.is_empty(), "{report:?}");
    flip(&pool_file(&dir), offsets[3].plus(100), 0);
    assert_eq!(look(dir.path()).damaged, [offsets[3]]);
}

#[test]
fn checksums_of_another_time_do_not_count() {
    let (dir, offsets) = database(50);
    let path = dir.path().join("checksums.entresol");
    let old = fs::read(&path).unwrap();
    for offset in &offsets[..3] {
        let pool = Pool::open(dir.path(), &options()).unwrap();
        pool.word(*offset).store(1, Ordering::Relaxed);
        pool.flush(*offset, 8);
        pool.close().unwrap();
    }
    fs::write(&path, old).unwrap();
    let report = look(dir.path());
    assert!(report.forgotten && report.damaged.is_empty(), "{report:?}");
}
