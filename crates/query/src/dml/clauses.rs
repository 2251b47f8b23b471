//! SET and conditions that are computed from rows of relations: those of ON CONFLICT and of MERGE.

use crate::dml::assignment;
use crate::dml::computation::Computation;
use crate::dml::expressions::{Item, Relations, check_boolean};
use crate::dml::identity;
use crate::dml::source;
use crate::error::Result;
use crate::session::core::SessionCore;
use datafusion::arrow::array::{Array, AsArray, BooleanArray};
use datafusion::arrow::compute::{cast, prep_null_mask_filter};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{Assignment, Expr};
use entresol_tables::Table;

/// SET clause, ready to be computed.
pub(crate) struct SetClause {
    /// Columns on the left.
    pub(crate) assigned: Vec<usize>,
    /// Their values.
    pub(crate) values: Computation,
}

impl SetClause {
    /// Plans the assignments to columns of a table.
    pub(crate) async fn new(
        session: &SessionCore,
        table: &Table,
        relations: Relations<'_>,
        assignments: &[Assignment],
    ) -> Result<SetClause> {
        let assigned = source::assigned_columns(table, assignments)?;
        let given = assignments.iter().map(|assignment| &assignment.value);
        identity::check_assigned(&session.catalog, table, assigned.iter().copied().zip(given))?;
        let mut items = Vec::with_capacity(assigned.len());
        for (assignment, &column) in assignments.iter().zip(&assigned) {
            let expr = source::assigned_value(table, column, &assignment.value)?;
            items.push(Item { expr, name: table.schema().columns()[column].name.clone() });
        }
        let values = assigned_values(session, "SET", table, relations, &assigned, &items).await?;
        Ok(SetClause { assigned, values })
    }
}

/// Plans values that are assigned to columns of a table; `what` names their clause in errors.
pub(crate) async fn assigned_values(
    session: &SessionCore,
    what: &'static str,
    table: &Table,
    relations: Relations<'_>,
    assigned: &[usize],
    items: &[Item],
) -> Result<Computation> {
    let values = Computation::new(session, what, relations, items).await?;
    for (field, &column) in values.fields().fields().iter().zip(assigned) {
        assignment::check(table.name(), &table.schema().columns()[column], field.data_type())?;
    }
    Ok(values)
}

/// Condition, ready to be computed.
pub(crate) struct Condition(Computation);

impl Condition {
    /// Plans a condition; `what` names its clause in errors.
    pub(crate) async fn new(
        session: &SessionCore,
        what: &'static str,
        relations: Relations<'_>,
        condition: &Expr,
    ) -> Result<Condition> {
        let items = [Item { expr: condition.clone(), name: "condition".to_owned() }];
        let condition = Computation::new(session, what, relations, &items).await?;
        check_boolean(what, condition.fields().field(0).data_type())?;
        Ok(Condition(condition))
    }

    pub(crate) fn computation(&self) -> &Computation {
        &self.0
    }

    /// Returns for each row if it meets the condition; NULL is false.
    pub(crate) async fn of(&self, session: &SessionCore, rows: &RecordBatch) -> Result<BooleanArray> {
        let met = cast(self.0.of(session, rows).await?.column(0), &ArrowType::Boolean)?;
        let met = met.as_boolean();
        Ok(if met.null_count() > 0 { prep_null_mask_filter(met) } else { met.clone() })
    }
}
