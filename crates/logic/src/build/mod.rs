//! Kubernetes objects from specs. Total functions: a valid spec always gives an object.
