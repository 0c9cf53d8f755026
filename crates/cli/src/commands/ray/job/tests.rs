use super::*;
use clap::Parser;
use serde_json::json;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SubmitArgs,
}

fn plan(flags: &[&str]) -> Result<(Request, Plan), String> {
    let words = ["x"].iter().chain(flags).chain(&["--", "python", "train.py"]);
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    line.args.plan().map_err(|error| format!("{error:#}"))
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn flags_make_an_interactive_rayjob() {
    let flags = ["--name", "a", "--working-dir", ".", "--worker-gpu", "1", "--ttl-seconds-after-finished", "0"];
    let (request, plan) = plan(&flags).unwrap();
    assert!(!plan.is_from_file);
    let spec = &plan.object["spec"];
    assert_eq!((&spec["submissionMode"], &spec["entrypoint"]), (&json!("InteractiveMode"), &json!("python train.py")));
    assert_eq!(spec["jobId"], request.id.as_str());
    assert_eq!((&spec["ttlSecondsAfterFinished"], &spec["shutdownAfterJobFinishes"]), (&json!(0), &json!(true)));
    let limits = &spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"memory": "4Gi", "nvidia.com/gpu": "1"}));
    assert_eq!(request.timeout, Duration::from_secs(120));
}

#[test]
fn a_file_keeps_its_spec_and_gets_the_id() {
    let job = "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: a, namespace: team}, spec: {submissionMode: InteractiveMode, \
               runtimeEnvYAML: 'working_dir: s3://b/x.zip', rayClusterSpec: {headGroupSpec: {template: {}}}}}";
    let file = file(job);
    let (request, plan) = plan(&["-f", file.path().to_str().unwrap(), "--submission-id", "mine"]).unwrap();
    assert!(plan.is_from_file);
    assert_eq!((request.id.as_str(), &plan.object["spec"]["jobId"]), ("mine", &json!("mine")));
    assert_eq!(request.env["working_dir"], "s3://b/x.zip");
}

#[test]
fn flags_add_to_the_runtime_environment_of_a_file() {
    let job = "{kind: RayJob, metadata: {name: a}, spec: {submissionMode: InteractiveMode, \
               runtimeEnvYAML: '{pip: [x], env_vars: {A: b}, working_dir: s3://b/x.zip}'}}";
    let file = file(job);
    let (request, _) = plan(&["-f", file.path().to_str().unwrap(), "--working-dir", "."]).unwrap();
    let expect = json!({"pip": ["x"], "env_vars": {"A": "b"}, "working_dir": "."});
    assert_eq!(Value::Object(request.env), expect);
}

#[test]
fn mistakes_are_found_before_anything_is_created() {
    let check = |flags: &[&str], expect: &str| {
        let got = plan(flags).map(|_| ());
        assert!(got.clone().is_err_and(|error| error.contains(expect)), "{flags:?}: {got:?}");
    };
    check(&["--working-dir", "."], "Must set either yaml file (--filename) or set Ray job name (--name)");
    check(&["--name", "a"], "working directory is required, use --working-dir or set with runtime env");
    check(&["--name", "a", "--working-dir", ".", "--headers", "[]"], "--headers is not a JSON object");
    check(&["--name", "a", "--working-dir", ".", "--head-cpu", "x"], "head-cpu is not a valid resource quantity");
    check(
        &["--name", "a", "--working-dir", ".", "--entrypoint-resources", "{\"a\": \"b\"}"],
        "--entrypoint-resources: a must be a number",
    );
    let wrong = |spec: &str| file(&format!("{{kind: RayJob, metadata: {{name: a}}, spec: {{{spec}}}}}"));
    let mode = wrong("submissionMode: HTTPMode");
    check(
        &["-f", mode.path().to_str().unwrap(), "--working-dir", "."],
        "Submission mode of the Ray Job must be set to 'InteractiveMode'",
    );
    let retries = wrong("submissionMode: InteractiveMode, backoffLimit: 2");
    check(
        &["-f", retries.path().to_str().unwrap(), "--working-dir", "."],
        "BackoffLimit is incompatible with InteractiveMode",
    );
}
