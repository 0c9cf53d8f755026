//! The terms of a leader: the operator acts from winning the election until the Lease is lost.

use super::fence::Fence;
use super::{Candidate, Lost};
use crate::metrics::Telemetry;
use crate::run::{Settings, Term, run_as};
use kube::Client;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Runs an operator that takes part in the election, until it is stopped or another one leads. `client` returns a client
/// behind a fence, which ends its requests with the term.
///
/// # Errors
///
/// If another operator leads.
pub async fn run_elected(
    client: impl Fn(Fence) -> Client,
    settings: Settings,
    namespace: &str,
    stop: CancellationToken,
) -> Result<(), Lost> {
    let candidate = Candidate::new(client(Fence(CancellationToken::new())), namespace, &settings);
    let new_term = |term: &Term| Ok((client(Fence(term.lost.clone())), Telemetry::default()));
    run_terms(new_term, settings, Some(candidate), &stop).await
}

/// Runs one term after the other: a Lease that nobody else took is acquired again. Each starts with a client and with empty
/// caches, since another leader may have acted in between.
pub(crate) async fn run_terms<E: From<Lost>>(
    new_term: impl Fn(&Term) -> Result<(Client, Telemetry), E>,
    settings: Settings,
    mut candidate: Option<Candidate>,
    stop: &CancellationToken,
) -> Result<(), E> {
    loop {
        let term = Term::default();
        let (client, telemetry) = new_term(&term)?;
        match lead(client, settings.clone(), telemetry, candidate.as_mut(), &term, stop).await {
            Err(lost @ Lost::NotRenewed) => warn!("{lost}; waiting to acquire it again"),
            Err(lost) => return Err(lost.into()),
            Ok(()) => break,
        }
    }
    if let Some(candidate) = candidate {
        candidate.release().await;
    }
    Ok(())
}

/// Runs the operator for one term: it acts from winning the election until leadership is lost.
async fn lead(
    client: Client,
    settings: Settings,
    telemetry: Telemetry,
    candidate: Option<&mut Candidate>,
    term: &Term,
    stop: &CancellationToken,
) -> Result<(), Lost> {
    let metrics = Arc::clone(&telemetry.metrics);
    let fenced = settings.config.safeguards.leadership_fence;
    let stop = stop.child_token();
    let operator = run_as(client, settings, telemetry, term.clone(), stop.clone());
    let Some(candidate) = candidate else {
        term.elected.cancel();
        operator.await;
        return Ok(());
    };
    let leadership = async {
        let since = candidate.acquire().await;
        metrics.set_leader(true);
        term.elected.cancel();
        candidate.renew_until_lost(since).await
    };
    let ended = tokio::select! {
        biased;
        () = operator => Ok(()),
        lost = leadership => {
            // No request may be sent any more, not even by running passes.
            if fenced {
                term.lost.cancel();
            }
            stop.cancel();
            Err(lost)
        }
    };
    metrics.set_leader(false);
    ended
}
