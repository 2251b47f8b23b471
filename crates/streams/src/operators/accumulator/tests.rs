//! Tests of aggregates and what their state tables have.

use super::*;
use crate::UTC;
use arrow_array::{Float64Array, Int64Array, StringArray};
use entresol_tables::{BatchBuilder, Value, arrow_type};

fn columns() -> Vec<Column> {
    vec![
        Column::new("i", DataType::BigInt),
        Column::new("d", DataType::Double),
        Column::new("m", DataType::Decimal { precision: 10, scale: 2 }),
        Column::new("t", DataType::Varchar),
        Column::new("at", DataType::TimestampTz),
    ]
}

/// Adds the values to the second of three groups.
fn run(aggregate: &Aggregate, values: &[Value]) -> Result<(BoundAggregate, Accumulators), String> {
    let bound = aggregate.resolve(&columns()).unwrap();
    let mut batch = BatchBuilder::new(&columns(), values.len());
    for value in values {
        let mut tuple = vec![Value::Null; 5];
        tuple[bound.columns().first().copied().unwrap_or(0)] = value.clone();
        batch.push(&tuple).unwrap();
    }
    let batch = batch.finish();
    let mut accumulators = bound.accumulators();
    accumulators.resize(3);
    let columns: Vec<ArrayRef> = bound.columns().iter().map(|&at| Arc::clone(batch.column(at))).collect();
    bound.add(&mut accumulators, &vec![1; values.len()], &columns)?;
    Ok((bound, accumulators))
}

fn value(array: &ArrayRef) -> Value {
    let field = arrow_schema::Field::new("v", array.data_type().clone(), true);
    let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
    let batch = arrow_array::RecordBatch::try_new(schema, vec![Arc::clone(array)]).unwrap();
    entresol_tables::rows_of(&batch).unwrap().remove(0).remove(0)
}

#[test]
fn results_and_stored_forms() {
    let ints = [Value::BigInt(4), Value::Null, Value::BigInt(-1)];
    let doubles = [Value::Double(0.5), Value::Double(0.25)];
    let decimals = [Value::Decimal(150), Value::Decimal(50)];
    let texts = [Value::from("b"), Value::from("a"), Value::Null];
    let times = [Value::Timestamp(7), Value::Timestamp(-7)];
    let cases: Vec<(Aggregate, &[Value], Value)> = vec![
        (Aggregate::count(), &ints, Value::BigInt(3)),
        (Aggregate::count_of("i"), &ints, Value::BigInt(2)),
        (Aggregate::sum("i"), &ints, Value::BigInt(3)),
        (Aggregate::avg("i"), &ints, Value::Double(1.5)),
        (Aggregate::min("i"), &ints, Value::BigInt(-1)),
        (Aggregate::sum("d"), &doubles, Value::Double(0.75)),
        (Aggregate::avg("d"), &doubles, Value::Double(0.375)),
        (Aggregate::max("d"), &doubles, Value::Double(0.5)),
        (Aggregate::sum("m"), &decimals, Value::Decimal(200)),
        (Aggregate::avg("m"), &decimals, Value::Double(1.0)),
        (Aggregate::max("t"), &texts, Value::from("b")),
        (Aggregate::min("t"), &texts, Value::from("a")),
        (Aggregate::min("at"), &times, Value::Timestamp(-7)),
        (Aggregate::sum("i"), &[], Value::Null),
        (Aggregate::avg("m"), &[Value::Null], Value::Null),
    ];
    for (aggregate, values, expected) in cases {
        let (bound, mut accumulators) = run(&aggregate, values).unwrap();
        assert_eq!(value(&bound.results(&mut accumulators, &[1]).unwrap()), expected, "{aggregate:?}");
        let stored = bound.store(&mut accumulators, &[1]).unwrap();
        let columns = bound.state_columns();
        assert_eq!(stored.len(), columns.len());
        for (array, column) in stored.iter().zip(&columns) {
            assert_eq!(*array.data_type(), arrow_type(column.data_type, UTC), "{column:?}");
        }
        let mut loaded = bound.accumulators();
        loaded.resize(5);
        assert!(bound.load(&mut loaded, &[4], &mut stored.iter()));
        let results = bound.results(&mut loaded, &[4]).unwrap();
        assert_eq!(value(&results), expected, "{aggregate:?} after a restart");
    }
}

#[test]
fn values_are_taken_back_from_counts_and_exact_sums() {
    let array: ArrayRef = Arc::new(Int64Array::from(vec![Some(4), None, Some(-1)]));
    let first = array.slice(0, 2);
    for (aggregate, after, at_last) in [
        (Aggregate::count_of("i"), Value::BigInt(1), Value::BigInt(0)),
        (Aggregate::sum("i"), Value::BigInt(-1), Value::Null),
        (Aggregate::avg("i"), Value::Double(-1.0), Value::Null),
    ] {
        let bound = aggregate.resolve(&columns()).unwrap().subtracted();
        assert!(bound.is_subtractable());
        let mut accumulators = bound.accumulators();
        accumulators.resize(1);
        bound.add(&mut accumulators, &[0; 3], std::slice::from_ref(&array)).unwrap();
        bound.subtract(&mut accumulators, &[0; 2], std::slice::from_ref(&first)).unwrap();
        let stored = bound.store(&mut accumulators, &[0]).unwrap();
        let mut loaded = bound.accumulators();
        loaded.resize(1);
        assert!(bound.load(&mut loaded, &[0], &mut stored.iter()));
        assert_eq!(value(&bound.results(&mut loaded, &[0]).unwrap()), after, "{aggregate:?}");
        bound.subtract(&mut loaded, &[0], &[array.slice(2, 1)]).unwrap();
        assert_eq!(value(&bound.results(&mut loaded, &[0]).unwrap()), at_last, "{aggregate:?}");
    }
    for aggregate in [Aggregate::sum("d"), Aggregate::min("i"), Aggregate::max("t")] {
        assert!(!aggregate.resolve(&columns()).unwrap().is_subtractable(), "{aggregate:?}");
    }
}

/// A sum may be out of range between two values of a transaction, not at its end.
#[test]
fn sums_over_changes_are_checked_when_all_values_have_come() {
    let bound = Aggregate::sum("i").resolve(&columns()).unwrap().subtracted();
    let mut accumulators = bound.accumulators();
    accumulators.resize(1);
    let least: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, -1]));
    bound.subtract(&mut accumulators, &[0; 2], &[Arc::clone(&least)]).unwrap();
    for error in [
        bound.check(&accumulators, &[0]).unwrap_err(),
        bound.store(&mut accumulators, &[0]).unwrap_err(),
        bound.results(&mut accumulators, &[0]).unwrap_err(),
    ] {
        assert_eq!(error, "sum_i overflows");
    }
    bound.add(&mut accumulators, &[0; 2], &[Arc::clone(&least)]).unwrap();
    let greatest: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 1]));
    bound.add(&mut accumulators, &[0; 2], &[Arc::clone(&greatest)]).unwrap();
    assert!(bound.store(&mut accumulators, &[0]).is_err());
    bound.subtract(&mut accumulators, &[0], &[greatest.slice(1, 1)]).unwrap();
    assert_eq!(value(&bound.results(&mut accumulators, &[0]).unwrap()), Value::BigInt(i64::MAX));
}

/// Only the extreme itself, or a value that has not come yet, makes a group be computed again.
#[test]
fn extremes_are_outdated_by_values_that_reach_them() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), Some(5), Some(7), None, Some(9)]));
    let doubles: ArrayRef =
        Arc::new(Float64Array::from(vec![Some(3.0), Some(5.0), Some(7.0), None, Some(9.0)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("3"), Some("5"), Some("7"), None, Some("9")]));
    for (column, array) in [("i", numbers), ("d", doubles), ("t", texts)] {
        for (aggregate, expected) in [(Aggregate::max(column), vec![2, 4]), (Aggregate::min(column), vec![0])]
        {
            let bound = aggregate.resolve(&columns()).unwrap();
            let mut accumulators = bound.accumulators();
            accumulators.resize(1);
            bound.add(&mut accumulators, &[0; 3], &[array.slice(0, 3)]).unwrap();
            let mut outdated = Vec::new();
            for row in 0..array.len() {
                let each = |group: usize| outdated.push((row, group));
                bound.each_outdated(&accumulators, &[0], &[array.slice(row, 1)], each).unwrap();
            }
            let expected: Vec<(usize, usize)> = expected.into_iter().map(|row| (row, 0)).collect();
            assert_eq!(outdated, expected, "{aggregate:?}");
        }
    }
}

#[test]
fn strings_among_extremes_are_counted() {
    let (bound, mut accumulators) = run(&Aggregate::max("t"), &["a", "ccc", "bb"].map(Value::from)).unwrap();
    assert_eq!(accumulators.extra_bytes(), 3);
    let long: ArrayRef = Arc::new(StringArray::from(vec!["d".repeat(1000)]));
    bound.add(&mut accumulators, &[2], &[long]).unwrap();
    bound.merge(&mut accumulators, 2, 1).unwrap();
    assert_eq!(accumulators.extra_bytes(), 2000);
    accumulators.clear(2);
    assert_eq!(accumulators.extra_bytes(), 1000);
    let stored = bound.store(&mut accumulators, &[1]).unwrap();
    assert!(bound.load(&mut accumulators, &[0], &mut stored.iter()));
    assert_eq!(accumulators.extra_bytes(), 2000);
}

#[test]
fn sums_out_of_range_and_wrong_types_are_errors() {
    let error = run(&Aggregate::sum("i"), &[Value::BigInt(i64::MAX), Value::BigInt(1)]).err().unwrap();
    assert_eq!(error, "sum_i overflows");
    let bound = Aggregate::sum("i").resolve(&columns()).unwrap();
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let mut accumulators = bound.accumulators();
    accumulators.resize(1);
    let error = bound.add(&mut accumulators, &[0], &[text]).unwrap_err();
    assert_eq!(error, "sum_i: expected BIGINT, found an array of Utf8");
    let no_sum = Aggregate::sum("t").resolve(&columns()).err().unwrap();
    assert_eq!(no_sum, "sum is not defined for varchar columns");
}

#[test]
fn negative_zero_is_zero_and_nan_the_greatest() {
    let values = [0.0, -0.0, f64::NAN, f64::INFINITY].map(Value::Double);
    let extreme = |aggregate: Aggregate| {
        let (bound, mut accumulators) = run(&aggregate, &values).unwrap();
        value(&bound.results(&mut accumulators, &[1]).unwrap())
    };
    assert_eq!(extreme(Aggregate::min("d")), Value::Double(0.0));
    assert_eq!(extreme(Aggregate::max("d")), Value::Double(f64::NAN));
}
