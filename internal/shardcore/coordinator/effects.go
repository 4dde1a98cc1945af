// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/sharding/allocation"
)

// Effects are what a coordinator wants done, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// Load: read what is stored, and answer with Loaded or LoadFailed of this number. 0 is none. Only the answer to
	// the last one counts.
	Load uint64
	// AddShards: remember shards, and answer with ShardsAdded.
	AddShards *AddShards
	// Save: store a change, and answer with Saved or SaveFailed. The same change may be asked for
	// again while the answer is out.
	Save *Save
	// Ask: ask the strategy where shards should be.
	Ask *AskStrategy
	// Rebalance: ask the strategy which shards should move.
	Rebalance *AskRebalance
	// Send: messages to regions and proxies, those of this node included.
	Send []Outgoing
	// ShutDownRegion: ask the region of this node for a graceful shutdown.
	ShutDownRegion bool
	// Stop: the coordinator does nothing any more. 0 is that it does.
	Stop Reason
}

// Change is what one decision stores.
type Change struct {
	// Term is that of the coordinator, Rev the number of the last event before.
	Term, Rev uint64
	// Events are at least one. They get the numbers from Rev+1.
	Events []Event
	// After is the state after them, at Rev+len(Events).
	After State
}

// Save asks for a change to be stored.
type Save struct {
	ID uint64
	Change
}

// AddShards asks for shards to be remembered.
type AddShards struct {
	ID     uint64
	Shards []Shard
}

// AskStrategy asks where shards should be. Each one finds those before it in the view: see
// allocation.All.
type AskStrategy struct {
	ID       uint64
	Requests []allocation.Request
	View     allocation.View
}

// AskRebalance asks which shards should move.
type AskRebalance struct {
	ID   uint64
	View allocation.View
}

// Outgoing is a message to be sent.
type Outgoing struct {
	To      identity.Node
	Message Message
}

// Phase is where a coordinator stands.
type Phase uint8

const (
	// Loading reads what is stored.
	Loading Phase = 1 + iota
	// Claiming stores its term.
	Claiming
	// Settling learns which regions are still there.
	Settling
	// Active answers.
	Active
	// Ended does nothing any more.
	Ended
)

func (p Phase) String() string {
	switch p {
	case Loading:
		return "loading"
	case Claiming:
		return "claiming"
	case Settling:
		return "settling"
	case Active:
		return "active"
	case Ended:
		return "ended"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Reason says why a coordinator has ended.
type Reason uint8

const (
	// Terminated says that it was asked to.
	Terminated Reason = 1 + iota
	// SupersededByTerm says that there is a coordinator of a higher term.
	SupersededByTerm
	// Diverged says that what is stored is neither what was before nor what was to be. Start another one, which
	// loads it.
	Diverged
)

func (r Reason) String() string {
	switch r {
	case Terminated:
		return "terminated"
	case SupersededByTerm:
		return "superseded by a higher term"
	case Diverged:
		return "diverged from what is stored"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// NoteKind tells the notes apart.
type NoteKind uint8

const (
	// Became says that the coordinator is in another phase.
	Became NoteKind = 1 + iota
	// Repaired says that the history that was loaded was mended: Count times.
	Repaired
	// LoadRetried says that the store could not be read.
	LoadRetried
	// SaveRetried says that a save failed, or took too long: it is looked for.
	SaveRetried
	// Stored says that a change is durable: Count events.
	Stored
	// Ignored says that a message was not heeded: Message from Node.
	Ignored
	// Unplaced says that the strategy found no region for shards, or one that can't be.
	Unplaced
	// Terminating says that a region is taken for gone, and its shards get another home, after the
	// margin.
	Terminating
	// HandOffBegun says that shards are being moved, and Count have to stop sending to them.
	HandOffBegun
	// HandOffDone says that shards were stopped and have no home.
	HandOffDone
	// Silent says that Node does not say that it is there, and gets no shards as long as others do.
	Silent
	// RegionRefused says that Node can't register, since its settings differ from those of the coordinator: Fields.
	RegionRefused
	// HandOffFailed says that shards stay where they are, since Node, and Count in all, did not
	// answer.
	HandOffFailed
)

func (k NoteKind) String() string {
	switch k {
	case Became:
		return "became"
	case Repaired:
		return "repaired"
	case LoadRetried:
		return "load retried"
	case SaveRetried:
		return "save retried"
	case Stored:
		return "stored"
	case Ignored:
		return "ignored"
	case Unplaced:
		return "unplaced"
	case Terminating:
		return "terminating"
	case HandOffBegun:
		return "hand-off begun"
	case HandOffDone:
		return "hand-off done"
	case Silent:
		return "silent"
	case RegionRefused:
		return "region refused"
	case HandOffFailed:
		return "hand-off failed"
	}
	return fmt.Sprintf("note(%d)", uint8(k))
}

// Note tells an operator what a coordinator did, and why.
type Note struct {
	Kind    NoteKind
	Phase   Phase
	Reason  Reason // of Became Ended
	Term    uint64
	Node    identity.Node
	Message Kind
	Shards  []Shard
	Count   int
	Repairs []Repair
	Fields  []string
}

// Input is what a coordinator is told.
type Input interface{ input() }

// Members says who is in the cluster. It is the first input, and comes again at each change. Its
// slices are immutable.
type Members struct {
	// Members are all members, sorted by node.
	Members []membership.Member
	// Unreachable are the members that somebody can't reach, sorted.
	Unreachable []identity.Node
	// Removed are those whose removal may be less than the removal margin ago. Those that the coordinator has
	// seen as members, it knows itself.
	Removed []Removal
}

// Removal says when a member was removed.
type Removal struct {
	Node identity.Node
	At   time.Duration
}

// Received is a message.
type Received struct {
	From    identity.Node
	Message Message
}

// Loaded answers Load. There must be exactly one answer, this or LoadFailed.
type Loaded struct {
	ID    uint64
	State State
	// Rev is the number of the last event that is in the state, by the count of the store.
	Rev uint64
	// Remembered are all shards that are remembered, if they are.
	Remembered []Shard
	// Repairs are for the log, as Fold.Repairs has them.
	Repairs  []Repair
	Repaired int
}

// LoadFailed answers Load.
type LoadFailed struct{ ID uint64 }

// Saved answers Save: it is durable.
type Saved struct{ ID uint64 }

// SaveFailed answers Save. It may have been stored all the same, at once or later.
type SaveFailed struct {
	ID uint64
	// Fenced says that it was refused, since there is a higher term.
	Fenced bool
}

// ShardsAdded answers AddShards.
type ShardsAdded struct {
	ID uint64
	// Failed says that they may not have been added.
	Failed bool
}

// Placed answers AskStrategy with a region for each request, in their order. No node is that there
// is none. There must be exactly one answer: a strategy that fails, or takes too long, has found
// none.
type Placed struct {
	ID    uint64
	Homes []identity.Node
}

// Rebalanced answers AskRebalance with the shards that should move. There must be exactly one
// answer: a strategy that fails moves none.
type Rebalanced struct {
	ID     uint64
	Shards []Shard
}

// RebalanceNow asks the strategy at once.
type RebalanceNow struct{}

// Terminate ends the coordinator: another node takes over. If this node has a region, that gives
// away its shards before, as long as there is a coordinator.
type Terminate struct {
	// Now doesn't wait for that.
	Now bool
}

func (Members) input()      {}
func (Received) input()     {}
func (Loaded) input()       {}
func (LoadFailed) input()   {}
func (Saved) input()        {}
func (SaveFailed) input()   {}
func (ShardsAdded) input()  {}
func (Placed) input()       {}
func (Rebalanced) input()   {}
func (RebalanceNow) input() {}
func (Terminate) input()    {}
