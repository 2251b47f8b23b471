//! Sums beside those of an array of wide numbers, with extreme values and NULLs.

use super::*;

/// Values that a sum in 64 bits does not hold, and NULLs.
fn values() -> Int64Array {
    let of = |at: usize| match at % 7 {
        0 => Some(i64::MAX),
        1 => None,
        2 => Some(i64::MIN),
        3 => Some(i64::MIN),
        other => Some(at as i64 - other as i64 * 1_000),
    };
    (0..1_000).map(of).collect()
}

/// Sum as a value of SQL.
fn expected(values: impl Iterator<Item = Option<i64>>) -> Option<i128> {
    values.flatten().map(i128::from).reduce(|sum, value| sum + value)
}

fn array(values: Int64Array) -> [ArrayRef; 1] {
    [Arc::new(values)]
}

fn evaluated(total: &mut IntegerSumState) -> Option<i128> {
    match total.evaluate().unwrap() {
        ScalarValue::Decimal128(sum, 29, 0) => sum,
        other => panic!("{other:?} is not a sum"),
    }
}

#[test]
fn a_frame_moves_over_extreme_values_and_nulls() {
    let values = values();
    let mut total = IntegerSumState::default();
    assert_eq!(evaluated(&mut total), None);
    for end in 0..values.len() {
        total.update_batch(&array(values.slice(end, 1))).unwrap();
        let first = end.saturating_sub(2);
        if end > 2 {
            total.retract_batch(&array(values.slice(end - 3, 1))).unwrap();
        }
        let frame = values.slice(first, end + 1 - first);
        assert_eq!(evaluated(&mut total), expected(frame.iter()), "frame to {end}");
    }
    let mut all_null = IntegerSumState::default();
    all_null.update_batch(&array(Int64Array::from(vec![None, None]))).unwrap();
    assert_eq!(evaluated(&mut all_null), None);
}

#[test]
fn partial_sums_merge_to_the_sum_of_all() {
    let values = values();
    let mut merged = IntegerSumState::default();
    // No rows, rows of NULL, and rows.
    for part in [values.slice(0, 0), values.slice(1, 1), values.slice(2, 500), values.slice(502, 498)] {
        let mut total = IntegerSumState::default();
        total.update_batch(&array(part)).unwrap();
        let state = total.state().unwrap().remove(0).to_array().unwrap();
        merged.merge_batch(&[state]).unwrap();
    }
    assert_eq!(evaluated(&mut merged), expected(values.iter().skip(1)));
}

#[test]
fn groups_have_the_sums_of_their_rows() {
    let values = values();
    let groups: Vec<usize> = (0..values.len()).map(|row| row * row % 37).collect();
    let filter: BooleanArray =
        (0..values.len()).map(|row| if row % 5 == 0 { None } else { Some(row % 3 > 0) }).collect();
    let of_group = |group: usize, is_filtered: bool| {
        let is_counted = |row: usize| {
            groups[row] == group && (!is_filtered || (filter.is_valid(row) && filter.value(row)))
        };
        let found = values.iter().enumerate();
        expected(found.map(|(row, value)| value.filter(|_| is_counted(row))))
    };
    let accumulator = || GroupedIntegerSums { sums: Vec::new(), seen: NullState::new() };
    for is_filtered in [false, true] {
        let filter = is_filtered.then_some(&filter);
        let expected: Vec<Option<i128>> = (0..37).map(|group| of_group(group, is_filtered)).collect();
        let sums = |of: &ArrayRef| of.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>();

        let mut direct = accumulator();
        direct.update_batch(&array(values.clone()), &groups, filter, 37).unwrap();
        let state = direct.state(EmitTo::All).unwrap();
        assert_eq!(sums(&state[0]), expected);
        assert_eq!(*state[0].data_type(), SUM);

        let mut merged = accumulator();
        merged.merge_batch(&state, &(0..37).collect::<Vec<_>>(), 37).unwrap();
        assert_eq!(sums(&merged.evaluate(EmitTo::First(20)).unwrap()), expected[..20]);
        assert_eq!(sums(&merged.evaluate(EmitTo::All).unwrap()), expected[20..]);

        let mut converted = accumulator();
        let states = converted.convert_to_state(&array(values.clone()), filter).unwrap();
        converted.merge_batch(&states, &groups, 37).unwrap();
        assert_eq!(sums(&converted.evaluate(EmitTo::All).unwrap()), expected);
    }
}
