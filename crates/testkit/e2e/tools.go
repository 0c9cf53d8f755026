//go:build tools

// Package e2e pins Kubernetes' conformance suite and the program that its pods run.
package e2e

import (
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/images/agnhost"
)
