//! The log of a container, live.

use super::failure::sentence;
use super::live::{Outlet, WINDOW};
use crate::connect::Target;
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde::Deserialize;
use serde_json::json;

/// How many lines from before are sent.
const TAIL: i64 = 5000;
/// How much is sent at once.
pub(super) const MAX_CHUNK: usize = 256 << 10;

/// Which log.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Choice {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: Option<String>,
    /// The log of the container that ran before.
    #[serde(default)]
    pub(super) previous: bool,
}

/// Sends a log until it ends.
pub(super) async fn follow(target: &Target, choice: &Choice, outlet: &Outlet) {
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &choice.namespace);
    let params = LogParams {
        container: choice.container.clone(),
        follow: !choice.previous,
        previous: choice.previous,
        tail_lines: Some(TAIL),
        ..LogParams::default()
    };
    let stream = match pods.log_stream(&choice.pod, &params).await {
        Ok(stream) => stream,
        Err(error) => return outlet.fail(&sentence(&error)).await,
    };
    outlet.send(&json!({"tail": TAIL})).await;
    let mut stream = Box::pin(stream);
    let mut text = Utf8::default();
    let mut buffer = vec![0; 32 << 10];
    loop {
        let mut chunk = String::new();
        let mut ended = None;
        // Waits for the first bytes, then gathers what comes within the window.
        let window = tokio::time::sleep(WINDOW);
        tokio::pin!(window);
        while ended.is_none() && chunk.len() < MAX_CHUNK {
            tokio::select! {
                biased;
                read = stream.read(&mut buffer) => match read {
                    Ok(0) => ended = Some(String::new()),
                    Ok(length) => chunk.push_str(&text.decode(&buffer[..length])),
                    Err(error) => ended = Some(error.to_string()),
                },
                () = &mut window, if !chunk.is_empty() => break,
            }
        }
        if !chunk.is_empty() && !outlet.send(&json!({"text": chunk})).await {
            return;
        }
        if let Some(why) = ended {
            outlet.send(&json!({"end": why})).await;
            return;
        }
    }
}

/// Decodes text that arrives in pieces, which may end inside of a character.
#[derive(Default)]
pub(super) struct Utf8 {
    rest: Vec<u8>,
}

impl Utf8 {
    pub(super) fn decode(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let complete = match std::str::from_utf8(&self.rest) {
            Ok(_) => self.rest.len(),
            // The last bytes may be the start of a character.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.rest.len(),
        };
        let rest = self.rest.split_off(complete);
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        self.rest = rest;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_survive_being_cut() {
        let mut text = Utf8::default();
        let bytes = "a漢é".as_bytes();
        let decoded: String = bytes.chunks(1).map(|byte| text.decode(byte)).collect();
        assert_eq!(decoded, "a漢é");
        assert_eq!(Utf8::default().decode(b"a\xffb"), "a\u{fffd}b");
    }
}
