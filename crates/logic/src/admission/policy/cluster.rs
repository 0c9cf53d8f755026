//! Rules for RayClusters, which the policies of RayJobs and RayServices include.

use super::{CelVariable, Rule, names};
use crate::validate::cluster::MAX_NAME;

pub(super) fn policy() -> (Vec<CelVariable>, Vec<Rule>) {
    let mut rules = names("RayCluster", "", MAX_NAME);
    rules.push(Rule::plain(
        "variables.groups.all(g, variables.groups.exists_one(h, h.groupName == g.groupName))",
        "worker group names must be unique",
    ));
    rules.extend(self::rules());
    rules.push(Rule::interpolated(
        "!has(object.spec.upgradeStrategy) || !has(object.spec.upgradeStrategy.type) || \
         !(variables.origin in ['RayJob', 'RayService'])",
        "upgradeStrategy cannot be set when RayCluster is created by {variables.origin}",
    ));
    let mut variables = variables("object.spec");
    let origin = "object.metadata.?labels[?'ray.io/originated-from-crd'].orValue('')";
    variables.push(CelVariable("origin", origin.to_owned()));
    (variables, rules)
}

/// Returns the variables of the cluster rules; `cluster` is the expression of its spec.
pub(super) fn variables(cluster: &str) -> Vec<CelVariable> {
    [
        ("cluster", cluster),
        ("annotations", "object.metadata.?annotations.orValue({})"),
        ("groups", "variables.cluster.?workerGroupSpecs.orValue([])"),
        ("head", "variables.cluster.?headGroupSpec.?template.?spec.?containers.orValue([])"),
        ("headParams", "variables.cluster.?headGroupSpec.?rayStartParams.orValue({})"),
        ("headEnv", "size(variables.head) > 0 ? variables.head[0].?env.orValue([]) : []"),
        ("headEnvNames", "variables.headEnv.map(e, e.name)"),
        ("autoscaling", "variables.cluster.?enableInTreeAutoscaling.orValue(false)"),
        ("autoscalerVersion", "variables.cluster.?autoscalerOptions.?version.orValue('')"),
        (
            "autoscalerEnv",
            "variables.headEnv.filter(e, e.name == 'RAY_enable_autoscaler_v2' && e.?value.orValue('') in ['1', 'true'])",
        ),
        ("isAutoscalerV2", "variables.autoscalerVersion == 'v2' || size(variables.autoscalerEnv) > 0"),
        ("rayVersion", "variables.cluster.?rayVersion.orValue('')"),
        // 2.52 is 2052, and an invalid version is 0.
        ("rayVersionDigits", "variables.rayVersion.find('^v?[0-9]{1,4}[.][0-9]{1,4}').replace('v', '')"),
        (
            "rayVersionNumber",
            "variables.rayVersionDigits == '' ? 0 : int(variables.rayVersionDigits.split('.')[0]) * 1000 + \
             int(variables.rayVersionDigits.split('.')[1])",
        ),
        ("hasToken", "variables.cluster.?authOptions.?mode.orValue('') == 'token'"),
        ("hasKubernetesToken", "variables.cluster.?authOptions.?enableK8sTokenAuth.orValue(false)"),
        ("hasFt", "has(variables.cluster.gcsFaultToleranceOptions)"),
        ("ft", "variables.cluster.?gcsFaultToleranceOptions.orValue({})"),
        ("ftAnnotation", "variables.annotations[?'ray.io/ft-enabled'].orValue('')"),
        ("isEmbedded", "variables.ft.?backend.orValue('redis') == 'rocksdb'"),
    ]
    .map(|(name, expression)| CelVariable(name, expression.to_owned()))
    .into()
}

/// Returns the rules for the spec in the order of the operator.
pub(super) fn rules() -> Vec<Rule> {
    let mut rules = groups();
    rules.extend(fault_tolerance());
    rules.extend(autoscaler());
    rules.extend(auth());
    rules.extend(network_policy());
    rules
}

const RESOURCES: &str = "['num-cpus', 'num-gpus', 'memory', 'resources']";

fn groups() -> Vec<Rule> {
    let params = "g.?rayStartParams.orValue({})";
    vec![
        Rule::plain("size(variables.head) > 0", "headGroupSpec should have at least one container"),
        Rule::plain(
            &format!(
                "!({RESOURCES}.exists(p, variables.headParams[?p].orValue('') != '') && \
                 size(variables.cluster.?headGroupSpec.?resources.orValue({{}})) > 0)"
            ),
            "resource fields should not be set in both rayStartParams and Resources for Head group; please use only one",
        ),
        Rule::plain(
            "!('labels' in variables.headParams)",
            "rayStartParams['labels'] is not supported for Head group; please use the top-level Labels field instead",
        ),
        Rule::plain(
            "variables.groups.all(g, size(g.template.?spec.?containers.orValue([])) > 0)",
            "workerGroupSpec should have at least one container",
        ),
        Rule::of_groups(
            "!variables.autoscaling && (!has(g.minReplicas) || !has(g.maxReplicas))",
            "worker group {g.groupName} must set both minReplicas and maxReplicas when autoscaling is disabled",
        ),
        Rule::of_groups(
            "g.?minReplicas.orValue(0) < 0",
            "worker group {g.groupName} has negative minReplicas {g.minReplicas}",
        ),
        Rule::of_groups(
            "g.?maxReplicas.orValue(0) < 0",
            "worker group {g.groupName} has negative maxReplicas {g.maxReplicas}",
        ),
        Rule::of_groups(
            "has(g.minReplicas) && has(g.maxReplicas) && g.minReplicas > g.maxReplicas",
            "worker group {g.groupName} has minReplicas {g.minReplicas} greater than maxReplicas {g.maxReplicas}",
        ),
        Rule::of_groups(
            &format!("{RESOURCES}.exists(p, {params}[?p].orValue('') != '') && size(g.?resources.orValue({{}})) > 0"),
            "resource fields should not be set in both rayStartParams and Resources for {g.groupName} group; please use \
             only one",
        ),
        Rule::of_groups(
            &format!("'labels' in {params}"),
            "rayStartParams['labels'] is not supported for {g.groupName} group; please use the top-level Labels field \
             instead",
        ),
        Rule::of_groups(
            "g.?idleTimeoutSeconds.orValue(0) < 0",
            "worker group {g.groupName}: idleTimeoutSeconds must be non-negative, got {g.idleTimeoutSeconds}",
        ),
        Rule::of_groups(
            "has(g.idleTimeoutSeconds) && !variables.isAutoscalerV2",
            "worker group {g.groupName}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set \
             .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' in \
             the head pod if using KubeRay < 1.4.0)",
        ),
        Rule::of_groups(
            "g.?priority.orValue(0) != 0 && variables.rayVersion == ''",
            "worker group {g.groupName}: priority is set, but RayVersion was not specified. Ray version 2.56.0 or later \
             is required",
        ),
        Rule::of_groups(
            "g.?priority.orValue(0) != 0 && variables.rayVersionNumber != 0 && \
             variables.rayVersionNumber < 2056",
            "worker group {g.groupName}: priority is set, but minimum Ray version is 2.56.0, got {variables.rayVersion}",
        ),
        Rule::of_groups(
            "g.?priority.orValue(0) != 0 && !variables.isAutoscalerV2",
            "worker group {g.groupName}: priority is set to {g.priority}, but autoscaler v2 is not enabled. Priority is \
             only supported with autoscaler v2 enabled",
        ),
    ]
}

fn fault_tolerance() -> Vec<Rule> {
    let has_env = |name: &str| format!("'{name}' in variables.headEnvNames");
    let has_param = |name: &str| format!("variables.headParams[?'{name}'].orValue('') != ''");
    let mut rules = vec![
        Rule::plain(
            "variables.ftAnnotation == '' || !variables.hasFt",
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. Please use only \
             GcsFaultToleranceOptions to configure GCS fault tolerance",
        ),
        Rule::plain(
            &format!(
                "variables.hasFt || variables.ftAnnotation.lowerAscii() == 'true' || !({})",
                has_env("RAY_REDIS_ADDRESS")
            ),
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is not \
             set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance",
        ),
    ];
    for (condition, what, field) in [
        (has_param("redis-password"), "`redis-password` in rayStartParams", "RedisPassword"),
        (has_env("REDIS_PASSWORD"), "`REDIS_PASSWORD` env var in head Pod", "RedisPassword"),
        (has_env("RAY_REDIS_ADDRESS"), "`RAY_REDIS_ADDRESS` env var in head Pod", "RedisAddress"),
        (
            "variables.annotations[?'ray.io/external-storage-namespace'].orValue('') != ''".to_owned(),
            "`ray.io/external-storage-namespace` annotation",
            "ExternalStorageNamespace",
        ),
    ] {
        let message = format!(
            "cannot set {what} when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.{field} instead"
        );
        rules.push(Rule::plain(&format!("!variables.hasFt || !({condition})"), &message));
    }
    rules.push(Rule::plain(
        "variables.isEmbedded || !variables.ft.?storage.hasValue()",
        "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' backend",
    ));
    for (condition, field) in [
        ("variables.ft.?redisAddress.orValue('') != ''", "RedisAddress"),
        ("variables.ft.?redisUsername.hasValue()", "RedisUsername"),
        ("variables.ft.?redisPassword.hasValue()", "RedisPassword"),
        ("variables.ft.?externalStorageNamespace.orValue('') != ''", "ExternalStorageNamespace"),
    ] {
        rules.push(Rule::plain(
            &format!("!variables.isEmbedded || !({condition})"),
            &format!("cannot set GcsFaultToleranceOptions.{field} when backend is 'rocksdb'"),
        ));
    }
    rules.push(Rule::plain(
        &format!("!({}) && !({})", has_param("redis-username"), has_env("REDIS_USERNAME")),
        "cannot set redis username in rayStartParams or environment variables - use \
         GcsFaultToleranceOptions.RedisUsername instead",
    ));
    rules
}

/// Returns an expression for whether Kubernetes may restart the containers of such Pods.
pub(super) fn restarts(template: &str) -> String {
    format!("!({template}.?spec.?restartPolicy.orValue('') in ['', 'Never'])")
}

fn autoscaler() -> Vec<Rule> {
    let v2 = "variables.autoscaling && variables.autoscalerVersion == 'v2'";
    let head = restarts("variables.cluster.?headGroupSpec.?template");
    vec![
        Rule::of_groups(
            "variables.autoscaling && g.?suspend.orValue(false)",
            "worker group {g.groupName} cannot be suspended with Autoscaler enabled",
        ),
        Rule::interpolated(
            "variables.autoscaling || size(variables.autoscalerEnv) == 0",
            "environment variable RAY_enable_autoscaler_v2 cannot be set to '{variables.autoscalerEnv[0].value}' when \
             enableInTreeAutoscaling is false. Please set enableInTreeAutoscaling: true to use autoscaler v2",
        ),
        Rule::plain(
            "!(variables.autoscaling && variables.autoscalerVersion != '' && 'RAY_enable_autoscaler_v2' in \
             variables.headEnvNames)",
            "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, please only \
             use the former",
        ),
        Rule::plain(
            &format!("!({v2} && {head})"),
            "restartPolicy for head Pod should be Never or unset when using autoscaler V2",
        ),
        Rule::of_groups(
            &format!("{v2} && {}", restarts("g.template")),
            "restartPolicy for worker group {g.groupName} should be Never or unset when using autoscaler V2",
        ),
        Rule::interpolated(
            "variables.cluster.?autoscalerOptions.?idleTimeoutSeconds.orValue(0) >= 0",
            "autoscalerOptions.idleTimeoutSeconds must be non-negative, got \
             {variables.cluster.autoscalerOptions.idleTimeoutSeconds}",
        ),
        Rule::plain(
            "!variables.cluster.?autoscalerOptions.?env.orValue([]).exists(e, e.name == \
             'KUBERAY_GEN_AUTOSCALER_START_CMD')",
            "autoscalerOptions.env must not contain KUBERAY_GEN_AUTOSCALER_START_CMD: it is managed by KubeRay and \
             injected automatically into the autoscaler container",
        ),
    ]
}

fn auth() -> Vec<Rule> {
    vec![
        Rule::plain(
            "!variables.hasKubernetesToken || variables.hasToken",
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'",
        ),
        Rule::plain(
            "!variables.hasToken || variables.rayVersion != ''",
            "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required",
        ),
        Rule::interpolated(
            "!variables.hasToken || variables.rayVersionNumber == 0 || variables.rayVersionNumber >= 2052",
            "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got {variables.rayVersion}",
        ),
        Rule::interpolated(
            "!variables.hasKubernetesToken || variables.rayVersionNumber == 0 || variables.rayVersionNumber >= 2055",
            "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got {variables.rayVersion}",
        ),
        Rule::plain(
            "!variables.hasKubernetesToken || variables.cluster.authOptions.?secretName.orValue('') == ''",
            "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set",
        ),
    ]
}

fn network_policy() -> Vec<Rule> {
    let mode = "variables.cluster.?networkPolicy.?mode.orValue('DenyAll')";
    let mut rules = Vec::new();
    for section in ["head", "worker"] {
        for (open, field, word) in
            [("DenyAllEgress", "ingressRules", "ingress"), ("DenyAllIngress", "egressRules", "egress")]
        {
            rules.push(Rule::plain(
                &format!(
                    "{mode} != '{open}' || size(variables.cluster.networkPolicy.?{section}.?{field}.orValue([])) == 0"
                ),
                &format!(
                    "networkPolicy.{section}.{field} cannot be set when mode is \"{open}\" ({word} is not restricted)"
                ),
            ));
        }
    }
    rules
}
