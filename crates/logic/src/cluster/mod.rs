//! What to do next for a RayCluster.
