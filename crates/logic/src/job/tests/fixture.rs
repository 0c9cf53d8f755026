//! RayJobs, clusters, and a world of plain values in which whole passes take effect.

use crate::action::{EventKind, Kind, ObjectKey};
use crate::config::Config;
use crate::dashboard::{RayRequest, RequestFailure};
use crate::fake_api::{FakeApi, Ran, view};
use crate::job::dashboard::{JobAnswer, JobInfo, JobReply};
use crate::job::{Mode, Observed, Plan};
use crate::names;
use crate::view::{ContainerStatusView, JobConditionView, MetaView, PodView, TerminatedView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{RayCluster, RayClusterStatus, RayJob, RayJobStatus};
use serde_json::{Value, json};

const POD_GROUP: Kind = Kind::PodGroup(crate::action::PodGroupApi::Volcano);

/// Returns the moment some seconds after the start of the tests.
pub(crate) fn moment(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

/// Returns the same as a field of an object.
pub(crate) fn at(seconds: i64) -> Time {
    Time(moment(seconds))
}

/// Returns a RayJob with a cluster of one worker.
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

/// Returns a RayCluster.
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
pub(crate) struct World {
    pub(crate) seen: Observed,
    pub(crate) api: FakeApi,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    /// Events so far, as `type reason: note`.
    pub(crate) events: Vec<String>,
    /// The bodies that were posted to Ray.
    pub(crate) submissions: Vec<Value>,
    /// The jobs that Ray was asked to stop.
    pub(crate) stopped: Vec<String>,
    /// Whether the dashboard is unreachable.
    pub(crate) dashboard_down: bool,
    pub(crate) last: Option<Ran<RayJob>>,
    pub(crate) job_deleted: bool,
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
            api: FakeApi::default(),
            config: Config::default(),
            now: moment(0),
            events: Vec::new(),
            submissions: Vec::new(),
            stopped: Vec::new(),
            dashboard_down: false,
            last: None,
            job_deleted: false,
        }
    }

    /// Returns the same objects at the same time, without their history.
    pub(crate) fn fork(&self) -> Self {
        Self { seen: self.seen.clone(), config: self.config.clone(), now: self.now, ..Self::of(self.seen.job.clone()) }
    }

    /// Makes the API server reject writes of these kinds.
    pub(crate) fn refuse(&mut self, kinds: &[Kind]) {
        let kinds = kinds.to_vec();
        self.api.refuse =
            Box::new(move |step| kinds.contains(&step.action.key().kind).then(|| "out of order".to_owned()));
    }

    /// Changes the spec.
    pub(crate) fn spec(mut self, edit: impl FnOnce(&mut manta_api::RayJobSpec)) -> Self {
        edit(&mut self.seen.job.spec);
        self
    }

    /// Returns a job that runs on a ready cluster, at second 10.
    pub(crate) fn running(mode: Mode) -> Self {
        Self::new(mode).run()
    }

    /// Runs passes until the job runs.
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

    /// Returns `phase/job status/reason`.
    pub(crate) fn summary(&self) -> String {
        format!("{}/{}/{}", self.phase(), self.job_status(), self.reason())
    }

    /// Runs one pass, as the operator does. Returns whether anything was written.
    pub(crate) fn pass(&mut self) -> bool {
        self.publish_objects();
        let before = self.api.objects.clone();
        let mut requests = Vec::new();
        let result = if self.dashboard_down { Err("connection refused".to_owned()) } else { Ok(()) };
        let ran = self.api.run::<RayJob>(&self.seen, self.now, &self.config, |_, request| {
            requests.push(request.clone());
            result.clone()
        });
        for event in std::mem::take(&mut self.api.events) {
            let kind = if event.kind == EventKind::Normal { "Normal" } else { "Warning" };
            self.events.push(format!("{kind} {}: {}", event.reason, event.note));
        }
        self.observe_objects(&before);
        if let Some(status) = &ran.status {
            self.seen.job.status = Some(status.clone());
        }
        self.follow(&ran.plan);
        for request in requests {
            match &request {
                RayRequest::SubmitJob { body, .. } if result.is_ok() => self.submissions.push(body.clone()),
                RayRequest::StopJob { job_id } if result.is_ok() => self.stopped.push(job_id.clone()),
                _ => {}
            }
            self.seen.dashboard.record(&request, &result.clone().map_err(RequestFailure::from), self.now);
        }
        let wrote = !ran.plan.stages.is_empty() || ran.status.is_some();
        self.last = Some(ran);
        wrote
    }

    /// As the pollers do: another job, another reply.
    fn follow(&mut self, plan: &Plan) {
        match &plan.poll {
            None => self.seen.dashboard = Default::default(),
            Some(poll) => {
                self.seen.dashboard.last_reply = self.seen.dashboard.about(&poll.job_id).cloned();
                self.seen.dashboard.polled_since.get_or_insert(self.now);
            }
        }
    }

    /// Stores the observed objects on the fake API server.
    fn publish_objects(&mut self) {
        let seen = &self.seen;
        let meta = |meta: &MetaView| {
            let owners = meta.owner_references.iter().map(|owner| json!({"uid": owner.uid, "controller": true}));
            json!({
                "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version,
                "ownerReferences": owners.collect::<Vec<_>>(),
            })
        };
        let service = seen.head_service.as_ref().map(|service| json!({"metadata": meta(&service.metadata)}));
        let submitter = seen.submitter.as_ref().map(|submitter| json!({"metadata": meta(&submitter.metadata)}));
        let objects = [
            (self.key(Kind::RayJob), Some(json!(seen.job))),
            (self.key(Kind::RayCluster), seen.cluster.as_ref().map(|cluster| json!(cluster))),
            (self.key(Kind::Service), service),
            (self.key(Kind::Job), submitter),
            (self.key(POD_GROUP), seen.pod_group.as_ref().map(|group| group.object.clone())),
        ];
        self.api.objects = objects.into_iter().filter_map(|(key, object)| Some((key, object?))).collect();
    }

    /// Observes the changes of a pass.
    fn observe_objects(&mut self, before: &std::collections::BTreeMap<ObjectKey, Value>) {
        let changed = |api: &FakeApi, key: ObjectKey| {
            let now = api.objects.get(&key).cloned();
            (before.get(&key) != now.as_ref()).then_some(now)
        };
        match changed(&self.api, self.key(Kind::RayJob)) {
            Some(Some(job)) => self.seen.job = view(job),
            Some(None) => self.job_deleted = true,
            None => {}
        }
        let created =
            self.api.names(Kind::RayCluster).first().map(|name| ObjectKey::new(Kind::RayCluster, "default", name));
        if let Some(cluster) = changed(&self.api, created.unwrap_or_else(|| self.key(Kind::RayCluster))) {
            self.seen.cluster = cluster.map(view);
        }
        if let Some(service) = changed(&self.api, self.key(Kind::Service)) {
            self.seen.head_service = service.map(view);
        }
        if let Some(submitter) = changed(&self.api, self.key(Kind::Job)) {
            self.seen.submitter = submitter.map(view);
        }
        if let Some(group) = changed(&self.api, self.key(POD_GROUP)) {
            self.seen.pod_group = group.map(view);
        }
    }

    /// Returns the key of the one object of a kind.
    fn key(&self, kind: Kind) -> ObjectKey {
        let name = self.seen.job.metadata.name.clone().unwrap_or_default();
        let cluster = self.seen.cluster.as_ref().and_then(|cluster| cluster.metadata.name.clone());
        let name = match kind {
            Kind::RayCluster => cluster.unwrap_or_default(),
            Kind::Service => names::owner_head_service(&name),
            Kind::PodGroup(_) => format!("ray-{name}-pg"),
            _ => name,
        };
        ObjectKey::new(kind, "default", &name)
    }

    /// Runs passes until nothing is written any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..12 {
            if !self.pass() || self.job_deleted {
                return;
            }
        }
        panic!("no rest in {}: {:?}", self.summary(), self.last.as_ref().map(|ran| &ran.plan));
    }

    /// Advances the time, pass by pass.
    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.settle();
    }

    /// Sets the cluster ready.
    pub(crate) fn make_ready(&mut self) {
        let cluster = self.seen.cluster.as_mut().expect("a cluster");
        let status = cluster.status.get_or_insert_with(RayClusterStatus::default);
        status.state = Some("ready".to_owned());
        let service =
            json!({"spec": {"ports": [{"name": "client", "port": 10001}, {"name": "dashboard", "port": 8265}]}});
        self.seen.cluster_head_service = Some(serde_json::from_value(service).unwrap());
        self.seen.head_pods = vec![PodView::default()];
    }

    /// Polls a dashboard that returns `known` for the job.
    pub(crate) fn poll(&mut self, known: Result<Option<JobInfo>, &str>) {
        self.dashboard_down = known.is_err();
        let answer = match known {
            Ok(Some(info)) => JobAnswer::Info(info),
            Ok(None) => JobAnswer::NotFound,
            Err(error) => JobAnswer::Failed(error.to_owned()),
        };
        let before = self.submissions.len();
        self.reply(answer);
        if self.submissions.len() > before {
            self.reply(JobAnswer::Info(JobInfo { status: "PENDING".into(), ..JobInfo::default() }));
        }
    }

    /// Lets the dashboard give this answer.
    pub(crate) fn reply(&mut self, answer: JobAnswer) {
        let Some(poll) = self.last.as_ref().and_then(|ran| ran.plan.poll.clone()) else { return };
        self.seen.dashboard.observe(JobReply { job_id: poll.job_id, at: self.now, answer });
        self.settle();
    }

    /// Polls a dashboard that reports this status.
    pub(crate) fn report_status(&mut self, status: &str) {
        self.poll(Ok(Some(info(status, self.now))));
    }

    /// Polls a dashboard that does not know the job.
    pub(crate) fn report_unknown(&mut self) {
        self.poll(Ok(None));
    }

    /// Polls an unreachable dashboard.
    pub(crate) fn fail_poll(&mut self) {
        self.poll(Err("connection refused"));
    }

    /// Adds a condition to the submitter Job.
    pub(crate) fn submitter_is(&mut self, condition: &str) {
        let submitter = self.seen.submitter.as_mut().expect("a submitter");
        submitter.status.conditions.push(JobConditionView {
            type_: condition.into(),
            status: "True".into(),
            reason: "BackoffLimitExceeded".into(),
            message: "Job has reached the specified backoff limit".into(),
            last_transition_time: Some(self.now),
        });
        self.settle();
    }

    /// Ends the sidecar.
    pub(crate) fn sidecar_exits(&mut self, exit_code: i32) {
        let terminated = TerminatedView {
            exit_code,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.into(),
            finished_at: Some(self.now),
            ..TerminatedView::default()
        };
        self.sidecar(|status| status.state.terminated = Some(Box::new(terminated)));
    }

    /// Changes the sidecar's status.
    pub(crate) fn sidecar(&mut self, edit: impl FnOnce(&mut ContainerStatusView)) {
        let pod = self.seen.head_pods.first_mut().expect("a head Pod");
        let mut status = ContainerStatusView { name: "ray-job-submitter".into(), ..Default::default() };
        edit(&mut status);
        pod.status.container_statuses = vec![status];
        self.settle();
    }
}

/// Returns a job info with times as Ray gives them.
pub(crate) fn info(status: &str, now: Timestamp) -> JobInfo {
    let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
    let ended = matches!(status, "SUCCEEDED" | "FAILED" | "STOPPED");
    JobInfo {
        status: status.to_owned(),
        message: if ended { format!("it {}", status.to_lowercase()) } else { String::new() },
        start_time: if status == "PENDING" { 0 } else { milliseconds },
        end_time: if ended { milliseconds } else { 0 },
        driver_exit_code: None,
    }
}
