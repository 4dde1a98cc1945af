// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener is a program that records its messages.
type listener struct {
	p        *env.Process
	received []string
	woken    []time.Duration
}

func (l *listener) Wake() { l.woken = append(l.woken, l.p.Now()) }
func (l *listener) Receive(m env.Message) {
	l.received = append(l.received, m.From.Name+string(m.Data))
}
func (l *listener) Connection(bool) {}
func (l *listener) send(to *listener, s string) {
	l.p.Do(func() { l.p.Send(to.p.Node(), link.Data, 1000, []byte(s)) })
}

func start(w *env.Env, name string) *listener {
	l := &listener{}
	l.p = w.Start(name, func(*env.Process) env.Program { return l })
	return l
}

func (l *listener) wants(t *testing.T, subject string, want ...string) {
	t.Helper()
	if !slices.Equal(l.received, want) {
		t.Errorf("%s: received %q, want %q", subject, l.received, want)
	}
	l.received = nil
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	w := env.New(1)
	a, b := start(w, "a"), start(w, "b")
	both := func() {
		a.send(b, "1")
		b.send(a, "2")
		w.Run(time.Second, nil)
	}
	both()
	a.wants(t, "no fault", "b2")
	b.wants(t, "no fault", "a1")

	w.Place("a").NoUp = true
	both()
	a.wants(t, "a cannot send", "b2")
	b.wants(t, "a cannot send")
	w.Place("a").NoUp, w.Place("a").NoDown = false, true
	both()
	a.wants(t, "a cannot receive")
	b.wants(t, "a cannot receive", "a1")
	w.Place("a").NoDown = false

	w.Place("b").Side, w.Network.Split = 1, true
	both()
	a.wants(t, "split")
	b.wants(t, "split")
	w.Network.OneWay = true
	both()
	a.wants(t, "split one way")
	b.wants(t, "split one way", "a1")
	w.Network.Heal()

	w.Network.Cut("a", "b", true)
	both()
	a.wants(t, "a to b is cut", "b2")
	b.wants(t, "a to b is cut")
	w.Network.Heal()

	w.Network.Double, w.Network.Overtake = 1, 0.5
	for range 20 {
		a.send(b, "1")
	}
	w.Run(time.Second, nil)
	if n := len(b.received); n == 0 || n > 20 {
		t.Errorf("%d of 20 duplicated and reordered messages arrived, want 1 to 20", n)
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	w := env.New(1)
	w.Place("b").Drift = 500
	a, b := start(w, "a"), start(w, "b")
	due := b.p.Now() + time.Minute
	b.p.WakeAt(due)
	w.Run(time.Minute, nil)
	if len(b.woken) != 1 || b.woken[0] < due || b.woken[0] > due+time.Microsecond {
		t.Errorf("woken at %v, want once at %v", b.woken, due)
	}
	if a, b := a.p.Now(), b.p.Now(); a == b {
		t.Errorf("clocks with and without drift both show %v, want different times", a)
	}

	b.p.Pause()
	a.send(b, "1")
	a.send(b, "2")
	b.p.WakeAt(b.p.Now() + time.Second)
	w.Run(time.Minute, nil)
	b.wants(t, "paused")
	b.p.Resume()
	b.wants(t, "resumed", "a1", "a2")
	if len(b.woken) != 2 {
		t.Errorf("woken %d times, want 2", len(b.woken))
	}

	b.p.Kill()
	a.send(b, "3")
	restarted := start(w, "b")
	w.Run(time.Second, nil)
	b.wants(t, "killed")
	restarted.wants(t, "a message to the killed incarnation")
}

func TestStore(t *testing.T) {
	t.Parallel()
	w := env.New(1)
	s := w.NewLeaseStore(10 * time.Second)
	revision, err := s.Create("x", "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Create("x", "b"); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("creating an entry that exists: %v, want ErrHeld", err)
	}
	w.Run(9*time.Second, nil)
	if revision, err = s.Renew("x", "a", revision); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew("x", "a", revision-1); !errors.Is(err, lease.ErrConflict) {
		t.Errorf("renewing with an old revision: %v, want ErrConflict", err)
	}
	w.Run(10*time.Second, nil)
	if _, err := s.Get("x"); !errors.Is(err, lease.ErrFree) {
		t.Errorf("reading an expired entry: %v, want ErrFree", err)
	}
	if err := s.Delete("x", revision); !errors.Is(err, lease.ErrConflict) {
		t.Errorf("deleting an expired entry: %v, want ErrConflict", err)
	}
}
