// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"maps"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// check asserts the invariants of a host.
func (h *host) check(e membership.Effects) {
	w := h.w
	w.tb.Helper()
	for _, line := range e.Log {
		for _, attr := range line.Attrs {
			if attr.Key == "node" {
				w.tb.Fatalf("%v: the log line %q contains the node twice: %v", h.node, line.Message, attr.Value)
			}
		}
	}
	before := maps.Clone(h.status)
	for _, event := range e.Events {
		h.checkEvent(event, before)
	}
	if h.dead || len(e.Events) == 0 {
		return
	}
	g := h.m.Gossip()
	check(w.tb, g)
	clock, content := fmt.Sprint(g.Clock()), string(g.AppendContent(nil))
	if other, known := w.shared[clock]; known && other != content {
		w.tb.Fatalf("%v: two states have the clock %s: now %s", h.node, clock, describe(g))
	}
	w.shared[clock] = content
	for i, o := range g.Members() {
		if i > 0 && g.Members()[i-1].Node.Name == o.Node.Name && o.Status == up && g.Members()[i-1].Status == up {
			w.tb.Fatalf("%v: two incarnations of %s are up", h.node, o.Node.Name)
		}
	}
}

func (h *host) checkEvent(event membership.Event, before map[identity.Node]identity.Status) {
	w := h.w
	if event.Kind == membership.MemberUnreachable && event.Member.Node == h.node {
		w.tb.Fatalf("%v finds itself unreachable", h.node)
	}
	if event.Kind == membership.MemberRemoved {
		h.removed[event.Member.Node] = true
		if event.Previous == down {
			h.downed[event.Member.Node] = w.now
		}
		if event.Previous != h.status[event.Member.Node] {
			w.tb.Fatalf("%v: %v had the status %v, MemberRemoved has the previous status %v", h.node, event.Member.Node, h.status[event.Member.Node], event.Previous)
		}
	}
	if event.Member == nil || event.Kind == membership.MemberReachable || event.Kind == membership.MemberUnreachable {
		return
	}
	n, now := event.Member.Node, event.Member.Status
	if h.removed[n] && now != removed {
		w.tb.Fatalf("%v: %v was removed and is %v again", h.node, n, now)
	}
	h.status[n] = now
	if now == up {
		w.checkUp(h, n, before)
	}
}

// checkUp asserts that a member becomes Up for the first time only after all full members in the
// view of the leader have the member in their gossip.
func (w *world) checkUp(h *host, n identity.Node, before map[identity.Node]identity.Status) {
	key := "up " + n.String()
	if _, known := w.shared[key]; known {
		return
	}
	w.shared[key] = ""
	for _, o := range h.m.Gossip().Members() {
		for _, other := range w.hosts {
			if other.node == o.Node && !other.dead && (before[o.Node] == up || before[o.Node] == leaving) && other.status[n] == 0 {
				w.tb.Fatalf("%v became Up before %v has it in its gossip", n, o.Node)
			}
		}
	}
}
