//! Times of checkpoints by the size and number of their concurrent writes: shows what a profile of the disk
//! is worth.
//!
//! `checkpoint_pieces DIR [PROFILE]` creates a pool in DIR and removes it. 64 MiB are changed, all pages or
//! every n-th; each setting runs in every round. Prints the medians in ms.

#![allow(clippy::unwrap_used)]

use entresol_memory::placement::WriteSettings;
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, JournalOptions, Pool, PoolOptions};
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 9;
const OBJECT_BYTES: usize = 1 << 20;
const OBJECTS: usize = 64;

/// Milliseconds of a checkpoint after every `page_step`-th page was changed.
fn checkpoint_ms(dir: &Path, writing: Option<WriteSettings>, page_step: usize) -> f64 {
    let options = PoolOptions {
        domain: DomainChoice::Journal,
        journal: JournalOptions {
            writing,
            checkpoint_bytes: 1 << 30,
            journal_bytes_max: 1 << 30,
            recovery_ms_target: 100_000,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    };
    let pool = Pool::open_or_create(dir, &options).unwrap();
    if pool.root("0").is_none() {
        for number in 0..OBJECTS {
            let object = pool.reserve(OBJECT_BYTES).unwrap();
            let mut publication = pool.publication();
            let at = publication.allocate(object);
            publication.set_root(&number.to_string(), at).unwrap();
            publication.publish().unwrap();
        }
    }
    let fill = |step: usize| {
        for number in 0..OBJECTS {
            let at = pool.root(&number.to_string()).unwrap();
            for page in (0..OBJECT_BYTES / 4096).step_by(step) {
                pool.store_flushed(at.plus(page as u64 * 4096), &[number as u8; 4096]);
            }
        }
        pool.sync().unwrap();
    };
    fill(1);
    pool.checkpoint().unwrap();
    fill(page_step);
    let began = Instant::now();
    pool.checkpoint().unwrap();
    let ms = began.elapsed().as_secs_f64() * 1e3;
    pool.close().unwrap();
    ms
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let dir = arguments.next().expect("checkpoint_pieces DIR [PROFILE]");
    let dir = Path::new(&dir).join("checkpoint_pieces");
    let of = |piece_bytes, at_once| Some(WriteSettings { piece_bytes, at_once, is_calibrated: true });
    let mut ways =
        vec![None, of(64 << 10, 64), of(1 << 20, 64), of(256 << 10, 4), of(64 << 10, 4), of(64 << 10, 1)];
    if let Some(file) = arguments.next() {
        ways.push(Some(WriteSettings::of(&Profile::load(Path::new(&file)).unwrap()).unwrap()));
    }
    for (what, step) in [("all of 64 MiB", 1), ("every third page", 3)] {
        let mut samples = vec![Vec::new(); ways.len()];
        for _ in 0..ROUNDS {
            for (way, samples) in ways.iter().zip(&mut samples) {
                samples.push(checkpoint_ms(&dir, *way, step));
            }
        }
        for (way, mut samples) in ways.iter().zip(samples) {
            samples.sort_by(f64::total_cmp);
            let way = way.map_or("uncalibrated".to_string(), |way| {
                format!("{} KiB, {} at once", way.piece_bytes >> 10, way.at_once)
            });
            println!("{what}: {way}: {:.1} ms", samples[ROUNDS / 2]);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
