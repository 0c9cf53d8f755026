//! Ordinary values give KubeRay's bytes; all others reach Ray as the user wrote them.

use super::*;
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};
use manta_api::RayClusterSpec;
use std::collections::BTreeMap;

fn spec(version: &str) -> RayJobSpec {
    RayJobSpec {
        entrypoint: Some("python train.py".into()),
        ray_cluster_spec: Some(RayClusterSpec { ray_version: Some(version.into()), ..RayClusterSpec::default() }),
        ..RayJobSpec::default()
    }
}

fn full() -> RayJobSpec {
    RayJobSpec {
        runtime_env_yaml: Some("working_dir: \"./\"\npip: [\"requests==2\"]\n".into()),
        metadata: Some(BTreeMap::from([("team".to_owned(), "x>y".to_owned())])),
        entrypoint_num_cpus: Some(1.0),
        entrypoint_num_gpus: Some(0.5),
        entrypoint_resources: Some(r#"{"Custom_1": 1, "Custom_2": 5.5}"#.into()),
        entrypoint: Some("  echo \"hello 'world'\"  \n".into()),
        ..spec("2.53.0")
    }
}

fn command(spec: &RayJobSpec, mode: Mode, restarts: bool) -> Result<String, SubmitCommandError> {
    SubmitCommand { spec, mode, job_id: "job-1", dashboard_url: "http://host:8265", sidecar_restarts: restarts }.text()
}

const WAIT: &str = "until python -c \"import urllib.request; \
    r=urllib.request.urlopen('http://host:8265/api/gcs_healthz', timeout=10); \
    exit(0 if b'success' in r.read() else 1)\" >/dev/null 2>&1 ; \
    do echo \"Waiting for Ray Dashboard GCS to become healthy at http://host:8265 ...\" ; sleep 2 ; done ;";

#[test]
fn k8s_job_mode_has_all_options_in_kuberays_order() {
    let expect = format!(
        "{WAIT} if ! ray job status --address http://host:8265 job-1 >/dev/null 2>&1 ; then \
         ray job submit --address http://host:8265 --no-wait \
         --runtime-env-json \"{{\\\"pip\\\":[\\\"requests==2\\\"],\\\"working_dir\\\":\\\"./\\\"}}\" \
         --metadata-json \"{{\\\"team\\\":\\\"x\\\\u003ey\\\"}}\" --submission-id job-1 \
         --entrypoint-num-cpus 1.000000 --entrypoint-num-gpus 0.500000 \
         --entrypoint-resources \"{{\\\"Custom_1\\\": 1, \\\"Custom_2\\\": 5.5}}\" \
         -- echo \"hello 'world'\" ; fi ; ray job logs --address http://host:8265 --follow job-1"
    );
    assert_eq!(command(&full(), Mode::K8sJob, false).unwrap(), expect);
}

#[test]
fn sidecar_mode_checks_for_the_job_and_follows_it_only_if_it_may_restart() {
    let plain = command(&spec("2.53.0"), Mode::Sidecar, false).unwrap();
    assert!(plain.contains("urlopen('http://localhost:8265/api/gcs_healthz'"), "{plain}");
    assert!(plain.contains("healthy at http://127.0.0.1:8265 ..."), "{plain}");
    assert!(
        plain.ends_with(
            "done ; ray job submit --address http://127.0.0.1:8265 --submission-id job-1 -- python train.py ;"
        )
    );
    let gated = command(&spec("2.53.0"), Mode::Sidecar, true).unwrap();
    assert!(gated.contains("if ! ray job status --address http://127.0.0.1:8265 job-1 >/dev/null 2>&1 ; then"));
    assert!(gated.contains(" --no-wait "));
    assert!(gated.ends_with("fi ; ray job logs --address http://127.0.0.1:8265 --follow job-1"));
}

#[test]
fn health_is_checked_with_python_for_every_version() {
    for version in ["2.53.0", "2.52.1", "invalid-version"] {
        let text = command(&spec(version), Mode::Sidecar, false).unwrap();
        assert!(text.starts_with("until python -c ") && !text.contains("wget"), "{text}");
    }
    let mut spec = spec("2.53.0");
    let port = ContainerPort { name: Some("dashboard".into()), container_port: 9000, ..ContainerPort::default() };
    let ray = Container { ports: Some(vec![port]), ..Container::default() };
    let pod = PodSpec { containers: vec![ray], ..PodSpec::default() };
    spec.ray_cluster_spec.as_mut().unwrap().head_group_spec.template.spec = Some(pod);
    let text = command(&spec, Mode::Sidecar, false).unwrap();
    assert!(text.contains("localhost:9000/api") && text.contains("127.0.0.1:9000"), "{text}");
}

#[test]
fn metadata_needs_ray_2_6() {
    let check = |version: Option<&str>, expect: Result<(), &str>| {
        let mut spec = spec(version.unwrap_or_default());
        spec.metadata = Some(BTreeMap::from([("k".to_owned(), "v".to_owned())]));
        if version.is_none() {
            spec.ray_cluster_spec = None;
        }
        let text = command(&spec, Mode::K8sJob, false);
        match expect {
            Ok(()) => assert!(text.unwrap().contains(r#" --metadata-json "{\"k\":\"v\"}" "#), "{version:?}"),
            Err(message) => assert_eq!(text.unwrap_err().to_string(), message),
        }
    };
    check(None, Ok(()));
    check(Some(""), Ok(()));
    for good in ["2.6.0", "v2.9", "3", "2.52.0+cu12"] {
        check(Some(good), Ok(()));
    }
    for old in ["2.5.0", "2.9.0-rc1"] {
        check(Some(old), Err("the Ray version must be at least 2.6.0 to use the metadata field"));
    }
    for bad in ["not-a-version", "2.53.0rc1", "2..1", "2.1.1.1", ""].iter().filter(|bad| !bad.is_empty()) {
        check(Some(bad), Err(&format!("failed to parse Ray version: {bad}: invalid semantic version")));
    }
}

#[test]
fn quotes_in_the_entrypoint_are_kept() {
    let mut spec = spec("2.53.0");
    let text = r#"python -c "print('a' \"b\")" --x 'y "z"' && echo $HOME `id`"#;
    spec.entrypoint = Some(text.into());
    assert!(command(&spec, Mode::K8sJob, false).unwrap().contains(&format!(" -- {text} ; fi ;")));
}

#[test]
fn other_modes_have_no_command() {
    let error = command(&full(), Mode::Http, false).unwrap_err().to_string();
    assert_eq!(error, "unsupported submission mode for job submit command: HTTPMode");
}

#[test]
fn the_scheme_is_added_once_and_an_empty_id_is_omitted() {
    let spec = spec("2.53.0");
    let submit = SubmitCommand {
        spec: &spec,
        mode: Mode::K8sJob,
        job_id: "",
        dashboard_url: "test-url",
        sidecar_restarts: false,
    };
    let text = submit.text().unwrap();
    assert!(text.contains("ray job submit --address http://test-url --no-wait -- python train.py ;"), "{text}");
    assert!(!text.contains("--submission-id"));
}

#[test]
fn numbers_that_are_not_positive_are_omitted() {
    let mut spec = spec("2.53.0");
    spec.entrypoint_num_cpus = Some(0.0);
    spec.entrypoint_num_gpus = Some(-1.0);
    let text = command(&spec, Mode::K8sJob, false).unwrap();
    assert!(!text.contains("--entrypoint-num"), "{text}");
    spec.entrypoint_num_cpus = Some(1.1);
    assert!(command(&spec, Mode::K8sJob, false).unwrap().contains("--entrypoint-num-cpus 1.100000"));
}

/// Returns what bash reads from a double-quoted text without `$` and backticks.
fn unquote(argument: &str) -> String {
    let inner = argument.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap();
    let mut text = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(c @ ('\\' | '"')) => text.push(c),
                Some(c) => {
                    text.push('\\');
                    text.push(c);
                }
                None => panic!("the quote is escaped"),
            },
            '$' | '`' | '"' | '\n' => panic!("bash would change {c:?} in {argument}"),
            c => text.push(c),
        }
    }
    text
}

#[test]
fn json_arguments_survive_special_characters() {
    let hazards = [
        "$HOME $(id) $$ ${x} $(RAY_DASHBOARD_ADDRESS)",
        "`reboot`",
        "\"; rm -rf / ; \"",
        "it's \\ back\\\\slashed\\",
        "two\nlines\tand\r\u{0}\u{1b}\u{7f}",
        "žluťoučký 日本語 😀 \u{a0}\u{2028}\u{200b}\u{feff}",
        "!history <b>&amp;",
    ];
    for hazard in hazards {
        let json = serde_json::to_string(&serde_json::json!({"env_vars": {"A": hazard}})).unwrap();
        let argument = json_argument(&runtime_env::escape_html(&json));
        let back: serde_json::Value = serde_json::from_str(&unquote(&argument)).unwrap();
        assert_eq!(back["env_vars"]["A"], hazard);
        assert!(argument.chars().all(|c| !c.is_control()), "{argument}");
    }
}

proptest::proptest! {
    #[test]
    fn json_arguments_survive_any_text(text in ".*") {
        let json = serde_json::to_string(&text).unwrap();
        let back: String = serde_json::from_str(&unquote(&json_argument(&json))).unwrap();
        proptest::prop_assert_eq!(back, text);
    }

    #[test]
    fn entrypoints_never_end_the_command_early(text in "[ -~\n]*") {
        let words = entrypoint(&text);
        proptest::prop_assert!(!breaks_the_line(&words), "{}", words);
    }
}

#[test]
fn resources_on_several_lines_become_one_line() {
    let mut spec = spec("2.53.0");
    spec.entrypoint_resources = Some("{\n\t\"a$b\": 1\n}".into());
    let text = command(&spec, Mode::K8sJob, false).unwrap();
    assert!(text.contains(r#"--entrypoint-resources "{  \"a\\u0024b\": 1 }" --"#), "{text}");
}

#[test]
fn submission_ids_with_special_characters_are_quoted() {
    assert_eq!(shell_word("train-bcdfg"), "train-bcdfg");
    assert_eq!(shell_word("a b;c"), "'a b;c'");
    assert_eq!(shell_word("it's $(HOME)"), r"'it'\''s $$(HOME)'");
}

#[test]
fn entrypoints_with_line_breaks_or_comments_are_encoded() {
    let check = |text: &str, encoded: bool| {
        let words = entrypoint(text);
        assert_eq!(words.starts_with("bash -c 'echo "), encoded, "{text:?} became {words}");
        if !encoded {
            assert_eq!(words, text.trim());
        }
    };
    check("python a.py", false);
    check("python a.py \\\n  --x 1", false);
    check("python -c \"import ray\nray.init()\"", false);
    check("python -c 'a # b'", false);
    check("curl http://host/#anchor", false);
    check("python a.py\npython b.py", true);
    check("python a.py # the real one", true);
    assert_eq!(entrypoint("a\nb"), "bash -c 'echo YQpi | base64 -d | bash'");
}
