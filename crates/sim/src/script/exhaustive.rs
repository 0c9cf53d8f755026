//! Every fault at every possible point of short scripts.

use super::{Act, Fault, Feature, Rules, Script, Timed};
use crate::network::Sent;

/// Short scripts, one for each thing that users ask for, with their names.
pub fn short_scripts() -> Vec<(String, Script)> {
    let create = |token, autoscaled, tls| {
        vec![(0, Act::CreateCluster { cluster: 0, workers: 1, token, autoscaled, tls, queue: false })]
    };
    let with = |feature| {
        let resize = (25_000, Act::Scale { cluster: 0, workers: 2 });
        vec![(0, Act::CreateClusterWith { cluster: 0, workers: 1, feature }), resize]
    };
    let job = |http, fails| vec![(0, Act::CreateJob { job: 0, http, fails, retries: 1, shutdown: true, queue: false })];
    let upgrade = |create: Act| vec![(0, create), (60_000, Act::UpgradeService(0))];
    let mut scripts = vec![
        ("a cluster".to_owned(), create(true, true, false)),
        ("an encrypted cluster".to_owned(), create(false, false, true)),
        ("a job by HTTP".to_owned(), job(true, false)),
        ("a job by a submitter, which fails".to_owned(), job(false, true)),
        ("a service".to_owned(), upgrade(Act::CreateService(0))),
        ("a service with volumes".to_owned(), upgrade(Act::CreateDurableService(0))),
        ("an incremental service".to_owned(), upgrade(Act::CreateIncrementalService(0))),
        ("a schedule".to_owned(), vec![(0, Act::CreateCronJob(0)), (70_000, Act::Correct)]),
        ("a cluster that is re-created".to_owned(), {
            let mut acts = create(true, false, false);
            acts.push((20_000, Act::RecreateCluster { cluster: 0, secret_stays: true }));
            acts
        }),
    ];
    scripts.extend(Feature::all().map(|feature| (format!("a cluster with {feature:?}"), with(feature))));
    scripts.extend(Rules::ALL.map(|rules| {
        let act = Act::CreateJobWithRules { job: 0, http: true, fails: false, rules };
        (format!("a job with rules for {rules:?}"), vec![(0, act)])
    }));
    let script = |acts: Vec<(u64, Act)>| Script {
        seed: 7,
        acts: acts.into_iter().map(|(at, act)| Timed { at, act }).collect(),
        ..Script::default()
    };
    let queued = [
        (
            "a cluster in a queue",
            Act::CreateCluster { cluster: 0, workers: 1, token: false, autoscaled: false, tls: false, queue: true },
        ),
        (
            "a job in a queue",
            Act::CreateJob { job: 0, http: true, fails: false, retries: 0, shutdown: true, queue: true },
        ),
    ];
    scripts.extend(queued.map(|(name, create)| (name.to_owned(), vec![(0, create), (30_000, Act::Evict(0))])));
    let mut scripts: Vec<(String, Script)> = scripts.into_iter().map(|(name, acts)| (name, script(acts))).collect();
    let elected = [
        ("a cluster of two operators", create(true, false, false)),
        ("a job of two operators", job(false, false)),
        ("a service of two operators", upgrade(Act::CreateService(0))),
    ];
    scripts.extend(elected.map(|(name, acts)| (name.to_owned(), Script { elected: true, ..script(acts) })));
    scripts
}

/// Returns what can happen to a script at any moment, beside what happens to single requests.
fn disturbances(script: &Script) -> Vec<Act> {
    let mut acts = vec![
        Act::Partition { operator: 0, seconds: 20 },
        Act::Outage(20),
        Act::FailReads(30),
        Act::FailPod(0),
        Act::EvictPod(1),
        Act::DeletePod(0),
        Act::RelabelPod(0),
        Act::OrphanPod(1),
        Act::LoseNode(20),
        Act::SlowEnds(30),
        Act::FullNodes(20),
        Act::Quota(10),
        Act::Deny(10),
        Act::Silence(20),
        Act::OldDashboards(30),
        Act::Amnesia,
        Act::Forgetful(20),
        Act::CutWatches,
        Act::ExpireWatches,
        Act::RewindWatches(20),
        Act::Lag { millis: 5_000, seconds: 20 },
        Act::LateDeletions { millis: 15_000, seconds: 60 },
        Act::Crash { operator: 0, millis: 2_000 },
        Act::ClockJump { operator: 0, seconds: 50 },
        Act::TakeOver { millis: 2_000 },
        Act::DeleteSecret(0),
        Act::DeleteHeadService(0),
        Act::OrphanHeadService(0),
    ];
    acts.extend((0..6).map(|kind| Act::LagKind { kind, millis: 10_000, seconds: 20 }));
    acts.extend(script.acts.first().map(|first| by_users(&first.act)).unwrap_or_default());
    acts
}

/// Returns what users can do to what a script creates.
fn by_users(create: &Act) -> Vec<Act> {
    match create {
        Act::CreateJob { .. } | Act::CreateJobWithRules { .. } => vec![
            Act::Invalidate { kind: 1, name: 0 },
            Act::SuspendJob { job: 0, suspend: true },
            Act::RecreateJob(0),
            Act::RecreateJobUnseen(0),
            Act::DeleteJob(0),
        ],
        Act::CreateService(_) | Act::CreateDurableService(_) | Act::CreateIncrementalService(_) => vec![
            Act::Invalidate { kind: 2, name: 0 },
            Act::SuspendService { service: 0, suspend: true },
            Act::UpgradeService(0),
            Act::RevertService(0),
            Act::ReconfigureService(0),
            Act::DeleteService(0),
        ],
        Act::CreateCronJob(_) => vec![
            Act::Invalidate { kind: 3, name: 0 },
            Act::SuspendCronJob { cron_job: 0, suspend: true },
            Act::DeleteCronJob(0),
        ],
        _ => vec![
            Act::Invalidate { kind: 0, name: 0 },
            Act::Suspend { cluster: 0, suspend: true },
            Act::SuspendGroup { cluster: 0, suspend: true },
            Act::Scale { cluster: 0, workers: 3 },
            Act::Scale { cluster: 0, workers: 0 },
            Act::Autoscale { cluster: 0, change: -1 },
            Act::RecreateCluster { cluster: 0, secret_stays: false },
            Act::RecreateClusterUnseen(0),
            Act::DeleteCluster(0),
        ],
    }
}

/// Returns the script with every fault at every write and every request to Ray, and every disturbance right after it, one
/// at a time.
pub fn everything_once(script: &Script, sent: &Sent) -> Vec<(String, Script)> {
    let mut all = Vec::new();
    for number in 0..sent.writes.len() as u64 {
        all.extend(Fault::ALL.map(|fault| (format!("write {number}: {fault:?}"), script.with_fault(number, fault))));
    }
    for number in 0..sent.to_ray.len() as u64 {
        let faulty = |fault| (format!("request {number} to Ray: {fault:?}"), script.with_ray_fault(number, fault));
        all.extend(Fault::ALL.map(faulty));
    }
    let after_writes = sent.writes.iter().enumerate().map(|(number, at)| (format!("after write {number}"), at));
    let after_requests =
        sent.to_ray.iter().enumerate().map(|(number, at)| (format!("after request {number} to Ray"), at));
    for (when, at) in after_writes.chain(after_requests) {
        for act in disturbances(script) {
            let mut disturbed = script.clone();
            disturbed.acts.push(Timed { at: at + 1, act: act.clone() });
            disturbed.acts.sort_by_key(|timed| timed.at);
            all.push((format!("{when}: {act:?}"), disturbed));
        }
    }
    all
}
