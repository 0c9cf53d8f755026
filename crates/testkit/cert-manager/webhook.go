package main

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/cert-manager/cert-manager/internal/webhook"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

// runWebhook runs the validating and mutating webhook, with the flags of cert-manager's own command.
func runWebhook(ctx context.Context, args []string) error {
	configuration, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	flags := pflag.NewFlagSet("webhook", pflag.ContinueOnError)
	options.AddConfigFlags(flags, configuration)
	// Those of its logs are not among them.
	flags.ParseErrorsAllowlist.UnknownFlags = true
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := webhook.NewCertManagerWebhookServer(klog.Background(), *configuration)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
