//! Encodings of column pages: bytes beside plain arrays, and the time of encoding, decoding and checking a condition,
//! each on values that suit it. A row group of a column is encoded as a table would; the encoding is the table's
//! choice, and the run checks that it is the expected one.
//!
//! Speeds are in bytes of the plain array, so that they compare with a copy of it, the last column of the table.

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use arrow_array::{Array, ArrayRef};
use entresol_tables::encodings::EncodedColumn;
use entresol_tables::{Column, ColumnBuilder, ColumnCondition, DataType, Value, arrow_type};
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Rows of a row group.
const GROUP_ROWS: usize = 131_072;
const WORDS: [&str; 12] = [
    "carefully",
    "pending",
    "deposits",
    "sleep",
    "furiously",
    "ironic",
    "requests",
    "above",
    "the",
    "final",
    "accounts",
    "express",
];

/// Values, the encoding that a table gives them, and a condition that about a tenth of them meets.
struct Case {
    name: &'static str,
    data_type: DataType,
    encoding: &'static str,
    value: fn(usize, &mut Random) -> Value,
    condition: Option<fn() -> ColumnCondition>,
}

fn between(least: i64, greatest: i64) -> ColumnCondition {
    ColumnCondition::Between { least, greatest }
}

fn words(random: &mut Random) -> String {
    let words: Vec<&str> =
        (0..2 + random.below(5)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]).collect();
    words.join(" ")
}

fn uniform(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

const CASES: [Case; 12] = [
    Case {
        name: "a status of one value",
        data_type: DataType::Int,
        encoding: "constant",
        value: |_, _| Value::Int(7),
        condition: Some(|| between(8, 9)),
    },
    Case {
        name: "quantities",
        data_type: DataType::Int,
        encoding: "bit packing",
        value: |_, random| Value::Int(1 + random.below(50) as i32),
        condition: Some(|| between(1, 5)),
    },
    Case {
        name: "times of readings",
        data_type: DataType::Timestamp,
        encoding: "delta",
        value: |row, random| {
            Value::Timestamp(1_700_000_000_000_000 + row as i64 * 1_000_000 + random.below(900) as i64)
        },
        condition: Some(|| between(1_700_000_000_000_000, 1_700_013_000_000_000)),
    },
    Case {
        name: "customers of lines of orders",
        data_type: DataType::Int,
        encoding: "run length",
        value: |row, _| Value::Int((row / 6 * 7919 % 200_000) as i32),
        condition: Some(|| between(0, 20_000)),
    },
    Case {
        name: "cities",
        data_type: DataType::Varchar,
        encoding: "dictionary",
        value: |_, random| Value::from(&format!("UNITED KI{}", random.below(250))[..]),
        condition: Some(|| ColumnCondition::Texts(Arc::new(|text| text.ends_with('7')))),
    },
    Case {
        name: "prices",
        data_type: DataType::Double,
        encoding: "decimal digits",
        value: |_, random| Value::Double(random.below(100_000) as f64 / 100.0),
        condition: Some(|| ColumnCondition::Doubles { least: 100.0, greatest: 200.0 }),
    },
    Case {
        name: "prices, one in a hundred a quotient",
        data_type: DataType::Double,
        encoding: "decimal digits",
        value: |_, random| match random.below(100) {
            0 => Value::Double(1000.0 * uniform(random)),
            _ => Value::Double(random.below(100_000) as f64 / 100.0),
        },
        condition: Some(|| ColumnCondition::Doubles { least: 100.0, greatest: 200.0 }),
    },
    Case {
        name: "temperatures, REAL",
        data_type: DataType::Real,
        encoding: "decimal digits",
        value: |_, random| Value::Double(f64::from((random.below(900) as f32 - 300.0) / 10.0)),
        condition: Some(|| ColumnCondition::Doubles { least: 0.0, greatest: 9.0 }),
    },
    Case {
        name: "quotients",
        data_type: DataType::Double,
        encoding: "ordered bits",
        value: |_, random| Value::Double(uniform(random)),
        condition: Some(|| ColumnCondition::Doubles { least: 0.1, greatest: 0.2 }),
    },
    Case {
        name: "addresses of pages",
        data_type: DataType::Varchar,
        encoding: "symbols",
        value: |row, random| {
            Value::from(&format!("https://shop.example.org/item/{row}?from={}", random.below(90_000))[..])
        },
        condition: None,
    },
    Case {
        name: "comments",
        data_type: DataType::Varchar,
        encoding: "symbols",
        value: |row, random| Value::from(&format!("{} {row}", words(random))[..]),
        condition: None,
    },
    Case {
        name: "random strings",
        data_type: DataType::Varchar,
        encoding: "plain",
        value: |_, random| {
            let byte = |_| char::from(b'!' + random.below(94) as u8);
            Value::from(&(0..20).map(byte).collect::<String>()[..])
        },
        condition: None,
    },
];

/// Measurements of a case: speeds in bytes of the plain array a second.
struct Outcome {
    plain_bytes: f64,
    encoded_bytes: f64,
    encode: f64,
    decode: f64,
    copy: f64,
    /// Speed of checking a condition on encoded values.
    condition: Option<f64>,
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let rows = if options.quick { GROUP_ROWS / 8 } else { GROUP_ROWS };
    let mut random = Random::new(options.seed);
    let (mut ratios, mut decodes, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for case in &CASES {
        let outcome = measure(case, rows, options, &mut random, report)?;
        let gb = |speed: f64| speed / 1e9;
        report.row(json!({
            "values": case.name,
            "encoding": case.encoding,
            "plain_bytes": outcome.plain_bytes,
            "ratio": outcome.plain_bytes / outcome.encoded_bytes,
            "encode_mb_per_s": 1e3 * gb(outcome.encode),
            "decode_gb_per_s": gb(outcome.decode),
            "condition_gb_per_s": outcome.condition.map(gb),
            "copy_gb_per_s": gb(outcome.copy),
        }));
        ratios.push((case.name.to_owned(), outcome.plain_bytes / outcome.encoded_bytes));
        decodes.push((case.name.to_owned(), gb(outcome.decode)));
        copies.push((case.name.to_owned(), gb(outcome.copy)));
        let least = match case.encoding {
            "plain" => 0.9,
            "ordered bits" => 1.1,
            "symbols" => 2.0,
            _ => 2.5,
        };
        let name = format!("{}: plain bytes to encoded ones", case.name);
        report.asked(
            AskedFigure::at_least(name, outcome.plain_bytes / outcome.encoded_bytes, least)
                .tolerance(0.0)
                .judged_at_small_sizes(),
        );
        if let (Some(condition), "decimal digits") = (outcome.condition, case.encoding) {
            let name = format!("{}: a condition beside decoding", case.name);
            report.asked(AskedFigure::at_least(name, condition / outcome.decode, 1.0));
        }
    }
    let figure = |title: &str, y_label: &str, series| Figure {
        title: title.to_owned(),
        x_label: "values".to_owned(),
        y_label: y_label.to_owned(),
        series,
    };
    let of = |name: &str, points| Series { name: name.to_owned(), points };
    report.figure(figure("plain bytes to encoded ones", "times", vec![of("ratio", ratios)]));
    let speeds = vec![of("decoded", decodes), of("plain, copied", copies)];
    report.figure(figure("speed, in plain bytes", "GB/s", speeds));
    Ok(())
}

fn measure(
    case: &Case,
    rows: usize,
    options: &RunOptions,
    random: &mut Random,
    report: &mut Report,
) -> Result<Outcome, Error> {
    let column = Column::new("c", case.data_type);
    let mut builder = ColumnBuilder::new(case.data_type, &arrow_type(case.data_type, "UTC"), rows);
    (0..rows).for_each(|row| builder.push(&(case.value)(row, random)));
    let values: ArrayRef = builder.finish();
    let plain_bytes: usize = values.to_data().buffers().iter().map(|buffer| buffer.len()).sum();
    let encoded = EncodedColumn::new(column.clone(), &values)?;
    let (mut is_right, mut first) = (true, 0);
    encoded.decode(|block| {
        is_right &= *block == values.slice(first, block.len());
        first += block.len();
    });
    report.check(&format!("{}: decoded as they were", case.name), is_right && first == rows);
    report.check(&format!("{}: {}", case.name, case.encoding), encoded.encoding() == case.encoding);
    let runs = if options.quick { 3 } else { 15 };
    // The least time: other load on the machine only lengthens it.
    let speed = |work: &mut dyn FnMut()| {
        let mut least = f64::INFINITY;
        for _ in 0..runs {
            let began = Instant::now();
            work();
            least = least.min(began.elapsed().as_secs_f64());
        }
        plain_bytes as f64 / least.max(1e-9)
    };
    let encode = speed(&mut || drop(black_box(EncodedColumn::new(column.clone(), &values))));
    let decode = speed(&mut || encoded.decode(|block| drop(black_box(Arc::clone(block)))));
    let data = values.to_data();
    let copy = speed(&mut || {
        data.buffers().iter().for_each(|buffer| drop(black_box(buffer.as_slice().to_vec())));
    });
    let condition = case.condition.map(|condition| {
        let condition = condition();
        speed(&mut || {
            black_box(encoded.count(&condition));
        })
    });
    let encoded_bytes = encoded.bytes() as f64;
    Ok(Outcome { plain_bytes: plain_bytes as f64, encoded_bytes, encode, decode, copy, condition })
}
