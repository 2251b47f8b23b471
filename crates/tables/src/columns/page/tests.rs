use super::*;
use crate::batch::builder::ColumnBuilder;
use crate::batch::{arrow_type, column_type};
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
    assert_eq!(page.kind(), PageKind::Scaled { exponent: 2 });
    assert!(bytes.len() < 8192 * 2, "{} bytes", bytes.len());
}
