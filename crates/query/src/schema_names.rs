//! Names of the catalog and its schemas.

/// The name of the catalog.
pub const CATALOG: &str = "entresol";
/// The schema of the user's tables.
pub const SCHEMA: &str = "public";
/// The schema of the system tables.
pub const SYSTEM_SCHEMA: &str = "entresol";
/// Tables with their hidden keys. No identifier in a statement can name it.
pub(crate) const KEYED_SCHEMA: &str = "\u{1}keyed";
/// Tables as the texts of views read them, with the rights of their owner. No identifier can name it either.
pub(crate) const OWNED_SCHEMA: &str = "\u{1}owned";
/// Changes of the tables, by the names of these. No identifier can name it either.
pub(crate) const CHANGES_SCHEMA: &str = "\u{1}changes";
/// Subscriptions, by the texts of their statements. No identifier can name it either.
pub(crate) const SUBSCRIPTIONS_SCHEMA: &str = "\u{1}subscriptions";
/// Character in the names of schemas that statements must not name.
pub(crate) const HIDDEN: char = '\u{1}';
/// The schema of the tables that describe everything.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The SQL standard's.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";
/// Name under which DataFusion finds ours: it has an `information_schema` of its own, for SHOW.
pub(crate) const INFORMATION_INNER: &str = "\u{1}information";
/// Catalog of the streams that the steps of a topology read. No identifier in a statement can name it.
pub(crate) const STREAMS_CATALOG: &str = "\u{1}streams";
/// Table in which the sources are stored.
pub(crate) const SOURCES_TABLE: &str = "streams_sources";
/// Table in which the streams of no topology are stored, with the columns that they have.
pub(crate) const STREAMS_TABLE: &str = "streams_streams";
/// Table in which the topologies are stored.
pub(crate) const TOPOLOGIES_TABLE: &str = "streams_topologies";
/// Table of what of the statement of a topology does not fit its row.
pub(crate) const TOPOLOGY_PARTS_TABLE: &str = "streams_topology_parts";
/// Table of the state tables that topologies with other steps have no use for.
pub(crate) const UNUSED_STATE_TABLE: &str = "streams_unused_state";
/// Table of the roles that own sources, streams, topologies and materialized views.
pub(crate) const OWNERS_TABLE: &str = "streams_owners";
/// Option of a materialized view that says when it is refreshed.
pub(crate) const REFRESH_OPTION: &str = "refresh";
