//! CREATE INDEX ... USING elf: an index of several columns of a table with the layout `columns`.
//!
//! `WITH (dimension_order = 'auto')` lets each row group order the columns by the number of their different values;
//! the default is `written`, as the statement names them, since the columns that queries have conditions on should
//! come first, and only the user knows those. `cache = 'lists'` leaves the index where it is stored and caches some of its
//! lists: `cache_percent` of its bytes, which `cache_policy` chooses, MonoLists among them if `cache_monolists`.

use crate::ddl::owned_tables;
use crate::ddl::table_definition::{ascending, column_indexes, index_name};
use crate::ddl::table_options::text_of;
use crate::error::{Error, Result};
use crate::parser::names::{refuse, table_name};
use crate::session::cancellation::CancelOnDrop;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::notices::is_storage;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CreateIndex, Expr, IndexType};
use entresol_structures::elf::{ListPolicy, ParseListPolicyError};
use entresol_tables::{DimensionOrder, ElfCaching, Error as TableError};
use std::sync::Arc;

/// Name of the access method.
const ELF: &str = "elf";
/// Name of the parameter for the order of dimensions.
const DIMENSION_ORDER: &str = "dimension_order";
/// Bytes of cached lists, in percent, unless they are given.
const CACHE_PERCENT_DEFAULT: u8 = 10;

/// Tells whether a statement creates an Elf.
pub(crate) fn is_elf(create: &CreateIndex) -> bool {
    matches!(&create.using, Some(IndexType::Custom(name)) if name.value.eq_ignore_ascii_case(ELF))
}

/// Creates the index; it is complete and in use then.
pub(crate) async fn create(session: &SessionCore, create: &CreateIndex) -> Result<()> {
    refuse(
        "CREATE INDEX ... USING elf",
        &[
            (create.unique, "UNIQUE"),
            (!create.include.is_empty(), "INCLUDE"),
            (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
            (create.predicate.is_some(), "WHERE"),
            (!create.index_options.is_empty() || !create.alter_options.is_empty(), "an option"),
        ],
    )?;
    let parameters = Parameters::read(session, &create.with)?;
    let (order, caching) = (parameters.order.unwrap_or_default(), parameters.caching()?);
    let table = session.catalog.table(&table_name(&create.table_name)?)?;
    owned_tables::check_indexable(session, &table)?;
    let columns = column_indexes(table.name(), table.schema(), &ascending(session, &create.columns))?;
    let name = match &create.name {
        Some(name) => table_name(name)?,
        None => index_name(session, table.name(), table.definition(), &columns, "idx"),
    };
    let (catalog, statement) = (Arc::clone(&session.catalog), session.running.statement());
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let of = (columns, order, caching);
    let created = blocking(move || catalog.create_elf(&statement, table.name(), &name, of)).await;
    stops.done();
    match created? {
        Err(TableError::RelationExists { .. }) if create.if_not_exists => Ok(()),
        created => Ok(created?),
    }
}

/// Parameters of an index, or of the Elf that holds the rows of a table.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    order: Option<DimensionOrder>,
    /// True if lists are cached.
    lists: Option<bool>,
    policy: Option<ListPolicy>,
    percent: Option<u8>,
    mono_lists: Option<bool>,
}

impl Parameters {
    /// Reads the parameters; storage parameters have no effect, as a notice says.
    fn read(session: &SessionCore, parameters: &[Expr]) -> Result<Parameters> {
        let mut read = Parameters::default();
        for parameter in parameters {
            let named = match parameter {
                Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match &**left {
                    Expr::Identifier(name) => Some((name.value.as_str(), right)),
                    _ => None,
                },
                _ => None,
            };
            let Some((name, value)) = named else {
                return Err(Error::unsupported(format!("{parameter} in CREATE INDEX")));
            };
            if is_storage(name) {
                session.storage_notice(std::iter::once(name));
            } else if read.set(&name.to_ascii_lowercase(), &text_of(value))? {
                return Err(Error::coded("42601", format!("parameter \"{name}\" specified more than once")));
            }
        }
        Ok(read)
    }

    /// Sets a parameter; true if it was set before.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<bool> {
        Ok(match name {
            DIMENSION_ORDER => self.order.replace(order_of(text)?).is_some(),
            ElfCaching::CACHE => {
                let is_lists = match text {
                    "whole" => false,
                    "lists" => true,
                    _ => return Err(invalid(name, text, "whole or lists")),
                };
                self.lists.replace(is_lists).is_some()
            }
            ElfCaching::POLICY => {
                let policy = text.parse().map_err(|error: ParseListPolicyError| {
                    Error::coded("22023", format!("parameter \"{name}\": {error}"))
                })?;
                self.policy.replace(policy).is_some()
            }
            ElfCaching::PERCENT => {
                let percent = text.parse().ok().filter(|percent| (1..=100).contains(percent));
                let percent = percent.ok_or_else(|| invalid(name, text, "1 to 100"))?;
                self.percent.replace(percent).is_some()
            }
            ElfCaching::MONO_LISTS => {
                let is_wanted = text.parse().map_err(|_| invalid(name, text, "true or false"))?;
                self.mono_lists.replace(is_wanted).is_some()
            }
            _ => return Err(Error::coded("22023", format!("unrecognized parameter \"{name}\""))),
        })
    }

    /// Part of the Elf that is cached.
    pub(crate) fn caching(&self) -> Result<ElfCaching> {
        if self.lists != Some(true) {
            let of_lists = [
                (ElfCaching::POLICY, self.policy.is_some()),
                (ElfCaching::PERCENT, self.percent.is_some()),
                (ElfCaching::MONO_LISTS, self.mono_lists.is_some()),
            ];
            return match of_lists.iter().find(|(_, is_set)| *is_set) {
                Some((name, _)) => {
                    Err(Error::coded("22023", format!("parameter \"{name}\" needs cache = 'lists'")))
                }
                None => Ok(ElfCaching::Whole),
            };
        }
        Ok(ElfCaching::Lists {
            policy: self.policy.unwrap_or_default(),
            percent: self.percent.unwrap_or(CACHE_PERCENT_DEFAULT),
            mono_lists: self.mono_lists.unwrap_or(false),
        })
    }
}

fn invalid(name: &str, text: &str, expected: &str) -> Error {
    Error::coded("22023", format!("invalid value for parameter \"{name}\": \"{text}\"; {expected}"))
}

fn order_of(text: &str) -> Result<DimensionOrder> {
    let known = DimensionOrder::ALL.into_iter().find(|order| order.name().eq_ignore_ascii_case(text));
    known.ok_or_else(|| invalid(DIMENSION_ORDER, text, "written or auto"))
}
