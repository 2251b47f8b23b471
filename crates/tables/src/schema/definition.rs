//! Definition of a table: its schema, defaults, constraints, indexes and placement.
//!
//! Defaults and checks are SQL expressions as strings. This crate stores them; the query crate evaluates
//! them. Unique constraints are unique indexes, which are maintained here.
//!
//! # Invariants
//!
//! - Every default and every index is of columns that the schema has.
//! - Names of constraints and indexes are different within a table.
//!
//! The format in the catalog is described at [`TableDefinition::to_bytes`]; it has at most
//! [`DEFINITION_BYTES_MAX`].

use crate::columns::objects::location::StoreLocation;
use crate::error::{Error, Result};
use crate::index::key_width;
use crate::schema::clustering::ClusteringDefinition;
use crate::schema::elf::{self, ElfDefinition, ElfLayout};
use crate::schema::{Schema, invalid};
use crate::value::DataType;
use entresol_structures::IndexStructure;
use entresol_transactions::TierChoice;
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes of a definition in the catalog.
pub const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// Maximum number of secondary indexes of a table.
pub const INDEXES_MAX: usize = 32;
/// Maximum number of columns of a secondary index.
pub const INDEX_COLUMNS_MAX: usize = 16;
/// Maximum number of checks of a table.
pub const CHECKS_MAX: usize = 256;
/// Maximum bytes of the name of an index or a constraint.
pub const CONSTRAINT_NAME_BYTES_MAX: usize = 127;

/// Maximum bytes of the reason of a structure.
const STRUCTURE_REASON_BYTES_MAX: usize = 1024;

/// Check constraint: a condition that is true or unknown for every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Name of the constraint.
    pub name: String,
    /// Condition, as SQL.
    pub expression: String,
}

/// Definition of a secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Name, unique in the database.
    pub name: String,
    /// Indexed columns of the table, in order.
    pub columns: Vec<usize>,
    /// True if no two rows may have the same values, unless one of them is NULL.
    pub unique: bool,
    /// True if it implements a UNIQUE constraint, or the PRIMARY KEY.
    pub constraint: bool,
    /// True if it implements a PRIMARY KEY that was added to a table with a hidden key.
    pub primary: bool,
    /// Structure of its state, which has to have keys of the width of its entries.
    pub structure: IndexStructure,
    /// Reason of the structure, if it was chosen for the index (`USING auto`).
    pub structure_reason: Option<String>,
    /// Bytes of the structure's nodes; `None`: as many as it takes.
    pub node_bytes: Option<u16>,
    /// True if its entries have hash codes in place of values: it finds equal values, of any length, and no ranges.
    pub hashed: bool,
}

impl IndexDefinition {
    /// Index of these columns that is not unique, of the default structure.
    pub fn plain(name: impl Into<String>, columns: Vec<usize>) -> IndexDefinition {
        IndexDefinition {
            name: name.into(),
            columns,
            unique: false,
            constraint: false,
            primary: false,
            structure: IndexStructure::default(),
            structure_reason: None,
            node_bytes: None,
            hashed: false,
        }
    }
}

/// Definition of a table; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDefinition {
    /// Columns and key.
    pub schema: Arc<Schema>,
    /// Default of each visible column, as SQL.
    pub defaults: Vec<Option<String>>,
    /// Name of the PRIMARY KEY constraint; the catalog generates one if it is `None`.
    pub key_name: Option<String>,
    /// Check constraints.
    pub checks: Vec<Check>,
    /// Secondary indexes, unique constraints among them.
    pub indexes: Vec<IndexDefinition>,
    /// Requested placement of the table, with its indexes and its version history; it never changes.
    pub placement: TierChoice,
    /// Owner, which alone writes its rows: the topology whose state or target it is, or a materialized view. Others read
    /// them. The tables trust their callers with that. [`Catalog::set_owners`](crate::Catalog::set_owners) changes it.
    pub owner: Option<String>,
    /// Retention of its change log; `None` if it logs no changes. See [`Table::logged_changes`](crate::Table).
    pub changes: Option<Retention>,
    /// Layout of the rows.
    pub layout: TableLayout,
    /// True if the layout follows the workload ([`crate::advice`]).
    pub auto_layout: bool,
    /// Elf indexes over the row groups.
    pub elves: Vec<ElfDefinition>,
    /// Dimensions of a table with the layout `clustered`; of one whose layout follows the workload those that it may
    /// choose.
    pub clustering: Option<ClusteringDefinition>,
    /// Elf that holds the rows of a table with the layout `elf`; of other layouts the default.
    pub elf_layout: ElfLayout,
    /// Structure of the index of its rows, which has to have keys of their width; it never changes.
    pub structure: IndexStructure,
    /// Bytes of the structure's nodes; `None`: as many as it takes. It never changes.
    pub node_bytes: Option<u16>,
    /// Reason of the structure, if the cost model chose it ([`crate::advice::StructureChoice`]).
    pub structure_reason: Option<String>,
    /// Version slots of its rows; `None`: as many as the database's. It never changes.
    pub version_slots: Option<u8>,
    /// URL of the object store that has the pages of its row groups; `None`: the pool has them.
    pub object_store: Option<String>,
    /// True if the owner may put several rows into one value, a page. Their first key column takes eight bytes.
    pub pages: bool,
}

/// Layout of the rows of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TableLayout {
    /// Row by row, in key order.
    #[default]
    Rows,
    /// Column by column, in row groups; changed rows row by row until they are merged into them.
    Columns,
    /// As columns, with the rows of a row group near each other in several dimensions.
    Clustered,
    /// As columns, with an Elf that holds some of them in place of their pages.
    Elf,
}

impl TableLayout {
    /// All layouts.
    pub const ALL: [TableLayout; 4] =
        [TableLayout::Rows, TableLayout::Columns, TableLayout::Clustered, TableLayout::Elf];

    /// Name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            TableLayout::Rows => "rows",
            TableLayout::Columns => "columns",
            TableLayout::Clustered => "clustered",
            TableLayout::Elf => "elf",
        }
    }

    /// Returns true if most rows are stored column by column, in row groups.
    pub const fn has_row_groups(self) -> bool {
        !matches!(self, TableLayout::Rows)
    }
}

/// States of a table beside that of its rows, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StatesBeside {
    /// Of each index.
    pub(crate) indexes: Vec<u32>,
    /// Of the change log; there is one if the definition says so.
    pub(crate) change_log: Option<u32>,
    /// Of the row groups; there is one if the definition says so.
    pub(crate) columns: Option<u32>,
    /// Of the places of rows in blocks, by key; there is one in the layout `clustered`, and in `columns` and `elf`
    /// behind that.
    pub(crate) places: Option<u32>,
}

/// Retention of row versions, or changes, of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// At least this long after their end.
    For(Duration),
    /// As long as the table exists.
    Forever,
}

impl Retention {
    /// Least time; none if it is for ever.
    pub(crate) fn time(self) -> Option<Duration> {
        match self {
            Retention::For(time) => Some(time),
            Retention::Forever => None,
        }
    }

    /// Nanoseconds; the greatest number says for ever.
    pub(crate) fn nanoseconds(self) -> u64 {
        self.time().map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn from_nanoseconds(nanoseconds: u64) -> Retention {
        match nanoseconds {
            u64::MAX => Retention::Forever,
            nanoseconds => Retention::For(Duration::from_nanos(nanoseconds)),
        }
    }
}

impl TableDefinition {
    /// Definition of columns and a key only.
    pub fn plain(schema: Schema) -> TableDefinition {
        let defaults = vec![None; schema.visible_columns().len()];
        let schema = Arc::new(schema);
        TableDefinition {
            schema,
            defaults,
            key_name: None,
            checks: Vec::new(),
            indexes: Vec::new(),
            placement: TierChoice::Auto,
            owner: None,
            changes: None,
            layout: TableLayout::Rows,
            auto_layout: false,
            elves: Vec::new(),
            clustering: None,
            elf_layout: ElfLayout::default(),
            structure: IndexStructure::default(),
            node_bytes: None,
            structure_reason: None,
            version_slots: None,
            object_store: None,
            pages: false,
        }
    }

    /// Name of the PRIMARY KEY constraint of a table.
    pub fn key_constraint(&self, table: &str) -> String {
        self.key_name.clone().unwrap_or_else(|| format!("{table}_pkey"))
    }

    /// Names of columns, for messages: `a, b`.
    pub(crate) fn column_names(&self, columns: &[usize]) -> String {
        let names: Vec<&str> =
            columns.iter().map(|&column| self.schema.columns()[column].name.as_str()).collect();
        names.join(", ")
    }

    /// Returns true if a check or an index has this name.
    pub(crate) fn has_constraint(&self, table: &str, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
            || self.indexes.iter().any(|index| index.name == name)
            || self.elves.iter().any(|elf| elf.name == name)
            || (!self.schema.hidden_key() && self.key_constraint(table) == name)
    }

    /// Validates the definition; `table` is for the names.
    pub(crate) fn check(&self, table: &str) -> Result<()> {
        let visible = self.schema.visible_columns().len();
        if self.defaults.len() != visible {
            return Err(invalid(format!("{} defaults for {visible} columns", self.defaults.len())));
        }
        if self.indexes.len() > INDEXES_MAX {
            return Err(invalid(format!(
                "table {table} would have {} indexes, at most {INDEXES_MAX} are possible",
                self.indexes.len()
            )));
        }
        if self.checks.len() > CHECKS_MAX {
            return Err(invalid(format!(
                "table {table} would have {} checks, at most {CHECKS_MAX} are possible",
                self.checks.len()
            )));
        }
        let mut names: Vec<&str> = self.checks.iter().map(|check| check.name.as_str()).collect();
        names.extend(self.indexes.iter().map(|index| index.name.as_str()));
        names.extend(self.elves.iter().map(|elf| elf.name.as_str()));
        let key_name = self.key_constraint(table);
        if !self.schema.hidden_key() {
            names.push(&key_name);
        }
        names.iter().try_for_each(|name| check_constraint_name(name))?;
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::ConstraintExists { table: table.to_owned(), constraint: pair[0].to_owned() });
        }
        self.indexes.iter().try_for_each(|index| self.check_index(table, index))?;
        elf::check(table, &self.elves, &self.schema)?;
        self.check_layout(table)?;
        self.check_object_store(table)?;
        self.check_pages(table)?;
        self.check_structure(table)?;
        self.check_primary(table)
    }

    /// Validates that the layout has what the table asks for.
    fn check_layout(&self, table: &str) -> Result<()> {
        if let (Some(elf), TableLayout::Rows) = (self.elves.first(), self.layout) {
            return Err(Error::ElfOfRows { table: table.to_owned(), index: elf.name.clone() });
        }
        if self.layout == TableLayout::Elf {
            self.elf_layout.check(table, &self.schema)?;
        } else if self.elf_layout != ElfLayout::default() {
            let layout = self.layout.name();
            return Err(invalid(format!(
                "table {table} of layout '{layout}' has elf_by or what an Elf caches"
            )));
        }
        match (&self.clustering, self.layout) {
            (Some(clustering), TableLayout::Clustered) => clustering.check(table, &self.schema),
            (Some(clustering), _) if self.auto_layout => clustering.check(table, &self.schema),
            (None, TableLayout::Rows | TableLayout::Columns | TableLayout::Elf) => Ok(()),
            (clustering, layout) => {
                let has = if clustering.is_some() { "has" } else { "lacks" };
                Err(invalid(format!("table {table} of layout '{}' {has} cluster_by", layout.name())))
            }
        }
    }

    /// Validates that the URL of an object store is one, and that there are row groups to go there.
    fn check_object_store(&self, table: &str) -> Result<()> {
        let Some(url) = &self.object_store else { return Ok(()) };
        if self.layout_of_row_groups().is_none() {
            return Err(Error::ObjectStoreOfRows { table: table.to_owned() });
        }
        let parsed = StoreLocation::parse(url);
        parsed.map(drop).map_err(|reason| Error::ObjectStoreUrl { url: url.clone(), reason })
    }

    /// Clustering of a table that has the layout `clustered`.
    pub fn clustered_by(&self) -> Option<&ClusteringDefinition> {
        self.clustering.as_ref().filter(|_| self.layout == TableLayout::Clustered)
    }

    /// Elf that holds the rows of a table with the layout `elf`, as an index of the columns that may be its dimensions.
    pub fn rows_elf(&self) -> Option<ElfDefinition> {
        (self.layout == TableLayout::Elf).then(|| self.elf_layout.as_index(&self.schema))
    }

    /// Validates that rows may stand in pages.
    fn check_pages(&self, table: &str) -> Result<()> {
        if !self.pages {
            return Ok(());
        }
        let first = self.schema.key().first().map(|&column| self.schema.columns()[column].data_type);
        let is_fit = matches!(first, Some(DataType::BigInt | DataType::Timestamp | DataType::TimestampTz));
        if !is_fit || self.layout_of_row_groups().is_some() {
            return Err(invalid(format!("table {table} cannot have pages")));
        }
        if self.changes.is_some() {
            return Err(invalid(format!(
                "table {table} is operator state with several rows in a page, and logs no changes; let its topology \
                 write into a table that does"
            )));
        }
        Ok(())
    }

    /// Name of the layout with which the table has row groups, or may get them by its workload.
    pub(crate) fn layout_of_row_groups(&self) -> Option<&'static str> {
        match self.layout {
            TableLayout::Rows => self.auto_layout.then_some("auto"),
            layout => Some(layout.name()),
        }
    }

    /// Validates that the structure has keys of the rows' width, and the layout leaves a choice.
    fn check_structure(&self, table: &str) -> Result<()> {
        let structure = self.structure;
        check_reason(&format!("table {table}"), self.structure_reason.as_deref())?;
        self.check_node_bytes(&format!("table {table}"), (structure, self.node_bytes))?;
        if structure == IndexStructure::default() {
            return Ok(());
        }
        if let Some(layout) = self.layout_of_row_groups() {
            return Err(Error::StructureOfLayout { table: table.to_owned(), layout, structure });
        }
        if !structure.supports(self.schema.key_width()) {
            let key = self.column_names(self.schema.key());
            return Err(Error::StructureOfKey { table: table.to_owned(), key, structure });
        }
        Ok(())
    }

    /// Validates the bytes of the nodes of a structure; those that it takes itself are none.
    fn check_node_bytes(&self, of: &str, (structure, bytes): (IndexStructure, Option<u16>)) -> Result<()> {
        match structure.chosen_node_bytes(bytes) {
            Err(error) => Err(invalid(format!("{of}: {error}"))),
            Ok(chosen) if chosen != bytes => {
                Err(invalid(format!("{of}: {bytes:?} are the nodes of {structure}")))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Validates the primary key: a table has at most one, of columns that are NOT NULL.
    fn check_primary(&self, table: &str) -> Result<()> {
        let mut primary = self.indexes.iter().filter(|index| index.primary);
        let Some(key) = primary.next() else { return Ok(()) };
        if primary.next().is_some() || !self.schema.hidden_key() {
            return Err(invalid(format!("table {table} would have two primary keys")));
        }
        let nullable = key.columns.iter().any(|&column| self.schema.columns()[column].nullable);
        if nullable || !key.unique || !key.constraint {
            Err(invalid(format!("primary key {}: its columns must be NOT NULL and unique", key.name)))
        } else {
            Ok(())
        }
    }

    fn check_index(&self, table: &str, index: &IndexDefinition) -> Result<()> {
        let (name, columns) = (&index.name, &index.columns);
        if columns.is_empty() || columns.len() > INDEX_COLUMNS_MAX {
            return Err(invalid(format!(
                "index {name}: 1 to {INDEX_COLUMNS_MAX} columns, not {}",
                columns.len()
            )));
        }
        for (at, &column) in columns.iter().enumerate() {
            if column >= self.schema.visible_columns().len() {
                return Err(invalid(format!("index {name}: column {column} does not exist")));
            }
            if columns[..at].contains(&column) {
                let column = &self.schema.columns()[column].name;
                return Err(invalid(format!("index {name}: column {column} appears twice")));
            }
            self.schema.columns()[column].check_order()?;
        }
        if index.hashed && index.unique {
            return Err(invalid(format!(
                "index {name}: hash codes are not unique; a unique index is a btree, or a structure by name"
            )));
        }
        check_reason(&format!("index {name}"), index.structure_reason.as_deref())?;
        self.check_node_bytes(&format!("index {name}"), (index.structure, index.node_bytes))?;
        if !index.structure.supports(key_width(&self.schema, index)) {
            let key: Vec<usize> = columns.iter().chain(self.schema.key()).copied().collect();
            return Err(Error::StructureOfKey {
                table: format!("{table}, index {name}"),
                key: self.column_names(&key),
                structure: index.structure,
            });
        }
        Ok(())
    }
}

/// Validates the length of the reason of a structure, of a table or an index.
fn check_reason(relation: &str, reason: Option<&str>) -> Result<()> {
    let bytes = reason.map_or(0, str::len);
    if bytes <= STRUCTURE_REASON_BYTES_MAX {
        return Ok(());
    }
    Err(invalid(format!(
        "{relation}: the reason of its structure has {bytes} bytes, at most {STRUCTURE_REASON_BYTES_MAX} are possible"
    )))
}

/// Validates the name of an index or a constraint.
pub(crate) fn check_constraint_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > CONSTRAINT_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Error::InvalidName { name: name.to_owned(), bytes_max: CONSTRAINT_NAME_BYTES_MAX });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::schema::Column;
    use crate::value::{DataType, Value};

    /// Definition with a change of its schema, and with a default, checks and indexes.
    pub(crate) fn definition() -> TableDefinition {
        let columns = vec![
            Column::new("id", DataType::Int),
            Column::new("price", DataType::Decimal { precision: 20, scale: 2 }),
            Column::new("name", DataType::Varchar),
        ];
        let schema = Schema::new(columns, &["id"]).unwrap().without_column(1).unwrap();
        let schema = schema.with_column(Column::new("added", DataType::Varchar), Value::from("a\0")).unwrap();
        let mut definition = TableDefinition::plain(schema);
        definition.defaults[1] = Some("'x'".into());
        definition.key_name = Some("the_key".into());
        definition.checks.push(Check { name: "c".into(), expression: "id > 0".into() });
        let index = |name: &str, columns: &[usize], unique| IndexDefinition {
            name: name.into(),
            columns: columns.to_vec(),
            unique,
            constraint: unique,
            primary: false,
            ..IndexDefinition::plain("", Vec::new())
        };
        definition.indexes = vec![index("u", &[2, 1], true), index("i", &[1], false)];
        definition.indexes[1].structure_reason = Some("it takes 5 ms".to_owned());
        definition.placement = TierChoice::Disk;
        definition.version_slots = Some(5);
        definition.structure_reason = Some("it takes 7 ms".to_owned());
        definition.owner = Some("metering".to_owned());
        definition.changes = Some(Retention::For(Duration::from_secs(3600)));
        definition
    }

    #[test]
    fn rules_are_checked_with_names() {
        let broken = |change: fn(&mut TableDefinition)| {
            let mut definition = definition();
            change(&mut definition);
            definition.check("t").unwrap_err().to_string()
        };
        assert!(broken(|d| d.indexes[1].columns = vec![9]).contains("index i"));
        assert!(broken(|d| d.indexes[1].columns = vec![1, 1]).contains("name appears twice"));
        assert!(broken(|d| d.indexes[1].columns.clear()).contains("1 to 16 columns"));
        assert!(broken(|d| d.checks[0].name = "u".into()).contains("\"u\""));
        assert!(broken(|d| d.checks[0].name = "the_key".into()).contains("\"the_key\""));
        assert!(broken(|d| d.indexes[0].name.clear()).contains("invalid name"));
        let long = broken(|d| d.structure_reason = Some("x".repeat(2_000)));
        assert!(long.contains("has 2000 bytes, at most 1024"), "{long}");
        let by_columns = broken(|d| {
            (d.layout, d.structure) = (TableLayout::Columns, IndexStructure::WbTree);
        });
        assert!(by_columns.contains("USING wbtree is for the layout 'rows'"), "{by_columns}");
        let strings = broken(|d| {
            let schema = Schema::new(vec![Column::new("name", DataType::Varchar)], &["name"]);
            (d.schema, d.defaults) = (Arc::new(schema.unwrap()), vec![None]);
            (d.indexes, d.structure) = (Vec::new(), IndexStructure::WbTree);
        });
        assert!(
            strings.contains("wbtree has keys of up to 16 bytes") && strings.contains("(name)"),
            "{strings}"
        );
    }
}
