//! Names from a cluster and from the kubeconfig.

use super::Names;
use crate::connect::{ConnectionArgs, Target};
use crate::resource::Kind;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};

/// The kinds that `TYPE/NAME` is completed for.
const TYPES: [Kind; 3] = [Kind::Cluster, Kind::Job, Kind::Service];

/// Which names are wanted.
pub(super) struct Query<'q> {
    pub(super) names: Names,
    /// The word so far.
    pub(super) word: &'q str,
    /// The Ray cluster that is named on the command line.
    pub(super) cluster: Option<&'q str>,
    pub(super) all_namespaces: bool,
}

impl Query<'_> {
    /// Returns the names; those of one namespace, so none where all are asked for.
    pub(super) async fn find(&self, connection: &ConnectionArgs) -> anyhow::Result<Vec<String>> {
        match self.names {
            Names::Contexts | Names::KubeconfigClusters | Names::KubeconfigUsers => {
                return self.of_kubeconfig(connection);
            }
            _ if self.all_namespaces => return Ok(Vec::new()),
            _ => {}
        }
        let target = connection.connect().await?;
        match self.names {
            Names::Clusters => names(&target, Kind::Cluster).await,
            Names::Jobs => names(&target, Kind::Job).await,
            Names::Services => names(&target, Kind::Service).await,
            Names::CronJobs => names(&target, Kind::CronJob).await,
            Names::Resources => self.resources(&target).await,
            Names::Groups => self.groups(&target).await,
            Names::Nodes => self.nodes(&target).await,
            Names::Namespaces => {
                let all = Api::<Namespace>::all(target.client.clone()).list_metadata(&ListParams::default()).await?;
                Ok(all.iter().map(ResourceExt::name_any).collect())
            }
            Names::Contexts | Names::KubeconfigClusters | Names::KubeconfigUsers => Ok(Vec::new()),
        }
    }

    fn of_kubeconfig(&self, connection: &ConnectionArgs) -> anyhow::Result<Vec<String>> {
        let file = connection.kubeconfig()?;
        Ok(match self.names {
            Names::Contexts => file.contexts.into_iter().map(|context| context.name).collect(),
            Names::KubeconfigClusters => file.clusters.into_iter().map(|cluster| cluster.name).collect(),
            _ => file.auth_infos.into_iter().map(|user| user.name).collect(),
        })
    }

    /// Returns clusters and types, or the names of the type that the word starts with.
    async fn resources(&self, target: &Target) -> anyhow::Result<Vec<String>> {
        let Some((type_name, _)) = self.word.split_once('/') else {
            let mut found = names(target, Kind::Cluster).await.unwrap_or_default();
            found.extend(TYPES.map(|kind| format!("{}/", kind.type_name())));
            return Ok(found);
        };
        let Ok(reference) = format!("{type_name}/x").parse::<crate::resource::Reference>() else {
            return Ok(Vec::new());
        };
        let found = names(target, reference.kind).await?;
        Ok(found.into_iter().map(|name| format!("{type_name}/{name}")).collect())
    }

    async fn groups(&self, target: &Target) -> anyhow::Result<Vec<String>> {
        let clusters = target.ray_api(Kind::Cluster).list(&ListParams::default()).await?;
        let is_meant = |object: &&DynamicObject| self.cluster.is_none_or(|name| object.name_any() == name);
        let mut groups: Vec<String> = clusters
            .iter()
            .filter(is_meant)
            .flat_map(|object| object.data["spec"]["workerGroupSpecs"].as_array().into_iter().flatten())
            .filter_map(|group| Some(group["groupName"].as_str()?.to_owned()))
            .collect();
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    async fn nodes(&self, target: &Target) -> anyhow::Result<Vec<String>> {
        let cluster = self.cluster.map(|name| format!(",ray.io/cluster={name}")).unwrap_or_default();
        let selection = ListParams::default().labels(&format!("ray.io/is-ray-node=yes{cluster}"));
        let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
        Ok(pods.list_metadata(&selection).await?.iter().map(ResourceExt::name_any).collect())
    }
}

async fn names(target: &Target, kind: Kind) -> anyhow::Result<Vec<String>> {
    let found = target.ray_api(kind).list_metadata(&ListParams::default()).await?;
    Ok(found.iter().map(ResourceExt::name_any).collect())
}
