//! Addresses for pods, from one network of 65536.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Allocates addresses; a released one is reused as late as possible.
#[derive(Debug)]
pub struct Ipam {
    /// The first two octets of all addresses.
    network: [u8; 2],
    used: BTreeSet<u16>,
    last: u16,
}

/// Numbers 0 and 1 are the network and the gateway.
const FIRST: u16 = 2;
const LAST: u16 = u16::MAX - 1;

impl Ipam {
    /// Addresses that begin with these two numbers.
    pub fn new(network: [u8; 2]) -> Self {
        Self { network, used: BTreeSet::new(), last: FIRST - 1 }
    }

    /// The next free address; `None` when all are taken.
    pub fn take(&mut self) -> Option<Ipv4Addr> {
        let after = (self.last.saturating_add(1)..=LAST).find(|n| !self.used.contains(n));
        let free = after.or_else(|| (FIRST..=self.last).find(|n| !self.used.contains(n)))?;
        self.used.insert(free);
        self.last = free;
        let ([first, second], [high, low]) = (self.network, free.to_be_bytes());
        Some(Ipv4Addr::new(first, second, high, low))
    }

    pub fn release(&mut self, ip: Ipv4Addr) {
        let [_, _, high, low] = ip.octets();
        self.used.remove(&u16::from_be_bytes([high, low]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_and_reused() {
        let mut ipam = Ipam::new([10, 244]);
        let all: BTreeSet<Ipv4Addr> = std::iter::from_fn(|| ipam.take()).collect();
        assert_eq!(all.len(), usize::from(LAST - FIRST) + 1);
        assert!(!all.contains(&Ipv4Addr::new(10, 244, 0, 1)));
        let one = Ipv4Addr::new(10, 244, 7, 9);
        ipam.release(one);
        assert_eq!((ipam.take(), ipam.take()), (Some(one), None));
    }

    #[test]
    fn a_returned_address_is_not_reused_at_once() {
        let mut ipam = Ipam::new([10, 244]);
        let first = ipam.take().unwrap();
        ipam.release(first);
        assert_ne!(ipam.take(), Some(first));
    }
}
