//! Codes and heads of Elfs of pages of all kinds.

use super::codes::{DimensionCodes, NULL_CODE};
use super::*;
use crate::batch::{ColumnArray, arrow_schema};
use crate::columns::condition::{ColumnCondition, IntegerSet};
use crate::columns::group::ColumnSummary;
use crate::columns::page::{encode_page, encode_values};
use crate::{BatchBuilder, Column, DataType, Value};
use entresol_structures::elf::CodeCondition;
use std::sync::Arc;

fn page_of(data_type: DataType, values: &[Value]) -> ColumnPage {
    let mut builder = BatchBuilder::new(&[Column::new("c", data_type)], values.len());
    values.iter().for_each(|value| builder.push(std::slice::from_ref(value)).unwrap());
    let (batch, column) = (builder.finish(), Column::new("c", data_type));
    assert_eq!(batch.schema(), arrow_schema(std::slice::from_ref(&column), "UTC"));
    let array = ColumnArray::new("t", &column, batch.column(0)).unwrap();
    ColumnPage::open(&encode_page(data_type, &[array])).unwrap()
}

/// Values of each kind of page, with NULLs and repetitions, in more than one block.
fn samples() -> Vec<(DataType, Vec<Value>)> {
    let rows = 0..9000_i64;
    let nullable = |row: i64, value: Value| if row % 7 == 3 { Value::Null } else { value };
    let of = |f: &dyn Fn(i64) -> Value| rows.clone().map(|row| nullable(row, f(row))).collect::<Vec<_>>();
    let wide = |row: i64| Value::Decimal(i128::from(row % 50 - 25) << 80);
    vec![
        (DataType::Int, of(&|row| Value::Int((row * 37 % 1000) as i32 - 500))),
        (DataType::BigInt, of(&|row| Value::BigInt((row % 30 - 15) << 58))),
        (DataType::Boolean, of(&|row| Value::Boolean(row % 3 == 0))),
        (DataType::Double, of(&|row| Value::Double((row % 400 - 200) as f64 / 4.0))),
        (DataType::Double, of(&|row| Value::Double([-0.0, 0.0, 1e300, -1e-300][row as usize % 4]))),
        (DataType::Decimal { precision: 38, scale: 0 }, of(&wide)),
        (DataType::Varchar, of(&|row| Value::from(format!("few {}", row % 40).as_str()))),
        (DataType::Varchar, of(&|row| Value::from(format!("many {}", row * 7919 % 9001).as_str()))),
        (DataType::Int, vec![Value::Null; 10]),
        (DataType::Varchar, vec![Value::Null; 10]),
    ]
}

#[test]
fn codes_order_as_values_do() {
    for (data_type, values) in samples() {
        let (codes, of_rows) = DimensionCodes::of_page(&page_of(data_type, &values), false);
        for (row, pair) in values.windows(2).enumerate() {
            let order = of_rows[row].cmp(&of_rows[row + 1]);
            assert_eq!(order, pair[0].cmp(&pair[1]), "{data_type} {pair:?}, row {row}");
            assert_eq!(of_rows[row] == NULL_CODE, pair[0] == Value::Null);
        }
        let mut words = Vec::new();
        codes.encode(&mut words);
        words.push(99);
        assert_eq!(DimensionCodes::decode(&words), Some((codes, &[99][..])));
    }
}

#[test]
fn coded_conditions_are_met_by_the_values_that_meet_the_conditions() {
    let text = |from: &'static str| ColumnCondition::Texts(Arc::new(move |text: &str| text > from));
    let set = |values: &[i64]| ColumnCondition::Among(Arc::new(IntegerSet::new(values, 1 << 20).unwrap()));
    let conditions = [
        ColumnCondition::Null,
        ColumnCondition::NotNull,
        ColumnCondition::Between { least: -3, greatest: 17 },
        ColumnCondition::Between { least: i64::MIN, greatest: 0 },
        ColumnCondition::Between { least: 1, greatest: 0 },
        ColumnCondition::Between { least: -(1 << 60), greatest: i64::MAX },
        set(&[]),
        set(&[-7, 0, 3, 9999]),
        ColumnCondition::Doubles { least: -0.0, greatest: 1.25 },
        ColumnCondition::Doubles { least: f64::NEG_INFINITY, greatest: 0.0 },
        text("few 3"),
        text("many 5000"),
        text(""),
    ];
    let mut compared = 0;
    let both =
        samples().into_iter().flat_map(|(of, values)| [false, true].map(|is| (of, values.clone(), is)));
    for (data_type, values, is_exact) in both {
        let (codes, of_rows) = DimensionCodes::of_page(&page_of(data_type, &values), is_exact);
        for condition in &conditions {
            let Some(coded) = codes.coded(condition) else { continue };
            compared += 1;
            for (value, code) in values.iter().zip(&of_rows) {
                let is_met = condition.is_met_by(value);
                assert_eq!(coded.condition.is_met(*code), is_met, "{data_type} {value:?} {condition:?}");
            }
            assert!((0.0..=1.0).contains(&coded.share), "{condition:?}: {}", coded.share);
        }
    }
    assert!(compared > 80, "{compared} conditions");
    for (nan, is_exact) in [(f64::NAN, false), (f64::NAN, true), (-f64::NAN, true)] {
        let nan = page_of(DataType::Double, &[Value::Double(1.0), Value::Double(nan)]);
        let (codes, _) = DimensionCodes::of_page(&nan, is_exact);
        assert!(codes.coded(&ColumnCondition::Doubles { least: 0.0, greatest: 9.0 }).is_none());
    }
}

#[test]
fn values_come_back_out_of_exact_codes_as_they_were() {
    let mut samples = samples();
    let nan = f64::from_bits(f64::NAN.to_bits() | 77);
    let doubles = [-0.0, 0.0, nan, -f64::NAN, f64::INFINITY, -3.5, 0.1];
    samples.push((DataType::Double, doubles.map(Value::Double).to_vec()));
    samples
        .push((DataType::Real, [-0.0, 0.0, 0.1_f32, f32::NAN].map(|of| Value::Double(of.into())).to_vec()));
    samples.push((DataType::Real, vec![Value::Double(0.25), Value::Null, Value::Double(-0.0)]));
    samples.push((DataType::Timestamp, vec![Value::Timestamp(i64::MIN), Value::Null, Value::Timestamp(7)]));
    for (data_type, values) in samples {
        let page = page_of(data_type, &values);
        let coded = CodedColumn::of((5, &page), true);
        let (head, elf) = build_coded(vec![coded]).unwrap();
        let (of_codes, valid) = head.dimensions[0].codes.values(&elf.codes(0));
        let made = ColumnPage::open(&encode_values(&of_codes, &valid)).unwrap();
        assert_eq!(made.rows(), page.rows());
        let column = Column::new("c", data_type);
        let arrow = arrow_schema(std::slice::from_ref(&column), "UTC");
        for block in 0..page.blocks().len() {
            let decoded = |page: &ColumnPage| page.decode(block, None, data_type, arrow.field(0).data_type());
            let (was, is) = (decoded(&page), decoded(&made));
            assert_eq!(was.nulls(), is.nulls(), "{data_type}");
            let bits = |page: &ColumnPage| -> Vec<u64> {
                if !matches!(page.kind(), crate::columns::page::PageKind::Doubles(_)) {
                    return Vec::new();
                }
                let doubles = page.block_doubles(block).into_iter().enumerate();
                let valid = doubles.filter(|(row, _)| page.is_valid(block, *row as u32));
                valid.map(|(_, double)| double.to_bits()).collect()
            };
            assert_eq!(bits(&page), bits(&made), "{data_type}: each bit");
            if bits(&page).is_empty() {
                assert_eq!(*was, *is, "{data_type}");
            }
        }
        let (was, is) = (ColumnSummary::of(5, &page, 0), ColumnSummary::of(5, &made, 0));
        if page.kind() == made.kind() {
            assert_eq!(
                (was.least, was.greatest, was.nulls),
                (is.least, is.greatest, is.nulls),
                "{data_type}"
            );
        }
    }
}

#[test]
fn a_head_is_read_as_it_was_written_and_damage_is_seen() {
    let pages: Vec<ColumnPage> =
        samples()[..8].iter().map(|(data_type, values)| page_of(*data_type, &values[..9])).collect();
    let numbered: Vec<(u16, &ColumnPage)> =
        pages.iter().enumerate().map(|(id, page)| (id as u16, page)).collect();
    let (head, elf) = build(DimensionOrder::Auto, &numbered).unwrap();
    assert_eq!(head.dimensions[0].column, 2, "BOOLEAN has the fewest values");
    assert_eq!(elf.tuples(), 9);
    assert_eq!(elf.count(&[CodeCondition::Between { least: 1, greatest: 2 }]), 8);
    let bytes = head.to_bytes();
    let read = ElfHead::from_bytes(&bytes).unwrap();
    assert_eq!((&read.dimensions, read.rows, read.words), (&head.dimensions, head.rows, head.words));
    for at in 0..bytes.len() {
        assert!(ElfHead::from_bytes(&bytes[..at]).is_none(), "cut at {at}");
        // A checksum sees these before; none may panic.
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        if let Some(head) = ElfHead::from_bytes(&damaged) {
            let condition = ColumnCondition::Between { least: 0, greatest: 5 };
            head.dimensions.iter().for_each(|of| drop(of.codes.coded(&condition)));
        }
    }
    let stored = StoredElf {
        name: "e".into(),
        number: 0,
        columns: (0..8).collect(),
        order: DimensionOrder::Auto,
        caching: ElfCaching::Whole,
    };
    assert!(stored.is_made_of(&head.dimensions, |_| true));
    assert!(!stored.is_made_of(&head.dimensions, |column| column != 3));
    let written = StoredElf { order: DimensionOrder::Written, ..stored };
    assert!(!written.is_made_of(&head.dimensions, |_| true));
}
