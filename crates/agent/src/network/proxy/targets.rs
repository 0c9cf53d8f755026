//! The targets of one forwarded port: round robin, or the same one for each client.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::network::services::{Forward, Protocol, Table};

pub(super) struct Targets {
    key: (Protocol, SocketAddrV4),
    table: watch::Receiver<Arc<Table>>,
    turn: AtomicUsize,
    /// The target that each client had last, and when.
    clients: Mutex<HashMap<IpAddr, (SocketAddrV4, Instant)>>,
}

impl Targets {
    pub(super) fn new(key: (Protocol, SocketAddrV4), table: watch::Receiver<Arc<Table>>) -> Arc<Self> {
        Arc::new(Self { key, table, turn: AtomicUsize::new(0), clients: Mutex::default() })
    }

    /// Returns the address that is listened on.
    pub(super) fn address(&self) -> SocketAddrV4 {
        self.key.1
    }

    /// Returns the targets in the order in which to try them.
    pub(super) fn in_turn(&self, client: IpAddr) -> Vec<SocketAddrV4> {
        let forward = self.forward();
        let mut targets = forward.targets;
        if targets.is_empty() {
            return targets;
        }
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % targets.len();
        targets.rotate_left(start);
        if let Some(timeout) = forward.affinity {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|_, (_, last)| last.elapsed() < timeout);
            let kept = clients.get(&client).and_then(|(kept, _)| targets.iter().position(|target| target == kept));
            if let Some(kept) = kept {
                targets.swap(0, kept);
            }
        }
        targets
    }

    /// Whether a target is still one.
    pub(super) fn has(&self, target: SocketAddrV4) -> bool {
        self.table.borrow().forwards.get(&self.key).is_some_and(|forward| forward.targets.contains(&target))
    }

    /// Records which target a client has.
    pub(super) fn remember(&self, client: IpAddr, target: SocketAddrV4) {
        if self.forward().affinity.is_some() {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.insert(client, (target, Instant::now()));
        }
    }

    fn forward(&self) -> Forward {
        self.table.borrow().forwards.get(&self.key).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn targets(affinity: Option<Duration>) -> Arc<Targets> {
        let key = (Protocol::Tcp, SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 9), 80));
        let pods = [2, 3, 4].map(|last| SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, last), 80));
        let mut table = Table::default();
        table.forwards.insert(key, Forward { targets: pods.to_vec(), affinity });
        Targets::new(key, watch::channel(Arc::new(table)).1)
    }

    /// Returns the last octets of the targets that a client gets in a row.
    fn visits(targets: &Targets, client: u8) -> Vec<u8> {
        let client = IpAddr::V4(Ipv4Addr::new(10, 244, 1, client));
        (0..4)
            .map(|_| {
                let target = targets.in_turn(client)[0];
                targets.remember(client, target);
                target.ip().octets()[3]
            })
            .collect()
    }

    #[test]
    fn targets_take_turns() {
        assert_eq!(visits(&targets(None), 1), [2, 3, 4, 2]);
    }

    #[test]
    fn with_affinity_a_client_keeps_its_target() {
        let targets = targets(Some(Duration::from_secs(60)));
        let (first, second) = (visits(&targets, 1), visits(&targets, 2));
        assert!(first.iter().all(|target| *target == first[0]), "{first:?}");
        assert!(second.iter().all(|target| *target == second[0]), "{second:?}");
        let expired = super::tests::targets(Some(Duration::ZERO));
        assert_eq!(visits(&expired, 1), [2, 3, 4, 2]);
    }
}
