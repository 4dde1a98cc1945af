// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"testing"

	"github.com/refold-io/refold/transport"
)

// Endpoint is the part of a transport that a check uses.
type Endpoint = endpoint

// Wrap returns a config under which checks use wrapped transports.
func Wrap(cfg Config, wrap func(*transport.Transport) Endpoint) Config {
	cfg.wrap = wrap
	return cfg
}

// WrapAdminClient returns a config under which checks use wrapped operators.
func WrapAdminClient(cfg Config, wrap func(transport.AdminClient) transport.AdminClient) Config {
	cfg.asker = wrap
	return cfg
}

// Names returns the names of all checks.
func Names() []string {
	var all []string
	for _, c := range append(checks(), operatorChecks()...) {
		all = append(all, c.name)
	}
	return all
}

// RunOne runs one check.
func RunOne(tb testing.TB, cfg Config, name string) {
	tb.Helper()
	for _, c := range append(checks(), operatorChecks()...) {
		if c.name == name {
			c.on(tb, cfg)
			return
		}
	}
	tb.Fatalf("no check %s", name)
}
