//! Containers that a node cannot start: images, configuration, volumes.

use super::super::Cause;
use super::super::evidence::{ContainerStatus, Event, Evidence, Pod};
use super::patterns::{Pattern, find, sentence};
use super::{pod_object, pods};

const IMAGES: &[Pattern] = &[
    Pattern {
        parts: &["no local environment"],
        reason: "ImageUnknownLocally",
        advice: "Start manta up with --image IMAGE=DIRECTORY, or use an image whose name tells a Ray version.",
    },
    Pattern {
        parts: &["python environment"],
        reason: "LocalEnvironmentFailed",
        advice: "Repair what the message names, or point --image at an environment that exists.",
    },
    Pattern {
        parts: &["toomanyrequests"],
        reason: "RegistryRateLimited",
        advice: "Wait, log in to the registry with imagePullSecrets, or use a mirror.",
    },
    Pattern {
        parts: &["unauthorized"],
        reason: "ImagePullDenied",
        advice: "Create a docker-registry Secret and name it under imagePullSecrets in the template.",
    },
    Pattern {
        parts: &["authentication required"],
        reason: "ImagePullDenied",
        advice: "Create a docker-registry Secret and name it under imagePullSecrets in the template.",
    },
    Pattern {
        parts: &["denied"],
        reason: "ImagePullDenied",
        advice: "Check the image's name, and name a Secret with access to it under imagePullSecrets in the template.",
    },
    Pattern {
        parts: &["no match for platform"],
        reason: "ImageWrongPlatform",
        advice: "Use an image for the nodes' architecture; those of Ray for arm64 end with -aarch64.",
    },
    Pattern { parts: &["not found"], reason: "ImageNotFound", advice: "Correct the image or its tag in the template." },
    Pattern {
        parts: &["manifest unknown"],
        reason: "ImageNotFound",
        advice: "Correct the image or its tag in the template.",
    },
    Pattern {
        parts: &["no such host"],
        reason: "RegistryUnreachable",
        advice: "Correct the registry's name in the image, or give the nodes a way to reach it.",
    },
    Pattern {
        parts: &["dial tcp"],
        reason: "RegistryUnreachable",
        advice: "Give the nodes a way to reach the registry, or use a mirror.",
    },
    Pattern {
        parts: &["timeout"],
        reason: "RegistryUnreachable",
        advice: "Give the nodes a way to reach the registry, or use a mirror.",
    },
    Pattern {
        parts: &["no space left"],
        reason: "NodeDiskFull",
        advice: "Free disk space on the node, or let the Pod run on another one.",
    },
];

const OTHER_IMAGE: Pattern = Pattern {
    parts: &[],
    reason: "ImagePullFailed",
    advice: "The message is the container runtime's; try the pull on a node.",
};

pub(super) fn image(evidence: &Evidence) -> Option<Cause> {
    let (pod, status, reason, message) = waiting(evidence).find(|(_, _, reason, _)| {
        ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"]
            .contains(reason)
    })?;
    let image = pod.spec.containers.iter().find(|container| container.name == status.name).map(|it| it.image.as_str());
    let image = image.filter(|image| !image.is_empty()).unwrap_or(&status.image);
    let what = format!("The image {image} of the {} cannot be pulled", pod.words());
    let object = pod_object(pod);
    match reason {
        "InvalidImageName" => {
            let what = format!("{image} in the {} is not a valid image name", pod.words());
            Some(Cause::new("InvalidImageName", object, sentence(&what, ""), "Correct image in the template."))
        }
        "ErrImageNeverPull" => {
            let what =
                format!("The image {image} of the {} is not on the node, and imagePullPolicy is Never", pod.words());
            Some(Cause::new(
                "ImageNeverPulled",
                object,
                sentence(&what, ""),
                "Load the image onto the node, or set imagePullPolicy to IfNotPresent.",
            ))
        }
        _ => {
            // The back-off says nothing; the failed pull before it does.
            let event = evidence.events.iter().rfind(|event| {
                event.is_about_pod(pod) && event.reason == "Failed" && event.message.contains("pull image")
            });
            let message = match event {
                Some(event) if message.starts_with("Back-off") || message.is_empty() => event.message.as_str(),
                _ => message,
            };
            Some(find(IMAGES, message).unwrap_or(&OTHER_IMAGE).cause(object, &what, message))
        }
    }
}

const CONFIGURATION: &[Pattern] = &[
    Pattern {
        parts: &["secret", "not found"],
        reason: "SecretMissing",
        advice: "Create the Secret, or correct its name under env or envFrom in the template.",
    },
    Pattern {
        parts: &["configmap", "not found"],
        reason: "ConfigMapMissing",
        advice: "Create the ConfigMap, or correct its name under env or envFrom in the template.",
    },
    Pattern {
        parts: &["couldn't find key"],
        reason: "KeyMissing",
        advice: "Add the key to the Secret or ConfigMap, or correct it in the template.",
    },
    Pattern {
        parts: &["runasnonroot"],
        reason: "MustNotRunAsRoot",
        advice: "Set runAsUser in the securityContext, or use an image with another user.",
    },
];

const OTHER_CONFIGURATION: Pattern =
    Pattern { parts: &[], reason: "ContainerNotCreated", advice: "Correct what the message names in the template." };

pub(super) fn waiting_container(evidence: &Evidence) -> Option<Cause> {
    let found = waiting(evidence).find(|(_, _, reason, _)| {
        ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"].contains(reason)
    });
    let (pod, status, reason, message) = found?;
    let what = format!("Container {} of the {} cannot be created", status.name, pod.words());
    if reason == "RunContainerError" {
        return Some(cannot_start(pod, &status.name, message));
    }
    Some(find(CONFIGURATION, message).unwrap_or(&OTHER_CONFIGURATION).cause(pod_object(pod), &what, message))
}

/// Returns the cause of a container whose program cannot be executed.
pub(super) fn cannot_start(pod: &Pod, container: &str, message: &str) -> Cause {
    let what = format!("The command of container {container} of the {} cannot be started", pod.words());
    let advice = "Correct command and args in the template, or use an image that has this program.";
    Cause::new("CommandCannotStart", pod_object(pod), sentence(&what, message), advice)
}

const VOLUMES: &[Pattern] = &[
    Pattern {
        parts: &["secret", "not found"],
        reason: "MountedSecretMissing",
        advice: "Create the Secret, or correct its name under volumes in the template.",
    },
    Pattern {
        parts: &["configmap", "not found"],
        reason: "MountedConfigMapMissing",
        advice: "Create the ConfigMap, or correct its name under volumes in the template.",
    },
    Pattern {
        parts: &["persistentvolumeclaim", "not found"],
        reason: "MountedClaimMissing",
        advice: "Create the PersistentVolumeClaim, or correct its name under volumes in the template.",
    },
    Pattern {
        parts: &["--allow-host-path"],
        reason: "HostPathNotAllowed",
        advice: "Start manta up with --allow-host-path for this directory.",
    },
    Pattern {
        parts: &["multi-attach"],
        reason: "VolumeInUse",
        advice: "The volume is attached to another node: use ReadWriteMany, or delete the Pod that has it.",
    },
    Pattern {
        parts: &["access denied"],
        reason: "VolumeAccessDenied",
        advice: "Check the export or the credentials of the volume.",
    },
];

const OTHER_VOLUME: Pattern = Pattern {
    parts: &[],
    reason: "VolumeNotMounted",
    advice: "Correct the volume in the template, or repair its storage.",
};

pub(super) fn volumes(evidence: &Evidence) -> Option<Cause> {
    let is_starting = |pod: &&Pod| pod.status.phase == "Pending" || pod.status.phase.is_empty();
    pods(evidence).filter(is_starting).find_map(|pod| {
        let is_about = |event: &&Event| {
            event.is_about_pod(pod)
                && ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"].contains(&event.reason.as_str())
        };
        let event = evidence.events.iter().rfind(is_about)?;
        if event.reason == "FailedCreatePodSandBox" {
            let what = format!("The node cannot set up the {}", pod.words());
            let advice = "Look at the network plugin and the container runtime of the node.";
            return Some(Cause::new("SandboxFailed", pod_object(pod), sentence(&what, &event.message), advice));
        }
        let what = format!("A volume of the {} cannot be mounted", pod.words());
        Some(find(VOLUMES, &event.message).unwrap_or(&OTHER_VOLUME).cause(pod_object(pod), &what, &event.message))
    })
}

/// Returns the containers that wait, with reason and message.
fn waiting(evidence: &Evidence) -> impl Iterator<Item = (&Pod, &ContainerStatus, &str, &str)> {
    pods(evidence).flat_map(|pod| {
        pod.all_containers().filter_map(move |(status, _)| {
            let waiting = status.state.waiting.as_ref()?;
            Some((pod, status, waiting.reason.as_str(), waiting.message.as_str()))
        })
    })
}
