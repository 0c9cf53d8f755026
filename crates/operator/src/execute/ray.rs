//! Requests to Ray that change something: submits jobs, stops them, configures Serve.
//!
//! What becomes of a request is recorded with what the poller knows, and the poller asks at once, so that the next pass
//! sees the effect.

use super::RunningPass;
use crate::concurrency_limit::ConcurrencyLimit;
use crate::dashboard::Client;
use crate::dashboard::jobs::{self, JobError};
use crate::dashboard::poller::Pollers;
use crate::dashboard::serve::{self, ServeError};
use manta_logic::action::{Action, Kind, ObjectKey, Step};
use manta_logic::dashboard::{DashboardEndpoint, RayRequest, RequestFailure};
use manta_logic::job::dashboard::JobPoll;
use manta_logic::pass::StepResult;
use manta_logic::service::dashboard::{ServePoll, submit_failure};
use std::sync::Arc;
use tracing::{debug, info, warn};

/// Carries out the steps that are for Ray.
pub(crate) struct RayExecutor {
    pub(crate) dashboards: Client,
    pub(crate) limit: ConcurrencyLimit,
    pub(crate) jobs: Arc<Pollers<JobPoll>>,
    pub(crate) serve: Arc<Pollers<ServePoll>>,
}

impl RayExecutor {
    /// Carries out one step.
    pub(super) async fn execute(&self, pass: &RunningPass<'_>, step: &Step) -> StepResult {
        let Action::Ray { key, endpoint, request } = &step.action else { return StepResult::Skipped };
        let permit = self.limit.acquire().await;
        if pass.is_superseded() {
            return StepResult::Superseded;
        }
        let woken_by = pass.reason;
        let (verb, cluster, address) = (verb(request), &key.name, &endpoint.address);
        // A refused configuration is sent again every few seconds; one report is enough.
        let last_error = self.last_error(pass.key, key);
        match &last_error {
            None => info!(action = verb, %cluster, %address, why = step.why, %woken_by, "asking Ray"),
            Some(_) => debug!(action = verb, %cluster, %address, why = step.why, %woken_by, "asking Ray again"),
        }
        let result = permit.run(self.send(endpoint, request)).await;
        self.record(pass.key, key, request, &result);
        match result {
            Ok(()) => StepResult::Done,
            Err(RequestFailure { text: error, .. }) => {
                if last_error.as_ref() == Some(&error) {
                    debug!(action = verb, %cluster, %address, error, "request to Ray failed again");
                } else {
                    warn!(action = verb, %cluster, %address, why = step.why, error, "request to Ray failed");
                }
                StepResult::Failed(error)
            }
        }
    }

    /// Returns why the last request to configure Serve on a cluster failed, if it did.
    fn last_error(&self, owner: &ObjectKey, cluster: &ObjectKey) -> Option<String> {
        if owner.kind != Kind::RayService {
            return None;
        }
        let state = self.serve.state(owner)?;
        let attempt = state.get(&cluster.name)?.attempt.as_ref()?;
        attempt.result.as_ref().err().map(|failure| failure.text.clone())
    }

    async fn send(&self, endpoint: &DashboardEndpoint, request: &RayRequest) -> Result<(), RequestFailure> {
        match request {
            RayRequest::SubmitJob { body, .. } => match jobs::submit(&self.dashboards, endpoint, body).await {
                // An earlier request was carried out although its reply was lost.
                Ok(_) | Err(JobError::IdTaken(_)) => Ok(()),
                Err(error) => Err(error.to_string().into()),
            },
            RayRequest::StopJob { job_id } => {
                jobs::stop(&self.dashboards, endpoint, job_id).await.map_err(|error| error.to_string().into())
            }
            RayRequest::ConfigureServe { body, .. } => {
                serve::submit(&self.dashboards, endpoint, body).await.map_err(|error| RequestFailure {
                    text: submit_failure(&error.to_string()),
                    refusal: matches!(error, ServeError::Refused(_)).then(|| error.to_string()),
                })
            }
        }
    }

    fn record(
        &self,
        owner: &ObjectKey,
        cluster: &ObjectKey,
        request: &RayRequest,
        result: &Result<(), RequestFailure>,
    ) {
        let now = self.dashboards.now();
        match owner.kind {
            Kind::RayService => self.serve.record(owner, |state| {
                state.entry(cluster.name.clone()).or_default().record(request, result, now);
            }),
            _ => self.jobs.record(owner, |state| state.record(request, result, now)),
        }
    }
}

fn verb(request: &RayRequest) -> &'static str {
    match request {
        RayRequest::SubmitJob { .. } => "submit job",
        RayRequest::StopJob { .. } => "stop job",
        RayRequest::ConfigureServe { .. } => "configure Serve",
    }
}
