// Command cert-manager runs one of cert-manager's three processes: the controller, the webhook or the cainjector.
//
// The controller issues from CAs and self-signed issuers, which are the ones that the operator and its chart create.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	commands := map[string]func(context.Context, []string) error{
		"controller": runController,
		"webhook":    runWebhook,
		"cainjector": runInjector,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: cert-manager controller|webhook|cainjector [flags]")
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager "+os.Args[1]+":", err)
		os.Exit(1)
	}
}
