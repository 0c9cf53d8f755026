//! Tests of the plan, behaviour by behaviour, in a [`world::World`] without a server.
//!
//! Numbers name the edge cases of the specification's list.

pub(crate) mod world;

mod deletion;
mod gang;
mod head;
mod objects;
mod properties;
mod status;
mod suspend;
mod upgrade;
mod workers;
