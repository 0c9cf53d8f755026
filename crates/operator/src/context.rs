//! Everything that a pass needs.

use crate::clock::{Clock, LocalZone};
use crate::dashboard::poller::Pollers;
use crate::events::Publisher;
use crate::execute::Executor;
use crate::existence_cache::ExistenceCache;
use crate::in_flight::InFlightWrites;
use crate::metrics::Metrics;
use crate::observe::Sources;
use crate::post_mortem::Recorder;
use crate::random::Random;
use crate::status_writer::StatusWriter;
use crate::stores::Stores;
use crate::watches::Watches;
use jiff::Timestamp;
use kube::Client;
use manta_logic::config::Config;
use manta_logic::job::dashboard::JobPoll;
use manta_logic::service::dashboard::ServePoll;
use std::sync::Arc;

/// The parts of a running operator.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) local_zone: LocalZone,
    pub(crate) random: Random,
    pub(crate) stores: Arc<Stores>,
    pub(crate) watches: Watches,
    pub(crate) in_flight: Arc<InFlightWrites>,
    pub(crate) existence: ExistenceCache,
    pub(crate) executor: Executor,
    pub(crate) status: StatusWriter,
    pub(crate) publisher: Publisher,
    /// The Ray jobs that are polled.
    pub(crate) jobs: Arc<Pollers<JobPoll>>,
    /// The RayServices whose Serve is polled.
    pub(crate) serve: Arc<Pollers<ServePoll>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorder: Recorder,
}

impl Context {
    /// Returns what a pass at this time knows.
    pub(crate) fn sources(&self, now: Timestamp, seed: u64) -> Sources<'_> {
        Sources {
            stores: &self.stores,
            in_flight: &self.in_flight,
            jobs: &self.jobs,
            serve: &self.serve,
            config: &self.config,
            now,
            local_zone: &self.local_zone,
            seed,
        }
    }
}
