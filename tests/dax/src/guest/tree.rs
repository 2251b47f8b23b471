//! A tree whose values are allocated objects: what is allocated must be what the tree reaches, after any crash.

use crate::history::{Change, Failure, tree_change};
use entresol_memory::order::{Flush, OrderPoint};
use entresol_memory::{Pool, PoolOffset, Publication};
use entresol_structures::{KeyWidth, OrderedIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROOT: &str = "index";

/// A value is on its way to the medium before its key leads to it.
const VALUE_BEFORE_KEY: OrderPoint<Flush> = OrderPoint::named("VALUE_BEFORE_KEY");

/// The words of a value: its length, its stamp, and words that follow from both.
fn value_word(change: Change, bytes: usize, word: usize) -> u64 {
    match word {
        0 => bytes as u64,
        1 => change.stamp,
        _ => change.stamp.rotate_left(word as u32) ^ word as u64,
    }
}

/// Objects are aligned; stamps are odd.
fn is_object(value: u64) -> bool {
    value.is_multiple_of(64)
}

/// By key, bytes and stamp of the value.
type Content = BTreeMap<u64, (usize, u64)>;

pub(crate) struct Tree {
    pool: Arc<Pool>,
    index: OrderedIndex,
}

impl Tree {
    pub(crate) fn open(pool: Arc<Pool>) -> Result<Tree, Failure> {
        let root = match pool.root(ROOT) {
            Some(root) => root,
            None => {
                let mut publication = pool.publication();
                let root = OrderedIndex::create(&pool, KeyWidth::Eight, &mut publication)?;
                publication.set_root(ROOT, root)?;
                publication.publish()?;
                root
            }
        };
        let index = OrderedIndex::open(&pool, root)?;
        Ok(Tree { pool, index })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn apply(&self, seed: u64, step: u64) -> Result<(), Failure> {
        let change = tree_change(seed, step);
        let key = change.key.to_be_bytes();
        let old = self.index.get(&key)?;
        let mut with = self.pool.publication();
        if let Some(old) = old.filter(|old| is_object(*old)) {
            with.free(PoolOffset::from_word(old));
        }
        let Some(bytes) = change.value_bytes else {
            if old.is_some() {
                self.index.remove(&key, with)?;
            }
            return Ok(());
        };
        if bytes == 0 {
            return self.put(&key, old, change.stamp, with);
        }
        let object = self.pool.reserve(bytes)?;
        let value: Vec<u8> =
            (0..bytes / 8).flat_map(|number| value_word(change, bytes, number).to_le_bytes()).collect();
        self.pool.store_flushed_at(object.offset(), &value, VALUE_BEFORE_KEY);
        let offset = with.allocate(object);
        self.put(&key, old, offset.to_word(), with)
    }

    fn put<'p>(
        &'p self,
        key: &[u8],
        old: Option<u64>,
        value: u64,
        with: Publication<'p>,
    ) -> Result<(), Failure> {
        if old.is_some() {
            self.index.replace(key, value, with)?;
        } else {
            self.index.insert(key, value, with)?;
        }
        Ok(())
    }

    /// How many steps are there, at least `least` and at most `most`; an error if no number of steps gives
    /// what is found, or if the tree is unsound or memory leaked.
    pub(crate) fn steps(&self, seed: u64, least: u64, most: u64) -> Result<u64, Failure> {
        let found = self.content()?;
        let mut model = Content::new();
        for step in 0..=most {
            if step > 0 {
                let change = tree_change(seed, step);
                match change.value_bytes {
                    Some(bytes) => model.insert(change.key, (bytes, change.stamp)),
                    None => model.remove(&change.key),
                };
            }
            if step >= least && model == found {
                return Ok(step);
            }
        }
        Err(format!("the tree is as after no number of steps from {least} to {most}: {found:?}").into())
    }

    fn content(&self) -> Result<Content, Failure> {
        let mut own = BTreeSet::new();
        self.index.check(|offset| own.extend([offset]))?;
        let mut entries = Vec::new();
        let mut next = self.index.scan_batch(Bound::Unbounded, &mut entries)?;
        while let Some(from) = next {
            next = self.index.scan_batch(Bound::Included(&from), &mut entries)?;
        }
        let mut content = Content::new();
        for (key, value) in entries {
            let key = u64::from_be_bytes(key[..8].try_into()?);
            if is_object(value) {
                let offset = PoolOffset::from_word(value);
                content.insert(key, self.value(key, offset)?);
                own.insert(offset);
            } else {
                content.insert(key, (0, value));
            }
        }
        let mut allocated = BTreeSet::new();
        self.pool.for_each_object(|offset, _| allocated.extend([offset]));
        if own != allocated {
            let (leaked, dangling) = (allocated.difference(&own), own.difference(&allocated));
            let (leaked, dangling): (Vec<_>, Vec<_>) = (leaked.collect(), dangling.collect());
            return Err(format!("leaked objects at {leaked:?}, pointers to free memory {dangling:?}").into());
        }
        Ok(content)
    }

    fn value(&self, key: u64, offset: PoolOffset) -> Result<(usize, u64), Failure> {
        let head = self.pool.words(offset, 2);
        let (bytes, stamp) = (head[0].load(Ordering::Relaxed) as usize, head[1].load(Ordering::Relaxed));
        let change = Change { key, value_bytes: Some(bytes), stamp };
        let sound = bytes <= self.pool.object_bytes(offset)
            && self
                .pool
                .words(offset, bytes / 8)
                .iter()
                .enumerate()
                .all(|(number, word)| word.load(Ordering::Relaxed) == value_word(change, bytes, number));
        if sound { Ok((bytes, stamp)) } else { Err(format!("the value of key {key} is torn").into()) }
    }
}
