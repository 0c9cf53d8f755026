//! The installations that are under way.
//!
//! Each goes on in a task of its own, also when no pod waits for it any longer: a pod that is deleted does not have to
//! wait, and the next one does not begin again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::environments::Progress;

#[derive(Default)]
pub(crate) struct Installations {
    /// Held by the one that runs: they would only slow each other down.
    pub(crate) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: JoinSet<()>,
    under_way: HashMap<PathBuf, Installation>,
}

/// What is known about an installation.
#[derive(Default)]
struct Known {
    progress: Option<Progress>,
    result: Option<Result<(), String>>,
}

/// One installation, as those see it who wait for it.
#[derive(Clone)]
pub(crate) struct Installation(watch::Receiver<Known>);

/// Reports how far an installation has come.
#[derive(Clone)]
pub(crate) struct ProgressSender(watch::Sender<Known>);

impl ProgressSender {
    pub(crate) fn send(&self, progress: &Progress) {
        self.0.send_modify(|known| known.progress = Some(progress.clone()));
    }
}

impl Installations {
    /// Returns the installation into a folder that is under way, or begins one.
    pub(crate) fn join<F>(&self, path: &Path, install: impl FnOnce(ProgressSender) -> F) -> Installation
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut state = self.lock();
        while state.tasks.try_join_next().is_some() {}
        state.under_way.retain(|_, installation| !installation.is_over());
        if let Some(known) = state.under_way.get(path) {
            return known.clone();
        }
        let (sender, receiver) = watch::channel(Known::default());
        let work = install(ProgressSender(sender.clone()));
        state.tasks.spawn(async move {
            let result = work.await;
            sender.send_modify(|known| known.result = Some(result));
        });
        let begun = Installation(receiver);
        state.under_way.insert(path.to_path_buf(), begun.clone());
        begun
    }

    /// Ends all of them.
    pub(crate) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut self.lock().tasks);
        tasks.shutdown().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Installation {
    fn is_over(&self) -> bool {
        self.0.has_changed().is_err() || self.0.borrow().result.is_some()
    }

    /// Waits for the end; calls `progress` whenever there is some.
    pub(crate) async fn finish(&mut self, mut progress: impl FnMut(&Progress)) -> Result<(), String> {
        loop {
            {
                let known = self.0.borrow_and_update();
                if let Some(result) = &known.result {
                    return result.clone();
                }
                known.progress.iter().for_each(&mut progress);
            }
            if self.0.changed().await.is_err() {
                // The last change and the end come together.
                return self
                    .0
                    .borrow()
                    .result
                    .clone()
                    .unwrap_or_else(|| Err("the installation was stopped".to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::Stage;
    use tokio::sync::oneshot;

    fn progress(packages: u32) -> Progress {
        Progress { what: "x".into(), into: "/e".into(), packages, megabytes: 0, stage: Stage::Downloading }
    }

    #[tokio::test]
    async fn an_installation_goes_on_without_those_who_wait() {
        let installations = Installations::default();
        let (go, gone) = oneshot::channel();
        let mut first = installations.join(Path::new("/e"), |sender| async move {
            sender.send(&progress(1));
            gone.await.map_err(|_| "never went".to_owned())
        });
        let (seen, saw) = oneshot::channel();
        let mut seen = Some(seen);
        let waiting = first.finish(|now| {
            if let Some(seen) = seen.take() {
                seen.send(now.packages).unwrap();
            }
        });
        tokio::select! {
            done = waiting => panic!("{done:?}"),
            packages = saw => assert_eq!(packages, Ok(1)),
        }
        drop(first);
        let again = |_| async { Err("begun again".to_owned()) };
        let mut second = installations.join(Path::new("/e"), again);
        let mut other = installations.join(Path::new("/other"), again);
        go.send(()).unwrap();
        assert_eq!(second.finish(|_| ()).await, Ok(()));
        assert_eq!(other.finish(|_| ()).await, Err("begun again".to_owned()));
        let mut next = installations.join(Path::new("/e"), again);
        assert_eq!(next.finish(|_| ()).await, Err("begun again".to_owned()), "the first one is over");
    }

    #[tokio::test]
    async fn installations_end_with_the_agent() {
        let installations = Installations::default();
        let mut endless = installations.join(Path::new("/e"), |_| std::future::pending());
        installations.stop().await;
        assert_eq!(endless.finish(|_| ()).await, Err("the installation was stopped".to_owned()));
    }
}
