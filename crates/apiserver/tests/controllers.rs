//! What the built-in controllers do over time.

use anyhow::ensure;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ReplicationController, ResourceQuota, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use manta_apiserver::{Options, Server};
use manta_testkit::{Kubelet, Play, eventually};
use serde_json::{Value, json};

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a valid object")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_of_owners_is_collected() {
    let server = Server::start(Options::default()).await.expect("starts");
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut uids = Vec::new();
    for name in ["a", "b", "c"] {
        let made = maps.create(&PostParams::default(), &object(json!({"metadata": {"name": name}}))).await;
        uids.push(made.expect("created").metadata.uid.expect("a uid"));
    }
    // a belongs to c, b to a, and c to b.
    for (name, owner) in [("a", 2), ("b", 0), ("c", 1)] {
        let (owner, uid) = (["a", "b", "c"][owner], &uids[owner]);
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid,
            "blockOwnerDeletion": true});
        let patch = json!({"metadata": {"ownerReferences": [reference]}});
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    }
    let options = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    maps.delete("a", &options).await.expect("deleted");
    let left = async || {
        let left = maps.list(&ListParams::default()).await?.items;
        let names: Vec<_> = left.into_iter().filter_map(|map| map.metadata.name).collect();
        ensure!(names == ["kube-root-ca.crt"], "{names:?}");
        Ok(())
    };
    eventually("the cycle is gone", left).await.expect("collected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreate_starts_no_new_pod_beside_an_old_one() {
    let server = Server::start(Options::default()).await.expect("starts");
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"strategy": {"type": "Recreate"}, "replicas": 3,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "one"}]}}}});
    deployments.create(&PostParams::default(), &object(deployment)).await.expect("created");
    let all_of = async |image: &str, count: usize| {
        let found = pods.list(&ListParams::default()).await?.items;
        ensure!(found.len() == count, "{} pods", found.len());
        for pod in &found {
            let seen = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
            ensure!(seen.as_deref() == Some(image), "{seen:?}");
        }
        Ok(found)
    };
    eventually("the first pods exist", async || all_of("one", 3).await).await.expect("created");
    let update = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}});
    deployments.patch("d", &PatchParams::default(), &Patch::Strategic(&update)).await.expect("patched");
    // The old pods are on a node, so they are marked and stay until the node has stopped them.
    for left in (1..=3).rev() {
        let old = eventually("the old pods are asked to stop", async || {
            let found = all_of("one", left).await?;
            ensure!(found.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()));
            Ok(found)
        });
        let old = old.await.expect("alone").pop().and_then(|pod| pod.metadata.name).expect("a name");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        pods.delete(&old, &now).await.expect("gone");
    }
    eventually("the new pods follow", async || all_of("two", 3).await).await.expect("created");
}

fn replicas(kind: &str, replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "w"}}, "template": {"metadata": {"labels": {"app": "w"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_sets_adopt_orphans_and_release_strangers() {
    let server = Server::start(Options::default()).await.expect("starts");
    let sets: Api<ReplicaSet> = Api::default_namespaced(server.client());
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let orphan = json!({"metadata": {"name": "orphan", "labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &object(orphan)).await.expect("created");
    sets.create(&PostParams::default(), &object(replicas("ReplicaSet", 1, "i"))).await.expect("created");
    let owner_of = async |name: &str| -> anyhow::Result<Option<String>> {
        let owners = pods.get(name).await?.metadata.owner_references.unwrap_or_default();
        Ok(owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.name))
    };
    eventually("the orphan is adopted", async || {
        ensure!(owner_of("orphan").await?.as_deref() == Some("w"));
        ensure!(pods.list(&ListParams::default()).await?.items.len() == 1, "it counts");
        Ok(())
    })
    .await
    .expect("adopted");
    let patch = json!({"metadata": {"labels": {"app": "other"}}});
    pods.patch("orphan", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    eventually("the stranger is released and replaced", async || {
        ensure!(owner_of("orphan").await?.is_none());
        ensure!(pods.list(&ListParams::default()).await?.items.len() == 2);
        Ok(())
    })
    .await
    .expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_keeps_the_old_pods_until_new_ones_are_available() {
    let server = Server::start(Options::default()).await.expect("starts");
    let kubelet = Kubelet::start(server.client(), None);
    // Pods of the second image never become ready.
    let rule = kubelet.rule(|pod| {
        let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
        (image == "broken").then_some(Play::Unready)
    });
    rule.await.expect("a rule");
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let status = async || -> anyhow::Result<_> { Ok(deployments.get("w").await?.status.unwrap_or_default()) };
    deployments.create(&PostParams::default(), &object(replicas("Deployment", 4, "one"))).await.expect("created");
    eventually("the Deployment is available", async || {
        ensure!(status().await?.available_replicas == Some(4));
        Ok(())
    })
    .await
    .expect("available");
    let update = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "broken"}]}}}});
    deployments.patch("w", &PatchParams::default(), &Patch::Strategic(&update)).await.expect("patched");
    // A quarter of four may be missing, and a quarter more may exist.
    eventually("the rollout is stuck", async || {
        let status = status().await?;
        ensure!(status.updated_replicas == Some(2) && status.replicas == Some(5), "{status:?}");
        ensure!(status.available_replicas == Some(3), "{status:?}");
        Ok(())
    })
    .await
    .expect("stuck");
    let update = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "one"}]}}}});
    deployments.patch("w", &PatchParams::default(), &Patch::Strategic(&update)).await.expect("patched");
    eventually("the rollback is done", async || {
        let status = status().await?;
        ensure!(status.available_replicas == Some(4) && status.replicas == Some(4), "{status:?}");
        let annotations = deployments.get("w").await?.metadata.annotations.unwrap_or_default();
        ensure!(annotations.get("deployment.kubernetes.io/revision").map(String::as_str) == Some("3"));
        Ok(())
    })
    .await
    .expect("rolled back");
}

/// Pods of a Job with its own selector do not carry the Job's name in a label.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_job_with_its_own_selector_end_with_it() {
    let server = Server::start(Options::default()).await.expect("starts");
    let kubelet = Kubelet::start(server.client(), None);
    kubelet
        .rule(|pod| (pod.metadata.name.as_deref() != Some("orphan")).then_some(Play::Succeeded))
        .await
        .expect("a rule");
    let jobs: Api<Job> = Api::default_namespaced(server.client());
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let orphan = json!({"metadata": {"name": "orphan", "labels": {"app": "w"}}, "spec": spec});
    pods.create(&PostParams::default(), &object(orphan)).await.expect("created");
    let job = json!({"metadata": {"name": "j"}, "spec": {"manualSelector": true, "completions": 3, "parallelism": 2,
        "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": spec}}});
    jobs.create(&PostParams::default(), &object(job)).await.expect("created");
    eventually("two pods beside the adopted one have succeeded", async || {
        let status = jobs.get("j").await?.status.unwrap_or_default();
        ensure!((status.succeeded, status.active) == (Some(2), Some(1)), "{status:?}");
        let orphan = pods.get("orphan").await?.metadata;
        ensure!(orphan.finalizers.is_some_and(|finalizers| !finalizers.is_empty()), "it is adopted");
        Ok(())
    })
    .await
    .expect("counted");
    jobs.delete("j", &DeleteParams::background()).await.expect("deleted");
    eventually("the pods are gone", async || {
        let left = pods.list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
    .expect("gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexed_jobs_complete_every_index() {
    let server = Server::start(Options::default()).await.expect("starts");
    let kubelet = Kubelet::start(server.client(), None);
    kubelet.rule(|_| Some(Play::Succeeded)).await.expect("a rule");
    let jobs: Api<Job> = Api::default_namespaced(server.client());
    let job = json!({"metadata": {"name": "j"}, "spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    jobs.create(&PostParams::default(), &object(job)).await.expect("created");
    eventually("the Job is complete", async || {
        let status = jobs.get("j").await?.status.unwrap_or_default();
        ensure!(status.completed_indexes.as_deref() == Some("0-2") && status.succeeded == Some(3), "{status:?}");
        ensure!(status.conditions.unwrap_or_default().iter().any(|one| one.type_ == "Complete"));
        Ok(())
    })
    .await
    .expect("complete");
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let mut hosts: Vec<String> = pods
        .list(&ListParams::default())
        .await
        .expect("listed")
        .items
        .into_iter()
        .filter_map(|pod| pod.spec?.hostname)
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["j-0", "j-1", "j-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replication_controller_keeps_its_number_of_pods() {
    let server = Server::start(Options::default()).await.expect("starts");
    let _kubelet = Kubelet::start(server.client(), None);
    let controllers: Api<ReplicationController> = Api::default_namespaced(server.client());
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let template = json!({"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let controller = json!({"metadata": {"name": "r"}, "spec": {"replicas": 2, "selector": {"app": "w"},
        "template": template}});
    controllers.create(&PostParams::default(), &object(controller)).await.expect("created");
    let count = async |wanted: i32| {
        let status = controllers.get("r").await?.status.unwrap_or_default();
        ensure!((status.replicas, status.ready_replicas) == (wanted, Some(wanted)), "{status:?}");
        let found = pods.list(&ListParams::default()).await?.items;
        ensure!(found.len() == usize::try_from(wanted)?, "{} pods", found.len());
        Ok(found)
    };
    let before = eventually("both pods are ready", async || count(2).await).await.expect("ready");
    let gone = before[0].metadata.name.as_deref().expect("a name");
    pods.delete(gone, &DeleteParams::default()).await.expect("deleted");
    eventually("another pod replaces it", async || {
        let found = count(2).await?;
        ensure!(found.iter().all(|pod| pod.metadata.name.as_deref() != Some(gone)));
        Ok(())
    })
    .await
    .expect("replaced");
    let patch = json!({"spec": {"replicas": 1}});
    controllers.patch("r", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    eventually("one pod is left", async || count(1).await).await.expect("scaled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_adopts_the_replica_set_that_it_left() {
    let server = Server::start(Options::default()).await.expect("starts");
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let sets: Api<ReplicaSet> = Api::default_namespaced(server.client());
    let owned = async || {
        let found = sets.list(&ListParams::default()).await?.items;
        ensure!(found.len() == 1, "{} ReplicaSets", found.len());
        let metadata = found.into_iter().next().expect("one").metadata;
        Ok((metadata.uid, metadata.owner_references.unwrap_or_default().into_iter().map(|owner| owner.uid).next()))
    };
    let create = async || {
        let made = deployments.create(&PostParams::default(), &object(replicas("Deployment", 1, "i"))).await;
        made.expect("created").metadata.uid
    };
    let first = create().await;
    let has_owner = async |uid: &Option<String>| {
        let (set, owner) = owned().await?;
        ensure!(owner == *uid, "{owner:?}");
        Ok(set)
    };
    let set = eventually("it has a ReplicaSet", async || has_owner(&first).await).await.expect("owned");
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    deployments.delete("w", &orphan).await.expect("deleted");
    eventually("the ReplicaSet is an orphan", async || has_owner(&None).await).await.expect("orphaned");
    let second = create().await;
    let adopted = eventually("it is adopted", async || has_owner(&second).await).await.expect("adopted");
    assert_eq!(adopted, set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_keeps_comes_back() {
    let server = Server::start(Options::default()).await.expect("starts");
    let _kubelet = Kubelet::start_on_node(server.client(), "default", "n");
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let slices: Api<EndpointSlice> = Api::default_namespaced(server.client());
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    Api::<Pod>::default_namespaced(server.client())
        .create(&PostParams::default(), &object(pod))
        .await
        .expect("created");
    let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "w"}, "ports": [{"port": 80}]}});
    Api::<Service>::default_namespaced(server.client())
        .create(&PostParams::default(), &object(service))
        .await
        .expect("created");
    let of_service = ListParams::default().labels("kubernetes.io/service-name=s");
    let slice = async || {
        let found = slices.list(&of_service).await?.items;
        ensure!(found.len() == 1 && found[0].endpoints.as_ref().is_some_and(|all| all.len() == 1), "{found:?}");
        Ok(found.into_iter().next().expect("one").metadata)
    };
    let first = eventually("the service has an endpoint", slice).await.expect("written");
    slices.delete(first.name.as_deref().expect("a name"), &DeleteParams::default()).await.expect("deleted");
    eventually("the slice is back", async || {
        ensure!(slice().await?.uid != first.uid);
        Ok(())
    })
    .await
    .expect("back");
    let authority = async || {
        let data = maps.get("kube-root-ca.crt").await?.data.unwrap_or_default();
        data.get("ca.crt").cloned().ok_or_else(|| anyhow::anyhow!("no authority"))
    };
    let real = eventually("there is a ConfigMap", authority).await.expect("created");
    for patch in [json!({"data": {"ca.crt": "none"}}), json!({"data": null})] {
        maps.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
        eventually("it is as it was", async || {
            ensure!(authority().await? == real);
            Ok(())
        })
        .await
        .expect("repaired");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_says_what_keeps_it() {
    let server = Server::start(Options::default()).await.expect("starts");
    let namespaces: Api<Namespace> = Api::all(server.client());
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "n");
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "n"}}))).await.expect("created");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    maps.create(&PostParams::default(), &object(held)).await.expect("created");
    namespaces.delete("n", &DeleteParams::default()).await.expect("deleted");
    eventually("it says what is left", async || {
        let conditions = namespaces.get("n").await?.status.unwrap_or_default().conditions.unwrap_or_default();
        for (kind, part) in [
            ("NamespaceContentRemaining", "configmaps. has 1 resource instances"),
            ("NamespaceFinalizersRemaining", "example.com/held in 1 resource instances"),
        ] {
            let found = conditions.iter().find(|one| one.type_ == kind && one.status == "True");
            let message = found.and_then(|one| one.message.clone()).unwrap_or_default();
            ensure!(message.contains(part), "{conditions:?}");
        }
        Ok(())
    })
    .await
    .expect("said");
    let patch = json!({"metadata": {"finalizers": null}});
    maps.patch("held", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    eventually("it is gone", async || {
        ensure!(namespaces.get_opt("n").await?.is_none());
        Ok(())
    })
    .await
    .expect("gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_limit_a_namespace() {
    let server = Server::start(Options::default()).await.expect("starts");
    let quotas: Api<ResourceQuota> = Api::default_namespaced(server.client());
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "1", "pods": "5"}}});
    quotas.create(&PostParams::default(), &object(quota)).await.expect("created");
    let used = async |wanted: &str| {
        let used = quotas.get("q").await?.status.unwrap_or_default().used.unwrap_or_default();
        ensure!(used.get("secrets").is_some_and(|used| used.0 == wanted), "{used:?}");
        Ok(())
    };
    eventually("nothing is used", async || used("0").await).await.expect("counted");
    secrets
        .create(&PostParams::default(), &object(json!({"metadata": {"name": "a"}})))
        .await
        .expect("within the quota");
    let second = secrets.create(&PostParams::default(), &object(json!({"metadata": {"name": "b"}}))).await;
    let message = second.expect_err("refused").to_string();
    let expect =
        r#"secrets "b" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1"#;
    assert!(message.contains(expect), "{message}");
    eventually("one is used", async || used("1").await).await.expect("counted");
    secrets.delete("a", &DeleteParams::default()).await.expect("deleted");
    eventually("it is given back", async || used("0").await).await.expect("counted");
}
