//! Keys of dimensions as conditions on the scan of the fact.
//!
//! A star join reads its dimensions before it asks the fact for rows, so it knows then which keys can join. A
//! scan of the fact may use them to leave out blocks whose minimum and maximum have none of them, or rows; rows
//! that it does not leave out are probed as ever.
//!
//! The interface is DataFusion's, that of dynamic filters. When the star join is planned,
//! [`offered`](crate::planner::key_filters::offers::offered) follows nodes down from the fact to its scan, and calls
//! the scan's `handle_child_pushdown_result` with phase `Post` and one filter for each dimension whose
//! key is a column of the scan. A scan that takes them:
//!
//! - returns an `updated_node` that holds these filters beside those that it has; whether it answers `Yes` or `No` makes no difference;
//! - calls [`DynamicFilterPhysicalExpr::current`] in or after `execute`, which comes when all dimensions of this
//!   execution are known: the condition is `false` if no key can join, else
//!   `key >= min AND key <= max AND key IN keys of NAME`, and the literals have the type of the column;
//! - may find the set itself by downcast of the last term to [`KeySetExpr`]: [`KeySetExpr::keys`] has a bitmap
//!   of keys in a small range, and [`KeyMap::contains`] for all;
//! - holds the filters through `repartitioned`, and has no limit: it would count rows that are left out.
//!
//! A condition is a conjunct: filters of several dimensions are to be met together.

use crate::planner::star::keys::{KeyColumn, KeyMap};
use crate::planner::star::tree::column;
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, Literal};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Condition that a key column has a key of a dimension; NULL has none.
#[derive(Debug, Clone)]
pub(crate) struct KeySetExpr {
    column: Arc<dyn PhysicalExpr>,
    keys: Arc<KeyMap>,
    /// Name of the dimension.
    name: String,
}

impl KeySetExpr {
    /// Column of the scan.
    pub(crate) fn column(&self) -> &Arc<dyn PhysicalExpr> {
        &self.column
    }

    /// Keys of the dimension.
    pub(crate) fn keys(&self) -> &Arc<KeyMap> {
        &self.keys
    }
}

impl PartialEq for KeySetExpr {
    fn eq(&self, other: &KeySetExpr) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys) && self.column.eq(&other.column)
    }
}

impl Eq for KeySetExpr {}

impl Hash for KeySetExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
        Arc::as_ptr(&self.keys).hash(state);
    }
}

impl fmt::Display for KeySetExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IN {} keys of {}", self.column, self.keys.distinct(), self.name)
    }
}

impl PhysicalExpr for KeySetExpr {
    fn return_field(&self, _schema: &Schema) -> DFResult<FieldRef> {
        Ok(Arc::new(Field::new("is_key", DataType::Boolean, false)))
    }

    fn evaluate(&self, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        let values = self.column.evaluate(batch)?.into_array(batch.num_rows())?;
        let keys = KeyColumn::of(&values)?;
        let found = BooleanBuffer::collect_bool(batch.num_rows(), |row| {
            keys.get(row).is_some_and(|key| self.keys.contains(key))
        });
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(found, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.column]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DFResult<Arc<dyn PhysicalExpr>> {
        let column = children.pop().unwrap_or_else(|| Arc::clone(&self.column));
        Ok(Arc::new(KeySetExpr { column, keys: Arc::clone(&self.keys), name: self.name.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Condition on a column of the fact, true until the dimension is read.
pub(crate) fn filter(name: &str, key: usize) -> Arc<DynamicFilterPhysicalExpr> {
    let always = Arc::new(Literal::new(ScalarValue::from(true)));
    Arc::new(DynamicFilterPhysicalExpr::new(vec![column(name, key)], always))
}

/// Makes the keys of a dimension known to its filter.
pub(crate) fn publish(
    filter: &DynamicFilterPhysicalExpr,
    keys: &Arc<KeyMap>,
    data_type: &DataType,
    name: &str,
) -> DFResult<()> {
    let [key] = filter.children()[..] else {
        return internal_err!("the filter of dimension {name} has another number of columns than one");
    };
    let expr: Arc<dyn PhysicalExpr> = match bounds(keys, data_type)? {
        None => Arc::new(Literal::new(ScalarValue::from(false))),
        Some((min, max)) => {
            let compared = |op, bound| -> Arc<dyn PhysicalExpr> {
                Arc::new(BinaryExpr::new(Arc::clone(key), op, Arc::new(Literal::new(bound))))
            };
            let both = |one, other| -> Arc<dyn PhysicalExpr> {
                Arc::new(BinaryExpr::new(one, Operator::And, other))
            };
            let within = both(compared(Operator::GtEq, min), compared(Operator::LtEq, max));
            let set = KeySetExpr { column: Arc::clone(key), keys: Arc::clone(keys), name: name.to_owned() };
            both(within, Arc::new(set))
        }
    };
    filter.update(expr)?;
    filter.mark_complete();
    Ok(())
}

/// Smallest and largest key as values of a type; `None` if it has no value between them.
fn bounds(keys: &KeyMap, data_type: &DataType) -> DFResult<Option<(ScalarValue, ScalarValue)>> {
    let Some((min, max)) = keys.bounds() else { return Ok(None) };
    let (least, greatest) = match data_type {
        DataType::Int8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DataType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DataType::Int32 | DataType::Date32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let (min, max) = (min.max(least), max.min(greatest));
    if min > max {
        return Ok(None);
    }
    let value = |key: i64| -> DFResult<ScalarValue> {
        match data_type {
            // Days are the one type that integers are not cast to; the value is within its range.
            DataType::Date32 => Ok(ScalarValue::Date32(Some(key as i32))),
            other => ScalarValue::Int64(Some(key)).cast_to(other),
        }
    };
    Ok(Some((value(min)?, value(max)?)))
}
