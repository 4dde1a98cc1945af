// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
)

// A node that is its only seed becomes ready without other nodes.
func TestReadyAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.seeds = []string{"a"}
		a := w.cluster("a")[0]
		w.sleep(time.Second)
		must(w.T, a.Ready())
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		handler := a.Health()
		get := func(path string) (int, string) {
			r := httptest.NewRecorder()
			handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
			return r.Code, strings.TrimSpace(r.Body.String())
		}
		for _, path := range []string{"/live", "/ready"} {
			if code, body := get(path); code != http.StatusOK || body != "ok" {
				w.Errorf("GET %s: %d %s, want 200 ok", path, code, body)
			}
		}
		if code, _ := get("/x"); code != http.StatusNotFound {
			w.Errorf("GET /x: %d, want StatusNotFound", code)
		}
		back := w.network.Disconnect("a", errors.New("cable pulled"))
		w.sleep(5 * time.Second)
		if code, body := get("/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "disconnected") {
			w.Errorf("GET /ready while disconnected: %d %s, want 503 with the reason", code, body)
		}
		back()
		w.allUp(a)
		a.Stop()
		<-a.Done()
		if code, body := get("/live"); code != http.StatusServiceUnavailable || !strings.Contains(body, "stopped") {
			w.Errorf("GET /live after the end of the node: %d %s, want 503 with the reason", code, body)
		}
		if err := a.Ready(); !errors.Is(err, cluster.ErrStopped) {
			w.Errorf("Ready after the end of the node: %v, want ErrStopped", err)
		}
	})
}

// A suspended node that is connected again is not ready until its membership is confirmed.
func TestReadyWhileSuspended(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a", "b", "c")[0]
		back := w.network.Disconnect("a", errors.New("cable pulled"))
		w.sleep(30 * time.Second)
		heal := w.network.Partition([]string{"a"}, []string{"b", "c"})
		back()
		w.until(a, func(s *cluster.State) bool { return s.Connected })
		if err := a.Ready(); !errors.Is(err, cluster.ErrDisconnected) || !strings.Contains(err.Error(), "waiting for a downing decision") {
			w.Errorf("Ready while suspended: %v, want ErrDisconnected", err)
		}
		heal()
	})
}

// The state of a node that waits for its seeds shows whether it is connected.
func TestConnectedBeforeJoining(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.seeds = []string{"nobody"}
		a := w.start("a")
		w.sleep(10 * time.Second)
		if s := a.State(); !s.Connected || s.Joined {
			w.Errorf("the state before joining has Connected %t and Joined %t, want true and false", s.Connected, s.Joined)
		}
	})
}
