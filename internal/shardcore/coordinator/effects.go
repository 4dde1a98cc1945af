// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/sharding/allocation"
)

// Effects are the actions that the caller performs, in the order of the fields.
type Effects struct {
	// Notes are for the log and the metrics.
	Notes []Note
	// Load reads the stored state. The answer is Loaded or LoadFailed with this ID. 0 means no
	// load. Only the answer to the last Load counts.
	Load uint64
	// AddShards remembers shards. The answer is ShardsAdded.
	AddShards *AddShards
	// Save stores a change. The answer is Saved or SaveFailed. The same change may be saved again
	// before the answer arrives.
	Save *Save
	// Ask gets homes from the strategy. The answer is HomesChosen.
	Ask *AskStrategy
	// Rebalance gets the shards to move from the strategy. The answer is Rebalanced.
	Rebalance *AskRebalance
	// Send has messages to regions and proxies, including those of this node.
	Send []Outgoing
	// ShutDownRegion requests a graceful shutdown of the region of this node.
	ShutDownRegion bool
	// Stop is the reason for which the coordinator has ended, or 0.
	Stop Reason
}

// Change is the set of events that one decision stores.
type Change struct {
	// Term is the term of the coordinator. Rev is the number of the last event before the change.
	Term, Rev uint64
	// Events has at least one event. They get the numbers from Rev+1.
	Events []Event
	// After is the state after the events, at Rev+len(Events).
	After State
}

// IsClaim reports whether the change begins its term.
func (c *Change) IsClaim() bool { return c.Events[0].Kind == Started }

// Encode returns the encodings of Events and After.
func (c *Change) Encode() (events [][]byte, after []byte) {
	for _, e := range c.Events {
		events = append(events, AppendEvent(nil, e))
	}
	return events, AppendState(nil, c.After)
}

// DecodeChange decodes the results of Encode. The error matches ErrMalformed.
func DecodeChange(term, rev uint64, events [][]byte, after []byte) (c Change, err error) {
	c = Change{Term: term, Rev: rev, Events: make([]Event, len(events))}
	for i, b := range events {
		if c.Events[i], err = DecodeEvent(b); err != nil {
			return Change{}, err
		}
	}
	c.After, err = DecodeState(after)
	return c, err
}

// Save stores a change.
type Save struct {
	ID uint64
	Change
}

// AddShards remembers shards.
type AddShards struct {
	ID     uint64
	Shards []Shard
}

// AskStrategy gets homes for shards. The view for each request includes the homes of the requests
// before it; see allocation.All.
type AskStrategy struct {
	ID       uint64
	Requests []allocation.Request
	View     allocation.View
}

// AskRebalance gets the shards that should move.
type AskRebalance struct {
	ID   uint64
	View allocation.View
}

// Outgoing is a message to send.
type Outgoing struct {
	To      identity.Node
	Message Message
}

// Phase is the phase of a coordinator.
type Phase uint8

// The phases, in order.
const (
	Loading  Phase = 1 + iota // reads the stored state
	Claiming                  // stores the term
	Settling                  // waits for terminations of regions
	Active                    // replies to requests
	Ended                     // does nothing
)

func (p Phase) String() string {
	return enum.Name(p, "phase", "", "loading", "claiming", "settling", "active", "ended")
}

// Reason is the reason for the end of a coordinator.
type Reason uint8

// The reasons.
const (
	Terminated       Reason = 1 + iota // the Terminate input ended it
	SupersededByTerm                   // a coordinator with a higher term exists
	// Diverged means that the stored state is neither the previous state nor the state after the change. A new coordinator has to load it.
	Diverged
)

func (r Reason) String() string {
	return enum.Name(r, "reason", "", "terminated", "superseded by a higher term", "diverged from what is stored")
}

// NoteKind is the kind of a note.
type NoteKind uint8

// The kinds of notes.
const (
	PhaseChanged  NoteKind = 1 + iota // the coordinator has entered another phase
	Repaired                          // the loaded history needed Count repairs
	LoadRetried                       // the store could not be read
	SaveRetried                       // a save failed or timed out; the coordinator checks the stored state
	Stored                            // a change of Count events is durable
	Ignored                           // a message of kind Message from Node was ignored
	NotAllocated                      // the strategy returned no region for shards, or an invalid one
	Terminating                       // a region counts as terminated; its shards get new homes after the margin
	HandOffBegun                      // shards are being moved; Count regions and proxies have to stop sending to them
	HandOffDone                       // shards are stopped and have no home
	Silent                            // Node did not respond to a probe and gets no shards while other regions respond
	RegionRefused                     // Node cannot register because Fields of its settings differ
	HandOffFailed                     // shards stay on their region: Node, and Count nodes in total, did not respond
)

func (k NoteKind) String() string {
	return enum.Name(k, "note", "", "phase changed", "repaired", "load retried", "save retried", "stored", "ignored", "not allocated", "terminating",
		"hand-off begun", "hand-off done", "silent", "region refused", "hand-off failed")
}

// Note describes an action of a coordinator for operators.
type Note struct {
	Kind    NoteKind
	Phase   Phase
	Reason  Reason // set for PhaseChanged with Ended
	Term    uint64
	Node    identity.Node
	Message Kind
	Shards  []Shard
	Count   int
	Repairs []string // set for Repaired
	Fields  []string // set for RegionRefused
}

// Input is an input of a coordinator.
type Input interface{ input() }

// Members has the members of the cluster. It is the first input and is repeated at each change. Its
// slices are immutable.
type Members struct {
	// Members has all members, sorted by node.
	Members []identity.Member
	// Unreachable has the members that some member cannot reach, sorted.
	Unreachable []identity.Node
	// Removed has the members whose removal may be less than the removal margin ago. It may omit
	// removals that this coordinator has seen itself.
	Removed []Removal
}

// Removal is the removal of a member. Until is the end of the removal margin: from then on, the
// node certainly hosts nothing.
type Removal struct {
	Node  identity.Node
	Until time.Duration
}

// Removals returns the removals of members that are not in the next list. margin returns the
// removal margin for a number of members; nil means none.
func Removals(now time.Duration, members, next []identity.Member, margin func(members int) time.Duration) []Removal {
	until := now
	if margin != nil {
		until += margin(max(len(members), len(next)))
	}
	var all []Removal
	for _, n := range membership.Gone(members, next) {
		all = append(all, Removal{n, until})
	}
	return all
}

// Received is a message from a region or proxy.
type Received struct {
	From    identity.Node
	Message Message
}

// Loaded answers Load. Each Load has exactly one answer, Loaded or LoadFailed.
type Loaded struct {
	ID    uint64
	State State
	// Rev is the number of the last event in the state, as the store counts.
	Rev uint64
	// Remembered has all remembered shards.
	Remembered []Shard
	// Repairs and Repaired are the results of Fold.Repairs, for the log.
	Repairs  []string
	Repaired int
}

// LoadFailed answers Load.
type LoadFailed struct{ ID uint64 }

// Saved answers Save: the change is durable.
type Saved struct{ ID uint64 }

// SaveFailed answers Save. The change may still have been stored, or may be stored later.
type SaveFailed struct {
	ID uint64
	// Fenced means that the store has a higher term.
	Fenced bool
}

// ShardsAdded answers AddShards.
type ShardsAdded struct {
	ID uint64
	// Failed means that the shards may not have been added.
	Failed bool
}

// HomesChosen answers AskStrategy with a region for each request, in order. A zero node means that
// there is none. Each AskStrategy has exactly one answer: if the strategy fails or takes too long,
// the answer contains no region.
type HomesChosen struct {
	ID    uint64
	Homes []identity.Node
}

// Rebalanced answers AskRebalance with the shards that should move. Each AskRebalance has exactly
// one answer: a strategy that fails moves no shards.
type Rebalanced struct {
	ID     uint64
	Shards []Shard
}

// SetPin pins a shard to a node, or removes its pin if Node is "". The caller has called CheckPin.
type SetPin struct{ Pin }

// RebalanceNow calls the strategy at once.
type RebalanceNow struct{}

// Terminate ends the coordinator because another node takes over. If this node has a region, its
// shards are handed off first, because a hand-off needs a coordinator.
type Terminate struct {
	// Now ends the coordinator without this hand-off.
	Now bool
}

func (Members) input()      {}
func (Received) input()     {}
func (Loaded) input()       {}
func (LoadFailed) input()   {}
func (Saved) input()        {}
func (SaveFailed) input()   {}
func (ShardsAdded) input()  {}
func (HomesChosen) input()  {}
func (Rebalanced) input()   {}
func (SetPin) input()       {}
func (RebalanceNow) input() {}
func (Terminate) input()    {}
