//! RayJobs, clusters, and a world of plain values in which a plan's writes take effect.

use crate::action::{Accept, Action, Event, EventKind, Kind, ObjectKey, Outcome, Wake, merge};
use crate::config::Config;
use crate::job::dashboard::{Answer, Ask, Heard, JobInfo, Stop};
use crate::job::{Mode, Observed, Plan, plan, settle};
use crate::view::{ContainerStatusView, JobConditionView, JobView, PodView, ServiceView, TerminatedView, WholeView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{RayCluster, RayClusterStatus, RayJob, RayJobStatus};
use serde_json::{Value, json};

/// The moment some seconds after the tests' beginning of time.
pub(crate) fn moment(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

/// The same as a field of an object.
pub(crate) fn at(seconds: i64) -> Time {
    Time(moment(seconds))
}

/// A RayJob with a cluster of one worker.
pub(crate) fn job(name: &str) -> RayJob {
    let mut job: RayJob = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "1"},
        "spec": {
            "entrypoint": "python train.py",
            "backoffLimit": 0,
            "rayClusterSpec": cluster_spec(),
        },
    }))
    .unwrap();
    job.metadata.creation_timestamp = Some(at(0));
    job
}

/// A RayCluster.
pub(crate) fn cluster(name: &str) -> RayCluster {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "1"},
        "spec": cluster_spec(),
    }))
    .unwrap()
}

fn cluster_spec() -> Value {
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "rayproject/ray:2.53.0"}]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 5,
            "template": {"spec": {"containers": [{"name": "ray-worker", "image": "rayproject/ray:2.53.0"}]}},
        }],
    })
}

/// A RayJob, everything around it, and the time.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) seen: Observed,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    /// Events so far, as `type reason: note`.
    pub(crate) events: Vec<String>,
    /// The bodies that were posted to Ray.
    pub(crate) submissions: Vec<Value>,
    /// Every creation, as `kind name`.
    pub(crate) created: Vec<String>,
    /// Every deletion, as `kind name`.
    pub(crate) deleted: Vec<String>,
    /// The kinds whose writes fail.
    pub(crate) broken: Vec<Kind>,
    /// Whether a deleted cluster stays, held by somebody's finalizer.
    pub(crate) held: bool,
    pub(crate) last: Option<Plan>,
    pub(crate) job_is_gone: bool,
}

impl World {
    pub(crate) fn new(mode: Mode) -> Self {
        let mut job = job("train");
        job.spec.submission_mode = Some(mode.as_str().to_owned());
        Self::of(job)
    }

    pub(crate) fn of(job: RayJob) -> Self {
        Self {
            seen: Observed { job, seed: 7, ..Observed::default() },
            config: Config::default(),
            now: moment(0),
            events: Vec::new(),
            submissions: Vec::new(),
            created: Vec::new(),
            deleted: Vec::new(),
            broken: Vec::new(),
            held: false,
            last: None,
            job_is_gone: false,
        }
    }

    /// With a changed spec.
    pub(crate) fn spec(mut self, edit: impl FnOnce(&mut manta_api::RayJobSpec)) -> Self {
        edit(&mut self.seen.job.spec);
        self
    }

    /// A job that runs on a ready cluster, at second 10.
    pub(crate) fn running(mode: Mode) -> Self {
        Self::new(mode).run()
    }

    /// Goes on until the job runs.
    pub(crate) fn run(mut self) -> Self {
        self.settle();
        self.make_ready();
        self.now = moment(10);
        self.settle();
        assert_eq!(self.phase(), "Running");
        self
    }

    pub(crate) fn status(&self) -> RayJobStatus {
        self.seen.job.status.clone().unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> String {
        self.status().job_deployment_status.unwrap_or_default()
    }

    pub(crate) fn job_status(&self) -> String {
        self.status().job_status.unwrap_or_default()
    }

    pub(crate) fn reason(&self) -> String {
        self.status().reason.unwrap_or_default()
    }

    pub(crate) fn message(&self) -> String {
        self.status().message.unwrap_or_default()
    }

    /// `phase/job status/reason`.
    pub(crate) fn summary(&self) -> String {
        format!("{}/{}/{}", self.phase(), self.job_status(), self.reason())
    }

    /// Plans once and carries it out. False if nothing was written.
    pub(crate) fn pass(&mut self) -> bool {
        let plan = plan(&self.seen, self.now, &self.config);
        assert_eq!(plan, crate::job::plan(&self.seen, self.now, &self.config), "same inputs, same plan");
        if let Wake::At(moment) = plan.wake {
            assert!(moment > self.now, "wakes in the past");
        }
        for event in &plan.events {
            self.note(event, "");
        }
        let mut outcome = Outcome::default();
        let mut wrote = false;
        'stages: for stage in &plan.stages {
            for step in stage {
                wrote = true;
                let key = step.action.key().clone();
                if self.broken.contains(&key.kind) {
                    if let Some(event) = &step.failed {
                        self.note(event, "out of order");
                    }
                    let error = "out of order".to_owned();
                    outcome.failure = Some(crate::action::Failure { reason: None, error });
                    break 'stages;
                }
                let done = self.carry_out(&step.action, &key, step.accept);
                if let (Some(event), true) = (&step.done, done) {
                    self.note(event, "");
                }
            }
        }
        if let Some(status) = settle(&plan, &outcome) {
            self.seen.job.status = Some(status);
            wrote = true;
        }
        // As the operator does: another job, another answer.
        match &plan.dashboard {
            None => self.seen.dashboard = Default::default(),
            Some(watch) => {
                self.seen.dashboard.heard = self.seen.dashboard.about(&watch.job_id).cloned();
                self.seen.dashboard.asked_since.get_or_insert(self.now);
            }
        }
        self.last = Some(plan);
        wrote
    }

    /// Plans until nothing is written any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..12 {
            if !self.pass() || self.job_is_gone {
                return;
            }
        }
        panic!("no rest in {}: {:?}", self.summary(), self.last);
    }

    /// Time passes, plan by plan.
    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.settle();
    }

    /// The cluster becomes ready.
    pub(crate) fn make_ready(&mut self) {
        let cluster = self.seen.cluster.as_mut().expect("a cluster");
        let status = cluster.status.get_or_insert_with(RayClusterStatus::default);
        status.state = Some("ready".to_owned());
        let service =
            json!({"spec": {"ports": [{"name": "client", "port": 10001}, {"name": "dashboard", "port": 8265}]}});
        self.seen.cluster_head_service = Some(serde_json::from_value(service).unwrap());
        self.seen.head_pods = vec![PodView::default()];
    }

    /// What the poller would do now, if Ray knew `known` about the job.
    pub(crate) fn poll(&mut self, known: Result<Option<JobInfo>, &str>) {
        let Some(watch) = self.last.as_ref().and_then(|plan| plan.dashboard.clone()) else { return };
        let answer = match (&watch.ask, known) {
            (Ask::Stop, Ok(_)) => {
                self.seen.dashboard.stop = Some(Stop::Done);
                self.settle();
                return;
            }
            (Ask::Stop, Err(_)) => {
                self.seen.dashboard.stop.get_or_insert(Stop::Failed { since: self.now });
                self.settle();
                return;
            }
            (Ask::InfoOrSubmit(body), Ok(None)) => {
                self.submissions.push(body.clone());
                Answer::Info(JobInfo { status: "PENDING".into(), ..JobInfo::default() })
            }
            (_, Ok(Some(info))) => Answer::Info(info),
            (_, Ok(None)) => Answer::NotFound,
            (_, Err(error)) => Answer::Failed(error.to_owned()),
        };
        self.seen.dashboard.heard = Some(Heard { job_id: watch.job_id, at: self.now, answer });
        self.settle();
    }

    /// Ray answers that the job has a status.
    pub(crate) fn says(&mut self, status: &str) {
        self.poll(Ok(Some(info(status, self.now))));
    }

    /// Ray answers that it does not know the job.
    pub(crate) fn says_unknown(&mut self) {
        self.poll(Ok(None));
    }

    /// Ray does not answer.
    pub(crate) fn is_silent(&mut self) {
        self.poll(Err("connection refused"));
    }

    /// The submitter Job gets a condition.
    pub(crate) fn submitter_is(&mut self, condition: &str) {
        let submitter = self.seen.submitter.as_mut().expect("a submitter");
        submitter.status.conditions.push(JobConditionView {
            type_: condition.to_owned(),
            status: "True".to_owned(),
            reason: "BackoffLimitExceeded".to_owned(),
            message: "Job has reached the specified backoff limit".to_owned(),
            last_transition_time: Some(self.now),
        });
        self.settle();
    }

    /// The sidecar ends.
    pub(crate) fn sidecar_exits(&mut self, exit_code: i32) {
        let terminated = TerminatedView {
            exit_code,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.to_owned(),
            finished_at: Some(self.now),
            ..TerminatedView::default()
        };
        self.sidecar(|status| status.state.terminated = Some(Box::new(terminated)));
    }

    /// The sidecar's status changes.
    pub(crate) fn sidecar(&mut self, edit: impl FnOnce(&mut ContainerStatusView)) {
        let pod = self.seen.head_pods.first_mut().expect("a head Pod");
        let mut status = ContainerStatusView { name: "ray-job-submitter".to_owned(), ..Default::default() };
        edit(&mut status);
        pod.status.container_statuses = vec![status];
        self.settle();
    }

    fn note(&mut self, event: &Event, error: &str) {
        let kind = if event.kind == EventKind::Normal { "Normal" } else { "Warning" };
        self.events.push(format!("{kind} {}: {}{error}", event.reason, event.note));
    }

    fn carry_out(&mut self, action: &Action, key: &ObjectKey, accept: Accept) -> bool {
        let resource = key.kind.resource();
        let path = format!("{} {}", resource.kind, key.name);
        match action {
            Action::Create { body, .. } => {
                let mut body = body.value();
                body["metadata"]["uid"] = json!(format!("uid-of-{}", key.name));
                let exists = match key.kind {
                    Kind::RayCluster => self.seen.cluster.is_some(),
                    Kind::Service => self.seen.head_service.is_some(),
                    Kind::Job => self.seen.submitter.is_some(),
                    Kind::PodGroup(_) => self.seen.pod_group.is_some(),
                    kind => panic!("creates a {kind:?}"),
                };
                if exists {
                    assert_eq!(accept, Accept::AlreadyExists, "creates {path} twice");
                    return false;
                }
                self.created.push(path);
                match key.kind {
                    Kind::RayCluster => self.seen.cluster = Some(serde_json::from_value(body).unwrap()),
                    Kind::Service => self.seen.head_service = Some(read::<ServiceView>(body)),
                    Kind::PodGroup(_) => self.seen.pod_group = Some(read::<WholeView>(body)),
                    _ => self.seen.submitter = Some(read::<JobView>(body)),
                }
            }
            Action::Merge { patch, .. } => match key.kind {
                Kind::RayJob => {
                    merge_into(&mut self.seen.job, patch);
                    let held = self.seen.job.metadata.finalizers.iter().flatten().count() > 0;
                    self.job_is_gone = self.seen.job.metadata.deletion_timestamp.is_some() && !held;
                }
                Kind::RayCluster => merge_into(self.seen.cluster.as_mut().expect("a cluster"), patch),
                Kind::Service => {
                    let service = self.seen.head_service.as_mut().expect("a Service");
                    service.spec = read(patch["spec"].clone());
                }
                Kind::PodGroup(_) => {
                    let group = self.seen.pod_group.as_mut().expect("a PodGroup");
                    merge(&mut group.object, patch);
                }
                kind => panic!("patches a {kind:?}"),
            },
            Action::Delete { uid, .. } => {
                assert_eq!(*uid, format!("uid-of-{}", key.name), "deletes what it saw");
                self.deleted.push(path);
                match key.kind {
                    Kind::RayCluster if self.held => {
                        let cluster = self.seen.cluster.as_mut().expect("a cluster");
                        cluster.metadata.deletion_timestamp = Some(Time(self.now));
                    }
                    Kind::RayCluster => self.seen.cluster = None,
                    Kind::Job => self.seen.submitter = None,
                    Kind::RayJob => self.seen.job.metadata.deletion_timestamp = Some(Time(self.now)),
                    kind => panic!("deletes a {kind:?}"),
                }
            }
            Action::Replace { .. } => panic!("replaces {path}"),
        }
        true
    }
}

/// A job info with times as Ray gives them.
pub(crate) fn info(status: &str, now: Timestamp) -> JobInfo {
    let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
    let ended = matches!(status, "SUCCEEDED" | "FAILED" | "STOPPED");
    JobInfo {
        status: status.to_owned(),
        message: if ended { format!("it {}", status.to_lowercase()) } else { String::new() },
        start_time: if status == "PENDING" { 0 } else { milliseconds },
        end_time: if ended { milliseconds } else { 0 },
    }
}

fn read<T: serde::de::DeserializeOwned>(body: Value) -> T {
    serde_json::from_value(body).unwrap()
}

fn merge_into<T: serde::Serialize + serde::de::DeserializeOwned>(object: &mut T, patch: &Value) {
    let mut value = serde_json::to_value(&*object).unwrap();
    merge(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}
