// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Phase is a part of a node's shutdown. Phases come one after the other; a phase that takes too long is passed
// over.
type Phase uint8

// The phases, in their order. In brackets is what the node itself does.
const (
	PhaseBeforeUnbind Phase = iota
	// PhaseUnbind: stop listening for requests from outside.
	PhaseUnbind
	// PhaseRequestsDone: answer those that are open.
	PhaseRequestsDone
	// PhaseStopServices: stop what answers them.
	PhaseStopServices
	PhaseBeforeClusterShutdown
	// PhaseStopRegions: give up shards. It may take 10 s.
	PhaseStopRegions
	// PhaseLeave [the node announces that it leaves].
	PhaseLeave
	// PhaseExiting [all know it; singletons are handed over]. It may take 10 s.
	PhaseExiting
	// PhaseExitingDone [the node has left].
	PhaseExitingDone
	// PhaseClusterStop [the node ends its membership, if it could not leave].
	PhaseClusterStop
	PhaseBeforeTerminate
	// PhaseTerminate: close what others may have used until now [instances of singletons have ended, the transport is closed after]. It
	// may take 10 s.
	PhaseTerminate

	phases
)

func (p Phase) String() string {
	names := [...]string{
		"before-unbind", "unbind", "requests-done", "stop-services", "before-cluster-shutdown", "stop-regions",
		"leave", "exiting", "exiting-done", "cluster-stop", "before-terminate", "terminate",
	}
	if int(p) >= len(names) {
		return fmt.Sprintf("phase(%d)", uint8(p))
	}
	return names[p]
}

// hook is something to be done in a phase.
type hook struct {
	name string
	f    func(context.Context) error
}

// phaseHooks are what is to be done in all phases.
type phaseHooks struct {
	mu    sync.Mutex
	begun Phase // this one and those after it have not begun
	hooks [phases][]*hook
}

// OnShutdown lets f be called in a phase of the node's shutdown, side by side with the others of that phase. Its context ends when
// the phase has taken too long; f should return then, for nobody waits for it any more. An error is logged under
// the name. Remove takes it away again; it is never nil. The error matches ErrInvalid, or ErrShuttingDown if the phase has begun: then f
// is not called.
func (n *Node) OnShutdown(p Phase, name string, f func(ctx context.Context) error) (remove func(), err error) {
	nothing := func() {}
	switch {
	case p >= phases:
		return nothing, invalid("there is no %v of the shutdown, for %q", p, name)
	case f == nil:
		return nothing, invalid("there is nothing to call in the phase %v of the shutdown for %q", p, name)
	}
	added := &hook{name, f}
	n.phases.mu.Lock()
	defer n.phases.mu.Unlock()
	if p < n.phases.begun {
		return nothing, fmt.Errorf("%w: the phase %v has begun, it comes too late for %q", ErrShuttingDown, p, name)
	}
	n.phases.hooks[p] = append(n.phases.hooks[p], added)
	return func() {
		n.phases.mu.Lock()
		defer n.phases.mu.Unlock()
		n.phases.hooks[p] = slices.DeleteFunc(n.phases.hooks[p], func(other *hook) bool { return other == added })
	}, nil
}

// of begins a phase, and returns what is to be done in it.
func (h *phaseHooks) of(p Phase) []*hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = p + 1
	return slices.Clone(h.hooks[p])
}
