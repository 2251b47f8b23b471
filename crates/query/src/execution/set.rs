//! SET, RESET, SHOW and DISCARD in a session; [`crate::postgres::settings`] has the settings.
//!
//! - They need no transaction. Inside of a failed block they are refused like all other statements.
//! - A block that is rolled back, or fails to commit, undoes its SETs; ROLLBACK TO those after the savepoint.
//! - `transaction_isolation` and `transaction_read_only` are the open block's, as SET TRANSACTION sets them.

use crate::error::{Error, Result};
use crate::execution::session::Session;
use crate::postgres::settings::{self, REPORTED, SETTINGS, Setting, Settings};
use crate::postgres::time_zones::{self, Zone};
use crate::schema_names::{PG_CATALOG, SCHEMA};
use crate::session::block::{Modes, level_named};
use crate::session::result::{CollectedRows, StatementResult, texts};
use crate::session::search_path::schemas;
use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{DiscardObject, TransactionMode};
use std::sync::Arc;
use std::time::Duration;

/// Columns of SHOW ALL.
pub(crate) const ALL_COLUMNS: [&str; 3] = ["name", "setting", "description"];

fn rows_of_texts(names: &[&str], columns: Vec<Vec<String>>) -> Result<StatementResult> {
    let schema = texts(names);
    let arrays = columns.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect();
    let batches = vec![RecordBatch::try_new(Arc::clone(&schema), arrays)?];
    Ok(StatementResult::Rows(CollectedRows { schema, batches }))
}

impl Session {
    /// Value of a setting, as shown by SHOW.
    pub fn setting(&self, name: &str) -> Result<String> {
        let setting = self.core.variables.known(name)?;
        Ok(match (&*setting.name, &self.core.block) {
            ("transaction_isolation", Some(block)) => block.modes().level().to_owned(),
            ("transaction_read_only", Some(block)) => on_off(block.modes().read_only),
            ("transaction_isolation", None) => self.default_modes().level().to_owned(),
            ("transaction_read_only", None) => on_off(self.default_modes().read_only),
            _ => self.core.variables.value(&setting),
        })
    }

    /// Value of a setting that is a time; `None` if it is 0, which means no limit.
    pub fn time_setting(&self, name: &str) -> Option<Duration> {
        let value = self.setting(name).ok().and_then(|value| settings::milliseconds(&value));
        value.filter(|&time_ms| time_ms > 0).map(Duration::from_millis)
    }

    /// Settings reported to clients on the wire, with their values.
    pub fn reported_settings(&self) -> Vec<(&'static str, String)> {
        let value = |name: &&'static str| Some((*name, self.setting(name).ok()?));
        REPORTED.iter().filter_map(value).collect()
    }

    /// Sets the initial value of a setting, which RESET restores: from the client's startup message.
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<()> {
        let setting = settings::find(name)?;
        let value = setting.check(value)?;
        self.core.variables.change(|settings| settings.set_initial(&setting, value));
        self.apply_settings()
    }

    /// Limits a setting that is a time: a longer one, and none, is this one.
    pub fn limit_time(&mut self, name: &str, limit: Duration) -> Result<()> {
        let setting = settings::find(name)?;
        self.core.variables.set_limit(&setting, (limit.as_millis() as u64).max(1));
        Ok(())
    }

    pub(crate) fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<StatementResult> {
        let result = self.try_set(name, value, local);
        result
            .map_err(|error| self.failing(error))
            .map(|()| StatementResult::Done { verb: if value.is_none() && !local { "RESET" } else { "SET" } })
    }

    fn try_set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        self.check_block()?;
        let setting = settings::find(name)?;
        let value = match value {
            Some(value) => Some(setting.check(value)?),
            None => None,
        };
        if ["transaction_isolation", "transaction_read_only"].contains(&&*setting.name) {
            let default = self.default_modes();
            let Some(block) = &mut self.core.block else { return Ok(()) };
            let mut modes = block.modes();
            match (&*setting.name, value) {
                ("transaction_isolation", Some(level)) => modes.isolation = level_named(&level),
                ("transaction_isolation", None) => modes.isolation = default.isolation,
                (_, value) => modes.read_only = value.map_or(default.read_only, |value| value == "on"),
            }
            return block.set_modes(&self.core.catalog, modes);
        }
        if local && self.core.block.is_none() {
            self.core.notice("SET LOCAL has no effect: it can only be used in transaction blocks");
            return Ok(());
        }
        if let Some(value) = &value {
            self.notice_of_setting(&setting, value);
        }
        self.core.variables.settings().check_room(&setting)?;
        self.core.variables.change(|settings| settings.set(&setting, value, local));
        self.apply_settings()
    }

    /// Notice of a value that has not the effect that its name promises.
    fn notice_of_setting(&self, setting: &Setting, value: &str) {
        if let Some(limit) = self.core.variables.exceeded_limit(setting, value) {
            self.core
                .notice(format!("\"{}\" is {limit}, the longest time that the server allows", setting.name));
        }
        match &*setting.name {
            "lock_timeout" if value != "0" => self.core.notice(
                "\"lock_timeout\" has no effect: only writers of tables with locks wait for any, for at most five \
                 seconds",
            ),
            "extra_float_digits" if value.parse().is_ok_and(|digits: i32| digits < 1) => {
                self.core.notice("\"extra_float_digits\" has no effect: doubles are shown exactly");
            }
            "search_path" => {
                let unused = schemas(value).into_iter().filter(|schema| ![SCHEMA, PG_CATALOG].contains(schema));
                for schema in unused {
                    self.core.notice(format!(
                        "schema \"{schema}\" in \"search_path\" has no effect: write {schema}.name"
                    ));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn reset_all(&mut self) -> Result<StatementResult> {
        self.check_block()?;
        self.core.variables.change(Settings::reset);
        self.apply_settings()?;
        Ok(StatementResult::Done { verb: "RESET" })
    }

    pub(crate) fn set_transaction(
        &mut self,
        modes: &[TransactionMode],
        session: bool,
    ) -> Result<StatementResult> {
        if session {
            let modes = self.default_modes().with(modes);
            self.try_set("default_transaction_isolation", Some(modes.level()), false)?;
            self.try_set("default_transaction_read_only", Some(&on_off(modes.read_only)), false)?;
        } else if let Some(block) = &mut self.core.block {
            let modes = block.modes().with(modes);
            let set = block.set_modes(&self.core.catalog, modes);
            if let Err(error) = &set {
                block.fail(error);
            }
            set?;
        } else {
            self.core.notice("SET TRANSACTION has no effect: it can only be used in transaction blocks");
        }
        Ok(StatementResult::Done { verb: "SET" })
    }

    /// Default transaction modes of BEGIN.
    pub(crate) fn default_modes(&self) -> Modes {
        let settings = self.core.variables.settings();
        Modes {
            isolation: level_named(settings.value("default_transaction_isolation")),
            read_only: settings.value("default_transaction_read_only") == "on",
        }
    }

    pub(crate) fn show(&mut self, name: &str) -> Result<StatementResult> {
        self.check_block()?;
        let shown = settings::find(name).and_then(|setting| Ok((setting.name.clone(), self.setting(name)?)));
        let (name, value) = shown.map_err(|error| self.failing(error))?;
        rows_of_texts(&[&name], vec![vec![value]])
    }

    pub(crate) fn show_all(&self) -> Result<StatementResult> {
        self.check_block()?;
        let mut columns = vec![Vec::new(), Vec::new(), Vec::new()];
        for setting in SETTINGS {
            columns[0].push(setting.name.to_string());
            columns[1].push(self.setting(&setting.name)?);
            columns[2].push(setting.help.to_owned());
        }
        rows_of_texts(&ALL_COLUMNS, columns)
    }

    pub(crate) fn discard(&mut self, what: DiscardObject) -> Result<StatementResult> {
        if self.core.block.is_some() && what == DiscardObject::ALL {
            let error = Error::coded("25001", "DISCARD ALL cannot run inside a transaction block");
            return Err(self.failing(error));
        }
        let verb = match what {
            DiscardObject::ALL => {
                self.reset_all()?;
                self.statements.clear();
                self.cursors.clear();
                self.core.variables.sequence_values.lock().clear();
                "DISCARD ALL"
            }
            // Plans are invalidated by themselves; there are no temporary tables.
            DiscardObject::PLANS => "DISCARD PLANS",
            DiscardObject::SEQUENCES => {
                self.core.variables.sequence_values.lock().clear();
                "DISCARD SEQUENCES"
            }
            DiscardObject::TEMP => "DISCARD TEMP",
        };
        Ok(StatementResult::Done { verb })
    }

    /// Refuses a statement in a failed block.
    pub(crate) fn check_block(&self) -> Result<()> {
        self.core.block.as_ref().map_or(Ok(()), |block| block.check())
    }

    /// Fails the open block, if there is one.
    pub(crate) fn failing(&mut self, error: Error) -> Error {
        if let Some(block) = &mut self.core.block {
            block.fail(&error);
        }
        error
    }

    /// Ends the settings of a block.
    pub(crate) fn end_settings(&mut self, committed: bool) {
        let Some(before) = self.core.settings_before.take() else { return };
        if committed {
            self.end_local_settings();
        } else {
            self.restore_settings(before);
        }
    }

    /// Ends values that last until the end of a block, or of a statement outside of one, to which `set_config` gave them.
    pub(crate) fn end_local_settings(&mut self) {
        if self.core.variables.settings().has_local() {
            self.core.variables.change(Settings::end_block);
            self.apply_former_settings();
        }
    }

    /// Restores earlier settings.
    pub(crate) fn restore_settings(&mut self, before: Arc<Settings>) {
        if self.core.variables.restore(before) {
            self.apply_former_settings();
        }
    }

    fn apply_former_settings(&mut self) {
        if let Err(error) = self.apply_settings() {
            tracing::warn!(%error, "could not restore a setting");
        }
    }

    /// Applies the settings to the session and to DataFusion.
    fn apply_settings(&mut self) -> Result<()> {
        let (durability, zone) = {
            let settings = self.core.variables.settings();
            (settings.value("durability").parse(), settings.value("TimeZone").to_owned())
        };
        self.core.durability = durability.map_err(|error| Error::coded("22023", format!("{error}")))?;
        let state = self.core.context.state_ref();
        let mut state = state.write();
        if state.config_options().execution.time_zone.as_ref() != Some(&zone) {
            time_zones::set(&mut state, &zone)?;
            self.core.zone = Zone::new(&zone)?;
            self.core.zone_changes += 1;
        }
        Ok(())
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
