//! `manta migrate-storage`: stores all Ray objects in `ray.io/v1`, so that CRDs without older versions can be applied.

use crate::output::print_line;
use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use manta_api::crd::{self, Versions};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// The version that objects are stored in.
const STORED_IN: &str = "v1";
/// How many objects one request lists.
const PAGE: u32 = 100;

/// Store all Ray objects in ray.io/v1, so that CRDs without v1alpha1 can be applied
///
/// The API server refuses a CRD that lacks a version in which objects may still be stored. This command writes every
/// object back unchanged, which stores it in v1, and then removes the other versions from the status of the CRD. It
/// can run beside the operator, and can be repeated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only report what would be rewritten
    #[arg(long)]
    dry_run: bool,
    /// Kubeconfig of the cluster [default: the Pod's service account, else the usual kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(migrate_all(&args))?;
    Ok(ExitCode::SUCCESS)
}

async fn migrate_all(args: &Args) -> anyhow::Result<()> {
    let client = Client::try_from(manta_operator::connect::config(args.kubeconfig.as_deref()).await?)?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in crd::all(Versions::V1) {
        let name = ours.name_any();
        let installed = crds.get_opt(&name).await.with_context(|| format!("cannot read CRD {name}"))?;
        match installed {
            None => print_line(&format!("{name}: not installed")),
            Some(crd) => migrate(&client, &crds, &crd, args.dry_run).await.with_context(|| format!("CRD {name}"))?,
        }
    }
    Ok(())
}

/// Migrates the objects of one CRD, unless all of them are stored in the right version.
async fn migrate(
    client: &Client,
    crds: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
    dry_run: bool,
) -> anyhow::Result<()> {
    let name = crd.name_any();
    let old = old_versions(crd)?;
    if old.is_empty() {
        print_line(&format!("{name}: all objects are stored in {STORED_IN}"));
        return Ok(());
    }
    let old = old.join(", ");
    let objects = Objects::of(client, crd);
    if dry_run {
        let count = objects.for_each(async |_| Ok(())).await?;
        print_line(&format!("{name}: {count} objects may be stored in {old}"));
        return Ok(());
    }
    let count = objects.for_each(async |object| objects.rewrite(object).await).await?;
    // The version makes sure that nobody has changed the storage version meanwhile.
    let patch = json!({
        "metadata": {"resourceVersion": crd.metadata.resource_version},
        "status": {"storedVersions": [STORED_IN]},
    });
    crds.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context("the objects are rewritten, but status.storedVersions cannot be changed; run the command again")?;
    print_line(&format!("{name}: rewrote {count} objects; none is stored in {old} any more"));
    Ok(())
}

/// Returns the versions other than the current one in which objects may be stored.
fn old_versions(crd: &CustomResourceDefinition) -> anyhow::Result<Vec<&str>> {
    let storage = crd.spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str());
    if storage != Some(STORED_IN) {
        bail!(
            "it stores objects in {}, not in {STORED_IN}; first run: \
             manta crds --with-v1alpha1 | kubectl apply --server-side --force-conflicts -f -",
            storage.unwrap_or("no version")
        );
    }
    let stored = crd.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    Ok(stored.map(String::as_str).filter(|version| *version != STORED_IN).collect())
}

/// All objects of one kind.
struct Objects {
    client: Client,
    resource: ApiResource,
}

impl Objects {
    fn of(client: &Client, crd: &CustomResourceDefinition) -> Self {
        let (group, names) = (&crd.spec.group, &crd.spec.names);
        let resource = ApiResource {
            group: group.clone(),
            version: STORED_IN.to_owned(),
            api_version: format!("{group}/{STORED_IN}"),
            kind: names.kind.clone(),
            plural: names.plural.clone(),
        };
        Self { client: client.clone(), resource }
    }

    /// Visits every object, page by page, and returns their number.
    async fn for_each(&self, visit: impl AsyncFn(&DynamicObject) -> anyhow::Result<()>) -> anyhow::Result<usize> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &self.resource);
        let (mut count, mut page) = (0, ListParams::default().limit(PAGE));
        loop {
            let listed = match api.list(&page).await {
                // The list has expired on the way: what is rewritten stays so.
                Err(kube::Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                    (count, page) = (0, ListParams::default().limit(PAGE));
                    continue;
                }
                listed => listed.with_context(|| format!("cannot list {}", self.resource.plural))?,
            };
            for object in &listed.items {
                visit(object).await?;
                count += 1;
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(count),
            }
        }
    }

    /// Writes an object back as it is. One that changes or goes meanwhile is no longer in its old version either.
    async fn rewrite(&self, object: &DynamicObject) -> anyhow::Result<()> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &self.resource);
        match api.replace(&name, &PostParams::default(), object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => {
                let kind = &self.resource.kind;
                Err(error).with_context(|| format!("cannot write {kind} {namespace}/{name}; repair or delete it first"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_other_than_v1_are_old() {
        let check = |storage: &str, stored: &[&str], expect: Result<&[&str], &str>| {
            let mut crd = crd::all(Versions::V1AndV1alpha1).remove(0);
            crd.spec.versions.iter_mut().for_each(|version| version.storage = version.name == storage);
            crd.status.get_or_insert_default().stored_versions =
                Some(stored.iter().map(|version| (*version).to_owned()).collect());
            match (old_versions(&crd), expect) {
                (Ok(old), Ok(expect)) => assert_eq!(old, expect),
                (Err(error), Err(expect)) => assert!(error.to_string().starts_with(expect), "{error}"),
                (got, expect) => panic!("{got:?} is not {expect:?}"),
            }
        };
        check("v1", &["v1alpha1", "v1"], Ok(&["v1alpha1"]));
        check("v1", &["v1"], Ok(&[]));
        check("v1", &[], Ok(&[]));
        check("v1alpha1", &["v1alpha1"], Err("it stores objects in v1alpha1, not in v1; first run: manta crds"));
        check("", &[], Err("it stores objects in no version"));
    }
}
