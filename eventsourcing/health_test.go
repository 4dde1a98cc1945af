// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/probe"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

func httpGet(h http.Handler, path string) (code int, body string) {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, strings.TrimSpace(r.Body.String())
}

func TestRuntimeHealth(t *testing.T) {
	t.Parallel()
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	var l *lamps
	var changes []int // the numbers of open breakers that OnChange finds
	l = openLamps(t, eventsourcing.Config{Store: store.Of(faulty, nil), JournalBreaker: journal.BreakerConfig{
		MaxFailures: 1, ResetTimeout: time.Nanosecond, OnChange: func(bool) { changes = append(changes, l.rt.OpenBreakers()) },
	}}, nil)
	busy := errors.New("too many requests")
	var check error
	h := probe.Health(l.rt.Live, l.rt.Ready, func() error { return check })
	want := func(when, path string, code int, body string) {
		t.Helper()
		if c, b := httpGet(h, path); c != code || b != body {
			t.Errorf("%s: GET %s: %d %q, want %d %q", when, path, c, b, code, body)
		}
	}
	want("open", "/live", 200, "ok")
	want("open", "/ready", 200, "ok")
	check = busy
	want("check fails", "/live", 200, "ok")
	want("check fails", "/ready", 503, busy.Error())
	check = nil

	l.ask(t, t.Context(), "1", switchOn)
	fault := faulty.Inject(journaltest.Fault{Op: journaltest.OpHighest, Err: journal.ErrUnavailable})
	if _, err := eventsourcing.Ask(t.Context(), l.Ref("2"), switchOn); err == nil {
		t.Fatal("Ask without a journal returned no error")
	}
	if n := l.rt.OpenBreakers(); n != 1 {
		t.Errorf("%d open breakers, want 1", n)
	}
	want("journal unavailable", "/ready", 200, "ok")
	fault.Release()
	l.ask(t, t.Context(), "3", switchOn)
	if n := l.rt.OpenBreakers(); n != 0 {
		t.Errorf("%d open breakers after a reply of the journal, want 0", n)
	}
	if !slices.Equal(changes, []int{1, 0}) {
		t.Errorf("OnChange found %v open breakers, want 1 and 0", changes)
	}

	// While Close waits, the process is alive and gets no more commands.
	write := faulty.Inject(journaltest.Fault{Do: journaltest.Stall})
	asked := make(chan error, 1)
	go func() {
		_, err := eventsourcing.Ask(context.Background(), l.Ref("1"), switchOn)
		asked <- err
	}()
	<-write.Struck()
	closed := make(chan error, 1)
	go func() { closed <- l.rt.Close(context.Background()) }()
	for l.rt.Ready() == nil {
		runtime.Gosched()
	}
	want("closing", "/live", 200, "ok")
	write.Release()
	if err := errors.Join(<-asked, <-closed); err != nil {
		t.Error(err)
	}
	<-closedRuntime(l.rt)
	want("closed", "/live", 503, eventsourcing.ErrClosed.Error())
	want("closed", "/ready", 503, eventsourcing.ErrClosed.Error())
}

// closedRuntime returns a channel that is closed when the second Close returns: all goroutines have
// ended.
func closedRuntime(rt *eventsourcing.Runtime) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rt.Close(context.Background())
	}()
	return done
}
