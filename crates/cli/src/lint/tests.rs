//! A table of bad inputs, and properties that no input may violate.

use std::cell::RefCell;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

thread_local! {
    /// Compiling the schemas takes longer than a thousand cases.
    static LINTER: RefCell<Linter> = RefCell::default();
}

fn findings(text: impl AsRef<[u8]>) -> Vec<Finding> {
    LINTER.with_borrow_mut(|linter| linter.lint("f", text.as_ref()))
}

fn lint(text: impl AsRef<[u8]>) -> Vec<String> {
    findings(text).iter().map(Finding::to_string).collect()
}

fn check(text: &str, expect: &[&str]) {
    assert_eq!(lint(text), expect, "{text}");
}

const CLUSTER: &str = "\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: demo
spec:
  headGroupSpec:
    rayStartParams: {}
    template:
      spec:
        containers:
          - name: head
            image: rayproject/ray:2.53.0
  workerGroupSpecs:
    - groupName: small
      replicas: 1
      minReplicas: 1
      maxReplicas: 5
      rayStartParams: {}
      template:
        spec:
          containers:
            - name: worker
              image: rayproject/ray:2.53.0
";

fn edited(from: &str, to: &str) -> String {
    assert!(CLUSTER.contains(from), "{from}");
    CLUSTER.replacen(from, to, 1)
}

#[test]
fn a_valid_file_has_no_findings() {
    check(CLUSTER, &[]);
    check(&format!("---\n{CLUSTER}---\n# nothing\n---\n{CLUSTER}"), &[]);
}

#[test]
fn syntax_and_type_are_checked_first() {
    check("", &["f: note: the file is empty"]);
    check("# only a comment\n", &["f: note: the file is empty"]);
    check("a: [\n", &["f:1: not YAML: unclosed bracket '['"]);
    check("- a\n- b\n", &["f:1: must be an object with apiVersion and kind, but is a list"]);
    check("hello\n", &["f:1: must be an object with apiVersion and kind, but is a string"]);
    check("a: 1\n", &["f:1: apiVersion: Required value", "f:1: kind: Required value"]);
    check("apiVersion: 1\nkind: [x]\n", &["f:1: apiVersion: must be a string", "f:2: kind: must be a string"]);
    assert_eq!(lint(b"a: 1\nb: \xff\n"), ["f:2: not UTF-8 text"]);
}

#[test]
fn documents_after_a_syntax_error_are_still_checked() {
    let broken = format!("a: [\n---\n{}", edited("replicas: 1", "replicas: one"));
    let found = lint(&broken);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("f:1: not YAML"), "{found:?}");
    assert!(found[2].starts_with("f:17: spec.workerGroupSpecs[0].replicas: must be an integer"), "{found:?}");
}

#[test]
fn duplicate_keys_are_named_with_both_lines() {
    check(
        &edited("      replicas: 1\n", "      replicas: 1\n      replicas: 2\n"),
        &["f:16: duplicate key \"replicas\", first on line 15"],
    );
    check(
        "? [a]\n: 1\n? {b: c}\n: 2\n~: 3\n",
        &[
            "f:1: a key must be a string, not a list",
            "f:1: apiVersion: Required value",
            "f:1: kind: Required value",
            "f:3: a key must be a string, not an object",
            "f:5: a key must be a string, not null",
        ],
    );
}

#[test]
fn only_ray_kinds_are_checked_but_never_skipped_by_a_typo() {
    check("apiVersion: v1\nkind: ConfigMap\n", &["f:2: note: ConfigMap of v1 is not checked"]);
    check(
        "apiVersion: ray.io/v2\nkind: RayCluster\n",
        &["f:1: apiVersion: unknown version, RayCluster belongs to ray.io/v1"],
    );
    check("apiVersion: rayio/v1\nkind: RayCluster\n", &["f:1: apiVersion: RayCluster belongs to ray.io/v1"]);
    check(
        "apiVersion: ray.io/v1\nkind: RayClutser\n",
        &["f:2: kind: unknown kind \"RayClutser\", did you mean RayCluster?"],
    );
    check(
        "apiVersion: ray.io/v1\nkind: Pod\n",
        &["f:2: kind: unknown kind \"Pod\", ray.io has RayCluster, RayCronJob, RayJob, RayService"],
    );
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}",
        edited("minReplicas: 1", "minReplicas: 9").replace('\n', "\n  ")
    );
    let found = lint(list.trim_end());
    assert!(
        found.iter().any(|line| line.starts_with("f:19: spec.workerGroupSpecs[0].minReplicas: worker group small has")),
        "{found:?}"
    );
}

#[test]
fn unknown_fields_come_with_a_suggestion() {
    check(
        &edited("      minReplicas: 1", "      minReplica: 1")
            .replace("  headGroupSpec:", "  wrong: 1\n  headGroupSpec:"),
        &[
            "f:6: spec.wrong: unknown field",
            "f:17: spec.workerGroupSpecs[0].minReplica: unknown field, did you mean \"minReplicas\"?",
        ],
    );
    check(
        &edited("  name: demo", "  name: demo\n  label:\n    a: b"),
        &["f:5: metadata.label: unknown field, did you mean \"labels\"?"],
    );
}

#[test]
fn mistakes_in_metadata_are_found_on_their_own_lines() {
    let with = |metadata: &str| edited("  name: demo", &format!("  name: demo\n{metadata}"));
    check(&with("  labels: {app: demo, tier: \"\", empty: null}\n  annotations: null"), &[]);
    check(
        &with("  labels:\n    app: demo\n    replicas: 1\n  annotations: [a]"),
        &[
            "f:7: metadata.labels[replicas]: must be a string, not the number 1; put it in quotes: \"1\"",
            "f:8: metadata.annotations: must be an object, not a list",
        ],
    );
    let found = lint(with("  labels:\n    app: demo\n    team: my team\n    -x: z\n  annotations:\n    a b: c"));
    let expect = [
        "f:7: metadata.labels[team]: Invalid value: \"my team\": a valid label must",
        "f:8: metadata.labels[-x]: Invalid value: \"-x\": name part must",
        "f:10: metadata.annotations[a b]: Invalid value: \"a b\": name part must",
    ];
    assert_eq!(found.len(), expect.len(), "{found:?}");
    assert!(found.iter().zip(expect).all(|(line, start)| line.starts_with(start)), "{found:?}");
    let found = lint(edited("  name: demo", "  labels: {a: b}\n  generateName: Demo-"));
    assert!(found.len() == 1 && found[0].starts_with("f:5: metadata.generateName: "), "{found:?}");
    let found = lint(edited("    template:\n", "    template:\n      metadata: {labels: {a: b c}}\n"));
    let expect = "f:9: warning: spec.headGroupSpec.template.metadata.labels: the Pod would be refused: Invalid value: ";
    assert!(found.len() == 1 && found[0].starts_with(expect), "{found:?}");
}

#[test]
fn every_problem_is_found_not_just_the_first() {
    let bad = edited("replicas: 1", "replicas: one")
        .replace("groupName: small", "groupNam: small")
        .replace("      maxReplicas: 5", "      maxReplicas: five");
    check(
        &bad,
        &[
            "f:1: note: the CEL rules were not checked, because the object does not match the schema",
            "f:14: spec.workerGroupSpecs[0].groupNam: unknown field, did you mean \"groupName\"?",
            "f:14: spec.workerGroupSpecs[0].groupName: Required value",
            "f:15: spec.workerGroupSpecs[0].replicas: must be an integer, not the string \"one\"",
            "f:17: spec.workerGroupSpecs[0].maxReplicas: must be an integer, not the string \"five\"",
        ],
    );
}

#[test]
fn every_violated_rule_is_reported() {
    let second = "    - groupName: big\n      replicas: 1\n      minReplicas: -1\n      maxReplicas: 1\n      rayStartParams: {}\n      \
                  template: {spec: {containers: [{name: w, image: i}]}}\n";
    let bad = edited("minReplicas: 1", "minReplicas: 9").replace("name: demo", "name: Demo") + second;
    let found = lint(&bad);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("f:4: metadata.name: "), "{found:?}");
    assert!(found[1].starts_with("f:16: spec.workerGroupSpecs[0].minReplicas: worker group small has"), "{found:?}");
    assert!(found[2].starts_with("f:26: spec.workerGroupSpecs[1].minReplicas: worker group big has"), "{found:?}");
}

#[test]
fn rules_of_schema_and_operator_are_applied() {
    check(
        &edited("spec:\n  head", "spec:\n  managedBy: me\n  head"),
        &[
            "f:6: spec.managedBy: Invalid value: \"string\": the managedBy field value must be either 'ray.io/kuberay-operator' or 'kueue.x-k8s.io/multikueue'",
        ],
    );
    check(
        &edited("minReplicas: 1", "minReplicas: 9"),
        &[
            "f:16: spec.workerGroupSpecs[0].minReplicas: worker group small has minReplicas 9 greater than maxReplicas 5",
        ],
    );
    let found = lint(edited("  name: demo", "  name: Demo"));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("f:4: metadata.name: RayCluster name should be a valid DNS1035 label"), "{found:?}");
    check(&edited("  name: demo", "  generateName: demo-"), &[]);
    check(
        &edited("  name: demo", "  labels: {a: b}"),
        &["f:3: metadata.name: Required value: name or generateName is required"],
    );
    check(
        &edited("replicas: 1", "replicas: 5000000000"),
        &["f:15: spec.workerGroupSpecs[0].replicas: invalid value: integer `5000000000`, expected i32"],
    );
}

const CRON: &str = "\
apiVersion: ray.io/v1
kind: RayCronJob
metadata:
  name: nightly
spec:
  schedule: 0 3 * * *
  jobTemplate:
    entrypoint: python train.py
    submissionMode: HTTPMode
    runtimeEnvYAML: |
      pip: [torch]
    rayClusterSpec:
      rayVersion: 2.53.0
      headGroupSpec:
        rayStartParams: {}
        template:
          spec:
            containers:
              - name: head
                image: rayproject/ray:2.53.0
";

#[test]
fn what_webhook_and_operator_refuse_is_found_on_its_own_line() {
    let check = |from: &str, to: &str, expect: &str| {
        let found = lint(CRON.replacen(from, to, 1));
        assert!(found.len() == 1 && found[0].starts_with(expect), "{from} -> {to}: {found:?}");
    };
    super::tests::check(CRON, &[]);
    check("  schedule: 0 3 * * *", "  schedule: 0 3 * *", "f:6: spec.schedule: invalid cron schedule: ");
    check(
        "  schedule: 0 3 * * *",
        "  schedule: 0 3 * * *\n  timeZone: Nowhere",
        "f:7: spec.timeZone: invalid time zone: unknown time zone Nowhere",
    );
    check(
        "HTTPMode",
        "K8JobMode",
        "f:9: spec.jobTemplate.submissionMode: invalid RayJob template: The RayJob spec is invalid: submissionMode",
    );
    check(
        "    submissionMode",
        "    backoffLimit: -1\n    submissionMode",
        "f:9: spec.jobTemplate.backoffLimit: invalid RayJob template: The RayJob spec is invalid: backoffLimit",
    );
    check(
        "                image",
        "                env: [{name: RAY_REDIS_ADDRESS, value: x}]\n                image",
        "f:20: spec.jobTemplate.rayClusterSpec.headGroupSpec.template.spec.containers[0].env[0]: invalid RayJob template: ",
    );
    let group = "    - groupName: small\n      replicas: 0\n      rayStartParams: {}\n      minReplicas: 0\n      maxReplicas: 1\n      \
                 template: {spec: {containers: [{name: w, image: i}]}}\n";
    let found = lint(format!("{CLUSTER}{group}"));
    assert_eq!(found, ["f:24: spec.workerGroupSpecs[1]: worker group names must be unique"]);
}

#[test]
fn what_is_probably_unintended_is_a_warning() {
    let check = |from: &str, to: &str, expect: &[&str]| {
        let text = if CLUSTER.contains(from) { edited(from, to) } else { CRON.replacen(from, to, 1) };
        let expect: Vec<String> = expect.iter().map(|line| line.replacen(": ", ": warning: ", 1)).collect();
        assert_eq!(lint(&text), expect, "{from} -> {to}");
    };
    check(
        "      replicas: 1",
        "      replicas: -1",
        &["f:15: spec.workerGroupSpecs[0].replicas: -1 is negative and counts as 0"],
    );
    check(
        "            image: rayproject/ray:2.53.0",
        "            image: rayproject/ray:2.53.0\n            resources: {limits: {cpu: 1}, requests: {cpu: 2}}",
        &[
            "f:13: spec.headGroupSpec.template.spec.containers[0].resources.requests: the Pod would be refused: Invalid value: \
           \"2\": must be less than or equal to cpu limit of 1",
        ],
    );
    check(
        "            image: rayproject/ray:2.53.0",
        "            image: rayproject/ray:2.53.0\n            volumeMounts: [{name: data, mountPath: /data}]",
        &[
            "f:13: spec.headGroupSpec.template.spec.containers[0].volumeMounts[0].name: the Pod would be refused: Not found: \
           \"data\"",
        ],
    );
    check(
        "rayVersion: 2.53.0",
        "rayVersion: 2.46.0",
        &[
            "f:20: spec.jobTemplate.rayClusterSpec.headGroupSpec.template.spec.containers[0].image: the image has Ray 2.53.0, \
           but rayVersion is 2.46.0",
        ],
    );
    check(
        "pip: [torch]",
        "env_vars: {A: b}\n      pipp: [torch]",
        &["f:12: spec.jobTemplate.runtimeEnvYAML.pipp: Ray does not know this key, did you mean \"pip\"?"],
    );
    let curly = "contains the curly quote \u{201c}, which is an ordinary character; use \" or '";
    check(
        "python train.py",
        "\u{201c}python train.py\u{201d}",
        &[&format!("f:8: spec.jobTemplate.entrypoint: {curly}")],
    );
    check(
        "python train.py",
        "python {{ .Values.script }}",
        &[
            "f:8: spec.jobTemplate.entrypoint: contains a template expression; render it first, for example with helm template",
        ],
    );
}

#[test]
fn serve_configurations_are_checked_with_their_lines() {
    let service = "\
apiVersion: ray.io/v1
kind: RayService
metadata:
  name: demo
spec:
  serveConfigV2: |
    applications:
      - name: app
        import_path: a:b
        deployments:
          - name: d
            num_replica: 2
            ray_actor_options: {num_cpus: 1}
  rayClusterConfig:
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers:
            - name: head
              image: rayproject/ray:2.53.0
";
    check(
        service,
        &[
            "f:12: warning: spec.serveConfigV2.applications[0].deployments[0].num_replica: Ray does not know this key, did you \
             mean \"num_replicas\"?",
        ],
    );
    let curly = "contains the curly quote \u{201c}, which is an ordinary character; use \" or '";
    let template = "contains a template expression; render it first, for example with helm template";
    check(
        &service
            .replace("num_replica: 2", "max_queued_requests: \"{{ .Values.most }}\"")
            .replace("a:b", "\u{201c}a:b\u{201d}"),
        &[
            &format!("f:9: warning: spec.serveConfigV2.applications[0].import_path: {curly}"),
            &format!(
                "f:12: warning: spec.serveConfigV2.applications[0].deployments[0].max_queued_requests: {template}"
            ),
        ],
    );
    let broken = service.replace("num_replica: 2", "\"num_replicas: 2");
    let found = lint(&broken);
    assert!(found.len() == 1 && found[0].contains("spec.serveConfigV2: not YAML"), "{found:?}");
}

#[test]
fn values_are_corrected_in_plain_words() {
    check(
        &edited("    rayStartParams: {}", "    rayStartParams: {num-cpus: 1}"),
        &[
            "f:1: note: the CEL rules were not checked, because the object does not match the schema",
            "f:7: spec.headGroupSpec.rayStartParams.num-cpus: must be a string, not the number 1; put it in quotes: \"1\"",
        ],
    );
    check(
        &edited("            image: rayproject/ray:2.53.0", "            resources: {limits: {memory: 2GB}}"),
        &[
            "f:12: spec.headGroupSpec.template.spec.containers[0].resources.limits.memory: \"2GB\" is not a quantity, use 2G or \
             2Gi",
        ],
    );
}

#[test]
fn tabs_and_templates_are_reported_where_they_are() {
    let tab = "not YAML: indented with a tab; use spaces";
    check(&edited("            image:", "\t    image:"), &[&format!("f:12: {tab}")]);
    check(&edited("    rayStartParams", "\trayStartParams"), &[&format!("f:7: {tab}")]);
    let found = lint(edited("rayproject/ray:2.53.0", "{{ .Values.image }}"));
    assert!(found.iter().any(|line| line.starts_with("f:12: ") && line.contains("template expression")), "{found:?}");
    let found = lint(edited("spec:\n  head", "{{- if .Values.ray }}\nspec:\n  head"));
    assert!(found[0].starts_with("f:5: not YAML") && found[0].contains("template expression"), "{found:?}");
}

#[test]
fn yaml_is_read_as_kubectl_reads_it() {
    check(&edited("spec:\n  head", "spec:\n  enableInTreeAutoscaling: yes\n  head"), &[]);
    let shared = edited("    rayStartParams: {}", "    rayStartParams: &params {num-cpus: \"1\"}")
        .replace("      rayStartParams: {}", "      rayStartParams: *params");
    check(&shared, &[]);
    let merged = edited("    - groupName: small", "    - <<: {suspend: false, replicas: x}\n      groupName: small");
    check(&merged, &[]);
    check(&serde_json::to_string(&cluster()).unwrap(), &[]);
}

fn cluster() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo"},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head", "image": "i"}]}}}},
    })
}

#[test]
fn hostile_input_is_rejected_in_bounded_time() {
    let bomb = {
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..20 {
            let last = i - 1;
            text.push_str(&format!(
                "a{i}: &a{i} [*a{last},*a{last},*a{last},*a{last},*a{last},*a{last},*a{last},*a{last}]\n"
            ));
        }
        text
    };
    check(&bomb, &["f:6: aliases expand to more than 200000 values"]);
    let deep = format!("a: {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
    assert!(lint(&deep)[0].contains("not YAML"), "{:?}", lint(&deep));
    let stairs: String = (0..100).fold("a0: &a0 x\n".to_owned(), |text, i| {
        format!("{text}a{}: &a{} {}*a{i}{}\n", i + 1, i + 1, "[".repeat(100), "]".repeat(100))
    });
    assert_eq!(lint(&stairs), ["f:5: nested deeper than 400 levels"]);
    check("a: &a [*a]\n", &["f:1: an alias refers to a value that contains it"]);
    check("a: *nobody\n", &["f:1: not YAML: while parsing node, found unknown anchor"]);
    let many_keys: String = (0..20_000).map(|_| "a: 1\n").collect();
    assert!(lint(&many_keys).len() <= 1_003);
}

#[test]
fn objects_without_a_name_cannot_be_applied() {
    let check = |text: &str, expect: &[&str]| {
        let (found, _) = LINTER.with_borrow_mut(|linter| linter.read_to_apply("f", text.as_bytes()));
        let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
        assert_eq!(errors.map(Finding::to_string).collect::<Vec<_>>(), expect, "{text}");
    };
    let generated = "metadata.generateName: cannot use generateName here, because objects are applied by name; set \
                     metadata.name";
    check(CLUSTER, &[]);
    check(&edited("  name: demo", "  generateName: demo-"), &[&format!("f:4: {generated}")]);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
    check(map, &[]);
    check(&map.replace("name:", "generateName:"), &[&format!("f:4: {generated}")]);
    check(&map.replace("name:", "namespace:"), &["f:3: metadata.name: Required value: name is required"]);
}

#[test]
fn findings_serialise_to_json() {
    let findings = findings(edited("replicas: 1", "replica: 1"));
    assert_eq!(
        serde_json::to_value(&findings).unwrap(),
        json!([{
            "file": "f", "line": 15, "path": "spec.workerGroupSpecs[0].replica", "severity": "error",
            "message": "unknown field, did you mean \"replicas\"?",
        }])
    );
}

/// Fragments that make generated files likely to reach interesting code.
fn words() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "apiVersion: ray.io/v1",
        "kind: RayCluster",
        "kind: RayJob",
        "kind: RayService",
        "kind: RayCronJob",
        "kind: List",
        "metadata:",
        "  name: x",
        "spec:",
        "  headGroupSpec:",
        "    template:",
        "  workerGroupSpecs:",
        "  - groupName: a",
        "    replicas: ",
        "  schedule: '* * * * *'",
        "  rayClusterSpec:",
        "  jobTemplate:",
        "items:",
        "---",
        "...",
        "&a",
        "*a",
        "<<: *a",
        "[",
        "]",
        "{",
        "}",
        "? ",
        ": ",
        "- ",
        "|",
        ">",
        "!!str",
        "\t",
        "\"",
        "'",
        "\u{feff}",
        "null",
        "~",
        "0x",
        "%YAML 1.1",
    ]);
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        1 => "\\PC{0,12}",
        1 => "[ -~\\n]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_linted_without_panic(lines in prop::collection::vec(words(), 0..40), separator in prop::sample::select(vec!["\n", " ", "\n  "])) {
        let text = lines.join(separator);
        let count = text.lines().count() + 1;
        for finding in findings(&text) {
            prop_assert!(finding.line <= count, "{finding}");
        }
    }

    #[test]
    fn any_bytes_are_linted_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        findings(&bytes);
    }

    /// A valid manifest with one value replaced by any other.
    #[test]
    fn any_value_is_linted_without_panic(at in 0_usize..40, value in any_value()) {
        let mut object = serde_json::to_value(cluster()).unwrap();
        replace_at(&mut object, &mut (at as isize), &value);
        findings(object.to_string());
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,10}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z.]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn replace_at(value: &mut Value, at: &mut isize, with: &Value) {
    *at -= 1;
    if *at < 0 {
        if *at == -1 {
            *value = with.clone();
        }
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace_at(item, at, with)),
        Value::Object(map) => map.values_mut().for_each(|item| replace_at(item, at, with)),
        _ => {}
    }
}
