//! Writing of the touched groups of a window, each as a row or in pages.
//!
//! | window | rows are chosen | pages are chosen |
//! | --- | --- | --- |
//! | in rows, or new | rows of touched groups | all groups are written, in pages |
//! | in known pages | all groups are written, as rows | pages with touched groups |
//! | unknown, all groups in DRAM | all groups are written, as rows | all groups are written, in pages |
//! | unknown, groups missing | touched groups, each where it is | the same |
//!
//! All but the last read nothing: where a commit may run beside the next transaction, it goes on doing so. Windows that are written as
//! a whole replace all entries of the window in the transaction.
//!
//! Only a state that is not divided has pages: those of a divided one would have groups of several threads. Groups that may have
//! several rows ([`super::state_rows`]) have none either: a text that is large would fill them.

use crate::error::Result;
use crate::event_time::EventTime;
use crate::execution::epoch_transaction::EpochTransaction;
use crate::operators::state_form::StateForm;
use crate::operators::stored_windows::prefix;
use crate::operators::window_pages::{StoredForm, WindowPages};
use crate::operators::window_state::WindowState;

impl WindowState {
    /// Tells whether groups may be stored in pages.
    fn may_have_pages(&self) -> bool {
        self.table.has_pages()
            && self.part.of == 1
            && self.table.indexes().is_empty()
            && !self.rows.is_divided()
    }

    /// Tells whether a window is removed row by row.
    pub(super) fn removes_rows(&self, start: EventTime) -> bool {
        let is_in_rows =
            self.windows.get(&start).is_none_or(|window| matches!(window.form, StoredForm::Rows));
        is_in_rows || !self.may_have_pages()
    }

    /// Writes the touched groups of a window.
    pub(super) fn write_window(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        let may_have_pages = self.may_have_pages();
        let Some(window) = self.windows.get_mut(&start).filter(|window| !window.touched.is_empty()) else {
            return Ok(());
        };
        let wanted = if may_have_pages {
            self.choice.note(window.touched.len(), window.index.len())
        } else {
            StateForm::Rows
        };
        let may_change = may_have_pages && window.complete;
        match (&window.form, wanted) {
            (StoredForm::Pages(_), StateForm::Pages) if may_have_pages => self.write_pages(epoch, start),
            (StoredForm::Rows, StateForm::Rows) => self.write_rows(epoch, start, true),
            _ if may_change => self.write_anew(epoch, start, wanted),
            (StoredForm::Rows, StateForm::Pages) => self.write_rows(epoch, start, true),
            _ => self.write_rows(epoch, start, false),
        }
    }

    /// Writes touched groups as rows; if they may be in pages, each where it is.
    fn write_rows(&mut self, epoch: &EpochTransaction, start: EventTime, is_known: bool) -> Result<()> {
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        if !is_known {
            window.form = StoredForm::Unknown;
        }
        let groups = window.take_touched();
        let Some(rows) = self.rows_of(start, &groups)? else { return Ok(()) };
        if is_known { epoch.upsert_known(&self.table, &rows) } else { epoch.upsert(&self.table, &rows) }
    }

    /// Writes the pages that have touched groups.
    fn write_pages(&mut self, epoch: &EpochTransaction, start: EventTime) -> Result<()> {
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        let touched = window.take_touched();
        let StoredForm::Pages(pages) = &mut window.form else { return Ok(()) };
        let dirty = pages.dirty(&window.index, &touched);
        let Some(rows) = self.rows_of(start, &dirty.groups)? else { return Ok(()) };
        let Some(encoded) = self.table.encode_known_upsert(&rows)? else {
            return Ok(self.table.upsert_batch(epoch.get()?, &rows)?);
        };
        let (encoded, ends) = self.table.into_pages(&encoded, &dirty.ends);
        self.choice.note_pages(dirty.groups.len(), ends.len());
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        if let StoredForm::Pages(pages) = &mut window.form {
            pages.made(&dirty, &ends);
        }
        if !dirty.moved.is_empty() {
            let keys = self.key_rows(start, &self.windows[&start], &dirty.moved)?;
            self.table.delete_entries_at(epoch.get()?, &keys)?;
        }
        epoch.upsert_encoded(&self.table, &[encoded])
    }

    /// Writes all groups of a window, which are in DRAM, in a form.
    fn write_anew(&mut self, epoch: &EpochTransaction, start: EventTime, form: StateForm) -> Result<()> {
        let Some(window) = self.windows.get_mut(&start) else { return Ok(()) };
        let is_new = window.is_new();
        window.take_touched();
        let groups = window.present();
        let Some(rows) = self.rows_of(start, &groups)? else { return Ok(()) };
        let Some(encoded) = self.table.encode_known_upsert(&rows)? else {
            return Ok(self.table.upsert_batch(epoch.get()?, &rows)?);
        };
        if !is_new {
            // An abort reads it again from its beginning.
            self.left.push(start);
            self.table.delete_entries(epoch.get()?, &prefix(start))?;
        }
        let (encoded, form) = match form {
            StateForm::Rows => (encoded, StoredForm::Rows),
            StateForm::Pages => {
                let (paged, ends) = self.table.into_pages(&encoded, &[groups.len()]);
                self.choice.note_pages(groups.len(), ends.len());
                (paged, StoredForm::Pages(WindowPages::of(&groups, &ends)))
            }
        };
        if let Some(window) = self.windows.get_mut(&start) {
            window.all_stored();
            window.form = form;
        }
        self.count(start);
        epoch.upsert_encoded(&self.table, &[encoded])
    }
}
