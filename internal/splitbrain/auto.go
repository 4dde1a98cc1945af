// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// suspect is a member that automatic downing has seen unreachable since a time.
type suspect struct {
	node  identity.Node
	since time.Duration
}

// suspect notes who is unreachable, and forgets who no longer is.
func (r *Resolver) suspect(now time.Duration, v *View, out *Effects) {
	if !r.warned {
		r.warned = true
		out.Notes = append(out.Notes, Note{Kind: Automatic})
	}
	if r.started && same(r.view.Unreachable, v.Unreachable) {
		return
	}
	suspects := make([]suspect, 0, len(v.Unreachable))
	for _, n := range v.Unreachable {
		s := suspect{n, now}
		if i := slices.IndexFunc(r.suspects, func(s suspect) bool { return s.node == n }); i >= 0 {
			s = r.suspects[i]
		}
		suspects = append(suspects, s)
	}
	r.suspects = suspects
}

func (r *Resolver) tickAutomatic(now time.Duration, out *Effects) {
	if !r.responsible() {
		return
	}
	var nodes []identity.Node
	for _, s := range r.suspects {
		switch r.view.status(s.node) {
		case identity.Down, identity.Exiting, identity.Removed:
			continue
		case identity.Joining, identity.WeaklyUp, identity.Up, identity.Leaving,
			identity.PreparingForShutdown, identity.ReadyForShutdown:
		}
		if now-s.since >= r.settings.StableAfter {
			nodes = append(nodes, s.node)
		}
	}
	if len(nodes) > 0 {
		out.Notes = append(out.Notes, Note{Kind: Automatic, Down: nodes})
		out.Down = slices.Clone(nodes)
	}
}
