// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/register"
	"github.com/refold-io/refold/internal/shardcore/stored"
)

var (
	// ErrFenced reports that a coordinator of a higher term, or another owner of a shard, has taken
	// over. The caller must stop.
	ErrFenced = register.ErrFenced
	// ErrConflict reports that the change is not based on the stored data. The caller must load and
	// decide again.
	ErrConflict = register.ErrConflict
	// ErrInvalid is matched by errors about invalid arguments and settings.
	ErrInvalid = register.ErrInvalid
)

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Change is one decision of a coordinator. A journal appends its events; a register replaces its
// state. The slices are immutable, and their format is that of this package.
type Change struct {
	// Term is the term of the coordinator, from 1. Rev is the number of the last event before the
	// change.
	Term, Rev uint64
	// Claim reports that the change begins its term.
	Claim bool
	// Events are the encoded events, at least one. They get the numbers from Rev+1.
	Events [][]byte
	// After is the encoded state after the events.
	After []byte
}

// Loaded is the stored state of a coordinator.
type Loaded struct {
	// Term is the highest claimed term, 0 if nothing is stored. It may be higher than the term of
	// the state.
	Term uint64
	// Rev is the number of the last event, as counted by the store.
	Rev uint64
	// State is a Change.After, or nil for the empty state. Events are the Change.Events that follow
	// it.
	State  []byte
	Events [][]byte
}

// CoordinatorStore stores the state of the coordinator of one entity type, as one node accesses it.
// Package shardingtest tests implementations. All methods are safe for concurrent use.
type CoordinatorStore interface {
	// Load returns the stored state. It includes all changes that were acknowledged before the
	// call. A change whose Save returned an error before the call is either included or will never
	// be stored.
	Load(ctx context.Context) (Loaded, error)

	// Save stores a change that is based on the stored state. Nil reports that the change is
	// durable, and that no higher term had been claimed before. The first change of a term begins
	// with the claim of that term; at most one coordinator is acknowledged for a term.
	//
	// An error that matches ErrFenced reports a higher term. ErrConflict reports that the change is
	// not based on the stored state or, for a claim, that another claim came first. After any
	// error, including ErrFenced and ErrConflict, the change may already be stored, or may become
	// stored at any time until the next Load begins.
	//
	// The caller may save the same change again, even while the first call runs. The change is
	// stored once.
	Save(ctx context.Context, c Change) error

	// Close waits for background work, for at most a few seconds. It does not close the journal or
	// the replicator.
	Close() error
}

// CoordinatorStores opens stores for coordinators: JournalStores, ReplicatedStores, or another
// implementation.
type CoordinatorStores interface {
	// OpenCoordinator returns the store for the coordinator of an entity type. It does not block.
	OpenCoordinator(s Scope) (CoordinatorStore, error)
}

// RememberStore stores the IDs of running entities, or of those with pending work (see
// Scope.Pending), and the shards that ever had one, for one entity type. Package shardingtest tests implementations. All methods are safe for concurrent use. A
// shard has one owner on a node at a time. The owner makes its calls one after the other.
type RememberStore interface {
	// Load takes over a shard and returns its entities, in no order: those whose start was
	// acknowledged and not followed by a stop. Updates of previous owners that are not stored yet
	// fail, as far as the store can detect them.
	Load(ctx context.Context, shard Shard) ([]string, error)

	// Update stores which entities started and stopped. No entity is in both lists. Repeated starts
	// and stops are not errors. The shard must have been loaded. ErrFenced reports that another
	// owner has loaded the shard. After any error the shard must be loaded again.
	Update(ctx context.Context, shard Shard, started, stopped []string) error

	// Shards returns the shards that were added, sorted.
	Shards(ctx context.Context) ([]Shard, error)

	// AddShards adds shards. Shards that were already added are not an error.
	AddShards(ctx context.Context, shards []Shard) error

	// Close waits for background work, for at most a few seconds. It does not close the journal or
	// the replicator.
	Close() error
}

// RememberStores opens stores for remembered entities and for the index of Options.Wake: JournalStores, ReplicatedStores, or another
// implementation.
type RememberStores interface {
	// OpenEntities returns the store for an entity type. It does not block.
	OpenEntities(s Scope) (RememberStore, error)
}

// maxRole is the maximum length of a role in bytes.
const maxRole = 128

// MaxEntityID is the maximum length of the ID of a remembered entity in bytes.
const MaxEntityID = stored.MaxEntityID

// Scope identifies the user of a store.
type Scope struct {
	// Type is the name of the entity type. Required: 1 to 255 bytes of UTF-8 without "|" and NUL.
	Type string
	// Role is the role of the nodes that host the type. Defaults to "": all nodes.
	Role string
	// Shards is the number of shards, so that a store can reject a number that it has no room for.
	// Defaults to 0: unknown.
	Shards int
	// Pending is set for the index of entities with pending work, see Options.Wake. A RememberStore
	// keeps it apart from the remembered entities of the same type and role.
	Pending bool
	// Logger gets warnings about failed background work. Defaults to no logging.
	Logger *slog.Logger
}

func (s Scope) validate() error {
	var errs fielderror.Errors
	if bad(s.Type, coordinator.MaxTypeLength) || strings.TrimSpace(s.Type) == "" || strings.Contains(s.Type, "|") {
		errs.Addf("Scope.Type", "is %.64q, it must be UTF-8 of at most %d bytes, not blank, without \"|\" and NUL", s.Type, coordinator.MaxTypeLength)
	}
	if bad(s.Role, maxRole) {
		errs.Addf("Scope.Role", "is %.64q, it must be UTF-8 of at most %d bytes, without NUL", s.Role, maxRole)
	}
	return errs.Err(ErrInvalid)
}

func bad(name string, most int) bool {
	return len(name) > most || !utf8.ValidString(name) || strings.Contains(name, "\x00")
}

// checkIDs returns an error that matches ErrInvalid if an ID is invalid.
func checkIDs(ids []string) error {
	for _, id := range ids {
		if id == "" || len(id) > MaxEntityID {
			return fmt.Errorf("%w: entity ID %.64q has %d bytes, it must have 1 to %d", ErrInvalid, id, len(id), MaxEntityID)
		}
	}
	return nil
}

// checkShards returns an error that matches ErrInvalid if a shard number is invalid.
func checkShards(shards []Shard) error {
	for _, s := range shards {
		if s >= coordinator.MaxShards {
			return fmt.Errorf("%w: shard number %d is too high", ErrInvalid, s)
		}
	}
	return nil
}

// checkChange returns an error that matches ErrInvalid if a change is incomplete.
func checkChange(c *Change) error {
	if c.Term == 0 || len(c.Events) == 0 || len(c.After) == 0 {
		return fmt.Errorf("%w: change of term %d with %d events and a state of %d bytes", ErrInvalid, c.Term, len(c.Events), len(c.After))
	}
	return nil
}
