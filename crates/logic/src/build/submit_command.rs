//! The shell command that submits an entrypoint to Ray and follows its log.
//!
//! For ordinary values the text is KubeRay's, byte for byte. Values that a shell or the kubelet's `$(VAR)` expansion
//! would change are escaped, so that Ray gets what the user wrote:
//!
//! | hazard | where | written as |
//! |---|---|---|
//! | `$`, backtick, unprintable | JSON arguments | `\uXXXX`, which JSON reads back |
//! | line break, tab | `entrypointResources` | a blank, which JSON ignores there |
//! | any other character | submission id | single-quoted |
//! | line break or comment outside of quotes | entrypoint | base64, decoded where Ray runs it |
//!
//! The rest of the entrypoint is the user's shell text and stays verbatim.

use crate::cluster_spec::{DEFAULT_DASHBOARD_PORT, dashboard_port};
use crate::job::{Mode, runtime_env};
use base64::Engine as _;
use manta_api::RayJobSpec;
use std::fmt::Write as _;

/// The input of a submit command.
#[derive(Clone, Copy, Debug)]
pub struct SubmitCommand<'a> {
    pub spec: &'a RayJobSpec,
    pub mode: Mode,
    pub job_id: &'a str,
    /// `status.dashboardURL`; SidecarMode does not need it.
    pub dashboard_url: &'a str,
    /// The feature gate `SidecarSubmitterRestart`.
    pub sidecar_restarts: bool,
}

/// The reason why a submit command cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitCommandError {
    #[error("unsupported submission mode for job submit command: {0}")]
    Mode(&'static str),
    #[error("failed to parse Ray version: {0}: invalid semantic version")]
    Version(String),
    #[error("the Ray version must be at least 2.6.0 to use the metadata field")]
    TooOld,
    #[error("{0}")]
    RuntimeEnv(String),
}

impl SubmitCommand<'_> {
    /// Returns the command as one line.
    pub fn text(&self) -> Result<String, SubmitCommandError> {
        let (address, health) = self.addresses()?;
        // A submitter that may be restarted must check whether the job exists already.
        let restartable = self.mode == Mode::K8sJob || self.sidecar_restarts;
        let id = shell_word(self.job_id);
        let mut text = format!(
            "until python -c \"import urllib.request; r=urllib.request.urlopen('{health}', timeout=10); \
             exit(0 if b'success' in r.read() else 1)\" >/dev/null 2>&1 ; \
             do echo \"Waiting for Ray Dashboard GCS to become healthy at {address} ...\" ; sleep 2 ; done ;"
        );
        if restartable {
            text += &format!(" if ! ray job status --address {address} {id} >/dev/null 2>&1 ; then");
        }
        text += &format!(" ray job submit --address {address}");
        if restartable {
            text += " --no-wait";
        }
        text += &self.options(&id)?;
        text += &format!(" -- {} ;", entrypoint(self.spec.entrypoint.as_deref().unwrap_or_default()));
        if restartable {
            text += &format!(" fi ; ray job logs --address {address} --follow {id}");
        }
        Ok(text)
    }

    /// Returns the address of the dashboard and the URL of its health check.
    fn addresses(&self) -> Result<(String, String), SubmitCommandError> {
        match self.mode {
            Mode::K8sJob => {
                let url = self.dashboard_url;
                let address = if url.starts_with("http://") { url.to_owned() } else { format!("http://{url}") };
                let health = format!("{address}/api/gcs_healthz");
                Ok((address, health))
            }
            Mode::Sidecar => {
                let port = self.spec.ray_cluster_spec.as_ref().map_or(DEFAULT_DASHBOARD_PORT, dashboard_port);
                Ok((format!("http://127.0.0.1:{port}"), format!("http://localhost:{port}/api/gcs_healthz")))
            }
            Mode::Http | Mode::Interactive => Err(SubmitCommandError::Mode(self.mode.as_str())),
        }
    }

    fn options(&self, id: &str) -> Result<String, SubmitCommandError> {
        let mut options = String::new();
        let mut add = |flag: &str, value: String| options += &format!(" {flag} {value}");
        if let Some(text) = self.spec.runtime_env_yaml.as_deref().filter(|text| !text.is_empty()) {
            let json = runtime_env::to_json(text).map_err(SubmitCommandError::RuntimeEnv)?;
            add("--runtime-env-json", json_argument(&json));
        }
        if let Some(metadata) = self.spec.metadata.as_ref().filter(|metadata| !metadata.is_empty()) {
            self.check_version()?;
            let json = serde_json::to_string(metadata).unwrap_or_default();
            add("--metadata-json", json_argument(&runtime_env::escape_html(&json)));
        }
        if !self.job_id.is_empty() {
            add("--submission-id", id.to_owned());
        }
        let numbers = [
            ("--entrypoint-num-cpus", self.spec.entrypoint_num_cpus),
            ("--entrypoint-num-gpus", self.spec.entrypoint_num_gpus),
        ];
        for (flag, number) in numbers {
            // KubeRay stores and prints these as 32-bit floats.
            if let Some(number) = number.map(|number| number as f32).filter(|number| *number > 0.0) {
                add(flag, format!("{number:.6}"));
            }
        }
        if let Some(text) = self.spec.entrypoint_resources.as_deref().filter(|text| !text.is_empty()) {
            // JSON allows these characters outside of strings only, where blanks mean the same.
            add("--entrypoint-resources", json_argument(&text.replace(['\n', '\r', '\t'], " ")));
        }
        Ok(options)
    }

    /// Checks that `ray job submit` has `--metadata-json`, which came with 2.6.0.
    fn check_version(&self) -> Result<(), SubmitCommandError> {
        let spec = self.spec.ray_cluster_spec.as_ref();
        let Some(version) = spec.and_then(|spec| spec.ray_version.as_deref()).filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        let parsed = semantic_version(version).ok_or_else(|| SubmitCommandError::Version(version.to_owned()))?;
        if parsed.prerelease || parsed.numbers < [2, 6, 0] { Err(SubmitCommandError::TooOld) } else { Ok(()) }
    }
}

struct SemanticVersion {
    numbers: [u64; 3],
    prerelease: bool,
}

/// Parses `v1.2.3-pre+build`, where minor and patch may be missing.
fn semantic_version(text: &str) -> Option<SemanticVersion> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let identifiers = |text: &str| {
        text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
    };
    if !build.is_none_or(identifiers) || !pre.is_none_or(identifiers) {
        return None;
    }
    let mut numbers = [0; 3];
    let parts: Vec<_> = core.split('.').collect();
    for (place, part) in parts.iter().enumerate() {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        *numbers.get_mut(place).filter(|_| digits)? = part.parse().ok()?;
    }
    Some(SemanticVersion { numbers, prerelease: pre.is_some() })
}

/// Returns JSON in double quotes that neither bash nor the kubelet changes.
fn json_argument(json: &str) -> String {
    let mut quoted = String::from("\"");
    for c in json.chars() {
        match c {
            '"' => quoted += "\\\"",
            '\\' => quoted += "\\\\",
            '$' | '`' => escape(&mut quoted, c),
            c if is_printable(c) => quoted.push(c),
            c => escape(&mut quoted, c),
        }
    }
    quoted.push('"');
    quoted
}

/// Appends the `\uXXXX` of JSON with its backslash doubled for the double quotes of bash.
fn escape(quoted: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a String cannot fail.
        let _ = write!(quoted, "\\\\u{unit:04x}");
    }
}

/// Returns whether a terminal shows the character; a plain blank counts.
fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format(c))
}

/// Returns whether the character is invisible but neither a control character nor white space.
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a word of a shell command, quoted if necessary.
fn shell_word(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&b);
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    // The kubelet reads `$$` as `$`, and `$(X)` as a variable even inside quotes.
    format!("'{}'", text.replace('\'', r"'\''").replace('$', "$$"))
}

/// Returns the entrypoint as the last arguments of `ray job submit … --`.
fn entrypoint(text: &str) -> String {
    let text = text.trim();
    if !breaks_the_line(text) {
        return text.to_owned();
    }
    // Ray joins the words with its own quoting, so none of them may need quotes.
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    format!("bash -c 'echo {encoded} | base64 -d | bash'")
}

/// Returns whether a line break or a comment outside of quotes would end the command early.
fn breaks_the_line(text: &str) -> bool {
    let mut quote = None;
    let mut previous = ' ';
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => {
                characters.next();
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, '\n') => return true,
            (None, '#') if previous.is_whitespace() || previous == ';' => return true,
            _ => {}
        }
        previous = c;
    }
    false
}

#[cfg(test)]
mod tests;
