//! One version in a history: laid out like a version of a chain, with its DTS where that has the next one.

use super::History;
use crate::context::state::State;
use crate::mvcc::chain::{Chain, Version, version_bytes_of};
use crate::mvcc::object::VersionedObject;
use crate::mvcc::value_buffer::ValueBuffer;
use crate::points::{CORRECTED_END, RECORD_HAS_ITS_END, RECORDED_END_CORRECTED};
use crate::visibility::invalid_ranges::InvalidRanges;
use crate::{Error, INFINITY, Result, Timestamp};
use entresol_memory::order;
use entresol_memory::{Pool, PoolOffset, Reservation};
use entresol_structures::KeyBytes;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A record in the pool. Readers hold a guard.
#[derive(Clone, Copy)]
pub(crate) struct Record<'p> {
    offset: PoolOffset,
    version: Version<'p>,
}

impl<'p> Record<'p> {
    /// The record at an offset, if there can be one.
    pub(crate) fn try_open(pool: &'p Pool, offset: PoolOffset) -> Option<Record<'p>> {
        let version = Version::try_open(pool, offset).filter(Version::has_value)?;
        Some(Record { offset, version })
    }

    pub(crate) fn cts(&self) -> Timestamp {
        self.version.cts()
    }

    /// Deletion timestamp: the end of the version.
    pub(crate) fn dts(&self) -> Timestamp {
        Timestamp::from_stored(self.version.first_word().load(Ordering::Acquire))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.version.bytes()
    }

    /// Tells whether it was current at this timestamp. If its end never happened, it has not ended: it is in
    /// its object.
    pub(crate) fn holds_at(&self, at: Timestamp, invalid: &InvalidRanges) -> bool {
        let dts = self.dts();
        self.cts() <= at && at < dts && !invalid.contains(dts)
    }

    pub(crate) fn copy_value(&self, value: &mut ValueBuffer) {
        self.version.copy_value(value);
    }

    /// Ends the version by another commit: that of the first never happened.
    fn end_again(&self, pool: &Pool, dts: Timestamp) {
        debug_assert!(self.cts() < dts && dts < INFINITY, "[{}, {dts}) ends behind its begin", self.cts());
        self.version.first_word().store(dts.stored(), Ordering::Release);
        pool.flush_word_at(self.offset, CORRECTED_END);
    }

    /// Checks a record that may be damaged.
    pub(crate) fn check(
        pool: &'p Pool,
        offset: PoolOffset,
        cts: Timestamp,
    ) -> std::result::Result<usize, String> {
        let record = Record::try_open(pool, offset).ok_or("no version can be there")?;
        if record.cts() != cts || record.dts() <= cts {
            return Err(format!("it is [{}, {}), its key says {cts}", record.cts(), record.dts()));
        }
        Ok(record.bytes())
    }
}

/// Location of the version that a commit ends.
pub(crate) enum VersionLocation<'p> {
    /// In a slot of an object.
    Slot(VersionedObject<'p>, usize),
    /// In a chain.
    Chained(Version<'p>),
}

impl<'p> VersionLocation<'p> {
    /// The newest version of a chain, if a commit ends it.
    pub(crate) fn of_chain(
        pool: &'p Pool,
        head: PoolOffset,
        invalid: &InvalidRanges,
    ) -> Option<VersionLocation<'p>> {
        Chain::at(pool, head).current(invalid).ok().flatten().map(VersionLocation::Chained)
    }

    fn cts(&self) -> Timestamp {
        match self {
            VersionLocation::Slot(object, slot) => object.cts(*slot),
            VersionLocation::Chained(version) => version.cts(),
        }
    }

    fn value_bytes(&self) -> usize {
        match self {
            VersionLocation::Slot(object, slot) => object.value_bytes(*slot),
            VersionLocation::Chained(version) => version.value_bytes(),
        }
    }

    pub(crate) fn copy_value(&self, value: &mut ValueBuffer) {
        match self {
            VersionLocation::Slot(object, slot) => {
                assert!(object.copy_value(*slot, value), "the length was looked at before");
            }
            VersionLocation::Chained(version) => version.copy_value(value),
        }
    }
}

/// A version that a commit ends, on its way into the history.
pub(crate) struct EndedVersion<'p> {
    history: Arc<History>,
    key: KeyBytes,
    version: VersionLocation<'p>,
    /// Until it is published.
    reservation: Option<Reservation<'p>>,
}

impl<'p> EndedVersion<'p> {
    /// Planned with the commit: the memory is reserved. The caller holds the key.
    pub(crate) fn plan(
        state: &'p State,
        history: &Arc<History>,
        key: &[u8],
        version: VersionLocation<'p>,
    ) -> Result<EndedVersion<'p>> {
        let encoded = history.keys().encode(key, version.cts());
        let encoded = encoded.ok_or_else(|| Error::HistoryKeyLength { state: state.id, bytes: key.len() })?;
        let reservation = Some(state.pool().reserve(version_bytes_of(version.value_bytes()))?);
        Ok(EndedVersion { history: Arc::clone(history), key: encoded, version, reservation })
    }

    /// Phase 2 of the commit at `dts`: copies and flushes.
    pub(crate) fn write(&self, dts: Timestamp) {
        let mut value = ValueBuffer::new();
        self.version.copy_value(&mut value);
        debug_assert!(self.version.cts() < dts, "a version ends behind its begin: {}", self.version.cts());
        let dts = order::value(dts, INFINITY, RECORD_HAS_ITS_END);
        let reservation = self.reservation.as_ref().expect("it is written before it is published");
        debug_assert!(
            version_bytes_of(value.len()) <= reservation.bytes(),
            "a version of {} bytes fits its memory",
            value.len()
        );
        Version::write(
            &self.history.pool,
            reservation.offset(),
            dts.stored(),
            self.version.cts(),
            Some(&value),
        );
    }

    /// Phase 3: the indexes lead to them, with few publications. Those of one history are in a row.
    pub(crate) fn publish_all(dts: Timestamp, mut endings: Vec<EndedVersion<'p>>) -> Result<()> {
        for of_one in endings.chunk_by_mut(|a, b| Arc::ptr_eq(&a.history, &b.history)) {
            EndedVersion::publish_in(dts, of_one)?;
        }
        Ok(())
    }

    /// All in one history.
    fn publish_in(dts: Timestamp, endings: &mut [EndedVersion<'p>]) -> Result<()> {
        debug_assert!(endings.iter().all(|ending| ending.version.cts() < dts), "versions end at {dts}");
        let mut reservations: SmallVec<[_; 16]> =
            endings.iter_mut().map(|ending| ending.reservation.take()).collect();
        let Some((EndedVersion { history, .. }, _)) = endings.split_first() else { return Ok(()) };
        let keys: SmallVec<[&[u8]; 16]> = endings.iter().map(|ending| &ending.key[..]).collect();
        debug_assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "keys of a history's endings ascend");
        let mut earlier: SmallVec<[(usize, PoolOffset); 4]> = SmallVec::new();
        history.index.insert_many(
            &keys,
            |place, publication| {
                let reservation = reservations[place].take().expect("a record is published once");
                publication.allocate(reservation).to_word()
            },
            |place, word| earlier.push((place, PoolOffset::from_word(word))),
        )?;
        for (place, offset) in earlier {
            // Of a commit that did not finish: the same version, with an end that never happened.
            let record = Record::try_open(&history.pool, offset)
                .filter(|record| record.cts() == endings[place].version.cts())
                .ok_or_else(|| {
                    Error::Corrupt(format!("the history {} has no version at {offset:#x}", history.id))
                })?;
            order::step(RECORDED_END_CORRECTED, || record.end_again(&history.pool, dts));
        }
        Ok(())
    }
}
