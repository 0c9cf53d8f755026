//! Columns and rows of the built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::{Column, age, date, number, plain, pod, text, wide};

/// Returns the columns of a kind after its name.
pub(super) fn columns(plural: &str) -> &'static [Column] {
    match plural {
        "pods" => {
            const {
                &[
                    text("Ready"),
                    text("Status"),
                    text("Restarts"),
                    text("Age"),
                    wide("IP"),
                    wide("Node"),
                    wide("Nominated Node"),
                    wide("Readiness Gates"),
                ]
            }
        }
        "services" => {
            const { &[text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), text("Age"), wide("Selector")] }
        }
        "deployments" => {
            const {
                &[
                    text("Ready"),
                    text("Up-to-date"),
                    text("Available"),
                    text("Age"),
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        "replicasets" => {
            const {
                &[
                    number("Desired"),
                    number("Current"),
                    number("Ready"),
                    text("Age"),
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        "statefulsets" => const { &[text("Ready"), text("Age"), wide("Containers"), wide("Images")] },
        "jobs" => {
            const {
                &[
                    text("Status"),
                    text("Completions"),
                    text("Duration"),
                    text("Age"),
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        "nodes" => {
            const {
                &[
                    text("Status"),
                    text("Roles"),
                    text("Age"),
                    text("Version"),
                    wide("Internal-IP"),
                    wide("External-IP"),
                    wide("OS-Image"),
                    wide("Kernel-Version"),
                    wide("Container-Runtime"),
                ]
            }
        }
        "namespaces" => const { &[text("Status"), text("Age")] },
        "configmaps" => const { &[text("Data"), text("Age")] },
        "secrets" => const { &[text("Type"), text("Data"), text("Age")] },
        "serviceaccounts" => const { &[text("Secrets"), text("Age")] },
        "endpoints" => const { &[text("Endpoints"), text("Age")] },
        "endpointslices" => const { &[text("AddressType"), text("Ports"), text("Endpoints"), text("Age")] },
        "events" => {
            const {
                &[
                    text("Last Seen"),
                    text("Type"),
                    text("Reason"),
                    text("Object"),
                    wide("Subobject"),
                    wide("Source"),
                    text("Message"),
                    wide("First Seen"),
                    wide("Count"),
                    wide("Name"),
                ]
            }
        }
        "persistentvolumeclaims" => {
            const {
                &[
                    text("Status"),
                    text("Volume"),
                    text("Capacity"),
                    text("Access Modes"),
                    text("StorageClass"),
                    text("VolumeAttributesClass"),
                    text("Age"),
                    wide("VolumeMode"),
                ]
            }
        }
        "persistentvolumes" => {
            const {
                &[
                    text("Capacity"),
                    text("Access Modes"),
                    text("Reclaim Policy"),
                    text("Status"),
                    text("Claim"),
                    text("StorageClass"),
                    text("VolumeAttributesClass"),
                    text("Reason"),
                    text("Age"),
                    wide("VolumeMode"),
                ]
            }
        }
        "ingresses" => const { &[text("Class"), text("Hosts"), text("Address"), text("Ports"), text("Age")] },
        "networkpolicies" => const { &[text("Pod-Selector"), text("Age")] },
        "poddisruptionbudgets" => {
            const { &[text("Min Available"), text("Max Unavailable"), number("Allowed Disruptions"), text("Age")] }
        }
        "leases" => const { &[text("Holder"), text("Age")] },
        "priorityclasses" => {
            const { &[number("Value"), text("Global-Default"), text("Age"), text("PreemptionPolicy")] }
        }
        "storageclasses" => {
            const {
                &[
                    text("Provisioner"),
                    text("ReclaimPolicy"),
                    text("VolumeBindingMode"),
                    text("AllowVolumeExpansion"),
                    text("Age"),
                ]
            }
        }
        "rolebindings" | "clusterrolebindings" => {
            const { &[text("Role"), text("Age"), wide("Users"), wide("Groups"), wide("ServiceAccounts")] }
        }
        "cronjobs" => {
            const {
                &[
                    text("Schedule"),
                    text("Timezone"),
                    text("Suspend"),
                    number("Active"),
                    text("Last Schedule"),
                    text("Age"),
                ]
            }
        }
        _ => const { &[date("Created At")] },
    }
}

/// Returns the cells of an object after its name.
pub(super) fn cells(plural: &str, value: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&value["spec"], &value["status"]);
    let created = || Value::from(age(&value["metadata"]["creationTimestamp"], now));
    match plural {
        "pods" => pod::cells(value, now),
        "services" => vec![
            spec["type"].clone(),
            or_none(&spec["clusterIP"]),
            external_address(value).into(),
            ports(&spec["ports"]).into(),
            created(),
            labels(&spec["selector"]).into(),
        ],
        "deployments" => vec![
            format!("{}/{}", int(&status["readyReplicas"]), int(&spec["replicas"])).into(),
            int(&status["updatedReplicas"]).into(),
            int(&status["availableReplicas"]).into(),
            created(),
            containers(spec, "name"),
            containers(spec, "image"),
            labels(&spec["selector"]["matchLabels"]).into(),
        ],
        "replicasets" => vec![
            int(&spec["replicas"]).into(),
            int(&status["replicas"]).into(),
            int(&status["readyReplicas"]).into(),
            created(),
            containers(spec, "name"),
            containers(spec, "image"),
            labels(&spec["selector"]["matchLabels"]).into(),
        ],
        "statefulsets" => vec![
            format!("{}/{}", int(&status["readyReplicas"]), int(&spec["replicas"])).into(),
            created(),
            containers(spec, "name"),
            containers(spec, "image"),
        ],
        "jobs" => vec![
            job_status(value).into(),
            completions(value).into(),
            duration(status, now),
            created(),
            containers(spec, "name"),
            containers(spec, "image"),
            labels(&spec["selector"]["matchLabels"]).into(),
        ],
        "nodes" => node(value, created()),
        "namespaces" => vec![status["phase"].clone(), created()],
        "configmaps" => vec![(len(&value["data"]) + len(&value["binaryData"])).into(), created()],
        "secrets" => vec![value["type"].clone(), len(&value["data"]).into(), created()],
        "serviceaccounts" => vec![len(&value["secrets"]).into(), created()],
        "endpoints" => vec![endpoints(value).into(), created()],
        "endpointslices" => vec![
            value["addressType"].clone(),
            joined(&value["ports"], |port| plain(&port["port"])).into(),
            joined(&value["endpoints"], |endpoint| plain(&endpoint["addresses"][0])).into(),
            created(),
        ],
        "events" => event(value, now),
        "persistentvolumeclaims" => {
            let bound = spec["volumeName"].is_string();
            let (capacity, modes) = match bound {
                true => (plain(&status["capacity"]["storage"]), access_modes(&status["accessModes"])),
                false => (String::new(), String::new()),
            };
            vec![
                status["phase"].clone(),
                plain(&spec["volumeName"]).into(),
                capacity.into(),
                modes.into(),
                plain(&spec["storageClassName"]).into(),
                "<unset>".into(),
                created(),
                spec["volumeMode"].clone(),
            ]
        }
        "persistentvolumes" => {
            let claim = &spec["claimRef"];
            let claim = if claim.is_object() {
                format!("{}/{}", plain(&claim["namespace"]), plain(&claim["name"]))
            } else {
                String::new()
            };
            vec![
                spec["capacity"]["storage"].clone(),
                access_modes(&spec["accessModes"]).into(),
                spec["persistentVolumeReclaimPolicy"].clone(),
                status["phase"].clone(),
                claim.into(),
                plain(&spec["storageClassName"]).into(),
                "<unset>".into(),
                plain(&status["reason"]).into(),
                created(),
                spec["volumeMode"].clone(),
            ]
        }
        "ingresses" => vec![
            or_none(&spec["ingressClassName"]),
            hosts(spec).into(),
            joined_plain(&status["loadBalancer"]["ingress"], |one| plain(one.get("ip").unwrap_or(&one["hostname"])))
                .into(),
            (if spec["tls"].is_array() { "80, 443" } else { "80" }).into(),
            created(),
        ],
        "networkpolicies" => vec![labels(&spec["podSelector"]["matchLabels"]).into(), created()],
        "poddisruptionbudgets" => vec![
            or_na(&spec["minAvailable"]),
            or_na(&spec["maxUnavailable"]),
            int(&status["disruptionsAllowed"]).into(),
            created(),
        ],
        "leases" => vec![plain(&spec["holderIdentity"]).into(), created()],
        "priorityclasses" => vec![
            value["value"].clone(),
            (value["globalDefault"] == true).to_string().into(),
            created(),
            value["preemptionPolicy"].clone(),
        ],
        "storageclasses" => vec![
            value["provisioner"].clone(),
            value["reclaimPolicy"].clone(),
            value["volumeBindingMode"].clone(),
            (value["allowVolumeExpansion"] == true).to_string().into(),
            created(),
        ],
        "rolebindings" | "clusterrolebindings" => {
            let role = &value["roleRef"];
            let of = |kind: &str| {
                let subjects = value["subjects"].as_array().into_iter().flatten();
                let named = subjects.filter(|one| one["kind"] == kind).map(|one| match one["namespace"].as_str() {
                    Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{}", plain(&one["name"])),
                    _ => plain(&one["name"]),
                });
                Value::from(named.collect::<Vec<_>>().join(", "))
            };
            let role = format!("{}/{}", plain(&role["kind"]), plain(&role["name"]));
            vec![role.into(), created(), of("User"), of("Group"), of("ServiceAccount")]
        }
        "cronjobs" => vec![
            spec["schedule"].clone(),
            or_none(&spec["timeZone"]),
            if spec["suspend"] == true { "True" } else { "False" }.into(),
            len(&status["active"]).into(),
            match status["lastScheduleTime"].as_str() {
                Some(_) => age(&status["lastScheduleTime"], now).into(),
                None => "<none>".into(),
            },
            created(),
        ],
        _ => vec![value["metadata"]["creationTimestamp"].clone()],
    }
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn len(value: &Value) -> usize {
    value.as_object().map_or_else(|| value.as_array().map_or(0, Vec::len), serde_json::Map::len)
}

fn or_none(value: &Value) -> Value {
    match plain(value).as_str() {
        "" => "<none>".into(),
        text => text.into(),
    }
}

fn or_na(value: &Value) -> Value {
    if value.is_null() { "N/A".into() } else { plain(value).into() }
}

fn labels(map: &Value) -> String {
    let pairs: Vec<String> =
        map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

fn containers(spec: &Value, key: &str) -> Value {
    let list = spec["template"]["spec"]["containers"].as_array().into_iter().flatten();
    list.map(|one| plain(&one[key])).collect::<Vec<_>>().join(",").into()
}

fn joined_plain(list: &Value, show: impl Fn(&Value) -> String) -> String {
    list.as_array().into_iter().flatten().map(show).collect::<Vec<_>>().join(",")
}

/// Returns the first three, and how many more.
fn joined(list: &Value, show: impl Fn(&Value) -> String) -> String {
    let all: Vec<String> = list.as_array().into_iter().flatten().map(show).collect();
    match all.len() {
        0 => "<unset>".into(),
        1..=3 => all.join(","),
        more => format!("{} + {} more...", all[..3].join(","), more - 3),
    }
}

fn ports(list: &Value) -> String {
    let show = |port: &Value| match port["nodePort"].as_i64() {
        Some(node) if node > 0 => format!("{}:{node}/{}", plain(&port["port"]), plain(&port["protocol"])),
        _ => format!("{}/{}", plain(&port["port"]), plain(&port["protocol"])),
    };
    let text = joined_plain(list, show);
    if text.is_empty() { "<none>".into() } else { text }
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return plain(&spec["externalName"]);
    }
    let given = joined_plain(&spec["externalIPs"], plain);
    let balanced = joined_plain(&service["status"]["loadBalancer"]["ingress"], |one| {
        plain(one.get("ip").unwrap_or(&one["hostname"]))
    });
    match (spec["type"] == "LoadBalancer", balanced.is_empty(), given.is_empty()) {
        (true, false, _) => balanced,
        (_, _, false) => given,
        (true, true, true) => "<pending>".into(),
        _ => "<none>".into(),
    }
}

fn endpoints(value: &Value) -> String {
    let mut all = Vec::new();
    for subset in value["subsets"].as_array().into_iter().flatten() {
        for address in subset["addresses"].as_array().into_iter().flatten() {
            for port in subset["ports"].as_array().into_iter().flatten() {
                all.push(format!("{}:{}", plain(&address["ip"]), plain(&port["port"])));
            }
        }
    }
    match all.len() {
        0 => "<none>".into(),
        1..=3 => all.join(","),
        more => format!("{} + {} more...", all[..3].join(","), more - 3),
    }
}

fn access_modes(list: &Value) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO".to_owned(),
        Some("ReadOnlyMany") => "ROX".into(),
        Some("ReadWriteMany") => "RWX".into(),
        Some("ReadWriteOncePod") => "RWOP".into(),
        _ => plain(mode),
    };
    joined_plain(list, short)
}

fn hosts(spec: &Value) -> String {
    let text = joined_plain(&spec["rules"], |rule| plain(rule.get("host").unwrap_or(&"*".into())));
    if text.is_empty() { "*".into() } else { text }
}

fn has_condition(value: &Value, kind: &str) -> bool {
    value["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| one["type"] == kind && one["status"] == "True")
}

fn job_status(job: &Value) -> &'static str {
    if has_condition(job, "Complete") {
        "Complete"
    } else if has_condition(job, "Failed") {
        "Failed"
    } else if job["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else if has_condition(job, "Suspended") {
        "Suspended"
    } else if has_condition(job, "FailureTarget") {
        "FailureTarget"
    } else if has_condition(job, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let done = int(&job["status"]["succeeded"]);
    match (job["spec"]["completions"].as_i64(), int(&job["spec"]["parallelism"])) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    }
}

fn duration(status: &Value, now: Timestamp) -> Value {
    let parse = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    match (parse(&status["startTime"]), parse(&status["completionTime"])) {
        (None, _) => "".into(),
        (Some(start), end) => super::human(end.unwrap_or(now).as_second() - start.as_second()).into(),
    }
}

fn node(value: &Value, created: Value) -> Vec<Value> {
    let (status, labels) = (&value["status"], &value["metadata"]["labels"]);
    let ready = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "Ready");
    let mut state = match ready.map(|one| one["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if value["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let roles: Vec<&str> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        let found = status["addresses"].as_array().into_iter().flatten().find(|one| one["type"] == kind);
        or_none(found.map_or(&Value::Null, |one| &one["address"]))
    };
    let info = &status["nodeInfo"];
    vec![
        state.into(),
        if roles.is_empty() { "<none>".into() } else { roles.join(",").into() },
        created,
        info["kubeletVersion"].clone(),
        address("InternalIP"),
        address("ExternalIP"),
        or_unknown(&info["osImage"]),
        or_unknown(&info["kernelVersion"]),
        or_unknown(&info["containerRuntimeVersion"]),
    ]
}

fn or_unknown(value: &Value) -> Value {
    match plain(value).as_str() {
        "" => "<unknown>".into(),
        text => text.into(),
    }
}

fn event(value: &Value, now: Timestamp) -> Vec<Value> {
    let pick =
        |stored: &str, shown: &str| if value[stored].is_null() { value[shown].clone() } else { value[stored].clone() };
    let object = pick("involvedObject", "regarding");
    let first_of = |keys: &[&str]| {
        keys.iter().map(|key| value.pointer(key).unwrap_or(&Value::Null)).find(|found| found.is_string()).cloned()
    };
    let when = |keys: &[&str]| first_of(keys).map_or_else(|| "<unknown>".to_owned(), |time| age(&time, now));
    let last = when(&["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"]);
    let first = when(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let count = value["series"]["count"].as_i64().or(pick("count", "deprecatedCount").as_i64()).unwrap_or(1);
    let source = pick("source", "deprecatedSource");
    let reporter = pick("reportingComponent", "reportingController");
    let source = match source["component"].as_str() {
        Some(component) if !component.is_empty() => component.to_owned(),
        _ => plain(&reporter),
    };
    vec![
        last.into(),
        value["type"].clone(),
        value["reason"].clone(),
        format!("{}/{}", plain(&object["kind"]).to_lowercase(), plain(&object["name"])).into(),
        plain(&object["fieldPath"]).into(),
        source.into(),
        plain(&pick("message", "note")).trim().into(),
        first.into(),
        count.to_string().into(),
        value["metadata"]["name"].clone(),
    ]
}
