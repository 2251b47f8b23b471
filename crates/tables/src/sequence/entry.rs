//! Value of a sequence's row in the catalog.

use super::{Identity, Position, SequenceDefinition, SequenceOwner, SequenceType};
use crate::schema::parts::Reader;
use entresol_transactions::StateId;

const FLAG_CYCLE: u8 = 1;
const FLAG_CALLED: u8 = 2;
const FLAG_OWNED: u8 = 4;
const FLAG_ALWAYS: u8 = 8;
const FLAG_BY_DEFAULT: u8 = 16;

/// Encodes a sequence for the catalog: flags (1), type (1), increment, bounds, start, cache, position (8
/// each), the owner's table (4) and column (2); little-endian.
///
/// Flags: 1 cycle, 2 the position was handed out, 4 owned, 8 always and 16 by default an identity.
pub(crate) fn to_bytes(definition: &SequenceDefinition, position: Position) -> Vec<u8> {
    let identity = definition.owner.and_then(|owner| owner.identity);
    let flags = [
        (definition.cycle, FLAG_CYCLE),
        (position.called, FLAG_CALLED),
        (definition.owner.is_some(), FLAG_OWNED),
        (identity == Some(Identity::Always), FLAG_ALWAYS),
        (identity == Some(Identity::ByDefault), FLAG_BY_DEFAULT),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
    let data_type = match definition.data_type {
        SequenceType::SmallInt => 2,
        SequenceType::Int => 4,
        SequenceType::BigInt => 8,
    };
    let SequenceDefinition { increment, min_value, max_value, start, cache, .. } = *definition;
    let mut bytes = vec![flags, data_type];
    for number in [increment, min_value, max_value, start, cache, position.last] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let owner = definition.owner.map_or((0, 0), |owner| (owner.table.0, owner.column));
    bytes.extend_from_slice(&owner.0.to_le_bytes());
    bytes.extend_from_slice(&owner.1.to_le_bytes());
    debug_assert_eq!(
        from_bytes(&bytes),
        Some((*definition, position)),
        "a sequence is read back as it was written"
    );
    bytes
}

/// Decodes the bytes of [`to_bytes`]; `None` if they are malformed.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<(SequenceDefinition, Position)> {
    let mut reader = Reader(bytes);
    let flags = reader.byte()?;
    let data_type = match reader.byte()? {
        2 => SequenceType::SmallInt,
        4 => SequenceType::Int,
        8 => SequenceType::BigInt,
        _ => return None,
    };
    let mut long = || Some(i64::from_le_bytes(reader.take(8)?.try_into().ok()?));
    let (increment, min_value, max_value) = (long()?, long()?, long()?);
    let (start, cache, last) = (long()?, long()?, long()?);
    let (table, column) = (reader.number()?, u16::try_from(reader.short()?).ok()?);
    let identity = match flags & (FLAG_ALWAYS | FLAG_BY_DEFAULT) {
        0 => None,
        FLAG_ALWAYS => Some(Identity::Always),
        FLAG_BY_DEFAULT => Some(Identity::ByDefault),
        _ => return None,
    };
    let owned = flags & FLAG_OWNED != 0;
    let known = FLAG_CYCLE | FLAG_CALLED | FLAG_OWNED | FLAG_ALWAYS | FLAG_BY_DEFAULT;
    if flags & !known != 0 || (identity.is_some() && !owned) || !reader.0.is_empty() {
        return None;
    }
    let owner = owned.then_some(SequenceOwner { table: StateId(table), column, identity });
    let cycle = flags & FLAG_CYCLE != 0;
    let definition =
        SequenceDefinition { data_type, increment, min_value, max_value, start, cache, cycle, owner };
    let in_bounds = (min_value..=max_value).contains(&last);
    (definition.check().is_ok() && in_bounds)
        .then_some((definition, Position { last, called: flags & FLAG_CALLED != 0 }))
}
