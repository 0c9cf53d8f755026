//! Serve applications of RayServices.

use super::super::Cause;
use super::super::evidence::{Evidence, condition};
use super::super::text::{exception, one_line, shorten};
use super::patterns::sentence;
use super::subject_words;
use crate::conditions::APPLICATIONS_FAILED;
use crate::reasons;
use crate::service::CONFIG_REFUSED;
use manta_api::{ApplicationStatus, ClusterServeStatus};

/// Returns the applications with their names, those of the pending cluster first.
fn applications(evidence: &Evidence) -> impl Iterator<Item = (&String, &ApplicationStatus)> {
    let status = evidence.service_status();
    let slots = status.into_iter().flat_map(|status| [&status.pending_service_status, &status.active_service_status]);
    slots.flatten().flat_map(|slot: &ClusterServeStatus| slot.application_statuses.iter().flatten())
}

fn status_of(application: &ApplicationStatus) -> &str {
    application.status.as_deref().unwrap_or_default()
}

/// Returns everything that Serve says about an application: its own message, then those of its deployments.
fn message(application: &ApplicationStatus) -> String {
    let deployments = application.serve_deployment_statuses.iter().flatten();
    let of_deployments =
        deployments.filter(|(_, deployment)| deployment.status.as_deref() != Some("HEALTHY")).filter_map(
            |(name, deployment)| Some(format!("{name}: {}", deployment.message.as_ref().filter(|it| !it.is_empty())?)),
        );
    let own = application.message.clone().filter(|message| !message.is_empty());
    own.into_iter().chain(of_deployments).collect::<Vec<_>>().join("\n")
}

pub(super) fn refused_config(evidence: &Evidence) -> Option<Cause> {
    let who = subject_words(evidence);
    let advice = "Correct serveConfigV2; Ray's message names the field.";
    let conditions = evidence.service_status().and_then(|status| status.conditions.as_ref());
    let refused = condition(conditions, APPLICATIONS_FAILED)
        .filter(|condition| condition.status == "True" && condition.reason == CONFIG_REFUSED);
    if let Some(refused) = refused {
        let what = match applications(evidence).any(|(_, application)| status_of(application) == "RUNNING") {
            true => {
                format!("Ray does not accept the serveConfigV2 of {who}, so what it accepted before goes on serving")
            }
            false => format!("Ray does not accept the serveConfigV2 of {who}"),
        };
        let message = refused.message.strip_prefix("Ray refuses serveConfigV2: ").unwrap_or(&refused.message);
        return Some(
            Cause::new("ServeConfigRefused", who, sentence(&what, &one_line(message)), advice).with_details(message),
        );
    }
    // Other operators have only an event for it, which stays after Ray has accepted a later configuration.
    let event = evidence.events.iter().rfind(|event| event.reason == reasons::FAILED_TO_UPDATE_SERVE_APPLICATIONS)?;
    let accepted = evidence.events.iter().rfind(|event| event.reason == reasons::UPDATED_SERVE_APPLICATIONS);
    if accepted.is_some_and(|accepted| accepted.last > event.last) || applications(evidence).next().is_some() {
        return None;
    }
    let what = format!("Ray does not accept the serveConfigV2 of {who}");
    Some(
        Cause::new("ServeConfigRefused", who, sentence(&what, &one_line(&event.message)), advice)
            .with_details(&event.message),
    )
}

pub(super) fn failed_application(evidence: &Evidence) -> Option<Cause> {
    let (name, application) =
        applications(evidence).find(|(_, application)| status_of(application) == "DEPLOY_FAILED")?;
    let text = message(application);
    let error = exception(&text).map(shorten);
    let line = error.clone().unwrap_or_else(|| one_line(&text));
    let what = format!("Serve application {name} of {} cannot be deployed", subject_words(evidence));
    let (reason, advice) = match error.as_deref().unwrap_or_default() {
        error if error.contains("ModuleNotFoundError") || error.contains("ImportError") => (
            "ImportPathWrong",
            "Correct import_path in serveConfigV2, or provide the module in the image, working_dir or pip of its runtime_env.",
        ),
        error if error.contains("AttributeError") && text.contains("import") => {
            ("ImportPathWrong", "Correct import_path in serveConfigV2: the module has no such attribute.")
        }
        _ if text.to_lowercase().contains("runtime_env") || text.to_lowercase().contains("runtime environment") => (
            "ServeRuntimeEnvFailed",
            "Correct runtime_env of the application in serveConfigV2; the message below is Ray's.",
        ),
        "" => ("DeployFailed", "Ray's message is below; correct the application or serveConfigV2."),
        _ => ("DeploymentRaised", "The traceback below names the line of the deployment's code."),
    };
    Some(Cause::new(reason, subject_words(evidence), sentence(&what, &line), advice).with_details(&text))
}

pub(super) fn unhealthy_application(evidence: &Evidence) -> Option<Cause> {
    let (name, application) = applications(evidence).find(|(_, application)| {
        ["UNHEALTHY", "DEPLOYING"].contains(&status_of(application)) && !message(application).is_empty()
    })?;
    let text = message(application);
    let lower = text.to_lowercase();
    let who = subject_words(evidence);
    let status = status_of(application);
    let (reason, advice) = match () {
        () if lower.contains("taken more than") && lower.contains("scheduled")
            || lower.contains("resources required") =>
        {
            (
                "ReplicasNotScheduled",
                "Give the workers the resources that ray_actor_options asks for, or ask for less; the autoscaler needs a group that offers them.",
            )
        }
        () if lower.contains("taken more than") && lower.contains("initialize") => (
            "ReplicasSlow",
            "The constructor of the deployment takes long: look at the log of a worker, for example for a download.",
        ),
        () if status == "UNHEALTHY" => ("DeploymentUnhealthy", "Look at the log of the replicas; Serve restarts them."),
        () => ("ApplicationDeploying", "Wait; the message is Serve's."),
    };
    let line = exception(&text).map(shorten).unwrap_or_else(|| one_line(&text));
    let what = format!("Serve application {name} of {who} is {status}");
    Some(Cause::new(reason, who, sentence(&what, &line), advice).with_details(&text))
}

pub(super) fn waiting(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.service_status()?;
    let who = subject_words(evidence);
    if let Some((name, application)) =
        applications(evidence).find(|(_, application)| status_of(application) != "RUNNING")
    {
        let what = format!("{who} waits for Serve application {name}, which is {}.", status_of(application));
        return Some(Cause::new(
            "ApplicationNotRunning",
            who,
            what,
            "Wait, and look at the logs of the head if it takes long.",
        ));
    }
    if applications(evidence).next().is_none() {
        let what = format!("{who} waits for Serve to start its applications on the cluster.");
        return Some(Cause::new(
            "ServeNotStarted",
            who,
            what,
            "Wait, and look at the log of the head if it takes long.",
        ));
    }
    if status.num_serve_endpoints.unwrap_or(0) == 0 {
        let what = format!("The applications of {who} run, but no Pod takes requests: no Serve proxy is ready.");
        let advice =
            "Look at the readiness probes of the Pods, and whether port 8000 is declared as serve in their templates.";
        return Some(Cause::new("NoServeEndpoints", who, what, advice));
    }
    None
}
