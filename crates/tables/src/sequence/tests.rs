use super::*;
use std::cell::{Cell, RefCell};

/// Row of one sequence, and the numbers of its writes and syncs.
#[derive(Default)]
struct Row {
    at: Cell<Option<Position>>,
    durabilities: RefCell<Vec<Durability>>,
    syncs: Cell<u32>,
}

impl SequenceStore for Row {
    fn write(&self, _: &str, _: &SequenceDefinition, at: Position, durability: Durability) -> Result<()> {
        self.at.set(Some(at));
        self.durabilities.borrow_mut().push(durability);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncs.set(self.syncs.get() + 1);
        Ok(())
    }
}

impl Row {
    fn writes(&self) -> usize {
        self.durabilities.borrow().len()
    }

    fn last(&self) -> i64 {
        self.at.get().unwrap().last
    }
}

fn sequence(change: impl FnOnce(&mut SequenceDefinition)) -> Arc<Sequence> {
    let mut definition = SequenceDefinition::ascending(SequenceType::BigInt);
    change(&mut definition);
    definition.check().unwrap();
    Sequence::fresh("s".into(), definition)
}

#[test]
fn a_row_is_never_behind_what_was_handed_out() {
    let (row, sequence) = (Row::default(), sequence(|_| {}));
    for expected in 1..=100 {
        assert_eq!(sequence.advance(&row, 1, Durability::Sync).unwrap(), [expected]);
        assert!(row.last() >= expected);
    }
    assert_eq!(row.writes(), 4, "a commit per block of {BLOCK_VALUES}");
    assert_eq!(sequence.advance(&row, 1000, Durability::Sync).unwrap().last(), Some(&1100));
    assert_eq!((row.writes(), row.last()), (5, 1100));
    assert!(sequence.advance(&row, 0, Durability::Sync).unwrap().is_empty());
    assert_eq!(row.writes(), 5);
    assert_eq!(sequence.advance(&row, 1, Durability::Sync).unwrap(), [1101]);
    sequence.release_cached(&row).unwrap();
    assert_eq!(row.last(), 1101);
    assert_eq!(sequence.advance(&row, 1, Durability::Sync).unwrap(), [1102]);
    assert!(row.last() >= 1102, "what was given back is reserved again");
}

#[test]
fn blocks_are_as_large_as_cache() {
    let (row, sequence) = (Row::default(), sequence(|definition| definition.cache = 500));
    sequence.advance(&row, 1, Durability::None).unwrap();
    assert_eq!(row.last(), 500);
}

#[test]
fn who_wants_more_durability_than_the_reservation_has_syncs_once() {
    let (row, sequence) = (Row::default(), sequence(|_| {}));
    let group = |interval_ms| Durability::Group { interval_ms };
    sequence.advance(&row, 1, group(20)).unwrap();
    sequence.advance(&row, 1, group(30)).unwrap();
    sequence.advance(&row, 1, Durability::None).unwrap();
    assert_eq!(row.syncs.get(), 0);
    sequence.advance(&row, 1, group(10)).unwrap();
    assert_eq!(row.syncs.get(), 1);
    sequence.advance(&row, 1, Durability::Sync).unwrap();
    assert_eq!((row.syncs.get(), row.writes()), (1, 1));
}

#[test]
fn ends_are_errors_or_beginnings() {
    let row = Row::default();
    let three = |definition: &mut SequenceDefinition| definition.max_value = 3;
    let ends = sequence(three);
    assert_eq!(ends.advance(&row, 2, Durability::Sync).unwrap(), [1, 2]);
    let error = ends.advance(&row, 2, Durability::Sync).unwrap_err();
    assert_eq!(error.to_string(), "nextval: reached maximum value of sequence \"s\" (3)");
    assert!(matches!(error, Error::SequenceExhausted { .. }));
    assert_eq!(ends.advance(&row, 1, Durability::Sync).unwrap(), [3]);
    assert!(ends.advance(&row, 1, Durability::Sync).is_err());
    let cycles = sequence(|definition| {
        three(definition);
        (definition.start, definition.cycle) = (2, true);
    });
    assert_eq!(cycles.advance(&row, 5, Durability::Sync).unwrap(), [2, 3, 1, 2, 3]);
    let down = sequence(|definition| {
        (definition.increment, definition.min_value, definition.max_value) = (-2, i64::MIN, -1);
        definition.start = i64::MIN + 3;
    });
    assert_eq!(down.advance(&row, 2, Durability::Sync).unwrap(), [i64::MIN + 3, i64::MIN + 1]);
    assert!(down.advance(&row, 1, Durability::Sync).unwrap_err().to_string().contains("minimum value"));
}

#[test]
fn a_reservation_that_fails_hands_out_nothing() {
    struct Full;
    impl SequenceStore for Full {
        fn write(&self, _: &str, _: &SequenceDefinition, _: Position, _: Durability) -> Result<()> {
            Err(Error::InvalidSchema { reason: "full".into() })
        }
        fn sync(&self) -> Result<()> {
            Ok(())
        }
    }
    let sequence = sequence(|_| {});
    assert!(sequence.advance(&Full, 1, Durability::Sync).is_err());
    assert_eq!(sequence.advance(&Row::default(), 1, Durability::Sync).unwrap(), [1]);
}

#[test]
fn nothing_is_drawn_from_a_dropped_sequence() {
    let (row, sequence) = (Row::default(), sequence(|_| {}));
    sequence.advance(&row, 1, Durability::Sync).unwrap();
    sequence.lock().dropped = true;
    assert!(sequence.advance(&row, 1, Durability::Sync).is_err());
    sequence.release_cached(&row).unwrap();
    assert_eq!(row.writes(), 1, "its row does not come back");
}

#[test]
fn rows_are_read_as_they_were_written() {
    let owner = SequenceOwner { table: StateId(7), column: 3, identity: Some(Identity::Always) };
    let mut definition = SequenceDefinition::ascending(SequenceType::SmallInt);
    (definition.cycle, definition.owner, definition.cache) = (true, Some(owner), 9);
    let position = Position { last: 5, called: true };
    let bytes = to_bytes(&definition, position);
    assert_eq!(from_bytes(&bytes), Some((definition, position)));
    for at in 0..bytes.len() {
        assert_eq!(from_bytes(&bytes[..at]), None);
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Some((definition, position)) = from_bytes(&damaged) {
                definition.check().unwrap();
                assert!((definition.min_value..=definition.max_value).contains(&position.last));
            }
        }
    }
}
