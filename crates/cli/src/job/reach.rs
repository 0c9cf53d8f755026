//! Reaches the dashboard of a Ray cluster from this machine.

use crate::auth_token;
use crate::connect::Target;
use crate::head;
use crate::output::print_note;
use crate::port_forward::{self, Forward};
use crate::resource::{Kind, Reference};
use anyhow::{Context, bail};
use http::Method;
use manta_operator::dashboard::Client;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a dashboard may take to answer the first time, and how often it is asked.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const PORT: u16 = 8265;

/// A dashboard at a local address.
pub(crate) struct Dashboard {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) token: Option<String>,
    /// Keeps the address open.
    _forward: Option<Forward>,
}

impl Dashboard {
    /// Forwards a local port to the dashboard of a resource, and waits until it answers.
    pub(crate) async fn reach(target: &Target, reference: &Reference) -> anyhow::Result<Self> {
        let head = head::find(target, reference).await?;
        let forward = port_forward::start(target, &head.service, 0, PORT, Arc::new(print_note)).await?;
        let cluster = Reference { kind: Kind::Cluster, name: head.cluster };
        let token = auth_token::asked_by(target, &cluster).await?;
        let dashboard = Self { address: forward.address.to_string(), token, _forward: Some(forward) };
        dashboard.until_it_answers().await?;
        Ok(dashboard)
    }

    /// Takes the address that a user gives.
    pub(crate) fn at(address: &str, token: Option<String>) -> anyhow::Result<Self> {
        if address.starts_with("https://") {
            bail!(
                "--address {address}: TLS is not supported; leave it out to reach the cluster through the API server"
            );
        }
        let address = address.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Self { address, token, _forward: None })
    }

    /// Sends a GET request and returns the JSON of the response.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let client = Client::direct(self.token.clone(), REQUEST_TIMEOUT);
        let response = client.send(&super::endpoint(&self.address), Method::GET, path, None).await?;
        if response.status != 200 {
            bail!("{path}: {} {}", response.status, response.body);
        }
        serde_json::from_str(&response.body).with_context(|| format!("{path}: the reply is not JSON"))
    }

    async fn until_it_answers(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut told = false;
        loop {
            match self.get("/api/version").await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("the dashboard of the Ray cluster does not answer"));
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        let limit = START_TIMEOUT.as_secs();
                        print_note(&format!(
                            "waiting for the dashboard of the Ray cluster, for {limit} s at most: {error:#}"
                        ));
                    }
                    tokio::time::sleep(INTERVAL).await;
                }
            }
        }
    }
}
