//! What the scenarios share: an API server, a page, a browser.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use manta_testkit::{Browser, ControlPlane, Options, Supervised, Tab, User, eventually};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A page that is served, and its address with the secret.
pub(crate) struct Served {
    pub(crate) url: String,
    pub(crate) process: Supervised,
}

impl Served {
    /// Starts `manta page` with flags.
    pub(crate) async fn start(folder: &Path, name: &str, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
        command.args(["page", "--no-browser", "--kubeconfig"]).arg(kubeconfig).args(flags);
        let mut process = Supervised::start(folder, name, &command)?;
        let url = eventually("the page is served", async || {
            process.check()?;
            let log = std::fs::read_to_string(process.log_path())?;
            let address = log.lines().find_map(|line| line.strip_prefix("the page is at "));
            Ok(address.context("no address yet")?.to_owned())
        })
        .await?;
        Ok(Self { url, process })
    }

    /// Returns scheme, host and port.
    pub(crate) fn origin(&self) -> &str {
        self.url.split("/#").next().unwrap().trim_end_matches('/')
    }

    /// Returns host and port.
    pub(crate) fn host(&self) -> &str {
        self.origin().trim_start_matches("http://")
    }

    pub(crate) fn secret(&self) -> &str {
        self.url.split("#key=").nth(1).unwrap_or_default()
    }
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) browser: Browser,
    pub(crate) page: Served,
    pub(crate) plane: ControlPlane,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let plane = ControlPlane::start_embedded(
            Path::new(env!("CARGO_BIN_EXE_manta")),
            Options { rbac: true, ..Options::default() },
        )?;
        plane.install_ray_crds().await?;
        let folder = tempfile::tempdir()?;
        let page = Served::start(folder.path(), "page", &plane.kubeconfig_path(), &[]).await?;
        Ok(Self { client: plane.client().await?, browser: Browser::start().await?, page, plane, folder })
    }

    /// Opens the page as the administrator, and waits until it is live.
    pub(crate) async fn open(&self) -> Result<Tab> {
        self.open_page(&self.page.url).await
    }

    pub(crate) async fn open_page(&self, url: &str) -> Result<Tab> {
        let tab = self.browser.open(url).await?;
        tab.sees(".connection", "live").await?;
        Ok(tab)
    }

    /// Opens the page at an object.
    pub(crate) async fn open_object(&self, kind: &str, namespace: &str, name: &str) -> Result<Tab> {
        let tab = self.open().await?;
        tab.eval(&format!("location.hash = '#/{kind}/{namespace}/{name}'")).await?;
        tab.sees("h1", name).await?;
        Ok(tab)
    }

    /// Starts another page, for a user without any rights but those of `rules` in a namespace.
    pub(crate) async fn page_for_operator_user(&self, name: &str, namespace: &str, rules: Value) -> Result<Served> {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": namespace}, "rules": rules});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "User", "name": User::Operator.name(), "apiGroup": "rbac.authorization.k8s.io"}]});
        self.create(role).await?;
        self.create(binding).await?;
        let kubeconfig = self.plane.kubeconfig_path_for(User::Operator);
        Served::start(self.folder.path(), name, &kubeconfig, &["--namespace", namespace]).await
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<String> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(name.to_owned())
    }

    pub(crate) fn api(&self, kind: &str, group: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    pub(crate) fn ray(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        self.api(kind, "ray.io", namespace)
    }

    /// Creates an object, and writes its status if it has one.
    pub(crate) async fn create(&self, object: Value) -> Result<DynamicObject> {
        let (group, _) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let api = self.api(kind, group, namespace);
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let created = api.create(&PostParams::default(), &typed).await.with_context(|| kind.to_owned())?;
        if !object["status"].is_null() {
            self.set_status(&api, &created.name_any(), &object["status"]).await?;
        }
        Ok(created)
    }

    pub(crate) async fn set_status(&self, api: &Api<DynamicObject>, name: &str, status: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn create_pod(&self, namespace: &str, pod: Value) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let typed: Pod = serde_json::from_value(pod.clone())?;
        let name = typed.name_any();
        pods.create(&PostParams::default(), &typed).await?;
        let patch = Patch::Merge(json!({"status": pod["status"]}));
        pods.patch_status(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn create_event(&self, namespace: &str, event: Value) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        events.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
        Ok(())
    }
}

/// Waits until the dialog is gone: the next one would be looked for in both.
pub(crate) async fn dialog_closed(tab: &Tab) -> Result<()> {
    tab.until("!document.querySelector('dialog')").await
}

/// Fails if scripts threw anything, or the browser refused something that the page tried.
pub(crate) fn check_complaints(tab: &Tab) -> Result<()> {
    let mut complaints = tab.complaints();
    // A refusal of the server is for the page to show.
    complaints.retain(|text| !text.starts_with("Failed to load resource"));
    ensure!(complaints.is_empty(), "the browser complains: {complaints:?}");
    Ok(())
}
