//! Topologies that are planned again around a change of what they read or write.
//!
//! ```text
//!   stop those that depend on it ─▶ change ─▶ plan all users ─▶ start those that were stopped
//!                                               └ one cannot be: the change is taken back, and the error returned
//! ```
//! A topology that is stopped commits its open transaction and goes on behind it. Nothing of this is stored: after a crash
//! all topologies start with the definitions that there are.

use crate::ddl::stored_topologies;
use crate::error::{Error, Result};
use crate::materialized::deferred;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::streaming::starting::{operators, parse, relations_named, start, stream_error};
use crate::streaming::steps;

/// Topologies that use what is changed.
pub(crate) struct ReplannedTopologies<'s> {
    session: &'s SessionCore,
    /// Users that could be planned before.
    users: Vec<String>,
    stopped: Vec<String>,
}

impl<'s> ReplannedTopologies<'s> {
    /// Stops those of the users that depend on what is changed.
    pub(crate) async fn stop(
        session: &'s SessionCore,
        users: Vec<String>,
        depends: impl Fn(&str) -> bool,
    ) -> Result<ReplannedTopologies<'s>> {
        let topologies = &session.options.topologies;
        let stopped: Vec<String> =
            users.iter().filter(|user| depends(user) && topologies.is_running(user)).cloned().collect();
        let mut replanning = ReplannedTopologies { session, users: Vec::new(), stopped };
        for user in users {
            if !topologies.has_failed(&user) && replanning.check_user(&user).await.is_ok() {
                replanning.users.push(user);
            }
        }
        let (topologies, names) = (topologies.clone(), replanning.stopped.clone());
        blocking(move || names.iter().for_each(|name| topologies.pause(name))).await?;
        Ok(replanning)
    }

    /// Checks that all users can be planned with what there is now.
    pub(crate) async fn check(&self) -> Result<()> {
        for user in &self.users {
            if let Err(error) = self.check_user(user).await {
                let message = format!("topology {user} could not go on: {error}");
                return Err(Error::coded("2BP01", message));
            }
        }
        Ok(())
    }

    async fn check_user(&self, user: &str) -> Result<()> {
        let session = self.session;
        let all = stored_topologies::topologies(&session.catalog)?;
        // The topology of a materialized view has no plan.
        let Some(stored) = all.into_iter().find(|stored| stored.name == user) else { return Ok(()) };
        let create = parse(&stored.text)?;
        let planned = steps::plan(session, &create).await?;
        let (builder, _) = operators(&session.catalog, &create, &planned, session.options.durability, &[])?;
        builder.check().map_err(stream_error)
    }

    /// Starts all that were stopped; the first error that is none of a topology is returned behind that. One that does not
    /// start is shown as failed, with the reason.
    pub(crate) async fn start(self) -> Result<()> {
        let mut result = Ok(());
        for name in &self.stopped {
            let started = self.start_again(name).await;
            result = result.and(started);
        }
        result
    }

    async fn start_again(&self, name: &str) -> Result<()> {
        let all = stored_topologies::topologies(&self.session.catalog)?;
        let Some(stored) = all.iter().find(|stored| stored.name == name) else {
            return deferred::start(self.session, name);
        };
        let create = parse(&stored.text);
        let started = match &create {
            Ok(create) => start(self.session, create, false).await,
            Err(error) => Err(Error::Internal(error.to_string())),
        };
        if let Err(error) = started {
            tracing::error!(topology = name, %error, "a topology does not go on");
            self.session.notice(format!("topology {name} does not go on: {error}"));
            let topologies = &self.session.options.topologies;
            match create {
                Ok(create) => topologies.note(name, Some(error.to_string()), relations_named(&create)),
                Err(_) => topologies.fail(name, error.to_string()),
            }
        }
        Ok(())
    }
}
