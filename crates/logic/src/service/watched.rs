//! Which kinds the plan for a RayService reads beside RayClusters, Pods, Services and EndpointSlices.

use crate::action::Kind;
use crate::config::Config;
use crate::validate::service::is_incremental_upgrade;
use manta_api::RayService;

/// Returns the kinds that must be watched for this service.
pub fn watched_kinds(service: &RayService, config: &Config) -> Vec<Kind> {
    match is_incremental_upgrade(&service.spec, config) {
        true => vec![Kind::Gateway, Kind::HttpRoute],
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::tests::world::{World, incremental, service};

    #[test]
    fn only_incremental_upgrades_read_gateways_and_routes() {
        let check = |world: World, expect: &[Kind]| {
            assert_eq!(watched_kinds(&world.service, &world.config), expect);
        };
        check(service(), &[]);
        check(incremental(10, 30, 10), &[Kind::Gateway, Kind::HttpRoute]);
        let mut gated = incremental(10, 30, 10);
        gated.config.gates.ray_service_incremental_upgrade = false;
        check(gated, &[]);
    }
}
