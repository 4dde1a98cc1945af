// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// The error of an invalid configuration names all invalid fields.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := replication.New(replication.Config{
		Durable: []string{"a*", "*", "b**", ""}, Expire: map[string]time.Duration{"a*": time.Second, "": time.Hour},
		GossipInterval: -1, NotifyInterval: -1, DeltaInterval: -1, PruneAfter: -1, MarkerTTL: -1, DurableMarkerTTL: -1, Timeout: -1,
		MaxDeltaOps: -1, MaxEntry: 1 << 20, MaxMessage: 1 << 10, MaxBatch: 1 << 10, MaxKeys: -1, MaxRequests: -1, MaxLog: -1,
	})
	for _, want := range []string{
		"Config.Name", "Config.Self is missing", "Config.Rand is missing", `Config.Durable: key "b*"`, "Config.Durable: key is empty",
		"Config.Expire: key is empty", "Config.GossipInterval is -1ns", "Config.NotifyInterval", "Config.DeltaInterval", "Config.PruneAfter",
		"Config.MarkerTTL", "Config.DurableMarkerTTL", "Config.Timeout", "Config.MaxDeltaOps is -1", "Config.MaxEntry", "Config.MaxMessage", "Config.MaxBatch",
		"Config.MaxKeys", "Config.MaxRequests", "Config.MaxLog",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
	actor := must(crdt.NewSelf(node("a", 1)))
	_, err = replication.New(replication.Config{Name: "r", Self: actor, Rand: newWorld(t, 1, replication.Config{}, 0).rnd, Expire: map[string]time.Duration{"a": time.Second}})
	if err == nil || !strings.Contains(err.Error(), `Config.Expire: 1s for "a" is less than GossipInterval, 2s`) {
		t.Errorf("expiry below GossipInterval: got error %v, want one about GossipInterval", err)
	}
}

// An exact key takes precedence over prefixes, a longer prefix over a shorter one.
func TestPatterns(t *testing.T) {
	t.Parallel()
	expire := map[string]time.Duration{
		"*": 10 * time.Minute, "a*": time.Minute, "ab*": 30 * time.Minute, "abc": 2 * time.Minute,
	}
	for after, want := range map[time.Duration]string{0: "a1 ab1 abc x", 90 * time.Second: "ab1 abc x", 3 * time.Minute: "ab1 x", 15 * time.Minute: "ab1"} {
		w := newWorld(t, 1, replication.Config{Expire: expire}, 1)
		h := w.hosts[0]
		for _, key := range []string{"x", "a1", "ab1", "abc"} {
			h.add(key, local, 1)
		}
		w.run(after)
		if got := strings.Join(h.m.Keys(), " "); got != want {
			t.Errorf("after %v: got keys %s, want %s", after, got, want)
		}
	}
}

// The size of the delta log is limited. Nodes that have not received dropped changes receive the
// values.
func TestLogIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxLog: 10, GossipInterval: 5 * time.Second}, 12) // too many nodes to send to all at once
	a := w.hosts[0]
	keys := 30
	for round := range 4 {
		for i := range keys {
			a.put(fmt.Sprint("set-", i), local, fmt.Sprint(round))
			if n := a.m.Counters().Log; n > 10 {
				t.Fatalf("the log has %d changes, want at most 10", n)
			}
		}
		if round%2 == 1 {
			w.run(time.Second)
		}
	}
	for i := range keys { // each change is a gap if an earlier change was dropped
		a.put(fmt.Sprint("set-", i), local, "last")
		w.run(100 * time.Millisecond)
	}
	w.run(10 * time.Second)
	gaps := uint64(0)
	for _, b := range w.hosts[1:] {
		gaps += b.m.Counters().DeltasGap
		for i := range keys {
			if key := fmt.Sprint("set-", i); a.show(key) != b.show(key) {
				t.Errorf("%s: a has %s, b has %s, want equal values", key, a.show(key), b.show(key))
			}
		}
	}
	if a.m.Counters().DeltasDropped == 0 || gaps == 0 {
		t.Errorf("%d changes dropped, %d gaps, want some of both", a.m.Counters().DeltasDropped, gaps)
	}
}

// In a small cluster no change is dropped, even if the log is full.
func TestFullLogIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxLog: 10, GossipInterval: time.Hour}, 3)
	a := w.hosts[0]
	for i := range 300 {
		a.add(fmt.Sprint("key-", i%100), local, 1)
	}
	w.run(time.Second)
	for _, h := range w.hosts {
		if c := h.m.Counters(); c.DeltasDropped > 0 || c.Keys != 100 || h.m.Root() != a.m.Root() {
			t.Errorf("%v has %d keys, %d changes were dropped, want 100 and 0", h.self, c.Keys, c.DeltasDropped)
		}
	}
}

// Setting the clock back does not affect registers, and a wrong clock on another node does not keep
// keys from expiring.
func TestClocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Expire: map[string]time.Duration{"s": time.Minute}}, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.step(replication.SetClock{Time: started.Add(24 * time.Hour)})
	w.wait(a, a.write("r", all, "first"))
	w.wait(a, a.add("s", all, 1))
	a.step(replication.SetClock{Time: started})
	w.wait(a, a.write("r", all, "second"))
	w.wait(b, b.write("r", all, "third"))
	if a.show("r") != "third" || b.show("r") != "third" {
		t.Errorf("a has %s, b has %s, want third", a.show("r"), b.show("r"))
	}
	w.run(5 * time.Minute)
	if got := b.show("s"); got != "-" {
		t.Errorf("a key with a time of use in the future has %s, want it expired", got)
	}
}
