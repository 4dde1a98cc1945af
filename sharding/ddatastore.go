// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/sharding/coordinator"
)

// readPlus is how many nodes more than a majority are read before a term begins. That is rare, comes after
// nodes have left, and finds what was written while there were more of them, or others.
const readPlus = 5

// ReplicatedConfig says how stores keep what they are given in replicated data.
type ReplicatedConfig struct {
	// Replicator holds the data. All nodes that may host the entity type need one of the same name.
	// Required.
	Replicator *ddata.Replicator
}

// ReplicatedState returns stores that keep the state of coordinators in replicated data. It is lost
// when all nodes stop, and begins empty then; only entities that are remembered know which shards there were.
func ReplicatedState(r *ddata.Replicator) ReplicatedConfig { return ReplicatedConfig{Replicator: r} }

// ReplicatedEntities returns stores that keep in replicated data which entities run, of about 50,000 in
// a shard at most. The keys "shard-*" must be durable: ddata.Config.Durable. An owner of a shard that was replaced and doesn't
// know it yet is not kept from writing.
func ReplicatedEntities(r *ddata.Replicator) ReplicatedConfig { return ReplicatedConfig{Replicator: r} }

var (
	_ CoordinatorStores = ReplicatedConfig{}
	_ RememberStores    = ReplicatedConfig{}
)

func (c ReplicatedConfig) validate(s Scope) error {
	err := s.validate()
	if c.Replicator == nil {
		err = errors.Join(fmt.Errorf("%w: ReplicatedConfig.Replicator: it is required", ErrInvalid), err)
	}
	return err
}

// replicatedCoordinator keeps the state of a coordinator in two keys of a replicator: the claims of
// terms, and a register with the state.
//
// Whoever begins a term first writes a claim to a majority, and reads the state from one behind that. Whoever writes the state, to a
// majority, reads the claims from one behind that, and is acknowledged only if there is no higher one. So of a write and
// a claim, one sees the other: either the claimant reads what was written, or the writer reads the claim.
// Two that claim the same term both see each other, or one of them is not acknowledged.
type replicatedCoordinator struct {
	replicator *ddata.Replicator
	claims     ddata.Key[crdt.ORSet[string]]
	state      ddata.Key[crdt.LWWRegister[[]byte]]
	nonce      string // tells apart those who claim a term on one node

	mu     sync.Mutex
	loaded bool
	term   uint64 // the last one that was claimed with this store, 0 is none
	holds  bool   // nothing is known of a higher one
}

// OpenCoordinator implements CoordinatorStores.
func (c ReplicatedConfig) OpenCoordinator(s Scope) (CoordinatorStore, error) {
	if err := c.validate(s); err != nil {
		return nil, err
	}
	key := "sharding|" + s.Type + "|" + s.Role + "|"
	return &replicatedCoordinator{
		replicator: c.Replicator,
		claims:     ddata.Key[crdt.ORSet[string]](key + "terms"),
		state:      ddata.Key[crdt.LWWRegister[[]byte]](key + "state"),
		nonce:      rand.Text(),
	}, nil
}

// Load implements CoordinatorStore.
func (r *replicatedCoordinator) Load(ctx context.Context) (Loaded, error) {
	held, highest, err := r.readAll(ctx)
	if err == nil && r.lost(highest) {
		held, highest, err = r.readAll(ctx)
	}
	if err != nil {
		return Loaded{}, err
	}
	if highest > held.term {
		// Somebody has claimed it, and nobody knows yet who will hold it: the next one has to be higher.
		if held.state, err = held.state.Apply(coordinator.Event{Kind: coordinator.Started, Term: highest}); err != nil {
			return Loaded{}, fmt.Errorf("sharding: lift the state in %q to term %d: %w", r.state, highest, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	return Loaded{State: held.state, Rev: held.rev}, nil
}

// readAll returns the state and the highest term. What is found is written back, and the claims are read behind
// that: then it is as good as if it had been acknowledged.
func (r *replicatedCoordinator) readAll(ctx context.Context) (held, uint64, error) {
	h, err := r.read(ctx, r.readLevel().RepairPeers())
	if err != nil {
		return held{}, 0, err
	}
	claims, err := r.readClaims(ctx)
	return h, max(h.term, claims.highest()), err
}

// lost reports whether this store held a term until a higher one was there.
func (r *replicatedCoordinator) lost(highest uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holds || highest <= r.term {
		return false
	}
	r.holds = false
	return true
}

// readLevel is that of reading the state. Once this store holds a term, it sees what it has written
// itself.
func (r *replicatedCoordinator) readLevel() ddata.ReadLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds {
		return ddata.ReadMajority().PreferOldest()
	}
	return ddata.ReadMajorityPlus(readPlus).PreferOldest()
}

// Save implements CoordinatorStore.
func (r *replicatedCoordinator) Save(ctx context.Context, c Change) error {
	if err := checkChange(&c); err != nil {
		return err
	}
	r.mu.Lock()
	loaded, term := r.loaded, r.term
	r.mu.Unlock()
	switch {
	case !loaded:
		return fmt.Errorf("%w: nothing was loaded", ErrConflict)
	case claims(&c):
		return r.claim(ctx, &c)
	case c.Term < term:
		return fmt.Errorf("%w: term %d, and there is term %d", ErrFenced, c.Term, term)
	case c.Term > term:
		return fmt.Errorf("%w: term %d was not claimed here", ErrConflict, c.Term)
	}
	return r.write(ctx, &c)
}

// claim begins a term.
func (r *replicatedCoordinator) claim(ctx context.Context, c *Change) error {
	own := strconv.FormatUint(c.Term, 10) + " " + c.Events[0].Node.String() + " " + r.nonce
	err := writeKey(ctx, r.replicator, r.claims, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
		held, err := claimsOf(s)
		if err != nil {
			return s, err
		}
		if other := held.against(c.Term, own); other != "" {
			return s, fmt.Errorf("%w: term %d is claimed, and there is %q", ErrConflict, c.Term, other)
		}
		if s.Contains(own) {
			return s, nil
		}
		if s, err = s.Remove(r.replicator.Self(), held...); err != nil {
			return s, err
		}
		return s.Add(r.replicator.Self(), own)
	})
	if err != nil {
		return fmt.Errorf("sharding: claim term %d: %w", c.Term, err)
	}
	held, err := r.readClaims(ctx)
	if err != nil {
		return err
	}
	if other := held.against(c.Term, own); other != "" {
		return fmt.Errorf("%w: term %d is claimed, and there is %q", ErrConflict, c.Term, other)
	}
	// What was acknowledged to others, was before the claim was there: it is read now.
	before, err := r.read(ctx, r.readLevel())
	if err != nil {
		return err
	}
	if before.term < c.Term {
		if after, err := before.state.Apply(c.Events...); before.rev != c.Rev || err != nil || !after.Equal(c.After) {
			return fmt.Errorf("%w: term %d is claimed behind %d, and there is other data, at %d", ErrConflict, c.Term, c.Rev, before.rev)
		}
	}
	if err := r.write(ctx, c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term, r.holds = max(r.term, c.Term), true
	return nil
}

// write stores the state after a change of a term that was claimed.
func (r *replicatedCoordinator) write(ctx context.Context, c *Change) error {
	rev := c.Rev + uint64(len(c.Events))
	timestamp, err := pack(c.Term, rev)
	if err != nil {
		return err
	}
	after := coordinator.AppendState(nil, c.After)
	err = writeKey(ctx, r.replicator, r.state, func(held crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error) {
		switch term, at := unpack(held.Timestamp()); {
		case term > c.Term:
			return held, fmt.Errorf("%w: term %d, and there is term %d", ErrFenced, c.Term, term)
		case term == c.Term && at == rev: // it may be this one that is there
			if value, bad := held.Value(); bad != nil || !bytes.Equal(value, after) {
				return held, fmt.Errorf("%w: something else is stored at %d", ErrConflict, at)
			}
			return held, nil
		case term == c.Term && claims(c) && at > rev: // and more since
			return held, nil
		case term == c.Term && (claims(c) || at != c.Rev), term < c.Term && !claims(c):
			return held, fmt.Errorf("%w: the change of term %d stands behind %d, the data is of term %d at %d", ErrConflict, c.Term, c.Rev, term, at)
		}
		return held.SetBy(r.replicator.Self(), after, func(*crdt.Self, int64, []byte) (int64, error) { return timestamp, nil })
	})
	if err != nil {
		return fmt.Errorf("sharding: write the state of term %d at %d: %w", c.Term, rev, err)
	}
	held, err := r.readClaims(ctx)
	if err != nil {
		return err
	}
	if highest := held.highest(); highest > c.Term {
		return fmt.Errorf("%w: term %d, and there is a claim of term %d", ErrFenced, c.Term, highest)
	}
	return nil
}

// held is a state and its clock.
type held struct {
	state     coordinator.State
	term, rev uint64
}

func (r *replicatedCoordinator) read(ctx context.Context, level ddata.ReadLevel) (held, error) {
	register, err := readKey(ctx, r.replicator, r.state, level)
	if err != nil {
		return held{}, fmt.Errorf("sharding: read the state: %w", err)
	}
	if !register.IsSet() {
		return held{}, nil
	}
	value, err := register.Value()
	if err != nil {
		return held{}, fmt.Errorf("sharding: read the state in %q: %w", r.state, err)
	}
	var h held
	if h.state, err = coordinator.DecodeState(value); err != nil {
		return held{}, fmt.Errorf("sharding: read the state in %q: %w", r.state, err)
	}
	h.term, h.rev = unpack(register.Timestamp())
	return h, nil
}

// The clock of a register is one number: the term above the number of the last event.
const (
	revBits = 36
	maxTerm = 1<<(63-revBits) - 1
	maxRev  = 1<<revBits - 1
)

func pack(term, rev uint64) (int64, error) {
	if term > maxTerm || rev > maxRev {
		return 0, fmt.Errorf("%w: term %d, event %d: the highest possible are %d and %d", ErrInvalid, term, rev, maxTerm, uint64(maxRev))
	}
	return int64(term<<revBits | rev), nil //nolint:gosec // it has 63 bits
}

func unpack(timestamp int64) (term, rev uint64) {
	t := uint64(max(timestamp, 0))
	return t >> revBits, t & maxRev
}

// claimed is the claims of terms that are held. Higher ones take the place of lower ones.
type claimed []string

func claimsOf(s crdt.ORSet[string]) (claimed, error) {
	all, err := s.Elements()
	for _, c := range all {
		if termOf(c) == 0 {
			err = errors.Join(err, fmt.Errorf("sharding: %.64q is no claim", c))
		}
	}
	return all, err
}

func (r *replicatedCoordinator) readClaims(ctx context.Context) (claimed, error) {
	s, err := readKey(ctx, r.replicator, r.claims, ddata.ReadMajority().PreferOldest())
	if err != nil {
		return nil, fmt.Errorf("sharding: read the claims: %w", err)
	}
	c, err := claimsOf(s)
	if err != nil {
		return nil, fmt.Errorf("sharding: read the claims in %q: %w", r.claims, err)
	}
	return c, nil
}

// highest returns the highest term, 0 if there is none.
func (c claimed) highest() uint64 {
	term := uint64(0)
	for _, claim := range c {
		term = max(term, termOf(claim))
	}
	return term
}

// against returns a claim other than own that is not lower than a term.
func (c claimed) against(term uint64, own string) string {
	for _, claim := range c {
		if claim != own && termOf(claim) >= term {
			return claim
		}
	}
	return ""
}

// termOf returns the term of a claim, 0 if it is none.
func termOf(claim string) uint64 {
	text, _, _ := strings.Cut(claim, " ")
	term, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return term
}

// Close implements CoordinatorStore.
func (r *replicatedCoordinator) Close() error { return nil }
