//! Who hands the entrypoint to Ray: `spec.submissionMode`.

use manta_api::RayJobSpec;

/// How a RayJob's entrypoint reaches Ray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A Kubernetes Job runs `ray job submit`.
    K8sJob,
    /// The operator posts the job to the dashboard.
    Http,
    /// The user submits and writes the id into `spec.jobId`.
    Interactive,
    /// A container in the head Pod runs `ray job submit`.
    Sidecar,
}

impl Mode {
    /// Returns the mode of a spec; the text itself if it names none.
    pub fn of(spec: &RayJobSpec) -> Result<Self, &str> {
        match spec.submission_mode.as_deref().unwrap_or_default() {
            "" | "K8sJobMode" => Ok(Self::K8sJob),
            "HTTPMode" => Ok(Self::Http),
            "InteractiveMode" => Ok(Self::Interactive),
            "SidecarMode" => Ok(Self::Sidecar),
            other => Err(other),
        }
    }

    /// Returns the text in the spec and in the label of the RayCluster.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::K8sJob => "K8sJobMode",
            Self::Http => "HTTPMode",
            Self::Interactive => "InteractiveMode",
            Self::Sidecar => "SidecarMode",
        }
    }

    /// Returns whether something follows the Ray job's log, whose end the RayJob waits for.
    pub fn has_submitter(self) -> bool {
        matches!(self, Self::K8sJob | Self::Sidecar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_reads_as_it_prints() {
        let of = |text: Option<&str>| {
            let spec = RayJobSpec { submission_mode: text.map(str::to_owned), ..RayJobSpec::default() };
            Mode::of(&spec).map_err(str::to_owned)
        };
        for mode in [Mode::K8sJob, Mode::Http, Mode::Interactive, Mode::Sidecar] {
            assert_eq!(of(Some(mode.as_str())), Ok(mode));
        }
        assert_eq!(of(None), Ok(Mode::K8sJob));
        assert_eq!(of(Some("")), Ok(Mode::K8sJob));
        assert_eq!(of(Some("k8sjobmode")), Err("k8sjobmode".to_owned()));
    }
}
