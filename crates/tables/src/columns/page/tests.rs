use super::*;
use crate::batch::builder::ColumnBuilder;
use crate::batch::{ColumnArray, arrow_type, column_type};
use crate::columns::condition::ColumnCondition;
use crate::columns::selection::{DictionaryMatches, RowSelection};
use crate::schema::Column;
use crate::value::Value;
use crate::value::interval::Interval;
use proptest::prelude::*;

const TYPES: [DataType; 11] = [
    DataType::Boolean,
    DataType::SmallInt,
    DataType::Int,
    DataType::BigInt,
    DataType::Real,
    DataType::Double,
    DataType::Decimal { precision: 38, scale: 4 },
    DataType::Date,
    DataType::Timestamp,
    DataType::Varchar,
    DataType::Interval,
];

/// Value of a type from a random number; few different ones if `modulus` is small.
fn value(data_type: DataType, random: u64, modulus: u64) -> Value {
    let random = random % modulus.max(1);
    let signed = random as i64;
    match data_type {
        DataType::Boolean => Value::Boolean(random % 2 == 1),
        DataType::SmallInt => Value::Int(i32::from(signed as i16)),
        DataType::Int => Value::Int(signed as i32),
        DataType::BigInt => Value::BigInt(signed),
        DataType::Real => Value::Double(f64::from((signed as f32) / 8.0)),
        DataType::Double if modulus < 1 << 40 => Value::Double(signed as f64 / 100.0),
        DataType::Double => Value::Double(f64::from_bits(random)),
        DataType::Decimal { .. } if modulus < 1 << 40 => Value::Decimal(signed.into()),
        DataType::Decimal { .. } => Value::Decimal(i128::from(signed) << 30),
        DataType::Date => Value::Date(signed as i32),
        DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(signed),
        DataType::Interval => {
            let (months, days) = (signed as i32, (random >> 32) as i32);
            Value::Interval(Interval::new(months, days, signed / 1_000).unwrap())
        }
        DataType::Varchar => Value::from(&format!("text {random} ä")[..(random % 5) as usize]),
    }
}

fn array(data_type: DataType, values: &[Value]) -> ArrayRef {
    let mut builder = ColumnBuilder::new(data_type, &arrow_type(data_type, "UTC"), values.len());
    values.iter().for_each(|value| builder.push(value));
    builder.finish()
}

fn page(data_type: DataType, pieces: &[ArrayRef]) -> (Vec<u8>, ColumnPage) {
    let column = Column::new("c", data_type);
    let typed: Vec<ColumnArray<'_>> =
        pieces.iter().map(|piece| ColumnArray::new("t", &column, piece).unwrap()).collect();
    let bytes = encode_page(data_type, &typed);
    let page = ColumnPage::open(&bytes).unwrap();
    (bytes, page)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn columns_of_all_types_are_decoded_as_they_were_encoded(
        kind in 0..TYPES.len(),
        seed in prop::collection::vec(any::<u64>(), 1..64),
        rows in 1_usize..20_000,
        modulus in prop::sample::select(vec![1, 2, 7, 1000, 1 << 30, u64::MAX]),
        nulls in 0_u64..4,
        cut in any::<u64>(),
    ) {
        let data_type = TYPES[kind];
        let random = |row: usize| seed[row % seed.len()].wrapping_mul(row as u64 / 3 + 1);
        let values: Vec<Value> = (0..rows)
            .map(|row| if nulls > 0 && random(row) % 5 < nulls { Value::Null } else { value(data_type, random(row), modulus) })
            .collect();
        let cut = (cut as usize) % rows;
        let pieces = [array(data_type, &values[..cut]), array(data_type, &values[cut..])];
        let (_, page) = page(data_type, &pieces);
        prop_assert_eq!(page.rows(), rows);
        let arrow = arrow_type(data_type, "UTC");
        prop_assert_eq!(column_type(&arrow), Some(data_type));
        for block in 0..rows.div_ceil(BLOCK_ROWS) {
            let of_block = &values[block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(rows)];
            let expected = array(data_type, of_block);
            prop_assert_eq!(&page.decode(block, None, data_type, &arrow), &expected);
            let selection: Vec<u32> = (0..of_block.len() as u32).filter(|row| random(*row as usize) % 7 == 0).collect();
            let selected: Vec<Value> = selection.iter().map(|row| of_block[*row as usize].clone()).collect();
            prop_assert_eq!(&page.decode(block, Some(&selection), data_type, &arrow), &array(data_type, &selected));
            let few: Vec<u32> = selection.iter().copied().take(3).collect();
            let selected: Vec<Value> = few.iter().map(|row| of_block[*row as usize].clone()).collect();
            prop_assert_eq!(&page.decode(block, Some(&few), data_type, &arrow), &array(data_type, &selected));
        }
    }

    #[test]
    fn damage_is_seen(seed in any::<u64>(), kind in 0..TYPES.len(), flip in any::<u64>()) {
        let data_type = TYPES[kind];
        let values: Vec<Value> = (0..300).map(|row| value(data_type, seed.wrapping_mul(row), 1000)).collect();
        let (mut bytes, _) = page(data_type, &[array(data_type, &values)]);
        let at = (flip / 8) as usize % bytes.len();
        bytes[at] ^= 1 << (flip % 8);
        prop_assert!(ColumnPage::open(&bytes).is_none());
        prop_assert!(ColumnPage::open(&bytes[..at]).is_none());
    }
}

#[test]
fn doubles_order_as_their_integers_and_sensor_values_are_short() {
    let doubles = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
    assert!(doubles.windows(2).all(|pair| ordered_bits(pair[0]) < ordered_bits(pair[1])));
    assert!(doubles.iter().all(|double| double_of(ordered_bits(*double)).to_bits() == double.to_bits()));
    let readings: Vec<Value> =
        (0..8192).map(|row| Value::Double(f64::from(row * 7 % 5000) / 100.0)).collect();
    let (bytes, page) = page(DataType::Double, &[array(DataType::Double, &readings)]);
    assert_eq!(page.kind(), PageKind::Doubles(Precision::Double));
    assert_eq!(page.doubles_of(0).0.coding, DoubleCoding::Decimal { exponent: 2 });
    assert!(bytes.len() < 8192 * 2, "{} bytes", bytes.len());
}

/// Values of a column of doubles: decimal numbers, with others, NaN, infinities, zeros of both signs among them.
fn doubles(seed: &[u64], rows: usize, others: u64) -> Vec<f64> {
    let special =
        [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.0 / 3.0, f64::MIN_POSITIVE];
    let value = |row: usize| {
        let random = seed[row % seed.len()].wrapping_mul(row as u64 / 3 + 1);
        if random % 100 < others {
            special[(random / 128 % 8) as usize]
        } else {
            (random % 5000) as f64 / 100.0 - 25.0
        }
    };
    (0..rows).map(value).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn bounds_of_doubles_leave_the_rows_within_them(
        seed in prop::collection::vec(any::<u64>(), 1..64),
        rows in 1_usize..9_000,
        others in prop::sample::select(vec![0_u64, 3, 60, 100]),
        nulls in 0_u64..3,
        bounds in prop::collection::vec((-30_i32..30, -30_i32..30), 4),
        is_single in any::<bool>(),
        step in 1_usize..40,
    ) {
        let data_type = if is_single { DataType::Real } else { DataType::Double };
        let of = |value: f64| if is_single { f64::from(value as f32) } else { value };
        let values: Vec<f64> = doubles(&seed, rows, others).into_iter().map(of).collect();
        let is_null = |row: usize| nulls > 0 && (row as u64).wrapping_mul(seed[0] | 1) % 7 < nulls;
        let row_value = |row: usize| if is_null(row) { Value::Null } else { Value::Double(values[row]) };
        let all: Vec<Value> = (0..rows).map(row_value).collect();
        let (_, page) = page(data_type, &[array(data_type, &all)]);
        let wide = [(f64::NEG_INFINITY, f64::INFINITY), (0.0, 0.0), (-0.0, 0.25), (f64::NEG_INFINITY, -0.0), (1.0, f64::INFINITY)];
        let bounds = bounds.iter().map(|(least, greatest)| (f64::from(*least), f64::from(*greatest) + 0.1));
        for (least, greatest) in bounds.chain(wide) {
            let condition = ColumnCondition::Doubles { least, greatest };
            let is_met = |row: &u32| !is_null(*row as usize) && condition.is_met_by_double(values[*row as usize]);
            for block in 0..page.blocks().len() {
                let first = (block * BLOCK_ROWS) as u32;
                let of_block = page.blocks()[block].rows as u32;
                let mut selection = RowSelection::default();
                selection.select_all();
                selection.narrow(&page, block, &condition, &DictionaryMatches::default());
                let expected: Vec<u32> = (0..of_block).filter(|row| is_met(&(first + row))).collect();
                let found = selection.rows(of_block as usize).map_or_else(|| (0..of_block).collect(), <[u32]>::to_vec);
                prop_assert_eq!(&found, &expected, "{} to {}", least, greatest);
                selection.select((0..of_block).step_by(step).collect());
                selection.narrow(&page, block, &condition, &DictionaryMatches::default());
                let expected: Vec<u32> = expected.into_iter().filter(|row| (*row as usize).is_multiple_of(step)).collect();
                let found = selection.rows(of_block as usize).map_or_else(|| (0..of_block).collect(), <[u32]>::to_vec);
                prop_assert_eq!(found, expected, "{} to {} of each {}th", least, greatest, step);
            }
        }
    }

    #[test]
    fn strings_of_symbols_are_decoded_as_they_were_encoded(
        pieces in prop::collection::vec("[a-z]{2,9}|\\PC{1,4}", 8..30),
        rows in 1_usize..9_000,
        long in 0_usize..3,
        nulls in 0_usize..3,
    ) {
        let text = |row: usize| {
            let piece = |at: usize| pieces[(row * 7 + at * 13 + row / 11 * at) % pieces.len()].as_str();
            let count = if long > 0 && row % 1000 == 7 { 20_000 * long } else { row % 9 };
            format!("{}{}", (0..count).map(piece).collect::<String>(), if row.is_multiple_of(10) { String::new() } else { row.to_string() })
        };
        let row_value = |row: usize| if row % 6 < nulls { Value::Null } else { Value::from(&text(row)[..]) };
        let values: Vec<Value> = (0..rows).map(row_value).collect();
        let data_type = DataType::Varchar;
        let arrow = arrow_type(data_type, "UTC");
        let (mut bytes, page) = page(data_type, &[array(data_type, &values)]);
        for block in 0..page.blocks().len() {
            let of_block = &values[block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(rows)];
            prop_assert_eq!(&page.decode(block, None, data_type, &arrow), &array(data_type, of_block));
            let few: Vec<u32> = (0..of_block.len() as u32).step_by(101).collect();
            let selected: Vec<Value> = few.iter().map(|row| of_block[*row as usize].clone()).collect();
            prop_assert_eq!(&page.decode(block, Some(&few), data_type, &arrow), &array(data_type, &selected));
        }
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        prop_assert!(ColumnPage::open(&bytes).is_none());
    }
}

#[test]
fn strings_of_repeated_pieces_are_encoded_by_symbols() {
    let texts: Vec<Value> =
        (0..9000).map(|row| Value::from(&format!("https://example.org/item/{row}/index.html")[..])).collect();
    let plain: usize = (0..9000).map(|row| format!("https://example.org/item/{row}/index.html").len()).sum();
    let (bytes, page) = page(DataType::Varchar, &[array(DataType::Varchar, &texts)]);
    assert!(page.symbols.is_some() && page.kind() == PageKind::Texts);
    assert!(bytes.len() * 2 < plain, "{} of {plain} bytes", bytes.len());
}

/// Page of one block as format 1 has it, of integers that take 32 bits.
fn page_of_before(kind: u32, integers: &[i64]) -> Vec<u8> {
    let mut words = vec![0_u32; HEADER_WORDS + BLOCK_WORDS];
    (words[0], words[2], words[3]) = (1, kind, integers.len() as u32);
    let encoded = IntegerBlock::encode(integers, &mut words);
    let halves = |value: i64| [value as u32, (value >> 32) as u32];
    let (least, greatest) = (*integers.iter().min().unwrap(), *integers.iter().max().unwrap());
    let bounds = [halves(least), halves(greatest), halves(encoded.base)].concat();
    words[8..14].copy_from_slice(&bounds);
    words[14] = encoded.encoding.code() | encoded.bits << 8 | encoded.end_bits << 16;
    words[16] = (HEADER_WORDS + BLOCK_WORDS) as u32;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let checksum = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn pages_of_the_format_before_are_read() {
    let digits: Vec<i64> = (0..5000).map(|row| (row * 7919) % 4001 - 2000).collect();
    let page = ColumnPage::open(&page_of_before(1 | 2 << 8, &digits)).unwrap();
    let expected: Vec<f64> = digits.iter().map(|digits| *digits as f64 / 100.0).collect();
    assert_eq!((page.kind(), page.block_doubles(0)), (PageKind::Doubles(Precision::Double), expected));
    assert_eq!(page.blocks()[0].double_bounds(), (-20.0, 20.0));
    let values = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0 / 3.0, f64::INFINITY];
    let ordered: Vec<i64> = values.iter().map(|value| ordered_bits(*value)).collect();
    let page = ColumnPage::open(&page_of_before(2, &ordered)).unwrap();
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&page.block_doubles(0)), bits(&values));
    let page = ColumnPage::open(&page_of_before(0, &digits)).unwrap();
    assert_eq!((page.kind(), page.decoded(0)), (PageKind::Integers, digits.clone()));
    // Kinds that format 1 did not have, and formats that there are not.
    assert!(ColumnPage::open(&page_of_before(6, &digits)).is_none());
    let mut later = page_of_before(0, &digits);
    later[0] = 3;
    assert!(ColumnPage::open(&later).is_none());
}
