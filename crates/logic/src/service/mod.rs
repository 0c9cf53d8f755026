//! What to do next for a RayService.
