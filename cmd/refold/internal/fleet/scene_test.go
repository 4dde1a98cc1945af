// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/plugins/nats"
)

const (
	clusterName = "test"
	// patience is the time limit of each step.
	patience = 3 * time.Minute
)

// patient returns a node with long time-outs, because nodes may get no processor for seconds while
// other tests run. In a soak the machine is idle, and the time-outs are short.
func patient(n Node) Node {
	n.Downing.StableAfter = stableAfter()
	if n.Downing.Strategy == downing.Off {
		n.Downing.StableAfter = 0
	}
	if !effort.Soak() {
		n.AcceptablePause, n.Downing.DownAllWhenUnstable = 8*time.Second, -1
	}
	return n
}

// stableAfter is the setting of the downing strategies.
func stableAfter() time.Duration {
	if effort.Soak() {
		return 3 * time.Second
	}
	return 6 * time.Second
}

// scene is a cluster of processes with the latest report of each.
type scene struct {
	t     *testing.T
	fleet *Fleet
	log   *logs
	names []string
	ids   map[string]identity.Node
	views map[string]*View
	ended map[string]string
	gone  map[string]bool
	spans []span
	crowd *crowd // the clients of the data; nil if there is no data
}

// span is a period in which an instance of the singleton ran.
type span struct {
	node     identity.Node
	from, to time.Time // to is zero while the instance runs
}

// logs collects the logs of the processes, for a test that fails.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// emptyScene returns a scene without running nodes.
func emptyScene(t *testing.T, names ...string) *scene {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{
		t: t, log: &logs{}, names: names, ids: map[string]identity.Node{}, views: map[string]*View{},
		ended: map[string]string{}, gone: map[string]bool{},
	}
	s.fleet = newFleet([]string{program, serve}, s.log)
	t.Cleanup(func() {
		s.fleet.Close()
		if t.Failed() {
			t.Logf("logs of the nodes:\n%s", s.log.b.String())
		}
	})
	return s
}

// newScene starts nodes named a, b and so on. Node a is the oldest.
func newScene(t *testing.T, settings downing.Settings, access map[string]nats.Access, leases nats.Access) *scene {
	t.Helper()
	s := emptyScene(t, slices.Sorted(maps.Keys(access))...)
	for i, name := range s.names {
		_, err := s.fleet.Start(patient(Node{
			Name: name, Cluster: clusterName, Seeds: s.names, Access: access[name], Downing: settings, Extra: extra{Name: name, Leases: leases, Singleton: true}.raw(),
		}))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			s.until("the first node is up", func() bool { return s.views[name] != nil && s.views[name].Up() == 1 })
		}
	}
	s.until("all nodes are up", func() bool { return s.agree(s.names...) })
	s.until("the oldest node runs the singleton", func() bool { return slices.Equal(s.hosts(), s.names[:1]) })
	return s
}

// next processes a report.
func (s *scene) next(ctx context.Context) error {
	r, err := s.fleet.Next(ctx)
	if err != nil {
		return err
	}
	name := r.Node.Name
	switch {
	case r.View != nil:
		s.ids[name], s.views[name] = r.Node, r.View
	case r.Extra != nil:
		var x extraReport
		if err := json.Unmarshal(r.Extra, &x); err != nil {
			return err
		}
		switch {
		case x.Hosts != nil && *x.Hosts:
			s.spans = append(s.spans, span{node: r.Node, from: r.At})
		case x.Hosts != nil:
			s.hostsNoMore(r.Node, r.At)
		case x.Answer != nil:
			s.crowd.take(x.Answer)
		}
	case r.Ended != "":
		s.ended[name] = r.Ended
	case r.Exit != "":
		s.gone[name] = true
		s.crowd.lose(name)
		s.hostsNoMore(r.Node, r.At)
	}
	return nil
}

func (s *scene) hostsNoMore(n identity.Node, at time.Time) {
	for i := range s.spans {
		if s.spans[i].node == n && s.spans[i].to.IsZero() {
			s.spans[i].to = at
		}
	}
}

// until processes reports until a condition holds.
func (s *scene) until(subject string, holds func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for !holds() {
		if s.next(ctx) != nil {
			s.t.Fatalf("timed out after %v; waiting until %s\n%s", patience, subject, s)
		}
	}
}

// during processes reports for a time.
func (s *scene) during(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	for s.next(ctx) == nil {
	}
}

// hosts returns the nodes on which the singleton runs.
func (s *scene) hosts() (names []string) {
	for _, h := range s.spans {
		if h.to.IsZero() {
			names = append(names, h.node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// hostedBy reports whether the singleton runs on one of the nodes.
func (s *scene) hostedBy(names ...string) bool {
	return slices.ContainsFunc(s.hosts(), func(host string) bool { return slices.Contains(names, host) })
}

// agree reports whether exactly these nodes are members, up and reachable, in the view of each.
func (s *scene) agree(names ...string) bool {
	for _, name := range names {
		v := s.views[name]
		if v == nil || v.Up() != len(names) || len(v.Members) != len(names) {
			return false
		}
	}
	return true
}

// survive waits until only these nodes are left, one of them runs the singleton, and all others
// have ended because they were downed.
func (s *scene) survive(names ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("all nodes except %v have ended", names), func() bool {
		return !slices.ContainsFunc(s.names, func(n string) bool { return !slices.Contains(names, n) && s.ended[n] == "" })
	})
	for name, why := range s.ended {
		if !strings.Contains(why, "downed") {
			s.t.Errorf("node %s has ended: %s, want downed", name, why)
		}
	}
	s.until(fmt.Sprintf("%v agree and one of them runs the singleton", names), func() bool { return s.agree(names...) && len(s.hosts()) == min(1, len(names)) })
	for _, name := range names {
		if s.ended[name] != "" {
			s.t.Errorf("node %s of the surviving side has ended: %s", name, s.ended[name])
		}
	}
	s.alone(0)
}

// alone checks that two instances of the singleton never ran at the same time for longer than
// allowed. Except in a soak, the limit is at least stableAfter, because a process that gets no
// processor ends its instance late.
func (s *scene) alone(allowed time.Duration) {
	s.t.Helper()
	if !effort.Soak() {
		allowed = max(allowed, stableAfter())
	}
	for i, a := range s.spans {
		for _, b := range s.spans[i+1:] {
			if overlap := end(a, b).Sub(latest(a.from, b.from)); overlap > allowed {
				s.t.Errorf("the singleton ran for %v on both %v and %v, want at most %v\n%s", overlap, a.node, b.node, allowed, s)
			}
		}
	}
}

// end returns the time at which the first of two instances ended.
func end(a, b span) time.Time {
	now := time.Now()
	if a.to.IsZero() {
		a.to = now
	}
	if b.to.IsZero() {
		b.to = now
	}
	if a.to.Before(b.to) {
		return a.to
	}
	return b.to
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// String describes the state of each node.
func (s *scene) String() string {
	var b strings.Builder
	for _, name := range s.names {
		fmt.Fprintf(&b, "%v ended %q, exited %v, view %+v\n", s.ids[name], s.ended[name], s.gone[name], s.views[name])
	}
	for _, h := range s.spans {
		fmt.Fprintf(&b, "%v ran the singleton from %s to %s\n", h.node, h.from.Format(time.StampMilli), h.to.Format(time.StampMilli))
	}
	return b.String()
}
