//! Notices: clauses of an accepted statement that had no effect; and what a statement was asked to tell of its work.
//!
//! They are queued in the session until the server or shell takes them. Memory: [`NOTICES_MAX`] of them.

use crate::postgres::settings;
use crate::session::core::SessionCore;
use crate::session::messages::{Notice, NoticeLevel};
use crate::session::variables::SessionVariables;

/// Maximum number of queued notices; more are dropped.
pub const NOTICES_MAX: usize = 64;
/// Levels of `client_min_messages` that suppress notices.
const ABOVE: [&str; 2] = ["warning", "error"];
/// Storage parameters of PostgreSQL's tables and indexes.
const STORAGE: [&str; 17] = [
    "fillfactor",
    "parallel_workers",
    "toast_tuple_target",
    "user_catalog_table",
    "vacuum_truncate",
    "vacuum_index_cleanup",
    "log_autovacuum_min_duration",
    "autovacuum_enabled",
    "autovacuum_vacuum_threshold",
    "autovacuum_vacuum_scale_factor",
    "autovacuum_vacuum_insert_threshold",
    "autovacuum_vacuum_insert_scale_factor",
    "autovacuum_analyze_threshold",
    "autovacuum_analyze_scale_factor",
    "autovacuum_freeze_max_age",
    "deduplicate_items",
    "fastupdate",
];

impl SessionVariables {
    /// Leaves a notice for the client, unless it does not want any.
    pub(crate) fn notice(&self, message: impl Into<String>) {
        let level = settings::find("client_min_messages").map(|setting| self.value(&setting));
        if level.is_ok_and(|level| ABOVE.contains(&level.as_str())) {
            return;
        }
        self.leave(NoticeLevel::Notice, message.into());
    }

    fn leave(&self, level: NoticeLevel, message: String) {
        let mut notices = self.notices.lock();
        if notices.len() < NOTICES_MAX {
            notices.push(Notice { level, message });
        }
    }
}

impl SessionCore {
    /// Leaves a notice for the client, unless it does not want any.
    pub(crate) fn notice(&self, message: impl Into<String>) {
        self.variables.notice(message);
    }

    /// Leaves a message that the statement asked for.
    pub(crate) fn info(&self, message: impl Into<String>) {
        self.variables.leave(NoticeLevel::Info, message.into());
    }

    /// The notice of storage parameters, if there are any among these.
    pub(crate) fn storage_notice<'n>(&self, names: impl Iterator<Item = &'n str>) {
        for name in names.filter(|name| is_storage(name)) {
            self.notice(format!("storage parameter \"{name}\" has no effect"));
        }
    }
}

/// Returns true if a name is one of PostgreSQL's storage parameters, which have no effect here.
pub(crate) fn is_storage(name: &str) -> bool {
    STORAGE.iter().any(|known| known.eq_ignore_ascii_case(name))
}
