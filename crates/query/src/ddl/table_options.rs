//! Table options: `WITH (history = '7 days', changes = '1 hour', placement = 'dram')`, and `ALTER TABLE t SET (...)`.
//!
//! | option | values | can be changed |
//! | --- | --- | --- |
//! | `history` | a time, `forever`, `off` ([`crate::planner::time_travel`]) | yes |
//! | `changes` | as `history`: retention of the changes that CHANGES and SUBSCRIBE read | yes |
//! | `placement` | `dram`, `pmem`, `disk`, `auto` | no |
//! | `layout` | `rows`, `columns`, `clustered`, `elf`, `auto` (one of the first three, by the workload) | yes, which moves the rows ([`crate::ddl::layout`]) |
//! | `structure` | that of the rows' index, by name, or `auto`: the cost model's; `USING name` says the same | no |
//! | `node_bytes` | bytes of the nodes of that structure, of those that have a choice | no |
//! | `protocol` | `mvcc`, `mvcc_chains`, `s2pl`, `bocc` | no |
//! | `versions` | version slots of a row with `mvcc`, 2 to 64 | no |
//! | `hot_bytes` | DRAM for the hot entries of the rows' index, as `'64 MB'` | no |
//! | `cluster_by`, `interleave`, `split`, `block_bytes` | see [`crate::ddl::clustering`] | yes, which writes the blocks anew |
//! | `elf_by`, `cache`, `cache_policy`, `cache_percent`, `cache_monolists` | see [`crate::ddl::elf_layout`] | yes; other dimensions write the row groups anew |
//! | `object_store` | `file://` or `s3://` URL of the store of row groups, or `none` | yes, which moves them in the background; not of layout `clustered` |
//! | PostgreSQL's storage parameters | any; they have no effect, as a notice says | yes |

use crate::ddl::clustering::DeclaredClustering;
use crate::ddl::elf_layout::DeclaredElf;
use crate::error::{Error, Result};
use crate::session::notices::is_storage;
use datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::sql::sqlparser::ast::{CreateTable, CreateTableOptions, Expr, SqlOption, Value as Literal};
use entresol_memory::budget::MemorySize;
use entresol_structures::IndexStructure;
use entresol_tables::{Catalog, Retention, Table, TableDefinition, TableLayout};
use entresol_transactions::{Protocol, TierChoice, VERSION_SLOTS_MAX, VERSION_SLOTS_MIN};

/// PostgreSQL's only access method of tables.
const HEAP: &str = "heap";
/// Name of the option of the bytes of nodes, of tables and indexes.
pub(crate) const NODE_BYTES: &str = "node_bytes";
/// Name of the option of the bytes for hot entries, of tables and unique indexes.
pub(crate) const HOT_BYTES: &str = "hot_bytes";
/// Name for the structure that the cost model chooses.
const AUTO: &str = "auto";
/// Structures that tables cannot have, and why.
const OTHER_STRUCTURES: [(&str, &str); 3] = [
    ("hash", "a hash table has no order of keys, and tables are read by ranges"),
    ("elf", "an Elf is a layout, WITH (layout = 'elf'), or an index of a table with row groups"),
    ("btree", "a table is not an index; its primary key has one already"),
];

/// Table options in a statement.
#[derive(Debug, Default)]
pub(crate) struct DeclaredOptions {
    /// `Some(None)`: no history.
    pub(crate) history: Option<Option<Retention>>,
    /// `Some(None)`: no change log.
    pub(crate) changes: Option<Option<Retention>>,
    pub(crate) placement: Option<TierChoice>,
    pub(crate) layout: Option<LayoutChoice>,
    pub(crate) clustering: DeclaredClustering,
    pub(crate) elf: DeclaredElf,
    pub(crate) structure: Option<DeclaredStructure>,
    pub(crate) node_bytes: Option<u16>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) versions: Option<u8>,
    pub(crate) hot_bytes: Option<u64>,
    /// `Some(None)`: the pool.
    pub(crate) object_store: Option<Option<String>>,
}

/// Layout that a statement asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayoutChoice {
    /// This one.
    Layout(TableLayout),
    /// Rows at first, then what the workload asks for.
    Auto,
}

impl LayoutChoice {
    /// Layout of a new table, and whether it follows the workload.
    pub(crate) fn of_new_table(choice: Option<LayoutChoice>) -> (TableLayout, bool) {
        match choice {
            None => (TableLayout::default(), false),
            Some(LayoutChoice::Layout(layout)) => (layout, false),
            Some(LayoutChoice::Auto) => (TableLayout::Rows, true),
        }
    }
}

/// Structure that a statement asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeclaredStructure {
    /// This one.
    Structure(IndexStructure),
    /// Structure that the cost model chooses when the table is created.
    Auto,
}

/// SequenceOptions of a CREATE TABLE.
pub(crate) fn declared_options(create: &CreateTable) -> Result<DeclaredOptions> {
    match &create.table_options {
        CreateTableOptions::With(options) => table_options("CREATE TABLE", options),
        _ => Ok(DeclaredOptions::default()),
    }
}

/// Parses the options of a statement.
pub(crate) fn table_options(verb: &str, options: &[SqlOption]) -> Result<DeclaredOptions> {
    let mut declared = DeclaredOptions::default();
    for option in options {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(Error::unsupported(format!("{option} in {verb}")));
        };
        let name = key.value.to_ascii_lowercase();
        let is_named_twice = match name.as_str() {
            name if is_storage(name) => false,
            name @ "history" => declared.history.replace(retention_of(name, &text_of(value))?).is_some(),
            name @ "changes" => declared.changes.replace(retention_of(name, &text_of(value))?).is_some(),
            "layout" => declared.layout.replace(layout_of(&text_of(value))?).is_some(),
            "structure" => declared.structure.replace(structure_of(&text_of(value))?).is_some(),
            name @ NODE_BYTES => declared.node_bytes.replace(node_bytes_of(name, &text_of(value))?).is_some(),
            "protocol" => declared.protocol.replace(protocol_of(&text_of(value))?).is_some(),
            "versions" => declared.versions.replace(versions_of(&text_of(value))?).is_some(),
            HOT_BYTES => declared.hot_bytes.replace(hot_bytes_of(&text_of(value))?).is_some(),
            "object_store" => declared.object_store.replace(object_store_of(&text_of(value))).is_some(),
            "placement" => declared.placement.replace(placement_of(&text_of(value))?).is_some(),
            name => {
                let text = text_of(value);
                let of_clustering = declared.clustering.take(name, &text)?;
                let taken =
                    of_clustering.map_or_else(|| declared.elf.take(name, &text), |is| Ok(Some(is)))?;
                taken.ok_or_else(|| {
                    Error::coded("22023", format!("unrecognized parameter \"{}\"", key.value))
                })?
            }
        };
        if is_named_twice {
            return Err(Error::coded("42601", format!("parameter \"{name}\" specified more than once")));
        }
    }
    Ok(declared)
}

/// Names of options.
pub(crate) fn option_names(options: &[SqlOption]) -> impl Iterator<Item = &str> {
    options.iter().filter_map(|option| match option {
        SqlOption::KeyValue { key, .. } => Some(key.value.as_str()),
        _ => None,
    })
}

impl DeclaredStructure {
    /// Returns true if a table has it.
    fn is_that_of(self, table: &Table) -> bool {
        match self {
            DeclaredStructure::Structure(structure) => structure == table.definition().structure,
            DeclaredStructure::Auto => table.definition().structure_reason.is_some(),
        }
    }
}

impl DeclaredOptions {
    /// Gives a new table its structure. All else that it is chosen by has to be in the definition.
    pub(crate) fn set_structure(&self, catalog: &Catalog, definition: &mut TableDefinition) -> Result<()> {
        match self.structure {
            None => {}
            Some(DeclaredStructure::Structure(structure)) => definition.structure = structure,
            Some(DeclaredStructure::Auto) => {
                let choice = catalog.choose_structure(definition)?;
                (definition.structure, definition.structure_reason) = (choice.structure, Some(choice.why));
            }
        }
        definition.node_bytes = chosen_node_bytes(definition.structure, self.node_bytes)?;
        Ok(())
    }

    /// Object store that a table gets by ALTER TABLE; the outer none if it stays. An error if the table, with the layout that
    /// the options give it, cannot get it: before anything happens.
    pub(crate) fn new_object_store(&self, table: &Table) -> Result<Option<Option<String>>> {
        let Some(wanted) = &self.object_store else { return Ok(None) };
        let definition = table.definition();
        if definition.object_store == *wanted {
            return Ok(None);
        }
        let (layout, is_auto) = match self.layout {
            Some(LayoutChoice::Layout(layout)) => (layout, false),
            Some(LayoutChoice::Auto) => (definition.layout, true),
            None => (definition.layout, definition.auto_layout),
        };
        let table = table.name().to_owned();
        match layout {
            TableLayout::Clustered => Err(entresol_tables::Error::ObjectStoreFixed { table }.into()),
            TableLayout::Rows if !is_auto && wanted.is_some() => {
                Err(entresol_tables::Error::ObjectStoreOfRows { table }.into())
            }
            _ => Ok(Some(wanted.clone())),
        }
    }

    /// Returns an error if what is fixed differs from the table's: its rows would have to move.
    pub(crate) fn check_placement_of(&self, table: &Table) -> Result<()> {
        let placement = table.definition().placement;
        if self.placement.is_some_and(|wanted| wanted != placement) {
            let table = table.name().to_owned();
            return Err(entresol_tables::Error::PlacementFixed { table, placement }.into());
        }
        let fixed = [
            ("structure", self.structure.is_some_and(|wanted| !wanted.is_that_of(table))),
            ("node_bytes", self.node_bytes.is_some_and(|wanted| !is_size_of(wanted, table))),
            ("protocol", self.protocol.is_some_and(|wanted| wanted != table.state().protocol())),
            ("versions", self.versions.is_some() && self.versions != table.definition().version_slots),
            (HOT_BYTES, self.hot_bytes.is_some()),
        ];
        if let Some((name, _)) = fixed.into_iter().find(|(_, changes)| *changes) {
            let message = format!("{name} of table {} cannot be changed", table.name());
            return Err(Error::coded("0A000", format!("{message}: create another table and copy the rows")));
        }
        Ok(())
    }
}

/// URL of an object store; none if the text says that there is none.
fn object_store_of(text: &str) -> Option<String> {
    (!text.eq_ignore_ascii_case("none")).then(|| text.to_owned())
}

fn layout_of(text: &str) -> Result<LayoutChoice> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(LayoutChoice::Auto);
    }
    // One row is as good a name.
    let name = if text.eq_ignore_ascii_case("row") { TableLayout::Rows.name() } else { text };
    let known = TableLayout::ALL.into_iter().find(|layout| layout.name().eq_ignore_ascii_case(name));
    known.map(LayoutChoice::Layout).ok_or_else(|| {
        let message = format!("invalid value for parameter \"layout\": \"{text}\"");
        Error::coded("22023", format!("{message}; rows, columns, clustered, elf or auto"))
    })
}

/// Structure of the index of a table's rows. PostgreSQL's name for the default is one, too.
fn structure_of(text: &str) -> Result<DeclaredStructure> {
    if text.eq_ignore_ascii_case(AUTO) {
        return Ok(DeclaredStructure::Auto);
    }
    if text.eq_ignore_ascii_case(HEAP) {
        return Ok(DeclaredStructure::Structure(IndexStructure::default()));
    }
    if let Ok(structure) = text.parse() {
        return Ok(DeclaredStructure::Structure(structure));
    }
    let names = IndexStructure::ALL.map(IndexStructure::name).join(", ");
    let of_another_kind = OTHER_STRUCTURES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    Err(match of_another_kind {
        Some((name, reason)) => {
            Error::coded("0A000", format!("USING {name} for a table: {reason}; use {names}"))
        }
        None => Error::coded(
            "42704",
            format!("access method \"{text}\" does not exist; there are {names}, {AUTO}"),
        ),
    })
}

/// Bytes of nodes as a statement says them.
pub(crate) fn node_bytes_of(name: &str, text: &str) -> Result<u16> {
    let message = || format!("invalid value for parameter \"{name}\": \"{text}\"; a number of bytes, as 512");
    text.parse().map_err(|_| Error::coded("22023", message()))
}

/// Bytes of the nodes of a structure that a definition has: none if the structure takes as many itself.
pub(crate) fn chosen_node_bytes(structure: IndexStructure, bytes: Option<u16>) -> Result<Option<u16>> {
    structure.chosen_node_bytes(bytes).map_err(|error| Error::coded("22023", error.to_string()))
}

/// Returns true if the nodes of a table's structure have so many bytes.
fn is_size_of(bytes: u16, table: &Table) -> bool {
    let definition = table.definition();
    definition.structure.chosen_node_bytes(Some(bytes)).is_ok_and(|chosen| chosen == definition.node_bytes)
}

fn protocol_of(text: &str) -> Result<Protocol> {
    text.parse().map_err(|_| {
        let message = format!("invalid value for parameter \"protocol\": \"{text}\"");
        let names = Protocol::ALL.map(Protocol::name).join(", ");
        Error::coded("22023", format!("{message}; {names}"))
    })
}

fn versions_of(text: &str) -> Result<u8> {
    let possible = VERSION_SLOTS_MIN..=VERSION_SLOTS_MAX;
    let number = text.parse::<u8>().ok().filter(|slots| possible.contains(&usize::from(*slots)));
    number.ok_or_else(|| {
        let message = format!("invalid value for parameter \"versions\": \"{text}\"");
        Error::coded("22023", format!("{message}; {VERSION_SLOTS_MIN} to {VERSION_SLOTS_MAX}"))
    })
}

pub(crate) fn hot_bytes_of(text: &str) -> Result<u64> {
    match text.parse() {
        Ok(MemorySize::Bytes(bytes)) => Ok(bytes),
        _ => {
            let message = format!("invalid value for parameter \"hot_bytes\": \"{text}\"");
            Err(Error::coded("22023", format!("{message}; a number of bytes, as '64 MB'")))
        }
    }
}

fn placement_of(text: &str) -> Result<TierChoice> {
    text.parse().map_err(|_| {
        let message = format!("invalid value for parameter \"placement\": \"{text}\"");
        Error::coded("22023", format!("{message}; dram, pmem, disk or auto"))
    })
}

/// String of a value: quoted or not.
pub(crate) fn text_of(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(word) => word.value.clone(),
        other => other.to_string(),
    }
}

/// Seconds of a day, and days of a month where an interval has some: as PostgreSQL counts them.
const DAY_SECONDS: i128 = 86_400;
const MONTH_DAYS: i128 = 30;

/// Value of the parameter `history` or `changes`; `None`: neither history nor log.
pub(crate) fn retention_of(parameter: &str, text: &str) -> Result<Option<Retention>> {
    match text.to_ascii_lowercase().as_str() {
        "off" | "none" | "false" => return Ok(None),
        "forever" => return Ok(Some(Retention::Forever)),
        _ => {}
    }
    let wrong = || {
        let message = format!("invalid value for parameter \"{parameter}\": \"{text}\"");
        Error::coded("22023", format!("{message}; use an interval such as '7 days', forever or off"))
    };
    let parsed = parse_interval_month_day_nano(text).map_err(|_| wrong())?;
    let days = i128::from(parsed.months) * MONTH_DAYS + i128::from(parsed.days);
    let nanos = days * DAY_SECONDS * 1_000_000_000 + i128::from(parsed.nanoseconds);
    match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Ok(Some(Retention::For(std::time::Duration::from_nanos(nanos)))),
        _ => Err(wrong()),
    }
}
