// The CRDs of other projects that tests install, read from the Go modules that publish them.
module manta/crds

go 1.24.0

require (
	github.com/cert-manager/cert-manager v1.19.4
	sigs.k8s.io/gateway-api v1.4.1
)
