//! Elf indexes in the definition of a table: their names, columns and numbers; and the Elf that holds the rows in the
//! layout `elf`.

use crate::error::Result;
use crate::schema::parts::{Reader, put_text};
use crate::schema::{Schema, invalid};
use entresol_structures::elf::{ELF_DIMENSIONS_MAX, ListPolicy};

/// Maximum number of columns of an Elf index.
pub const ELF_COLUMNS_MAX: usize = ELF_DIMENSIONS_MAX;
/// Maximum number of Elf indexes of a table.
pub const ELF_INDEXES_MAX: usize = 8;

const ORDER_WRITTEN: u8 = 0;
const ORDER_AUTO: u8 = 1;
/// Mark on the order of an Elf of which lists are cached.
const CACHES_LISTS: u8 = 0x10;
/// Mark on the percentage of an Elf of which MonoLists are cached, too.
const CACHES_MONO_LISTS: u8 = 0x80;

/// Order of the dimensions of an Elf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DimensionOrder {
    /// As the columns are written.
    #[default]
    Written,
    /// In each row group the column with the fewest different values first.
    Auto,
}

impl DimensionOrder {
    /// All orders.
    pub const ALL: [DimensionOrder; 2] = [DimensionOrder::Written, DimensionOrder::Auto];

    /// Name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            DimensionOrder::Written => "written",
            DimensionOrder::Auto => "auto",
        }
    }
}

/// Part of an Elf that is cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ElfCaching {
    /// All of it, if the cache of column pages has room.
    #[default]
    Whole,
    /// Some of its lists; the others are read where they are stored.
    Lists {
        /// Policy that chooses them.
        policy: ListPolicy,
        /// Bytes of those of a row group, in percent of its Elf, 1 to 100.
        percent: u8,
        /// True if MonoLists are among them.
        mono_lists: bool,
    },
}

impl ElfCaching {
    /// Parameter of an index for what is cached: `whole` or `lists`.
    pub const CACHE: &str = "cache";
    /// Parameter for the policy of lists.
    pub const POLICY: &str = "cache_policy";
    /// Parameter for their bytes.
    pub const PERCENT: &str = "cache_percent";
    /// Parameter for MonoLists.
    pub const MONO_LISTS: &str = "cache_monolists";

    /// Parameters and their values; none for what is the default.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let ElfCaching::Lists { policy, percent, mono_lists } = self else { return Vec::new() };
        let mut parameters = vec![
            (ElfCaching::CACHE, "lists".to_owned()),
            (ElfCaching::POLICY, policy.to_string()),
            (ElfCaching::PERCENT, percent.to_string()),
        ];
        if *mono_lists {
            parameters.push((ElfCaching::MONO_LISTS, "true".to_owned()));
        }
        parameters
    }
}

/// Definition of an Elf index of a table with the layout `columns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfDefinition {
    /// Name, unique in the database.
    pub name: String,
    /// Indexed columns of the table.
    pub columns: Vec<usize>,
    /// Order of the columns as dimensions.
    pub order: DimensionOrder,
    /// Part that is cached.
    pub caching: ElfCaching,
    /// Number, which no other Elf index of the table has had while the database was open.
    pub number: u16,
}

impl ElfDefinition {
    /// Validates its columns.
    pub(crate) fn check(&self, schema: &Schema) -> Result<()> {
        check_columns(&format!("index {}", self.name), &self.columns, schema)
    }
}

/// Validates the dimensions of an Elf, which `of` names.
fn check_columns(of: &str, columns: &[usize], schema: &Schema) -> Result<()> {
    if columns.is_empty() || columns.len() > ELF_COLUMNS_MAX {
        let count = columns.len();
        return Err(invalid(format!("{of}: an Elf has 1 to {ELF_COLUMNS_MAX} columns, not {count}")));
    }
    for (at, &column) in columns.iter().enumerate() {
        if column >= schema.visible_columns().len() {
            return Err(invalid(format!("{of}: column {column} does not exist")));
        }
        if columns[..at].contains(&column) {
            let column = &schema.columns()[column].name;
            return Err(invalid(format!("{of}: column {column} appears twice")));
        }
        schema.columns()[column].check_order()?;
    }
    Ok(())
}

/// Elf of each row group that holds the dimensions of its rows, in the layout `elf`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElfLayout {
    /// Columns that are dimensions, in their order; none: each row group has those whose values repeat in it, the ones
    /// with the fewest different values first.
    pub dimensions: Vec<usize>,
    /// Part that is cached.
    pub caching: ElfCaching,
}

impl ElfLayout {
    /// Number of the Elf among those of a row group; no index has it.
    pub(crate) const NUMBER: u16 = 8191;
    /// Name of the Elf where indexes are shown.
    pub const NAME: &'static str = "layout";

    /// Names of the dimensions; none if they are chosen.
    pub fn elf_by(&self, schema: &Schema) -> Option<String> {
        let name = |column: &usize| schema.columns()[*column].name.as_str();
        let names: Vec<&str> = self.dimensions.iter().map(name).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Elf as an index of all columns that may be its dimensions.
    pub(crate) fn as_index(&self, schema: &Schema) -> ElfDefinition {
        let is_possible = |column: &usize| schema.columns()[*column].check_order().is_ok();
        let (columns, order) = if self.dimensions.is_empty() {
            let visible = 0..schema.visible_columns().len();
            (visible.filter(is_possible).collect(), DimensionOrder::Auto)
        } else {
            (self.dimensions.clone(), DimensionOrder::Written)
        };
        let (name, caching) = (ElfLayout::NAME.to_owned(), self.caching);
        ElfDefinition { name, columns, order, caching, number: ElfLayout::NUMBER }
    }

    /// Validates it, of a table with the layout `elf`.
    pub(crate) fn check(&self, table: &str, schema: &Schema) -> Result<()> {
        if self.dimensions.is_empty() {
            if self.as_index(schema).columns.is_empty() {
                return Err(invalid(format!(
                    "layout 'elf' of table {table}: none of its columns has an order, so none can be a dimension; \
                     use the layout 'columns'"
                )));
            }
            return Ok(());
        }
        check_columns(&format!("elf_by of table {table}"), &self.dimensions, schema)
    }

    /// Encodes it as an Elf index.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let elf = ElfDefinition {
            name: String::new(),
            columns: self.dimensions.clone(),
            order: DimensionOrder::Written,
            caching: self.caching,
            number: ElfLayout::NUMBER,
        };
        to_bytes(&[elf])
    }

    /// Decodes the bytes of [`ElfLayout::to_bytes`]; none if they are malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ElfLayout> {
        let [elf] = <[ElfDefinition; 1]>::try_from(from_bytes(bytes)?).ok()?;
        Some(ElfLayout { dimensions: elf.columns, caching: elf.caching })
    }
}

/// Validates the Elf indexes of a table.
pub(crate) fn check(table: &str, elves: &[ElfDefinition], schema: &Schema) -> Result<()> {
    if elves.len() > ELF_INDEXES_MAX {
        return Err(invalid(format!(
            "table {table} would have {} Elf indexes, at most {ELF_INDEXES_MAX} are possible",
            elves.len()
        )));
    }
    for (at, elf) in elves.iter().enumerate() {
        if elves[..at].iter().any(|other| other.number == elf.number) {
            return Err(invalid(format!("index {}: another one has its number", elf.name)));
        }
    }
    elves.iter().try_for_each(|elf| elf.check(schema))
}

/// Encodes the Elf indexes of a table, each: name, number (2), order (1), number of columns (1), columns (2 each); where
/// lists are cached, the percentage (1) and the name of the policy.
pub(crate) fn to_bytes(elves: &[ElfDefinition]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for elf in elves {
        put_text(&mut bytes, &elf.name);
        bytes.extend_from_slice(&elf.number.to_le_bytes());
        let order = if elf.order == DimensionOrder::Auto { ORDER_AUTO } else { ORDER_WRITTEN };
        bytes.push(order | if elf.caching == ElfCaching::Whole { 0 } else { CACHES_LISTS });
        bytes.push(elf.columns.len() as u8);
        elf.columns.iter().for_each(|column| bytes.extend_from_slice(&(*column as u16).to_le_bytes()));
        if let ElfCaching::Lists { policy, percent, mono_lists } = elf.caching {
            bytes.push(percent | if mono_lists { CACHES_MONO_LISTS } else { 0 });
            put_text(&mut bytes, &policy.to_string());
        }
    }
    bytes
}

/// Decodes the bytes of [`to_bytes`]; none if they are malformed.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Vec<ElfDefinition>> {
    let (mut reader, mut elves) = (Reader(bytes), Vec::new());
    while !reader.0.is_empty() {
        let (name, number) = (reader.text()?, reader.short()? as u16);
        let first = reader.byte()?;
        let order = match first & !CACHES_LISTS {
            ORDER_WRITTEN => DimensionOrder::Written,
            ORDER_AUTO => DimensionOrder::Auto,
            _ => return None,
        };
        let count = usize::from(reader.byte()?);
        let columns = (0..count).map(|_| reader.short()).collect::<Option<_>>()?;
        let caching = if first & CACHES_LISTS != 0 { lists(&mut reader)? } else { ElfCaching::Whole };
        elves.push(ElfDefinition { name, columns, order, caching, number });
    }
    Some(elves)
}

fn lists(reader: &mut Reader<'_>) -> Option<ElfCaching> {
    let byte = reader.byte()?;
    let (percent, mono_lists) = (byte & !CACHES_MONO_LISTS, byte & CACHES_MONO_LISTS != 0);
    let policy = reader.text()?.parse().ok()?;
    (1..=100).contains(&percent).then_some(ElfCaching::Lists { policy, percent, mono_lists })
}
