//! Tests of the plan, behaviour by behaviour, in a [`world::World`] without a server.

pub(crate) mod world;

mod deletion;
mod earlier;
mod gang;
mod head;
mod mtls;
mod network_policy;
mod objects;
mod properties;
mod status;
mod suspend;
mod upgrade;
mod workers;
