//! Statements about roles in a session; [`crate::security::statements`] runs them.

use super::{Connection, Failure};
use crate::error::Report;
use crate::security::roles;
use crate::security::statements;
use entresol::query::{Error as QueryError, OwnerTarget, RoleStatement};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Connection {
    /// Runs a statement about roles: an implicit transaction is committed before it.
    pub(super) async fn run_role_statement(&mut self, statement: &RoleStatement) -> Result<(), Failure> {
        statements::check(statement, &self.shared.db, &self.role)?;
        self.commit_implicit().await?;
        let tag = statement.tag();
        if self.session.in_transaction() {
            let message = format!("{tag} cannot run inside a transaction block");
            return Err(Report::error("25001", message).into());
        }
        self.session.check_may_write(tag)?;
        // It takes effect on a thread that cannot be stopped.
        self.guard.statement.begin_definite().map_err(QueryError::from)?;
        if let RoleStatement::ChangeOwner { target, name, if_exists, to } = statement {
            self.change_owner((*target, name), to.as_deref(), *if_exists).await?;
        }
        let (shared, by) = (Arc::clone(&self.shared), self.role.name.clone());
        let statement = statement.clone();
        let running = tokio::task::spawn_blocking(move || statements::run(&statement, &shared.db, &by));
        let done = self.socket.guarded(&mut self.guard, running).await?;
        done.map_err(|error| Report::error("XX000", format!("a thread for blocking calls ended: {error}")))??;
        self.shared.roles_version.fetch_add(1, Ordering::Release);
        self.socket.out.complete(tag);
        Ok(())
    }

    /// Gives an object to a role; none: to that of the session. What a superuser has belongs to all of them.
    async fn change_owner(
        &mut self,
        (target, name): (OwnerTarget, &str),
        to: Option<&str>,
        if_exists: bool,
    ) -> Result<(), Failure> {
        let is_superuser = match to {
            None => self.role.administrator,
            Some(to) => statements::is_superuser(&self.shared.db, to)?,
        };
        let to = to.unwrap_or(&self.role.name);
        let changed = self.session.change_owner(target, name, (!is_superuser).then_some(to)).await;
        match changed {
            Err(error) if if_exists && matches!(error.sqlstate(), "42704" | "42P01") => {
                self.socket.out.report(&Report::notice(format!("{error}, skipping")));
                Ok(())
            }
            changed => Ok(changed?),
        }
    }

    /// Looks up the privileges of the role, if they may have changed: a grant holds from the next statement
    /// on.
    pub(super) fn refresh_role(&mut self) {
        let version = self.shared.roles_version.load(Ordering::Acquire);
        if self.roles_version == Some(version) {
            return;
        }
        let exist = roles::exist(&self.shared.db);
        let found = exist.and_then(|exist| Ok((exist, roles::find(&self.shared.db, &self.role.name)?)));
        match found {
            Ok((_, Some((role, _)))) => {
                self.role = role;
                self.trusted = false;
            }
            // A client that connected when there were no roles keeps its rights.
            Ok((false, None)) => self.trusted |= self.roles_version.is_none(),
            Ok((true, None)) if self.trusted => {}
            Ok((true, None)) => {
                self.role.administrator = false;
                self.role.grants.clear();
            }
            // It is looked up again with the next statement.
            Err(error) => {
                tracing::warn!(%error, "a role could not be looked up");
                return;
            }
        }
        self.roles_version = Some(version);
        self.session.set_role(self.role.clone());
        self.statement_cache.clear();
    }
}
