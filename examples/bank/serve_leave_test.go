// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A branch that is about to leave is not ready, still answers requests, and ends the connection of
// each, for as long as --drain-delay.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		s := &branches{delay: 5 * time.Second, all: []*branch{nil}, servers: []*branchServer{{api: api}}}
		expect := func(path string, status int, connection string) {
			t.Helper()
			w := httptest.NewRecorder()
			s.front(0).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			if w.Code != status || w.Header().Get("Connection") != connection {
				t.Errorf("%s: status %d, Connection %q; want %d, %q", path, w.Code, w.Header().Get("Connection"), status, connection)
			}
		}
		expect("/ready", http.StatusOK, "")
		expect("/accounts/alice", http.StatusOK, "")
		begun, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			s.linger()
		}()
		synctest.Wait()
		expect("/ready", http.StatusServiceUnavailable, "close")
		expect("/live", http.StatusOK, "close")
		expect("/accounts/alice", http.StatusOK, "close")
		<-ended
		if took := time.Since(begun); took != s.delay {
			t.Errorf("the branch leaves after %v, want %v", took, s.delay)
		}
	})
}

// The grace periods in deploy/ cover the time-outs of all parts of a shutdown.
func TestGracePeriods(t *testing.T) {
	t.Parallel()
	// The phases that wait for other branches, PhaseClusterStop and PhaseTerminate.
	const limit = drainPatience + 4*leavePatience + 5*time.Second + 10*time.Second + closePatience
	for file, grace := range map[string]string{"kubernetes/statefulset.yaml": "terminationGracePeriodSeconds: ([0-9]+)\n", "compose.yaml": "stop_grace_period: ([0-9]+)s\n"} {
		text, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		seconds := func(pattern string) time.Duration {
			found := regexp.MustCompile(pattern).FindSubmatch(text)
			if found == nil {
				t.Fatalf("%s does not have %s", file, pattern)
			}
			d, err := time.ParseDuration(string(found[1]) + "s")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if got, want := seconds(grace), seconds("--drain-delay=([0-9]+)s")+limit; got < want {
			t.Errorf("%s has a grace period of %v, want at least %v", file, got, want)
		}
	}
}

// A probe succeeds if the response has status 200, and otherwise prints the reason.
func TestProbe(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		printf(w, "the reason\n")
	}))
	defer server.Close()
	if r := call(t.Context(), "", "probe", server.URL); r.code != exitOK || r.out+r.errout != "" {
		t.Errorf("exit code %d, printed %q; want %d and nothing", r.code, r.out+r.errout, exitOK)
	}
	status = http.StatusServiceUnavailable
	if r := call(t.Context(), "", "probe", server.URL); r.code != exitFailed || !strings.Contains(r.errout, "503 Service Unavailable: the reason") {
		t.Errorf("exit code %d, printed %q; want %d and the reason", r.code, r.errout, exitFailed)
	}
}
