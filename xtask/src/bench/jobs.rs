//! Measures RayJobs whose dashboards never respond, and many that run and are polled.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use manta_testkit::FakeDashboard;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use super::Scenario;
use super::clusters::{PREFIX, WORKERS};
use super::load::{Created, create_all, create_until_ready, follow, send, within};
use super::measured::{Measured, Unit};
use super::objects::{self, Job};
use super::trial::{Trial, from};
use crate::process::print_line;

/// How many RayClusters are created alone, and again beside silent RayJobs.
const BESIDE: usize = 100;
/// One in this many RayJobs ends while it is watched how soon that is in its status.
const ENDING: usize = 25;
/// Between two that end.
const PAUSE: Duration = Duration::from_millis(100);
/// How long nothing changes before the polls are counted: operators poll more often shortly after a change, ours for
/// 50 s.
const UNCHANGED: Duration = Duration::from_secs(60);

/// Runs this many RayJobs, and before that a fifth as many with silent dashboards.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Jobs, size);
    measure_silent(trial, &mut measured, (size / 5).max(1))?;
    measure_running(trial, &mut measured, size)?;
    Ok(measured)
}

fn measure_silent(trial: &mut Trial<'_>, measured: &mut Measured, jobs: usize) -> Result<()> {
    let limit = trial.settings.limit();
    let count = trial.settings.few(BESIDE);
    // The first ones of a process pay for its warming up, before each of the two that are compared.
    trial.block_on(create_until_ready(&trial.client, PREFIX, 0..count, WORKERS, limit))?;
    let alone = trial.block_on(create_until_ready(&trial.client, "alone", 0..count, WORKERS, limit))?;
    trial.stop_operator()?;
    let dashboard = trial.block_on(async { SilentDashboard::start() })?;
    let names = names("silent", jobs);
    trial.block_on(create_jobs(trial, &names, dashboard.port))?;
    trial.start_operator()?;
    trial.block_on(wait_for_failures(trial, jobs, limit))?;
    trial.block_on(create_until_ready(&trial.client, "warm", 0..count, WORKERS, limit))?;
    let beside = trial.block_on(create_until_ready(&trial.client, "beside", 0..count, WORKERS, limit))?;
    let seconds = |created: &Created| created.ready_in.as_secs_f64();
    measured.add("silent RayJobs", jobs as f64, Unit::Count);
    measured.add("RayClusters alone", seconds(&alone), Unit::Seconds);
    measured.add("RayClusters beside silent RayJobs", seconds(&beside), Unit::Seconds);
    measured.add("beside against alone", seconds(&beside) / seconds(&alone), Unit::Ratio);
    trial.block_on(delete_jobs(trial, &names))
}

fn measure_running(trial: &mut Trial<'_>, measured: &mut Measured, jobs: usize) -> Result<()> {
    trial.stop_operator()?;
    let dashboard = trial.block_on(async { Ok(FakeDashboard::start_on(listen_on_loopback()?)?) })?;
    let names = names("running", jobs);
    names.iter().for_each(|name| dashboard.set_job(name, &json!({"status": "RUNNING"})));
    trial.block_on(create_jobs(trial, &names, dashboard.address().port()))?;
    trial.start_operator()?;
    trial.block_on(wait_for_status(trial, jobs, "RUNNING"))?;
    std::thread::sleep(if trial.settings.quick { trial.settings.quiet() } else { UNCHANGED });
    let (start, before, asked) = (trial.usage()?, trial.requests()?.len(), dashboard.asked().len());
    let begun = Instant::now();
    let lags = trial.block_on(end_some(trial, &dashboard, &names))?;
    std::thread::sleep(trial.settings.rest().saturating_sub(begun.elapsed()));
    let seconds = begun.elapsed().as_secs_f64();
    if let Some((start, end)) = start.zip(trial.usage()?) {
        let share = (end.cpu_seconds - start.cpu_seconds) / seconds;
        measured.add("CPU while polling, percent of a core", share * 100.0, Unit::Ratio);
        measured.add("memory while polling", end.rss_bytes as f64, Unit::Bytes);
        measured.add("memory while polling, private", end.private_bytes as f64, Unit::Bytes);
    }
    measured.add("requests to dashboards a second", (dashboard.asked().len() - asked) as f64 / seconds, Unit::Ratio);
    measured.add_percentiles("job ended to status written", lags, Unit::Seconds);
    measured.add_requests(from(trial.requests()?, before));
    Ok(())
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number:05}")).collect()
}

/// Listens on every address of the loopback interface, 127.0.0.0/8, and on no other.
fn listen_on_loopback() -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind_device(Some(b"lo")).context("cannot restrict a socket to the loopback interface")?;
    socket.bind((Ipv4Addr::UNSPECIFIED, 0).into()).context("no free port on loopback")?;
    Ok(socket.listen(1024)?)
}

/// Returns the address of a RayJob's dashboard: each has its own, as on Kubernetes.
fn dashboard_address(number: usize, port: u16) -> SocketAddr {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    let number = u32::try_from(number).unwrap_or_default();
    (Ipv4Addr::from(first + number), port).into()
}

/// Creates RayJobs that claim to run on the first RayCluster, and that have their dashboards at this port.
async fn create_jobs(trial: &Trial<'_>, names: &[String], port: u16) -> Result<()> {
    let cluster = format!("{PREFIX}-00000");
    create_all(&trial.client, "rayjobs", names, |name| objects::job(name, &cluster)).await?;
    let started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let write = stream::iter(names.iter().enumerate()).map(|(number, name)| {
        let status = json!({"status": {
            "jobDeploymentStatus": "Running", "jobStatus": "PENDING", "jobId": name, "rayClusterName": cluster,
            "dashboardURL": dashboard_address(number, port).to_string(), "startTime": started,
        }});
        let path = format!("{}/{name}/status", objects::ray_path("rayjobs"));
        async move { send(&trial.client, "PATCH", &path, status.to_string()).await }
    });
    write.buffer_unordered(16).try_collect().await
}

async fn delete_jobs(trial: &Trial<'_>, names: &[String]) -> Result<()> {
    let delete = stream::iter(names).map(|name| {
        let path = format!("{}/{name}", objects::ray_path("rayjobs"));
        async move { send(&trial.client, "DELETE", &path, String::new()).await }
    });
    delete.buffer_unordered(16).try_collect().await
}

/// Waits until every dashboard was asked in vain.
async fn wait_for_failures(trial: &Trial<'_>, jobs: usize, limit: Duration) -> Result<()> {
    let failed =
        |job: &Job| job.status.as_ref().is_some_and(|status| status.job_status_check_failure_start_time.is_some());
    within(limit, "all silent dashboards were polled", count_until(trial, jobs, failed)).await
}

/// Waits until this many RayJobs have a status.
async fn wait_for_status(trial: &Trial<'_>, jobs: usize, wanted: &str) -> Result<()> {
    let has = |job: &Job| job.status.as_ref().is_some_and(|status| status.job_status.as_deref() == Some(wanted));
    within(trial.settings.limit(), &format!("all RayJobs are {wanted}"), count_until(trial, jobs, has)).await
}

async fn count_until(trial: &Trial<'_>, jobs: usize, met: impl Fn(&Job) -> bool) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    follow(objects::ray::<Job>(&trial.client, "RayJob"), |job| {
        if met(&job) {
            seen.insert(job.name_any());
        }
        seen.len() == jobs
    })
    .await
}

/// Ends some of the jobs, and returns the seconds until each status was written.
async fn end_some(trial: &Trial<'_>, dashboard: &FakeDashboard, names: &[String]) -> Result<Vec<f64>> {
    let ending: Vec<&String> = names.iter().step_by(ENDING).collect();
    let ended: std::sync::Mutex<HashMap<String, Instant>> = std::sync::Mutex::default();
    let lock = || ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut lags = HashMap::new();
    let count = ending.len();
    let see = follow(objects::ray::<Job>(&trial.client, "RayJob"), |job| {
        let is_over = job.status.as_ref().is_some_and(|status| status.job_status.as_deref() == Some("SUCCEEDED"));
        let name = job.name_any();
        if let Some(at) = lock().get(&name).filter(|_| is_over) {
            lags.entry(name).or_insert_with(|| at.elapsed().as_secs_f64());
        }
        lags.len() == count
    });
    let end = async {
        for name in ending {
            lock().insert(name.clone(), Instant::now());
            dashboard.set_job(name, &json!({"status": "SUCCEEDED"}));
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::Ok(())
    };
    within(trial.settings.limit(), "the ended jobs are reported", futures::future::try_join(see, end)).await?;
    Ok(lags.into_values().collect())
}

/// A server that accepts every connection and never responds; it stops when dropped.
struct SilentDashboard {
    port: u16,
    task: JoinHandle<()>,
}

impl SilentDashboard {
    fn start() -> Result<Self> {
        let listener = listen_on_loopback()?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                match listener.accept().await {
                    // Read until the client gives up, so that no more are open than it has.
                    Ok((mut stream, _)) => drop(open.spawn(async move {
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    })),
                    Err(error) => {
                        print_line(&format!("the silent dashboard cannot accept a connection: {error}"));
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, task })
    }
}

impl Drop for SilentDashboard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_dashboard_closes_what_its_clients_close() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let dashboard = SilentDashboard::start().unwrap();
        let mut client = tokio::net::TcpStream::connect(dashboard_address(0, dashboard.port)).await.unwrap();
        client.write_all(b"GET /api/jobs/ HTTP/1.1\r\n\r\n").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0, "closed, and without a response");
    }

    #[tokio::test]
    async fn every_job_has_a_dashboard_of_its_own() {
        let dashboard = FakeDashboard::start_on(listen_on_loopback().unwrap()).unwrap();
        let port = dashboard.address().port();
        let addresses = [0, 1, 255, 4_999].map(|number| dashboard_address(number, port));
        assert_eq!(
            addresses.map(|address| address.ip().to_string()),
            ["127.1.0.1", "127.1.0.2", "127.1.1.0", "127.1.19.136"]
        );
        for address in addresses {
            tokio::net::TcpStream::connect(address).await.unwrap();
        }
    }
}
