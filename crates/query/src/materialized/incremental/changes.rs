//! Changes of groups, from rows of the table into the tables of the state and of the view.

use super::aggregates::{GroupTotals, Total};
use super::expressions::{RowExpression, Rows, value_of};
use super::{IncrementalView, KEY_TEXT_MAX};
use crate::dml::assignment;
use crate::error::{Error, Result};
use crate::materialized::maintenance::{GUARDS, write_guards};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use datafusion::arrow::array::ArrayRef;
use entresol_tables::{DataType, Index, Row, Table, Value, decimal, fitted};
use entresol_transactions::Transaction;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Groups that change.
pub(super) struct Changes<'v> {
    view: &'v IncrementalView,
    /// Place of a group, by its key.
    known: HashMap<Arc<[u8]>, usize>,
    groups: Vec<ChangedGroup>,
}

/// Change of a group; with what is stored of it, its state.
struct ChangedGroup {
    key: Arc<[u8]>,
    /// Values that the view groups by, and room for the results of the aggregates.
    values: Row,
    totals: GroupTotals,
}

/// Stored state of a group.
struct StoredGroup {
    row: Option<i64>,
    totals: GroupTotals,
}

/// Key of a group in the state table, and what it was made of if that is longer.
struct StateKey {
    key: Value,
    whole: Value,
}

impl StateKey {
    fn of(group: &[u8]) -> StateKey {
        let text = STANDARD_NO_PAD.encode(group);
        if text.len() <= KEY_TEXT_MAX {
            return StateKey { key: Value::varchar(text), whole: Value::Null };
        }
        let digest = md5::compute(text.as_bytes());
        let key = format!("{}#{digest:x}", &text[..KEY_TEXT_MAX - 33]);
        StateKey { key: Value::varchar(key), whole: Value::varchar(text) }
    }
}

/// Rows that are written into the table of a view and that of its state, and deleted there, by key.
#[derive(Default)]
struct ChangedRows {
    /// Rows of groups that had none in the view.
    added: Vec<Row>,
    /// Others, with what the view groups by as before.
    replaced: Vec<Row>,
    hidden: Vec<Row>,
    states: Vec<Row>,
    gone: Vec<Row>,
    guards: BTreeSet<u64>,
}

impl<'v> Changes<'v> {
    pub(super) fn new(view: &'v IncrementalView) -> Changes<'v> {
        Changes { view, known: HashMap::new(), groups: Vec::new() }
    }

    /// Adds rows of the table to their groups, or takes them away: 1 and -1.
    pub(super) fn add(&mut self, table: &Table, rows: &[(&Row, i64)]) -> Result<()> {
        let view = self.view;
        let columns = view.columns.iter().enumerate().map(|(at, column)| {
            if !view.read.uses(at) {
                // It may be gone, and is not read.
                return Ok(0);
            }
            let found = table.schema().columns().iter().position(|known| known.name == *column);
            found.ok_or_else(|| Error::Internal(format!("table {} has no column {column}", table.name())))
        });
        let columns = columns.collect::<Result<Vec<usize>>>()?;
        let mut read = Rows::new(&view.read, &columns, rows.iter().map(|(row, _)| *row));
        read.filter(&view.conditions)?;
        if read.len() == 0 {
            return Ok(());
        }
        let places = self.places_of(&read)?;
        let signs: Vec<i64> = read.passed().iter().map(|&row| rows[row].1).collect();
        places.iter().zip(&signs).for_each(|(&place, sign)| self.groups[place].totals.rows += sign);
        for (at, aggregate) in view.aggregates.iter().enumerate() {
            for (row, value) in aggregate.values(&read)?.into_iter().enumerate() {
                let Some(value) = value else { continue };
                let total = &mut self.groups[places[row]].totals.totals[at];
                total.count += signs[row];
                total.sum = i128::from(signs[row])
                    .checked_mul(value)
                    .and_then(|value| total.sum.checked_add(value))
                    .ok_or_else(|| view.overflows())?;
            }
        }
        Ok(())
    }

    /// Places of the groups of rows.
    fn places_of(&mut self, rows: &Rows<'_>) -> Result<Vec<usize>> {
        let Some(converter) = &self.view.converter else {
            return Ok(vec![self.place_of(&[], || Ok(Vec::new()))?; rows.len()]);
        };
        let groups = &self.view.groups;
        let arrays = groups.iter().map(|group| rows.array(group)).collect::<Result<Vec<_>>>()?;
        let keys = converter.convert_columns(&arrays)?;
        (0..rows.len())
            .map(|row| self.place_of(keys.row(row).data(), || values_of(rows, row, groups, &arrays)))
            .collect()
    }

    /// Place of the group with a key; a new one has these values.
    fn place_of(&mut self, key: &[u8], values: impl FnOnce() -> Result<Row>) -> Result<usize> {
        if let Some(place) = self.known.get(key) {
            return Ok(*place);
        }
        let (key, place): (Arc<[u8]>, usize) = (Arc::from(key), self.groups.len());
        let totals = GroupTotals::none(self.view.aggregates.len());
        self.groups.push(ChangedGroup { key: Arc::clone(&key), values: values()?, totals });
        self.known.insert(key, place);
        Ok(place)
    }

    /// Adds the group of a view without GROUP BY, which is there without rows too.
    pub(super) fn add_empty(&mut self) -> Result<()> {
        self.place_of(&[], || Ok(Vec::new())).map(drop)
    }

    /// Adds the changes to the stored groups, and stores what follows for the view.
    pub(super) fn apply(mut self, transaction: &Transaction) -> Result<()> {
        if !self.view.groups.is_empty() {
            // Some lose as much as they get.
            self.groups.retain(|group| !group.totals.is_none());
        }
        if self.groups.is_empty() {
            return Ok(());
        }
        let (held, state) = (self.view.catalog.table(&self.view.view)?, self.view.state()?);
        let keys: Vec<StateKey> = self.groups.iter().map(|group| StateKey::of(&group.key)).collect();
        let stored = stored(transaction, &state, &keys)?;
        for (group, stored) in self.groups.iter_mut().zip(&stored) {
            if let Some(stored) = stored {
                group.totals.add(&stored.totals).ok_or_else(|| self.view.overflows())?;
            }
        }
        let rows = self.rows(&held)?;
        let changed = self.changed_rows(&held, keys, stored, rows)?;
        changed.write(transaction, &held, &state, self.view)
    }

    /// Changed rows of both tables, by what is stored of the groups and by their new rows in the view, where they have one.
    fn changed_rows(
        &self,
        held: &Table,
        keys: Vec<StateKey>,
        stored: Vec<Option<StoredGroup>>,
        rows: Vec<Option<Row>>,
    ) -> Result<ChangedRows> {
        let mut changed = ChangedRows::default();
        for (((group, key), stored), row) in self.groups.iter().zip(keys).zip(stored).zip(rows) {
            let was_stored = stored.is_some();
            if !was_stored {
                changed.guards.insert(hash(&group.key) % GUARDS);
            }
            let shown = match (row, stored.and_then(|stored| stored.row)) {
                (None, None) => None,
                (None, Some(rowid)) => {
                    changed.hidden.push(vec![Value::BigInt(rowid)]);
                    None
                }
                (Some(mut row), Some(rowid)) => {
                    row.push(Value::BigInt(rowid));
                    changed.replaced.push(row);
                    Some(rowid)
                }
                (Some(mut row), None) => {
                    let rowid = held.new_row_number()?;
                    row.push(Value::BigInt(rowid));
                    changed.added.push(row);
                    Some(rowid)
                }
            };
            if self.lives(group) {
                changed.states.push(group.state_row(key, shown));
            } else if was_stored {
                changed.gone.push(vec![key.key]);
            }
        }
        Ok(changed)
    }

    /// Tells whether a group has a row, if HAVING lets it through.
    fn lives(&self, group: &ChangedGroup) -> bool {
        group.totals.rows > 0 || self.view.groups.is_empty()
    }

    /// Rows of the view for the groups, without their keys.
    fn rows(&mut self, held: &Table) -> Result<Vec<Option<Row>>> {
        let view = self.view;
        let mut rows = vec![None; self.groups.len()];
        let living: Vec<usize> = (0..rows.len()).filter(|&group| self.lives(&self.groups[group])).collect();
        for &place in &living {
            let group = &mut self.groups[place];
            for (aggregate, total) in view.aggregates.iter().zip(&group.totals.totals) {
                group.values.push(aggregate.result(total).ok_or_else(|| view.overflows())?);
            }
        }
        let aggregated = living.iter().map(|&place| &self.groups[place].values);
        let mut aggregated = Rows::new(&view.aggregated, &view.places, aggregated);
        aggregated.filter(&view.having)?;
        let columns = held.schema().visible_columns();
        // Room for the key.
        let mut shown: Vec<Row> =
            (0..aggregated.len()).map(|_| Vec::with_capacity(columns.len() + 1)).collect();
        shown.iter_mut().for_each(|row| row.resize(columns.len(), Value::Null));
        for (at, (column, expr)) in columns.iter().zip(&view.results).enumerate() {
            if let Some(values) = aggregated.values_for(expr, column.data_type) {
                for (row, value) in shown.iter_mut().zip(values) {
                    if !has_room(column.data_type, &value) {
                        return Err(view.overflows());
                    }
                    row[at] = fitted(held.name(), column, &value)?.into_owned();
                }
                continue;
            }
            let array = aggregated.array(expr)?;
            let put = |row: usize, value| shown[row][at] = value;
            assignment::fill(held.name(), column, &array, &view.zone, put)?;
        }
        for (row, &passed) in shown.into_iter().zip(aggregated.passed()) {
            rows[living[passed]] = Some(row);
        }
        Ok(rows)
    }
}

impl ChangedRows {
    fn write(
        mut self,
        transaction: &Transaction,
        held: &Table,
        state: &Table,
        view: &IncrementalView,
    ) -> Result<()> {
        if !self.hidden.is_empty() {
            held.delete_many(transaction, &self.hidden)?;
        }
        let stays = |index: &Arc<Index>| index.definition().columns.iter().all(|&column| view.stays(column));
        if held.indexes().iter().all(stays) {
            if !self.added.is_empty() {
                held.upsert_many(transaction, &self.added)?;
            }
            held.overwrite_many(transaction, &self.replaced)?;
        } else {
            // Together: a row may take a unique value that another leaves.
            self.replaced.append(&mut self.added);
            held.upsert_many(transaction, &self.replaced)?;
        }
        if !self.gone.is_empty() {
            state.delete_many(transaction, &self.gone)?;
        }
        state.upsert_many(transaction, &self.states)?;
        if self.guards.is_empty() {
            return Ok(());
        }
        write_guards(&view.catalog, transaction, &view.view, self.guards)
    }
}

/// Values of a row that a view groups by; `arrays` have those of all rows.
fn values_of(rows: &Rows<'_>, row: usize, groups: &[RowExpression], arrays: &[ArrayRef]) -> Result<Row> {
    let value = |(group, array): (&RowExpression, &ArrayRef)| match group {
        RowExpression::Column(column) => Ok(rows.value(row, *column).clone()),
        _ => value_of(array, row),
    };
    groups.iter().zip(arrays).map(value).collect()
}

impl ChangedGroup {
    fn state_row(&self, key: StateKey, rowid: Option<i64>) -> Row {
        let mut values = Vec::with_capacity(4 + 2 * self.totals.totals.len());
        let rowid = rowid.map_or(Value::Null, Value::BigInt);
        values.extend([key.key, key.whole, rowid, Value::BigInt(self.totals.rows)]);
        for total in &self.totals.totals {
            values.extend([Value::BigInt(total.count), Value::Decimal(total.sum)]);
        }
        values
    }
}

/// Stored groups with these keys.
fn stored(transaction: &Transaction, state: &Table, keys: &[StateKey]) -> Result<Vec<Option<StoredGroup>>> {
    let wanted: Vec<[Value; 1]> = keys.iter().map(|key| [key.key.clone()]).collect();
    let mut rows: Vec<Option<Row>> = vec![None; keys.len()];
    state.get_many_with(transaction, &wanted, |at, row| rows[at] = Some(row.to_row()))?;
    let stored = rows.into_iter().zip(keys).map(|(row, key)| {
        let Some(row) = row else { return Ok(None) };
        StoredGroup::of(&row, &key.whole).map(Some).ok_or_else(|| {
            Error::Internal(format!("a row of {} is not the state of the group", state.name()))
        })
    });
    stored.collect()
}

impl StoredGroup {
    /// State that a row stores, if it is that of the group with this key.
    fn of(row: &Row, whole_key: &Value) -> Option<StoredGroup> {
        let [_, whole, rowid, Value::BigInt(rows), totals @ ..] = row.as_slice() else { return None };
        let rowid = match rowid {
            Value::BigInt(rowid) => Some(*rowid),
            Value::Null => None,
            _ => return None,
        };
        let totals = totals.chunks(2).map(|total| match total {
            [Value::BigInt(count), Value::Decimal(sum)] => Some(Total { count: *count, sum: *sum }),
            _ => None,
        });
        let totals = totals.collect::<Option<Vec<Total>>>().filter(|_| whole == whole_key)?;
        Some(StoredGroup { row: rowid, totals: GroupTotals { rows: *rows, totals } })
    }
}

/// Tells whether a type has as many digits as a value, which is of its scale.
fn has_room(data_type: DataType, value: &Value) -> bool {
    match (data_type, value) {
        (DataType::Decimal { precision, .. }, Value::Decimal(unscaled)) => {
            decimal::fits(*unscaled, precision)
        }
        _ => true,
    }
}

/// Hash of a group, for its guard.
fn hash(key: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}
