//! The runtime environment of a job from the command line, and the upload of its working directory.

use super::endpoint;
use super::working_dir::{self, Package};
use anyhow::{Context, ensure};
use http::HeaderMap;
use manta_operator::dashboard::Client;
use manta_operator::dashboard::packages;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an upload may take.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// The flags for the runtime environment.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct RuntimeEnvArgs {
    /// Directory that the job runs in, which is uploaded without what .gitignore and .rayignore name; or a URI
    #[arg(long, value_name = "DIR")]
    pub(crate) working_dir: Option<String>,
    /// YAML file with the runtime environment
    #[arg(long, value_name = "FILE", conflicts_with = "runtime_env_json")]
    pub(crate) runtime_env: Option<PathBuf>,
    /// The runtime environment, as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) runtime_env_json: Option<String>,
}

impl RuntimeEnvArgs {
    /// Returns the runtime environment, with local paths as they were given.
    pub(crate) fn read(&self) -> anyhow::Result<Map<String, Value>> {
        let mut env: Map<String, Value> = match (&self.runtime_env, &self.runtime_env_json) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                serde_saphyr::from_str(&text).with_context(|| format!("{} is not a YAML mapping", file.display()))?
            }
            (None, Some(text)) => serde_json::from_str(text).context("--runtime-env-json is not a JSON object")?,
            (None, None) => Map::new(),
        };
        if let Some(path) = &self.working_dir {
            env.insert("working_dir".into(), path.as_str().into());
        }
        check_modules(&env)?;
        Ok(env)
    }
}

/// Only the working directory is uploaded.
fn check_modules(env: &Map<String, Value>) -> anyhow::Result<()> {
    let modules = env.get("py_modules").and_then(Value::as_array).into_iter().flatten();
    for module in modules.filter_map(Value::as_str) {
        ensure!(
            is_uri(module),
            "py_modules: {module} is a path of this machine; put it into the working directory, or give a URI"
        );
    }
    Ok(())
}

/// A runtime environment whose working directory is ready to be uploaded.
pub(crate) struct RuntimeEnv {
    env: Map<String, Value>,
    /// The working directory, if it is one of this machine.
    package: Option<Package>,
}

impl RuntimeEnv {
    /// Packs the working directory, so that what is wrong with it is found before anything is created.
    pub(crate) fn pack(env: Map<String, Value>) -> anyhow::Result<Self> {
        let path = match env.get("working_dir") {
            None => return Ok(Self { env, package: None }),
            Some(value) => value.as_str().with_context(|| format!("working_dir is not a path: {value}"))?,
        };
        if is_uri(path) {
            return Ok(Self { env, package: None });
        }
        let excludes = env.get("excludes").and_then(Value::as_array).into_iter().flatten();
        let excludes: Vec<String> = excludes.filter_map(|pattern| pattern.as_str().map(str::to_owned)).collect();
        let package = working_dir::pack(Path::new(path), &excludes)?;
        Ok(Self { env, package: Some(package) })
    }

    /// Uploads the working directory to a dashboard. Returns the environment with its URI there.
    pub(crate) async fn upload(
        &self,
        address: &str,
        token: Option<String>,
        headers: HeaderMap,
    ) -> anyhow::Result<Map<String, Value>> {
        let mut env = self.env.clone();
        let Some(package) = &self.package else { return Ok(env) };
        let client = Client::direct(token, UPLOAD_TIMEOUT).with_headers(headers);
        let uri = packages::upload(&client, &endpoint(address), &package.name, package.contents.clone())
            .await
            .with_context(|| format!("cannot upload the working directory {}", self.env["working_dir"]))?;
        env.insert("working_dir".into(), uri.into());
        Ok(env)
    }
}

fn is_uri(path: &str) -> bool {
    path.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_environment_comes_from_one_place_and_the_flag() {
        let args = |json: &str, dir: Option<&str>| RuntimeEnvArgs {
            working_dir: dir.map(str::to_owned),
            runtime_env: None,
            runtime_env_json: Some(json.to_owned()),
        };
        let got = args(r#"{"pip": ["x"], "working_dir": "a"}"#, Some("b")).read().unwrap();
        assert_eq!(Value::Object(got), json!({"pip": ["x"], "working_dir": "b"}));
        assert!(args("[", None).read().is_err());
        let error = args(r#"{"py_modules": ["./m"]}"#, None).read().unwrap_err().to_string();
        assert!(error.starts_with("py_modules: ./m is a path of this machine"), "{error}");
        assert!(args(r#"{"py_modules": ["s3://b/m.zip"]}"#, None).read().is_ok());
    }
}
