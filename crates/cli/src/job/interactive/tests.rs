use super::*;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, watch};

const ID: &str = "mine";

/// An API server with at most one RayJob.
#[derive(Clone)]
struct Server {
    asked: Arc<Mutex<Vec<String>>>,
    rayjob: Arc<Mutex<Option<Value>>>,
    creation: Answer,
    /// The method whose requests are not answered.
    silent: watch::Receiver<&'static str>,
}

/// What becomes of a creation.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Arrives,
    /// The RayJob is created all the same.
    GetsLost,
    Refusal,
}

impl Server {
    fn new(creation: Answer, silent: watch::Receiver<&'static str>) -> Self {
        Self { asked: Arc::default(), rayjob: Arc::default(), creation, silent }
    }

    fn target(&self) -> Target {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| server.clone().serve(request));
        let client = kube::Client::new(service, "default");
        Target { client, namespace: "default".to_owned(), context: None, url: String::new() }
    }

    async fn serve(mut self, request: Request<Body>) -> std::io::Result<Response<Body>> {
        let method = request.method().clone();
        self.asked.lock().unwrap().push(method.to_string());
        self.silent.wait_for(|silent| *silent != method.as_str()).await.map_err(std::io::Error::other)?;
        let failure = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Forbidden" };
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"}))
        };
        let mut rayjob = self.rayjob.lock().unwrap();
        let (code, body) = match method {
            Method::PATCH | Method::POST if self.creation == Answer::Refusal => failure(403),
            Method::PATCH | Method::POST => {
                *rayjob = Some(object());
                if self.creation == Answer::GetsLost {
                    return Err(std::io::ErrorKind::ConnectionReset.into());
                }
                (200, object())
            }
            Method::DELETE => {
                *rayjob = None;
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            _ => rayjob.clone().map_or_else(|| failure(404), |object| (200, object)),
        };
        let body = Body::from(body.to_string().into_bytes());
        let status = StatusCode::from_u16(code).unwrap();
        Ok(Response::builder().status(status).header("content-type", "application/json").body(body).unwrap())
    }

    fn asked(&self) -> String {
        self.asked.lock().unwrap().join(" ")
    }

    /// Returns once a request with this method has arrived. Nothing leaves this thread, so that takes a few turns.
    async fn until_asked(&self, method: &str) {
        for _ in 0..10_000 {
            if self.asked().contains(method) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("no {method} came: {}", self.asked());
    }
}

fn object() -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "train", "uid": "u"}, "spec": {"jobId": ID}})
}

fn started() -> (Started, mpsc::UnboundedSender<()>) {
    let (interrupt, interrupts) = mpsc::unbounded_channel();
    let interrupts = stream::unfold(interrupts, async |mut interrupts: mpsc::UnboundedReceiver<()>| {
        interrupts.recv().await?;
        Some(((), interrupts))
    });
    (Started::interrupted_by(ID, interrupts.boxed()), interrupt)
}

async fn create(target: &Target, started: &mut Started) -> anyhow::Result<Interactive> {
    Interactive::apply(target, "test", &object(), started).await
}

#[test]
fn ids_have_no_characters_that_look_alike() {
    let ids: Vec<String> = (0..100).map(|_| generate_id().unwrap()).collect();
    for id in &ids {
        let random = id.strip_prefix("raysubmit_").unwrap();
        assert_eq!(random.len(), 16);
        assert!(!random.contains(['I', 'l', 'O', '0', 'o']), "{id}");
    }
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
}

#[tokio::test]
async fn a_rayjob_whose_creation_was_not_answered_is_deleted() {
    let (_silence, silent) = watch::channel("");
    for (creation, expect) in [(Answer::GetsLost, "GET PATCH GET DELETE"), (Answer::Refusal, "GET PATCH")] {
        let server = Server::new(creation, silent.clone());
        let (target, (mut started, _interrupt)) = (server.target(), started());
        let error = create(&target, &mut started).await.err().unwrap();
        started.clean_up(&target, &error).await;
        assert_eq!(server.asked(), expect);
        assert_eq!(*server.rayjob.lock().unwrap(), None);
    }
}

#[tokio::test]
async fn a_rayjob_whose_upload_failed_is_deleted() {
    let (_silence, silent) = watch::channel("");
    let server = Server::new(Answer::Arrives, silent);
    let (target, (mut started, _interrupt)) = (server.target(), started());
    create(&target, &mut started).await.unwrap();
    let upload = started.unless_interrupted(async { bail!("cannot upload the working directory") });
    let uploaded: anyhow::Result<()> = upload.await;
    let error = uploaded.unwrap_err();
    started.clean_up(&target, &error).await;
    assert_eq!(server.asked(), "GET PATCH GET DELETE");
}

#[tokio::test]
async fn an_interrupt_waits_for_the_answer_to_the_creation() {
    let (silence, silent) = watch::channel("PATCH");
    let server = Server::new(Answer::Arrives, silent);
    let (target, (mut started, interrupt)) = (server.target(), started());
    let created = create(&target, &mut started);
    let interrupted = async {
        server.until_asked("PATCH").await;
        interrupt.send(()).unwrap();
        tokio::task::yield_now().await;
        silence.send_replace("");
    };
    let (created, ()) = tokio::join!(created, interrupted);
    created.unwrap();
    let error = started.unless_interrupted(std::future::pending::<anyhow::Result<()>>()).await.unwrap_err();
    assert!(error.is::<Interrupted>(), "{error}");
    started.clean_up(&target, &error).await;
    assert_eq!(server.asked(), "GET PATCH GET DELETE");
}

#[tokio::test]
async fn a_second_interrupt_exits_at_once() {
    let (_silence, silent) = watch::channel("PATCH");
    let server = Server::new(Answer::Arrives, silent);
    let (target, (mut started, interrupt)) = (server.target(), started());
    let created = create(&target, &mut started);
    let interrupted = async {
        server.until_asked("PATCH").await;
        interrupt.send(()).unwrap();
        interrupt.send(()).unwrap();
    };
    let (created, ()) = tokio::join!(created, interrupted);
    let error = created.err().unwrap();
    assert!(error.is::<Interrupted>(), "{error:#}");
    started.clean_up(&target, &error).await;
    assert_eq!(server.asked(), "GET PATCH", "nothing is asked any more");
}

#[tokio::test]
async fn an_interrupt_ends_the_cleaning_up() {
    let (silence, silent) = watch::channel("");
    let server = Server::new(Answer::Arrives, silent);
    let (target, (mut started, interrupt)) = (server.target(), started());
    create(&target, &mut started).await.unwrap();
    silence.send_replace("GET");
    interrupt.send(()).unwrap();
    let error = started.unless_interrupted(std::future::pending::<anyhow::Result<()>>()).await.unwrap_err();
    interrupt.send(()).unwrap();
    started.clean_up(&target, &error).await;
    assert_eq!(started.patience, Patience::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up() {
    let (silence, silent) = watch::channel("PATCH");
    let server = Server::new(Answer::Arrives, silent);
    let (target, (mut started, _interrupt)) = (server.target(), started());
    let error = create(&target, &mut started).await.err().unwrap();
    assert_eq!(format!("{error:#}"), "cannot create the RayJob train: no answer within 30 s");
    silence.send_replace("GET");
    let began = tokio::time::Instant::now();
    started.clean_up(&target, &error).await;
    assert_eq!(began.elapsed().as_secs(), ANSWER_TIMEOUT.as_secs());
}
