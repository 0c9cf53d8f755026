//! A real browser, Chromium without a window, driven over its DevTools protocol.
//!
//! ```text
//!   test ─ one WebSocket ─▶ chromium ─▶ one session per tab ─▶ the page
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::{Supervised, eventually};

/// The names under which distributions install it.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Nothing that a test did not ask for: no network of its own, no first-run page, no sandbox that root cannot have.
/// `page.example` is this machine under a name that is not one of loopback.
const FLAGS: [&str; 15] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP page.example 127.0.0.1",
    "--remote-debugging-port=0",
];
/// How long one command of the protocol may take; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A running browser; dropping it ends it.
pub struct Browser {
    connection: Arc<Connection>,
    _process: Supervised,
    _folder: tempfile::TempDir,
}

/// One tab of a browser.
pub struct Tab {
    connection: Arc<Connection>,
    session: String,
}

struct Connection {
    next: AtomicU64,
    outgoing: mpsc::UnboundedSender<String>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    /// Uncaught exceptions, and what the browser refused or complained about, by session.
    complaints: Mutex<Vec<(String, String)>>,
}

impl Browser {
    /// Returns the program, if it is installed.
    pub fn find() -> Option<PathBuf> {
        let paths = std::env::var_os("PATH")?;
        let candidates =
            PROGRAMS.iter().flat_map(|name| std::env::split_paths(&paths).map(move |path| path.join(name)));
        candidates.into_iter().find(|path| path.is_file())
    }

    /// Starts it with a profile of its own.
    pub async fn start() -> Result<Self> {
        let program = Self::find().context("no Chromium is installed; apt-get install chromium")?;
        let folder = tempfile::tempdir()?;
        let profile = folder.path().join("profile");
        let mut command = Command::new(program);
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        let mut process = Supervised::start(folder.path(), "chromium", &command)?;
        let file = profile.join("DevToolsActivePort");
        let address = eventually("chromium starts", async || {
            process.check()?;
            let text = std::fs::read_to_string(&file)?;
            let (port, path) = text.split_once('\n').context("the file is not complete")?;
            ensure!(!path.is_empty(), "the file is not complete");
            Ok(format!("ws://127.0.0.1:{}{}", port.trim(), path.trim()))
        })
        .await?;
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (socket, _) = tokio_tungstenite::connect_async_with_config(address, Some(config), true).await?;
        let (mut sender, mut receiver) = socket.split();
        let (outgoing, mut queue) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(text) = queue.recv().await {
                if sender.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        });
        let connection = Arc::new(Connection {
            next: AtomicU64::new(1),
            outgoing,
            waiting: Mutex::default(),
            complaints: Mutex::default(),
        });
        let shared = Arc::clone(&connection);
        tokio::spawn(async move {
            while let Some(Ok(message)) = receiver.next().await {
                if let Ok(text) = message.to_text()
                    && let Ok(value) = serde_json::from_str::<Value>(text)
                {
                    shared.receive(value);
                }
            }
            // Whoever still waits learns that nothing comes any more.
            shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        Ok(Self { connection, _process: process, _folder: folder })
    }

    /// Opens a tab at an address, in a session of its own: tabs share no storage.
    pub async fn open(&self, url: &str) -> Result<Tab> {
        let context = self.connection.send("", "Target.createBrowserContext", json!({})).await?;
        self.open_in(context["browserContextId"].as_str().context("no context")?, url).await
    }

    async fn open_in(&self, context: &str, url: &str) -> Result<Tab> {
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = self.connection.send("", "Target.createTarget", target).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.connection.send("", "Target.attachToTarget", attach).await?;
        let session = attached["sessionId"].as_str().context("no session")?.to_owned();
        let tab = Tab { connection: Arc::clone(&self.connection), session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.send(&format!("{domain}.enable"), json!({})).await?;
        }
        tab.resize(1280, 860).await?;
        tab.go(url).await?;
        Ok(tab)
    }
}

impl Connection {
    async fn send(&self, session: &str, method: &str, params: Value) -> Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"id": id, "method": method, "params": params});
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        self.outgoing.send(message.to_string()).ok().context("the browser is gone")?;
        let reply = tokio::time::timeout(TIMEOUT, receiver).await.with_context(|| format!("{method}: no reply"))?;
        let reply = reply.with_context(|| format!("{method}: the browser is gone"))?;
        if let Some(error) = reply.get("error") {
            bail!("{method}: {}", error["message"].as_str().unwrap_or_default());
        }
        Ok(reply["result"].clone())
    }

    fn receive(&self, message: Value) {
        if let Some(id) = message["id"].as_u64() {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(waiting) = waiting {
                // Its timeout may have passed.
                let _ = waiting.send(message);
            }
            return;
        }
        let params = &message["params"];
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                let details = &params["exceptionDetails"];
                details["exception"]["description"].as_str().or(details["text"].as_str())
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => params["entry"]["text"].as_str(),
            _ => None,
        };
        if let Some(complaint) = complaint {
            let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
            let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
            complaints.push((session, complaint.to_owned()));
        }
    }
}

impl Tab {
    /// Sends a command of the protocol.
    pub async fn send(&self, method: &str, params: Value) -> Result<Value> {
        self.connection.send(&self.session, method, params).await
    }

    /// Goes to an address and waits until its document is there.
    pub async fn go(&self, url: &str) -> Result<()> {
        self.send("Page.navigate", json!({"url": url})).await?;
        self.until("document.readyState === 'complete'").await
    }

    /// Returns the value of an expression in the page; promises are awaited.
    pub async fn eval(&self, expression: &str) -> Result<Value> {
        let params =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true});
        let result = self.send("Runtime.evaluate", params).await?;
        if let Some(details) = result.get("exceptionDetails") {
            let text = details["exception"]["description"].as_str().or(details["text"].as_str());
            bail!("{expression}: {}", text.unwrap_or_default());
        }
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression is true; the error shows the text of the page.
    pub async fn until(&self, expression: &str) -> Result<()> {
        let waited = eventually(expression, async || {
            let value = self.eval(&format!("Boolean({expression})")).await?;
            ensure!(value == true, "it is not");
            Ok(())
        });
        match waited.await {
            Ok(()) => Ok(()),
            Err(error) => {
                let text = self.eval("document.body?.innerText.slice(0, 3000)").await.unwrap_or_default();
                Err(error.context(format!("the page shows: {}", text.as_str().unwrap_or_default())))
            }
        }
    }

    /// Waits until an element contains a text.
    pub async fn sees(&self, selector: &str, text: &str) -> Result<()> {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!("[...document.querySelectorAll({selector})].some((e) => e.textContent.includes({text}))"))
            .await
    }

    /// Clicks an element whose text contains a text, once it is there and enabled.
    pub async fn click(&self, selector: &str, text: &str) -> Result<()> {
        let find = format!(
            "[...document.querySelectorAll({})].find((e) => e.textContent.includes({}) && !e.disabled && e.ariaDisabled !== 'true')",
            json!(selector),
            json!(text)
        );
        self.until(&find).await?;
        self.eval(&format!("{find}.click()")).await?;
        Ok(())
    }

    /// Replaces the text of a field, as a person who types would.
    pub async fn fill(&self, selector: &str, text: &str) -> Result<()> {
        let selector = json!(selector);
        self.until(&format!("document.querySelector({selector})")).await?;
        self.eval(&format!("(() => {{ const e = document.querySelector({selector}); e.focus(); e.select?.(); }})()"))
            .await?;
        self.send("Input.insertText", json!({"text": text})).await?;
        Ok(())
    }

    /// Presses a key: a character, or a name such as `Enter`.
    pub async fn press(&self, key: &str) -> Result<()> {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = text.into();
            }
            self.send("Input.dispatchKeyEvent", params).await?;
        }
        Ok(())
    }

    /// Sets the size of the window.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", size).await.map(drop)
    }

    /// Sets what the page learns about the viewer's preferences, such as `prefers-color-scheme`.
    pub async fn prefer(&self, name: &str, value: &str) -> Result<()> {
        let media = json!({"features": [{"name": name, "value": value}]});
        self.send("Emulation.setEmulatedMedia", media).await.map(drop)
    }

    /// Returns a picture of the window, as PNG.
    pub async fn screenshot(&self) -> Result<Vec<u8>> {
        let picture = self.send("Page.captureScreenshot", json!({"format": "png"})).await?;
        let text = picture["data"].as_str().context("no picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
    }

    /// Returns uncaught exceptions and errors that the browser logged, and forgets them.
    pub fn complaints(&self) -> Vec<String> {
        let mut all = self.connection.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, others) = std::mem::take(&mut *all).into_iter().partition(|(session, _)| *session == self.session);
        *all = others;
        let own: Vec<(String, String)> = own;
        own.into_iter().map(|(_, text)| text).collect()
    }
}
