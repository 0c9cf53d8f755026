//! Upgrades of RayServices that wait, or were given up.

use super::super::Cause;
use super::super::evidence::{Evidence, condition};
use super::patterns::sentence;
use super::subject_words;
use crate::conditions::{READY, UPGRADE_IN_PROGRESS, UPGRADE_STALLED};
use crate::reasons;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

fn of<'a>(evidence: &'a Evidence, type_: &str) -> Option<&'a Condition> {
    condition(evidence.service_status()?.conditions.as_ref(), type_)
}

pub(super) fn gave_up(evidence: &Evidence) -> Option<Cause> {
    let upgrade = of(evidence, UPGRADE_IN_PROGRESS).filter(|upgrade| upgrade.reason == reasons::UPGRADE_GIVEN_UP)?;
    let who = subject_words(evidence);
    let what = format!("The upgrade of {who} was given up, and the old cluster goes on serving");
    let advice = "Correct what the message names and change the spec; that starts a new upgrade.";
    Some(Cause::new("UpgradeGivenUp", who, sentence(&what, &upgrade.message), advice))
}

pub(super) fn timed_out(evidence: &Evidence) -> Option<Cause> {
    let ready = of(evidence, READY).filter(|ready| ready.reason == "InitializingTimeout" && ready.status != "True")?;
    let who = subject_words(evidence);
    let what = format!("{who} did not become ready in time, and its clusters were deleted");
    let advice = "Correct what the timeline shows, then suspend and resume the RayService, or create it again.";
    Some(Cause::new("InitializingTimeout", who, sentence(&what, &ready.message), advice))
}

pub(super) fn waiting(evidence: &Evidence) -> Option<Cause> {
    let who = subject_words(evidence);
    if let Some(stalled) = of(evidence, UPGRADE_STALLED).filter(|stalled| stalled.status == "True") {
        let what = format!("The upgrade of {who} makes no progress");
        let advice = "Resolve what it waits for; the old cluster goes on serving meanwhile.";
        return Some(Cause::new("UpgradeStalled", who, sentence(&what, &stalled.message), advice));
    }
    of(evidence, UPGRADE_IN_PROGRESS).filter(|upgrade| upgrade.status == "True")?;
    let status = evidence.service_status()?;
    let pending = status.pending_service_status.as_ref()?.ray_cluster_name.as_deref()?;
    let head_ready = evidence
        .pods
        .iter()
        .any(|pod| pod.is_head() && pod.is_ready() && pod.metadata.label("ray.io/cluster") == pending);
    let what = match head_ready {
        false => format!("{who} is being upgraded and waits for the head of its new cluster {pending}."),
        true => format!("{who} is being upgraded and waits for the applications on its new cluster {pending}."),
    };
    Some(Cause::new("UpgradeWaiting", who, what, "Wait; the old cluster goes on serving meanwhile."))
}
