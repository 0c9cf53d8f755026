//! The rules of a RayCluster.

use manta_api::RayCluster;

/// A RayCluster that has passed validation: builders take this and cannot fail.
#[derive(Clone, Copy, Debug)]
pub struct ValidCluster<'a> {
    pub(crate) cluster: &'a RayCluster,
}

impl std::ops::Deref for ValidCluster<'_> {
    type Target = RayCluster;

    fn deref(&self) -> &RayCluster {
        self.cluster
    }
}
