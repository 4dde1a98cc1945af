// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"strings"
	"testing"

	"github.com/refold-io/refold/cluster"
)

// Errors say once that they are of this package, whatever they are about.
func TestErrorsNameThePackageOnce(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.cluster("a")[0]
		run := func(context.Context, *cluster.Inbox) error { return nil }
		must(w.T, a.Singleton(w.Context(), cluster.Singleton{Name: "s", Run: run}))
		p, err := a.Proxy(w.Context(), cluster.ProxyConfig{Singleton: "t"})
		must(w.T, err)
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		_, canceled := p.Ask(ctx, nil)
		must(w.T, p.Close(w.Context()))
		_, closed := p.Ask(w.Context(), nil)
		for what, err := range map[string]error{
			"singleton": a.Singleton(w.Context(), cluster.Singleton{Name: "s", Run: run}), "send": p.Send(w.Context(), nil), "ask": closed, "canceled": canceled,
		} {
			if err == nil || strings.Count(err.Error(), "cluster: ") != 1 {
				w.Errorf("%s: %v", what, err)
			}
		}
	})
}
