// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/sharding"
)

// TestHealth checks that a node is ready when its regions have registered, or after GiveUpAfter.
func TestHealth(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		a := w.join("a")
		ready := func(cfg sharding.HealthConfig) *sharding.Health { return sharding.NewHealth(a.Node, cfg) }
		if err := ready(sharding.HealthConfig{}).Ready(); !errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("before the node is a member: %v, want ErrNotMember", err)
		}
		w.up(a)
		if err := ready(sharding.HealthConfig{}).Ready(); err != nil {
			w.Errorf("without a region: %v, want no error", err)
		}
		if err := ready(sharding.HealthConfig{Types: []string{"diary"}}).Ready(); !errors.Is(err, sharding.ErrNotReady) {
			w.Errorf("with a type that was not started: %v, want ErrNotReady", err)
		}
		var err error
		a.region, err = sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), w.opts(a)) // a proxy: no node runs the coordinator
		w.must(err)
		patient, endless := ready(sharding.HealthConfig{}), ready(sharding.HealthConfig{GiveUpAfter: -1})
		for _, h := range []*sharding.Health{patient, endless} {
			if err := h.Ready(); !errors.Is(err, sharding.ErrNotReady) || !strings.Contains(err.Error(), "diary") {
				w.Errorf("without a coordinator: %v, want ErrNotReady", err)
			}
		}
		w.sleep(10*time.Second - 1)
		if err := patient.Ready(); !errors.Is(err, sharding.ErrNotReady) {
			w.Errorf("before the end of GiveUpAfter: %v, want ErrNotReady", err)
		}
		w.sleep(time.Second)
		if err := patient.Ready(); err != nil {
			w.Errorf("after the end of GiveUpAfter: %v, want no error", err)
		}
		probe := func(path string) (int, string) {
			r := httptest.NewRecorder()
			endless.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
			return r.Code, r.Body.String()
		}
		if code, body := probe("/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "diary") {
			w.Errorf("/ready without a coordinator: %d %s, want 503 with the type diary", code, body)
		}
		if code, body := probe("/live"); code != http.StatusOK || body != "ok\n" {
			w.Errorf("/live without a coordinator: %d %s, want 200 ok", code, body)
		}
		w.start("b", "library")
		w.must(a.region.AwaitReady(w.Context()))
		if code, body := probe("/ready"); code != http.StatusOK || body != "ok\n" {
			w.Errorf("/ready after the registration: %d %s, want 200 ok", code, body)
		}
		w.nodes["b"].Stop() // a single registration is enough
		if code, body := probe("/ready"); code != http.StatusOK {
			w.Errorf("/ready without a coordinator after the registration: %d %s, want 200", code, body)
		}
		a.Stop()
		<-a.Done()
		if code, _ := probe("/ready"); code != http.StatusServiceUnavailable {
			w.Errorf("/ready after the end of the node: %d, want 503", code)
		}
	})
}
