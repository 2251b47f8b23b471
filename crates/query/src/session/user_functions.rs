//! User-defined functions: scalar and aggregate functions in Rust, of the application that opens a database.
//!
//! They belong to the open database and not to its files: the next open has to register again what stored views and topologies
//! call. A topology whose function is missing does not start, and says so.

use crate::error::{Error, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// User-defined functions of a database, which all of its sessions and topologies call by name.
#[derive(Debug, Clone, Default)]
pub struct UserFunctions {
    scalar: Vec<Arc<ScalarUDF>>,
    aggregate: Vec<Arc<AggregateUDF>>,
}

impl UserFunctions {
    /// Adds a scalar function.
    pub fn add_scalar(&mut self, function: impl Into<Arc<ScalarUDF>>) {
        self.scalar.push(function.into());
    }

    /// Adds an aggregate function.
    pub fn add_aggregate(&mut self, function: impl Into<Arc<AggregateUDF>>) {
        self.aggregate.push(function.into());
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.scalar.is_empty() && self.aggregate.is_empty()
    }

    /// Names and aliases of the functions, in the order in which they were added.
    fn names(&self) -> impl Iterator<Item = &str> {
        let scalar = self.scalar.iter().flat_map(|function| {
            std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str))
        });
        let aggregate = self.aggregate.iter().flat_map(|function| {
            std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str))
        });
        scalar.chain(aggregate)
    }

    /// Checks that SQL can call each function, and no other has its name, in a context without them.
    pub(crate) fn check(&self, context: &SessionContext) -> Result<()> {
        let mut names = Vec::new();
        for name in self.names() {
            let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
            let is_other = |c: char| is_first(c) || c.is_ascii_digit();
            if !name.starts_with(is_first) || !name.chars().all(is_other) {
                return Err(Error::coded(
                    "42602",
                    format!(
                        "user-defined function \"{name}\": its name has to be lower-case letters, digits and underscores"
                    ),
                ));
            }
            let is_known =
                context.udf(name).is_ok() || context.udaf(name).is_ok() || context.udwf(name).is_ok();
            if is_known || names.contains(&name) {
                return Err(Error::coded(
                    "42723",
                    format!("user-defined function \"{name}\": there is a function of this name"),
                ));
            }
            names.push(name);
        }
        Ok(())
    }

    /// Registers the functions.
    pub(crate) fn register(&self, context: &SessionContext) {
        self.scalar.iter().for_each(|function| context.register_udf(function.as_ref().clone()));
        self.aggregate.iter().for_each(|function| context.register_udaf(function.as_ref().clone()));
    }
}
