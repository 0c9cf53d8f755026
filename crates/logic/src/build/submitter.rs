//! The submitter, which runs the submit command in a Kubernetes Job or in a container of the head Pod.

use super::owner::controller_reference;
use super::pod::{add_token_auth, env_literal, requests_and_limits};
use super::submit_command::{SubmitCommand, SubmitCommandError};
use crate::cluster_spec::ray_container;
use crate::config::Config;
use crate::job::Mode;
use crate::labels;
use crate::scheduler;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayCluster, RayJob};
use std::collections::BTreeMap;

/// The name of the submitter container, unless the user provides a template.
pub const CONTAINER: &str = "ray-job-submitter";
/// The default `backoffLimit` of the submitter Job.
pub const BACKOFF_LIMIT: i32 = 2;

/// The input of a submitter.
#[derive(Clone, Copy, Debug)]
pub struct Submitter<'a> {
    pub job: &'a RayJob,
    pub mode: Mode,
    /// The cluster that the job runs on.
    pub cluster: &'a RayCluster,
    pub job_id: &'a str,
    /// `status.dashboardURL`; empty in SidecarMode, where the container exists before the Service.
    pub dashboard_url: &'a str,
    pub config: &'a Config,
}

/// The reason why a submitter cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitterError {
    #[error(transparent)]
    Command(#[from] SubmitCommandError),
    #[error("submitterPodTemplate has no container; give it one, or leave the template out")]
    NoContainer,
}

impl Submitter<'_> {
    /// Returns the Kubernetes Job of K8sJobMode.
    pub fn job(&self) -> Result<Job, SubmitterError> {
        let name = self.job.metadata.name.clone();
        let labels = self.labels();
        let mut template = match &self.job.spec.submitter_pod_template {
            Some(template) => template.clone(),
            None => self.default_template(),
        };
        let pod = template.spec.get_or_insert_with(PodSpec::default);
        let container = pod.containers.first_mut().ok_or(SubmitterError::NoContainer)?;
        // Built even if it is not used, so that its errors are reported.
        let command = self.command()?;
        if container.command.as_ref().is_none_or(Vec::is_empty) {
            self.set_command(container, command);
        }
        self.add_env(container);
        add_token_auth(self.cluster, pod);
        let metadata = template.metadata.get_or_insert_with(ObjectMeta::default);
        metadata.labels.get_or_insert_with(BTreeMap::new).extend(labels.clone());
        scheduler::mark_submitter(self.job, self.config, &mut template);
        let config = self.job.spec.submitter_config.as_ref();
        Ok(Job {
            metadata: ObjectMeta {
                name,
                namespace: self.job.metadata.namespace.clone(),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(RayJob::KIND, &self.job.metadata)]),
                ..ObjectMeta::default()
            },
            spec: Some(JobSpec {
                backoff_limit: Some(config.and_then(|config| config.backoff_limit).unwrap_or(BACKOFF_LIMIT)),
                template,
                ..JobSpec::default()
            }),
            status: None,
        })
    }

    /// Returns the container of SidecarMode.
    pub fn sidecar(&self) -> Result<Container, SubmitterError> {
        let mut container = self.default_container();
        self.set_command(&mut container, self.command()?);
        self.add_env(&mut container);
        if self.config.gates.sidecar_submitter_restart {
            container.restart_policy = Some("OnFailure".to_owned());
        }
        let mut pod = PodSpec { containers: vec![container], ..PodSpec::default() };
        add_token_auth(self.cluster, &mut pod);
        Ok(pod.containers.remove(0))
    }

    fn command(&self) -> Result<String, SubmitCommandError> {
        SubmitCommand {
            spec: &self.job.spec,
            mode: self.mode,
            job_id: self.job_id,
            dashboard_url: self.dashboard_url,
            sidecar_restarts: self.config.gates.sidecar_submitter_restart,
        }
        .text()
    }

    fn set_command(&self, container: &mut Container, command: String) {
        let flags = if self.config.login_shell { "-cel" } else { "-ce" };
        container.command = Some(["/bin/bash", flags, "--"].map(str::to_owned).to_vec());
        container.args = Some(vec![command]);
    }

    fn default_template(&self) -> PodTemplateSpec {
        let pod = PodSpec { containers: vec![self.default_container()], ..default_pod() };
        PodTemplateSpec { spec: Some(pod), ..PodTemplateSpec::default() }
    }

    fn default_container(&self) -> Container {
        let ray = ray_container(&self.cluster.spec.head_group_spec.template);
        Container { image: ray.and_then(|ray| ray.image.clone()), ..container_without_image() }
    }

    fn add_env(&self, container: &mut Container) {
        container.env.get_or_insert_default().extend([
            env_literal("PYTHONUNBUFFERED", "1"),
            env_literal("RAY_DASHBOARD_ADDRESS", self.dashboard_url),
            env_literal("RAY_JOB_SUBMISSION_ID", self.job_id),
        ]);
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [
            (labels::ORIGINATED_FROM_CR_NAME, self.job.metadata.name.as_deref().unwrap_or_default()),
            (labels::ORIGINATED_FROM_CRD, "RayJob"),
            (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }
}

/// Returns the Pod of a RayJob's submitter without command and environment.
pub fn pod_without_command(job: &RayJob) -> PodSpec {
    match &job.spec.submitter_pod_template {
        Some(template) => template.spec.clone().unwrap_or_default(),
        None => default_pod(),
    }
}

/// Returns the Pod of a submitter without a template of the user, and without its command.
pub fn default_pod() -> PodSpec {
    PodSpec {
        containers: vec![container_without_image()],
        restart_policy: Some("Never".to_owned()),
        ..PodSpec::default()
    }
}

fn container_without_image() -> Container {
    Container {
        name: CONTAINER.to_owned(),
        resources: Some(requests_and_limits("500m", "200Mi", "1", "1Gi")),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::fixture::{cluster, job};
    use manta_api::{AuthMode, AuthOptions, SubmitterConfig};

    fn build(job: &RayJob, cluster: &RayCluster, config: &Config) -> Result<Job, SubmitterError> {
        let submitter = Submitter {
            job,
            mode: Mode::K8sJob,
            cluster,
            job_id: "train-hjklm",
            dashboard_url: "train-bcdfg-head-svc.default.svc.cluster.local:8265",
            config,
        };
        submitter.job()
    }

    fn pod(job: &Job) -> &PodSpec {
        job.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
    }

    fn template(container: Container) -> PodTemplateSpec {
        let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
        let labels = Some([("mine".to_owned(), "kept".to_owned())].into());
        PodTemplateSpec { metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }), spec: Some(spec) }
    }

    #[test]
    fn the_default_job() {
        let job = build(&job("train"), &cluster("train-bcdfg"), &Config::default()).unwrap();
        insta::assert_yaml_snapshot!(job);
    }

    #[test]
    fn the_sidecar() {
        let job = job("train");
        let cluster = cluster("train-bcdfg");
        let mut config = Config::default();
        let build = |config: &Config| {
            let submitter = Submitter {
                job: &job,
                mode: Mode::Sidecar,
                cluster: &cluster,
                job_id: "train-hjklm",
                dashboard_url: "",
                config,
            };
            submitter.sidecar().unwrap()
        };
        insta::assert_yaml_snapshot!(build(&config));
        config.gates.sidecar_submitter_restart = true;
        assert_eq!(build(&config).restart_policy.as_deref(), Some("OnFailure"), "the feature gate allows restarts");
    }

    #[test]
    fn a_template_keeps_its_command() {
        let mut job = job("train");
        let own = Container {
            name: "mine".into(),
            command: Some(vec!["/submitter".into()]),
            args: Some(vec!["--".into(), "python".into()]),
            ..Container::default()
        };
        let environment = ["PYTHONUNBUFFERED", "RAY_DASHBOARD_ADDRESS", "RAY_JOB_SUBMISSION_ID"];
        let names = |container: &Container| -> Vec<_> {
            container.env.iter().flatten().map(|variable| variable.name.clone()).collect()
        };
        job.spec.submitter_pod_template = Some(template(own.clone()));
        let built = build(&job, &cluster("c"), &Config::default()).unwrap();
        let container = &pod(&built).containers[0];
        assert_eq!((&container.command, &container.args), (&own.command, &own.args));
        assert_eq!(names(container), environment);
        assert_eq!(container.resources, None, "a user's template gets no default resources");
        assert_eq!(pod(&built).restart_policy, None, "a missing restart policy is left to the API server to refuse");

        let empty = Container { command: Some(vec![]), ..own };
        job.spec.submitter_pod_template = Some(template(empty));
        let built = build(&job, &cluster("c"), &Config::default()).unwrap();
        let container = &pod(&built).containers[0];
        assert_eq!(container.command.as_deref().unwrap(), ["/bin/bash", "-ce", "--"]);
        assert!(container.args.as_ref().unwrap()[0].starts_with("until python"));
        assert_eq!(names(container), environment);
        let login = Config { login_shell: true, ..Config::default() };
        let built = build(&job, &cluster("c"), &login).unwrap();
        assert_eq!(pod(&built).containers[0].command.as_ref().unwrap()[1], "-cel");
    }

    #[test]
    fn labels_and_backoff_limit_are_set() {
        let mut job = job("train");
        job.spec.submitter_pod_template = Some(template(Container::default()));
        let check = |job: &RayJob, expect: i32| {
            let built = build(job, &cluster("c"), &Config::default()).unwrap();
            let spec = built.spec.unwrap();
            assert_eq!(spec.backoff_limit, Some(expect));
            let labels = spec.template.metadata.unwrap().labels.unwrap();
            assert_eq!(labels["mine"], "kept");
            assert_eq!(labels[labels::ORIGINATED_FROM_CR_NAME], "train");
            assert!(built.metadata.labels.unwrap().iter().all(|(key, value)| labels.get(key) == Some(value)));
        };
        check(&job, 2);
        job.spec.submitter_config = Some(SubmitterConfig { backoff_limit: Some(88) });
        check(&job, 88);
    }

    #[test]
    fn tokens_reach_the_submitter() {
        let mut cluster = cluster("train-bcdfg");
        cluster.spec.auth_options = Some(AuthOptions { mode: Some(AuthMode::Token), ..AuthOptions::default() });
        let built = build(&job("train"), &cluster, &Config::default()).unwrap();
        insta::assert_yaml_snapshot!("token_env", pod(&built).containers[0].env);
        assert_eq!(pod(&built).volumes, None);

        cluster.spec.auth_options.as_mut().unwrap().enable_k8s_token_auth = Some(true);
        let built = build(&job("train"), &cluster, &Config::default()).unwrap();
        let pod = pod(&built);
        insta::assert_yaml_snapshot!(
            "service_account_token",
            (&pod.containers[0].env, &pod.containers[0].volume_mounts, &pod.volumes)
        );
    }

    #[test]
    fn a_template_without_container_is_an_error() {
        let mut job = job("train");
        job.spec.submitter_pod_template = Some(PodTemplateSpec::default());
        assert_eq!(build(&job, &cluster("c"), &Config::default()), Err(SubmitterError::NoContainer));
    }
}
