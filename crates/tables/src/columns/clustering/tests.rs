//! Codes, keys, boxes and divisions beside what they are by definition.

use super::bins::DimensionBins;
use super::division::{filled, split};
use super::key::KeyBits;
use super::scheme::Scheme;
use crate::batch::ColumnArray;
use crate::columns::condition::{ColumnCondition, ColumnFilter, IntegerSet};
use crate::schema::clustering::{ClusteringDefinition, Dimension, Interleave, SplitPolicy};
use crate::schema::parts::Reader;
use crate::{BatchBuilder, Column, DataType, Row, Schema, Value};
use arrow_array::ArrayRef;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::sync::Arc;

fn array_of(data_type: DataType, values: &[Value]) -> ArrayRef {
    let mut builder = BatchBuilder::new(&[Column::new("c", data_type)], values.len());
    values.iter().for_each(|value| builder.push(std::slice::from_ref(value)).unwrap());
    Arc::clone(builder.finish().column(0))
}

fn codes(bins: &DimensionBins, data_type: DataType, values: &[Value]) -> Vec<u64> {
    let (array, column) = (array_of(data_type, values), Column::new("c", data_type));
    let (array, mut codes) = (ColumnArray::new("t", &column, &array).unwrap(), Vec::new());
    bins.for_each_code(&array, |code| codes.push(code));
    codes
}

fn bins_of(data_type: DataType, values: &[Value], bits: u8) -> DimensionBins {
    let (array, column) = (array_of(data_type, values), Column::new("c", data_type));
    DimensionBins::of(&[ColumnArray::new("t", &column, &array).unwrap()], bits)
}

/// Order of values of a column, NULL first, NaN last.
fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (Value::Double(left), Value::Double(right)) => {
            crate::normalize_double(*left).total_cmp(&crate::normalize_double(*right))
        }
        _ => left.cmp(right),
    }
}

fn values(data_type: DataType) -> BoxedStrategy<Value> {
    let skewed = prop_oneof![0..4_i64, -100..100_i64, any::<i64>()];
    let value = match data_type {
        DataType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        DataType::Int => skewed.prop_map(|value| Value::Int(value as i32)).boxed(),
        DataType::Date => skewed.prop_map(|value| Value::Date(value as i32)).boxed(),
        DataType::BigInt => skewed.prop_map(Value::BigInt).boxed(),
        DataType::Timestamp => skewed.prop_map(Value::Timestamp).boxed(),
        DataType::Decimal { .. } => (skewed, 0..80_u32)
            .prop_map(|(value, shift)| Value::Decimal(i128::from(value / 8) << (shift / 2)))
            .boxed(),
        DataType::Double => prop_oneof![
            any::<f64>(),
            Just(f64::NAN),
            Just(-0.0),
            Just(0.0),
            Just(f64::INFINITY),
            -9.0..9.0_f64
        ]
        .prop_map(Value::Double)
        .boxed(),
        _ => prop_oneof!["[ab]{0,3}", "common beginning [a-e]{1,9}", "\\PC{0,80}"]
            .prop_map(|text| Value::from(text.as_str()))
            .boxed(),
    };
    prop_oneof![9 => value, 1 => Just(Value::Null)].boxed()
}

fn data_types() -> impl Strategy<Value = DataType> {
    prop_oneof![
        Just(DataType::Boolean),
        Just(DataType::Int),
        Just(DataType::Date),
        Just(DataType::BigInt),
        Just(DataType::Timestamp),
        Just(DataType::Decimal { precision: 38, scale: 2 }),
        Just(DataType::Double),
        Just(DataType::Varchar),
    ]
}

/// Type, sample, and further values, which may lie outside of it.
fn samples() -> impl Strategy<Value = (DataType, Vec<Value>, Vec<Value>)> {
    data_types().prop_flat_map(|data_type| {
        let sample = prop::collection::vec(values(data_type), 0..200);
        (Just(data_type), sample, prop::collection::vec(values(data_type), 1..60))
    })
}

proptest! {
    #[test]
    fn codes_order_as_values_do((data_type, sample, mut further) in samples(), bits in 0..12_u8) {
        let bins = bins_of(data_type, &sample, bits);
        prop_assert!(bins.bins() as u64 <= 1 << bits);
        further.extend(sample.iter().cloned());
        further.sort_by(order);
        let codes = codes(&bins, data_type, &further);
        prop_assert!(codes.is_sorted(), "{further:?} {codes:?}");
        prop_assert!(codes.iter().all(|code| *code <= bins.greatest_code()));
        let mut bytes = Vec::new();
        bins.put(&mut bytes);
        prop_assert_eq!(DimensionBins::take(&mut Reader(&bytes)), Some(bins));
        for end in 0..bytes.len() {
            prop_assert_eq!(DimensionBins::take(&mut Reader(&bytes[..end])), None);
        }
    }

    #[test]
    fn a_box_meets_the_ranges_that_have_one_of_its_keys(
        bits in prop::collection::vec(0..5_u8, 1..5),
        is_major in any::<bool>(),
        bounds in prop::collection::vec(any::<[u8; 2]>(), 0..4),
        ends in any::<(u64, u64)>(),
    ) {
        let interleave = Interleave::ALL[usize::from(is_major)];
        let total: u32 = bits.iter().map(|bits| u32::from(*bits)).sum();
        prop_assume!(total <= 12);
        let key = KeyBits::new(&bits, interleave);
        prop_assert_eq!(key.greatest(), (1 << total) - 1);
        let mut keys = key.all();
        let mut conditions = Vec::new();
        for (at, pair) in bounds.iter().enumerate() {
            let dimension = at % bits.len();
            let greatest = (1_u64 << bits[dimension]) - 1;
            let mut pair = pair.map(|code| u64::from(code) & greatest);
            pair.sort_unstable();
            key.narrow(&mut keys, dimension, &[(pair[0], pair[1])]);
            conditions.push((dimension, pair));
        }
        let (first, last) = (ends.0 & key.greatest(), ends.1 & key.greatest());
        let (first, last) = (first.min(last), first.max(last));
        let is_within = |candidate: u64| {
            conditions.iter().all(|(dimension, pair)| {
                (pair[0]..=pair[1]).contains(&key.code(*dimension, candidate))
            })
        };
        prop_assert_eq!(key.meets(&keys, first, last), (first..=last).any(is_within));
    }

    #[test]
    fn a_box_of_two_ranges_meets_the_keys_of_both(ends in any::<(u64, u64)>(), codes in any::<[u8; 4]>()) {
        let key = KeyBits::new(&[4, 3, 4], Interleave::RoundRobin);
        let mut codes = codes.map(|code| u64::from(code) & 15);
        codes.sort_unstable();
        prop_assume!(codes[1] + 1 < codes[2]);
        let mut keys = key.all();
        key.narrow(&mut keys, 2, &[(codes[0], codes[1]), (codes[2], codes[3])]);
        let (first, last) = (ends.0 & key.greatest(), ends.1 & key.greatest());
        let (first, last) = (first.min(last), first.max(last));
        let is_within = |candidate: u64| {
            let code = key.code(2, candidate);
            (codes[0]..=codes[1]).contains(&code) || (codes[2]..=codes[3]).contains(&code)
        };
        prop_assert_eq!(key.meets(&keys, first, last), (first..=last).any(is_within));
    }

    #[test]
    fn codes_of_a_key_are_those_that_it_was_made_of(codes in prop::collection::vec(any::<u8>(), 1..9)) {
        for interleave in Interleave::ALL {
            let key = KeyBits::new(&vec![8; codes.len()], interleave);
            let made = codes.iter().enumerate().fold(0, |made, (at, code)| made | key.spread(at, (*code).into()));
            for (at, code) in codes.iter().enumerate() {
                prop_assert_eq!(key.code(at, made), u64::from(*code));
            }
        }
    }

    #[test]
    fn a_division_has_all_rows_in_blocks_that_fit(
        mut keys in prop::collection::vec(prop_oneof![0..6_u64, 0..1000_u64, any::<u64>()], 0..400),
        rows_max in 1..50_usize,
    ) {
        keys.sort_unstable();
        let mut divisions = vec![filled(&keys, rows_max)];
        divisions.extend(SplitPolicy::ALL.map(|policy| split(&keys, rows_max, policy)));
        for blocks in divisions {
            let rows: Vec<usize> = blocks.iter().cloned().flatten().collect();
            prop_assert_eq!(rows, (0..keys.len()).collect::<Vec<_>>());
            prop_assert!(blocks.iter().all(|block| (1..=rows_max).contains(&block.len())), "{:?}", blocks);
        }
    }

    #[test]
    fn no_row_that_meets_the_filters_is_outside_of_their_box(
        (data_type, mut all, further) in samples(),
        bits in 0..7_u8,
        has_bits in any::<bool>(),
    ) {
        let columns = vec![Column::new("a", data_type), Column::new("b", DataType::Int)];
        let schema = Schema::new(columns.clone(), &[""; 0]).unwrap();
        let pieces = |values: &[Value]| {
            let numbers: Vec<Value> = (0..values.len()).map(|row| Value::Int(row as i32 % 17)).collect();
            vec![vec![array_of(data_type, values), array_of(DataType::Int, &numbers)]]
        };
        let dimension = |column| Dimension { column, bits: has_bits.then_some(bits.max(1)) };
        let definition = ClusteringDefinition::new(vec![dimension(0), dimension(1)]);
        let scheme =
            Scheme::of(3, &definition, ("t", &schema), &pieces(&all), (all.len() as u64, 1000)).unwrap();
        prop_assert_eq!(Scheme::from_bytes(3, &scheme.to_bytes()), Some(scheme.clone()));
        all.extend(further);
        let keys = scheme.keys(("t", &schema), &pieces(&all)).unwrap();
        for (at, pair) in all.windows(2).enumerate() {
            for condition in conditions(&pair[0], &pair[1]) {
                let filters = [
                    ColumnFilter { column: 0, condition: condition.clone() },
                    ColumnFilter { column: 1, condition: ColumnCondition::Between { least: 3, greatest: 9 } },
                ];
                let Some(keys_of) = scheme.key_box(&schema, &filters) else { continue };
                for (row, value) in all.iter().enumerate() {
                    let is_met = condition.is_met_by(value) && (3..=9).contains(&(row % 17));
                    let is_left = scheme.key().meets(&keys_of, keys[row], keys[row]);
                    prop_assert!(is_left || !is_met, "{condition:?} of {at} and {value:?}");
                }
            }
        }
    }
}

/// Conditions made of two values of a column.
fn conditions(first: &Value, second: &Value) -> Vec<ColumnCondition> {
    let mut all = vec![ColumnCondition::Null, ColumnCondition::NotNull];
    match (first, second) {
        (Value::Varchar(first), Value::Varchar(second)) => {
            let (least, greatest) = (first.min(second).clone(), first.max(second).clone());
            let is_met = {
                let (least, greatest) = (least.clone(), greatest.clone());
                Arc::new(move |text: &str| *least <= *text && *text <= *greatest)
            };
            all.push(ColumnCondition::Texts(is_met.clone()));
            all.push(ColumnCondition::TextsWithin { least: Some(least), greatest: Some(greatest), is_met });
        }
        (Value::Double(first), Value::Double(second)) if !first.is_nan() && !second.is_nan() => {
            all.push(ColumnCondition::Doubles { least: first.min(*second), greatest: first.max(*second) });
            all.push(ColumnCondition::Doubles { least: *first, greatest: f64::INFINITY });
        }
        _ => {
            if let (Some(first), Some(second)) = (integer(first), integer(second)) {
                let (least, greatest) = (first.min(second), first.max(second));
                all.push(ColumnCondition::Between { least, greatest });
                all.push(ColumnCondition::Between { least: greatest, greatest: least });
                let set = IntegerSet::new(&[first, second], 1 << 20);
                all.extend(set.map(|set| ColumnCondition::Among(Arc::new(set))));
            }
        }
    }
    all
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Boolean(value) => Some((*value).into()),
        Value::Int(value) | Value::Date(value) => Some((*value).into()),
        Value::BigInt(value) | Value::Timestamp(value) => Some(*value),
        Value::Decimal(value) => i64::try_from(*value).ok(),
        _ => None,
    }
}

#[test]
fn a_frequent_value_has_a_bin_for_itself() {
    let mut values = vec![Value::Int(500); 9000];
    values.extend((0..1000).map(Value::Int));
    let bins = bins_of(DataType::Int, &values, 4);
    let of = |value: i32| codes(&bins, DataType::Int, &[Value::Int(value)])[0];
    assert!(of(499) < of(500) && of(500) < of(501));
    assert!(of(0) < of(499) && of(501) < of(999), "the others have several");
    let one = bins_of(DataType::Int, &vec![Value::Int(7); 100], 6);
    assert_eq!((one.bins(), codes(&one, DataType::Int, &[Value::Int(7)])), (1, vec![0]));
}

#[test]
fn bits_are_chosen_by_the_number_of_values_and_blocks() {
    let columns = vec![
        Column::new("few", DataType::Int),
        Column::new("many", DataType::Int),
        Column::new("one", DataType::Int),
    ];
    let schema = Schema::new(columns.clone(), &[""; 0]).unwrap();
    let mut builder = BatchBuilder::new(&columns, 50_000);
    for row in 0..50_000 {
        let row: Row = vec![Value::Int(row % 4), Value::Int(row), Value::Int(1)];
        builder.push(&row).unwrap();
    }
    let piece = builder.finish().columns().to_vec();
    let bits = |dimensions: &[(usize, Option<u8>)], rows: u64| {
        let dimension = |&(column, bits): &(usize, Option<u8>)| Dimension { column, bits };
        let definition = ClusteringDefinition::new(dimensions.iter().map(dimension).collect());
        let scheme =
            Scheme::of(1, &definition, ("t", &schema), std::slice::from_ref(&piece), (rows, 1024)).unwrap();
        scheme.bits().collect::<Vec<_>>()
    };
    // 1,024 blocks and three bits more.
    assert_eq!(bits(&[(0, None), (1, None), (2, None)], 1), [2, 10, 1]);
    assert_eq!(bits(&[(0, Some(1)), (1, Some(6))], 1), [1, 6]);
    assert_eq!(bits(&[(0, None), (1, Some(9))], 1), [2, 9]);
    assert_eq!(bits(&[(1, None)], 1 << 40), [32], "a dimension has no more");
}
