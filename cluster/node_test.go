// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/lease"
)

// The attached value of a key is created once for each node.
func TestAttached(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		type key struct{}
		type other struct{}
		a := w.start("a", func(c *cluster.Config) { c.Roles = []string{"web", "db", "web"} })
		b := w.start("b")
		one, two := new(int), new(int)
		for _, n := range []*int{one, two} {
			if got := a.Attached(key{}, func() any { return n }); got != one {
				t.Error("the attached value was created again")
			}
		}
		if a.Attached(other{}, func() any { return two }) != two || b.Attached(key{}, func() any { return two }) != two {
			t.Error("another key or another node returned the same value")
		}
		if got := a.Roles(); !slices.Equal(got, []string{"db", "web"}) {
			t.Errorf("Roles = %v, want [db web]", got)
		}
	})
}

// The text of each error has the package name exactly once.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
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
		for subject, err := range map[string]error{
			"singleton": a.Singleton(w.Context(), cluster.Singleton{Name: "s", Run: run}), "send": p.Send(w.Context(), nil), "ask": closed, "canceled": canceled,
		} {
			if err == nil || strings.Count(err.Error(), "cluster: ") != 1 {
				w.Errorf("%s: the error text is %q, want the prefix \"cluster: \" once", subject, err)
			}
		}
	})
}

// faultyHandler is a log handler that blocks or panics.
type faultyHandler struct {
	handle  func()
	enabled func()
}

func (h faultyHandler) Handle(context.Context, slog.Record) error {
	h.handle()
	return nil
}

func (h faultyHandler) Enabled(context.Context, slog.Level) bool {
	h.enabled()
	return true
}
func (h faultyHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h faultyHandler) WithGroup(string) slog.Handler      { return h }

// A log handler that panics or blocks does not affect the node.
func TestPanickingLogHandler(t *testing.T) {
	t.Parallel()
	for subject, log := range map[string]faultyHandler{
		"handle panics":  {func() { panic("at the disco") }, func() {}},
		"enabled panics": {func() {}, func() { panic("at the disco") }},
		"both panic":     {func() { panic("at the disco") }, func() { panic("at the disco") }},
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world) {
				a := w.start("a", func(c *cluster.Config) { c.Logger = slog.New(log) })
				b := w.start("b")
				w.allUp(a, b)
				a.Logger().InfoContext(w.Context(), "hello")
				must(w.T, a.Shutdown(w.Context()))
			})
		})
	}
	bubble(t, func(w *world) {
		release := make(chan struct{})
		defer close(release)
		a := w.start("a", func(c *cluster.Config) { c.Logger = slog.New(faultyHandler{func() {}, func() { <-release }}) })
		w.allUp(a, w.start("b"))
		must(w.T, a.Shutdown(w.Context()))
	})
}

// An instance that calls runtime.Goexit has ended.
func TestSingletonCallsGoexit(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Run: func(context.Context, *cluster.Inbox) error {
			runtime.Goexit()
			return nil
		}}))
		w.sleep(time.Second)
		if !w.logged("singleton: instance failed") {
			w.Error("the end of the instance was not logged")
		}
		begun := time.Now()
		must(w.T, nodes[0].Shutdown(w.Context()))
		if took := time.Since(begun); took > 15*time.Second {
			w.Errorf("the shutdown took %v, want at most 15s", took)
		}
	})
}

// blockedStore is a lease store that ignores its context.
type blockedStore struct {
	lease.Store

	release chan struct{}
}

func (d blockedStore) Timeout() time.Duration { return 10 * time.Second }

func (d blockedStore) Create(context.Context, string, string) (uint64, error) {
	<-d.release
	return 0, errors.New("too late")
}

func (d blockedStore) Get(context.Context, string) (lease.Entry, error) {
	<-d.release
	return lease.Entry{}, errors.New("too late")
}

// A node also ends when its lease store does not return.
func TestBlockedLeaseStore(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		store := blockedStore{release: make(chan struct{})}
		defer close(store.release)
		a := w.start("a", func(c *cluster.Config) { c.Leases = store })
		w.allUp(a)
		o := &instanceCounter{}
		s := o.on(a)
		s.Lease = true
		must(w.T, a.Singleton(w.Context(), s))
		w.sleep(10 * time.Second)
		must(w.T, a.Shutdown(w.Context()))
		if !w.logged("lease: a store operation does not return") {
			w.Error("the blocked store operation was not logged")
		}
		if o.started() > 0 {
			w.Error("the singleton ran without its lease")
		}
	})
}
