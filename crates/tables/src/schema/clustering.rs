//! Clustering in the definition of a table with the layout `clustered`: its dimensions, and how its blocks are made.

use crate::error::Result;
use crate::schema::parts::Reader;
use crate::schema::{Schema, invalid};

/// Maximum number of dimensions, and of bits of all of them.
pub const CLUSTER_BITS_MAX: usize = 64;
/// Maximum number of bits of a dimension.
pub const CLUSTER_DIMENSION_BITS_MAX: u8 = 32;
/// Bytes of the values of a block.
pub const BLOCK_BYTES_DEFAULT: u32 = 256 << 10;
/// Least and greatest number of bytes of the values of a block.
pub const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// See [`BLOCK_BYTES_MIN`].
pub const BLOCK_BYTES_MAX: u32 = 4 << 20;

/// Order of the bits of the dimensions in a cluster key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Interleave {
    /// One bit of each dimension after another, from the most significant ones on.
    #[default]
    RoundRobin,
    /// All bits of the first dimension, then those of the next one.
    MajorMinor,
}

/// Choice of the key at which a full block is split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SplitPolicy {
    /// By the number of rows of each key.
    #[default]
    Histogram,
    /// At the mean of the keys.
    Mean,
    /// In the middle of the least and the greatest key.
    Middle,
}

impl Interleave {
    /// All orders.
    pub const ALL: [Interleave; 2] = [Interleave::RoundRobin, Interleave::MajorMinor];

    /// Name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Interleave::RoundRobin => "round-robin",
            Interleave::MajorMinor => "major-minor",
        }
    }
}

impl SplitPolicy {
    /// All policies.
    pub const ALL: [SplitPolicy; 3] = [SplitPolicy::Histogram, SplitPolicy::Mean, SplitPolicy::Middle];

    /// Name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            SplitPolicy::Histogram => "histogram",
            SplitPolicy::Mean => "mean",
            SplitPolicy::Middle => "middle",
        }
    }
}

/// Dimension of a clustering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimension {
    /// Column of the table.
    pub column: usize,
    /// Bits of its codes; chosen from the rows if none.
    pub bits: Option<u8>,
}

/// Clustering of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteringDefinition {
    /// Dimensions, the major one first.
    pub dimensions: Vec<Dimension>,
    /// Order of their bits.
    pub interleave: Interleave,
    /// Split of full blocks.
    pub split: SplitPolicy,
    /// Bytes of the values of a block, before they are encoded.
    pub block_bytes: u32,
}

impl ClusteringDefinition {
    /// Clustering by dimensions, the rest as it is if a statement does not say it.
    pub fn new(dimensions: Vec<Dimension>) -> ClusteringDefinition {
        ClusteringDefinition {
            dimensions,
            interleave: Interleave::default(),
            split: SplitPolicy::default(),
            block_bytes: BLOCK_BYTES_DEFAULT,
        }
    }

    /// Dimensions as `cluster_by` has them: `a 6, b`.
    pub fn cluster_by(&self, schema: &Schema) -> String {
        let dimension = |dimension: &Dimension| {
            let name = &schema.columns()[dimension.column].name;
            dimension.bits.map_or_else(|| name.clone(), |bits| format!("{name} {bits}"))
        };
        self.dimensions.iter().map(dimension).collect::<Vec<_>>().join(", ")
    }

    /// Returns true if a column is a dimension.
    pub fn has(&self, column: usize) -> bool {
        self.dimensions.iter().any(|dimension| dimension.column == column)
    }

    /// Validates it.
    pub(crate) fn check(&self, table: &str, schema: &Schema) -> Result<()> {
        let count = self.dimensions.len();
        if count == 0 || count > CLUSTER_BITS_MAX {
            return Err(invalid(format!(
                "cluster_by of table {table}: 1 to {CLUSTER_BITS_MAX} dimensions, not {count}"
            )));
        }
        for (at, dimension) in self.dimensions.iter().enumerate() {
            self.check_dimension(table, schema, at, dimension)?;
        }
        // Dimensions without a number have one bit at least.
        let bits: usize =
            self.dimensions.iter().map(|dimension| usize::from(dimension.bits.unwrap_or(1))).sum();
        if bits > CLUSTER_BITS_MAX {
            return Err(invalid(format!(
                "cluster_by of table {table}: its dimensions have {bits} bits, at most {CLUSTER_BITS_MAX} are \
                 possible"
            )));
        }
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return Err(invalid(format!(
                "block_bytes of table {table}: {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX}, not {}",
                self.block_bytes
            )));
        }
        Ok(())
    }

    fn check_dimension(&self, table: &str, schema: &Schema, at: usize, dimension: &Dimension) -> Result<()> {
        let column = dimension.column;
        if column >= schema.visible_columns().len() {
            return Err(invalid(format!("cluster_by of table {table}: column {column} does not exist")));
        }
        let name = &schema.columns()[column].name;
        if self.dimensions[..at].iter().any(|other| other.column == column) {
            return Err(invalid(format!("cluster_by of table {table}: column {name} appears twice")));
        }
        schema.columns()[column].check_order()?;
        if let Some(bits) = dimension.bits
            && !(1..=CLUSTER_DIMENSION_BITS_MAX).contains(&bits)
        {
            return Err(invalid(format!(
                "cluster_by of table {table}: dimension {name} has 1 to {CLUSTER_DIMENSION_BITS_MAX} bits, not {bits}"
            )));
        }
        Ok(())
    }

    /// Encodes it: interleave (1), split (1), block bytes (4), per dimension: column (2), bits (1; 0: chosen).
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let place = |at: Option<usize>| at.unwrap_or(0) as u8;
        let interleave = Interleave::ALL.iter().position(|known| *known == self.interleave);
        let split = SplitPolicy::ALL.iter().position(|known| *known == self.split);
        let mut bytes = vec![place(interleave), place(split)];
        bytes.extend_from_slice(&self.block_bytes.to_le_bytes());
        for dimension in &self.dimensions {
            bytes.extend_from_slice(&(dimension.column as u16).to_le_bytes());
            bytes.push(dimension.bits.unwrap_or(0));
        }
        bytes
    }

    /// Decodes the bytes of [`ClusteringDefinition::to_bytes`]; none if they are malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ClusteringDefinition> {
        let mut reader = Reader(bytes);
        let interleave = *Interleave::ALL.get(usize::from(reader.byte()?))?;
        let split = *SplitPolicy::ALL.get(usize::from(reader.byte()?))?;
        let block_bytes = reader.number()?;
        let mut dimensions = Vec::new();
        while !reader.0.is_empty() {
            let (column, bits) = (reader.short()?, reader.byte()?);
            dimensions.push(Dimension { column, bits: (bits > 0).then_some(bits) });
        }
        Some(ClusteringDefinition { dimensions, interleave, split, block_bytes })
    }
}
