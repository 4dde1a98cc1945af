// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/register"
)

var (
	// ErrFenced says that somebody else has taken over: a coordinator of a higher term, or another
	// owner of a shard. Whoever gets it stops.
	ErrFenced = register.ErrFenced
	// ErrConflict says that a change was refused, since something else is stored than it is based on. Kind
	// to do is to load, and to decide again.
	ErrConflict = register.ErrConflict
	// ErrInvalid is matched by the errors about arguments and settings that can't be.
	ErrInvalid = register.ErrInvalid
)

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Change is what one decision of a coordinator stores. The journal appends its events, the register
// holds the state after them.
type Change = coordinator.Change

// Loaded is what a coordinator finds.
type Loaded struct {
	// State is empty where nothing is stored. Its term is the highest one that anybody has claimed. If whoever did has not begun
	// yet, it has no holder.
	State coordinator.State
	// Rev is the number of the last event that is in the state, by the count of the store.
	Rev uint64
	// Repairs say what had to be mended in the history so that the state makes sense, the first
	// of them; Repaired is how many there were.
	Repairs  []coordinator.Repair
	Repaired int
}

// CoordinatorStore keeps the state of the coordinator of one entity type, as one node reaches it.
// It is the SPI that package shardingtest checks. All methods are safe for concurrent
// use.
type CoordinatorStore interface {
	// Load returns what is stored. All changes that were acknowledged before it began are in it. A change
	// whose Save had returned an error before is in it, or never will be stored.
	Load(ctx context.Context) (Loaded, error)

	// Save stores a change that is based on what is stored: nil says that it is durable, and that no
	// higher term had been claimed before. The first change of a term begins with its event Started; at most
	// one coordinator is acknowledged for a term, whoever claims it.
	//
	// An error that matches ErrFenced says that there is a higher term. One that matches ErrConflict
	// says that something else is stored than the change is based on, or, of a claim, that another one came first. After any other
	// error the change may be stored, at once or later, until the next Load has begun. ErrFenced and ErrConflict
	// leave that open, too.
	//
	// The same change may be saved again, also while the first call goes on, and is stored once.
	Save(ctx context.Context, c Change) error

	// Close waits for what goes on in the background, at most some seconds. It closes nothing that the store was made from.
	Close() error
}

// CoordinatorStores says where coordinators keep their state: JournalState, ReplicatedState, or one's own.
type CoordinatorStores interface {
	// OpenCoordinator returns the store for the coordinator of an entity type. It doesn't wait for
	// anything.
	OpenCoordinator(s Scope) (CoordinatorStore, error)
}

// RememberStore keeps which entities run, and which shards ever had one, of one entity type. It is
// the SPI that package shardingtest checks. All methods are safe for concurrent use; a shard has one
// owner on a node at a time, which makes one call after the other.
type RememberStore interface {
	// Load takes a shard over and returns its entities, in no order: all that were started and not stopped, by updates that
	// were acknowledged. Kind others have not yet stored for the shard, never will be, as far as the store can tell.
	Load(ctx context.Context, shard Shard) ([]string, error)

	// Update stores which entities began and ended to run. No entity is in both. Kind is there
	// already, or not there, is no error. The shard must have been loaded. An error that matches ErrFenced says that
	// another owner has loaded it; after any error it has to be loaded again.
	Update(ctx context.Context, shard Shard, started, stopped []string) error

	// Shards returns the shards that were added, sorted.
	Shards(ctx context.Context) ([]Shard, error)

	// AddShards adds shards. Kind is there already is no error.
	AddShards(ctx context.Context, shards []Shard) error

	// Close waits for what goes on in the background, at most some seconds. It closes nothing that the store was made from.
	Close() error
}

// RememberStores says where it is kept which entities run: JournalEntities, ReplicatedEntities, or one's
// own.
type RememberStores interface {
	// OpenEntities returns the store for an entity type. It doesn't wait for anything.
	OpenEntities(s Scope) (RememberStore, error)
}

// maxRole is the largest number of bytes of a role.
const maxRole = 128

// MaxEntityID is the largest number of bytes of the ID of an entity that is remembered.
const MaxEntityID = 512

// Scope says whose store it is.
type Scope struct {
	// Type is the name of the entity type. Required: 1 to 255 bytes of UTF-8 without "|".
	Type string
	// Role is that of the nodes which host it. Defaults to "": all do.
	Role string
	// Shards is how many there are, so that a store can say that it has no room for them. Defaults to 0: that is not known.
	Shards int
	// Logger is told of what goes wrong in the background. Defaults to discarding it.
	Logger *slog.Logger
}

func (s Scope) withDefaults() Scope {
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	return s
}

func (s Scope) validate() error {
	var errs []error
	if bad(s.Type, coordinator.MaxTypeLength) || strings.TrimSpace(s.Type) == "" || strings.Contains(s.Type, "|") {
		errs = append(errs, fmt.Errorf("%w: Scope.Type: %.64q is blank, too long, no UTF-8, or holds a \"|\" or a NUL", ErrInvalid, s.Type))
	}
	if bad(s.Role, maxRole) {
		errs = append(errs, fmt.Errorf("%w: Scope.Role: %.64q is too long, no UTF-8, or holds a NUL", ErrInvalid, s.Role))
	}
	return errors.Join(errs...)
}

func bad(name string, most int) bool {
	return len(name) > most || !utf8.ValidString(name) || strings.Contains(name, "\x00")
}

// checkIDs returns an error that matches ErrInvalid unless all can be IDs of entities.
func checkIDs(ids []string) error {
	for _, id := range ids {
		if id == "" || len(id) > MaxEntityID {
			return fmt.Errorf("%w: the ID %.64q of an entity has %d bytes, it needs 1 to %d", ErrInvalid, id, len(id), MaxEntityID)
		}
	}
	return nil
}

// checkShards returns an error that matches ErrInvalid unless all can be shards.
func checkShards(shards []Shard) error {
	for _, s := range shards {
		if s >= coordinator.MaxShards {
			return fmt.Errorf("%w: shard %d is beyond the last one", ErrInvalid, s)
		}
	}
	return nil
}

// checkChange returns an error that matches ErrInvalid unless a change can be.
func checkChange(c *Change) error {
	switch {
	case len(c.Events) == 0:
		return fmt.Errorf("%w: a change without events", ErrInvalid)
	case c.Term == 0 || c.After.Term() != c.Term:
		return fmt.Errorf("%w: a change of term %d after which it is term %d", ErrInvalid, c.Term, c.After.Term())
	}
	for i, e := range c.Events {
		if e.Kind == coordinator.Started && (i > 0 || e.Term != c.Term) {
			return fmt.Errorf("%w: in a change of term %d, event %d starts term %d", ErrInvalid, c.Term, i, e.Term)
		}
	}
	return nil
}

// claims reports whether a change begins its term.
func claims(c *Change) bool { return c.Events[0].Kind == coordinator.Started }
