// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/refold-io/refold/ddata/crdt"
)

// Never is the time of an event that does not happen.
const Never = time.Duration(math.MaxInt64)

// maxDuration is the longest duration, more than 70 years; longer ones are reduced to it. Twice the
// value can still be added to a time.
const maxDuration = time.Duration(1 << 61)

// MaxKey is the maximum size of a key in bytes.
const MaxKey = 512

// Config configures a Machine. Roles, Expire and MaxMessage should be the same on all nodes.
type Config struct {
	// Self is the node on whose behalf values are changed. Required. Only the machine may use it.
	Self *crdt.Self
	// Types are the data types of the program. Defaults to those of package crdt.
	Types *crdt.Types
	// Roles are the roles that a member must have, all of them, to hold the data. Defaults to none:
	// all members hold it.
	Roles []string
	// Durable are the keys that are stored on disk: exact keys, and prefixes that end in a star.
	// Keys that were loaded stay durable even if no pattern matches them.
	Durable []string
	// Expire is the time without use after which keys are removed, by key or by prefix that ends in
	// a star. An exact key takes precedence over prefixes, a longer prefix over a shorter one. The
	// minimum is GossipInterval; more than 70 years means never.
	Expire map[string]time.Duration
	// Started is the wall time that corresponds to now = 0, see SetClock.
	Started time.Time
	// GossipInterval is the time between comparisons of the data with another node. Defaults to 2
	// s.
	GossipInterval time.Duration
	// NotifyInterval is the time between notifications of subscribers. Defaults to 500 ms.
	NotifyInterval time.Duration
	// DeltaInterval is the time between propagations of changes to other nodes. Defaults to 200 ms.
	// A change after a quiet period is sent at once.
	DeltaInterval time.Duration
	// PruneInterval is the time between searches for history of removed nodes. Defaults to 2
	// minutes; negative disables pruning.
	PruneInterval time.Duration
	// PruneAfter is how long a node must have been removed, counting only time in which all other
	// nodes were reachable, before its history is pruned. Defaults to 5 minutes; DurablePruneAfter
	// is for durable keys and defaults to 24 hours. A node that returns after that loses the
	// changes of pruned nodes that only its own disk had.
	PruneAfter, DurablePruneAfter time.Duration
	// MarkerTTL is how long nodes remember that a node was pruned. History of the pruned node that
	// returns later counts again. Defaults to 6 hours; DurableMarkerTTL is for durable keys and
	// defaults to 10 days.
	MarkerTTL, DurableMarkerTTL time.Duration
	// Timeout is the timeout of requests that specify none. Defaults to 5 s.
	Timeout time.Duration
	// DisableDeltas sends all changes as whole values.
	DisableDeltas bool
	// MaxDeltaOps is the number of operations from which on the whole value is sent instead of a
	// delta. Defaults to 50.
	MaxDeltaOps int
	// MaxEntry is the maximum size of the encoded value that an update may produce, in bytes.
	// Defaults to 512 KiB.
	MaxEntry int
	// MaxMessage is the maximum size of a message to a node, in bytes. Defaults to 1 MiB. The
	// minimum is 64 KiB, and more than MaxEntry.
	MaxMessage int
	// MaxBatch is the size up to which entries are combined into one message, in bytes. Defaults to
	// 256 KiB.
	MaxBatch int
	// MaxKeys is the maximum number of keys, including deleted ones. Defaults to 10,000,000.
	MaxKeys int
	// MaxRequests is the maximum number of open requests. Defaults to 65,536.
	MaxRequests int
	// MaxLog is the maximum number of changes in the delta log. Defaults to 10,000. Changes that
	// are dropped from a full log reach other nodes as whole values.
	MaxLog int
	// Rand is the source of random numbers. Required.
	Rand *rand.Rand
}

func (c Config) withDefaults() Config {
	c.GossipInterval = cmp.Or(c.GossipInterval, 2*time.Second)
	c.NotifyInterval = cmp.Or(c.NotifyInterval, 500*time.Millisecond)
	c.DeltaInterval = cmp.Or(c.DeltaInterval, 200*time.Millisecond)
	c.PruneInterval = cmp.Or(c.PruneInterval, 2*time.Minute)
	c.PruneAfter = cmp.Or(c.PruneAfter, 5*time.Minute)
	c.DurablePruneAfter = cmp.Or(c.DurablePruneAfter, 24*time.Hour)
	c.MarkerTTL = cmp.Or(c.MarkerTTL, 6*time.Hour)
	c.DurableMarkerTTL = cmp.Or(c.DurableMarkerTTL, 10*24*time.Hour)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxDeltaOps = cmp.Or(c.MaxDeltaOps, 50)
	c.MaxEntry = cmp.Or(c.MaxEntry, 512<<10)
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.MaxBatch = cmp.Or(c.MaxBatch, min(256<<10, c.MaxMessage))
	c.MaxKeys = cmp.Or(c.MaxKeys, 10_000_000)
	c.MaxRequests = cmp.Or(c.MaxRequests, 65_536)
	c.MaxLog = cmp.Or(c.MaxLog, 10_000)
	for _, d := range []*time.Duration{
		&c.GossipInterval, &c.NotifyInterval, &c.DeltaInterval, &c.PruneInterval, &c.PruneAfter, &c.DurablePruneAfter, &c.MarkerTTL, &c.DurableMarkerTTL, &c.Timeout,
	} {
		*d = min(*d, maxDuration)
	}
	if len(c.Expire) > 0 {
		expire := make(map[string]time.Duration, len(c.Expire))
		for p, d := range c.Expire {
			expire[p] = min(d, maxDuration)
		}
		c.Expire = expire
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Self == nil {
		errs = append(errs, errors.New("Config.Self is missing"))
	}
	if c.Rand == nil {
		errs = append(errs, errors.New("Config.Rand is missing"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"GossipInterval", c.GossipInterval},
		{"NotifyInterval", c.NotifyInterval},
		{"DeltaInterval", c.DeltaInterval},
		{"PruneAfter", c.PruneAfter},
		{"DurablePruneAfter", c.DurablePruneAfter},
		{"MarkerTTL", c.MarkerTTL},
		{"DurableMarkerTTL", c.DurableMarkerTTL},
		{"Timeout", c.Timeout},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %v", "Config."+d.name, d.value))
		}
	}
	for _, n := range []struct {
		name  string
		value int
		least int
		most  int
	}{
		{"MaxDeltaOps", c.MaxDeltaOps, 1, math.MaxInt},
		{"MaxEntry", c.MaxEntry, 1, c.MaxMessage - overhead},
		{"MaxMessage", c.MaxMessage, 64 << 10, MaxMessage},
		{"MaxBatch", c.MaxBatch, 16 << 10, c.MaxMessage},
		{"MaxKeys", c.MaxKeys, 1, math.MaxInt},
		{"MaxRequests", c.MaxRequests, 1, math.MaxInt},
		{"MaxLog", c.MaxLog, 1, math.MaxInt},
	} {
		if n.value < n.least || n.value > n.most {
			errs = append(errs, fmt.Errorf("%s is %d, it must be %d to %d", "Config."+n.name, n.value, n.least, n.most))
		}
	}
	for _, p := range c.Durable {
		if err := checkPattern(p); err != nil {
			errs = append(errs, fmt.Errorf("Config.Durable: %w", err))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.Expire)) {
		if err := checkPattern(p); err != nil {
			errs = append(errs, fmt.Errorf("Config.Expire: %w", err))
		}
		if d := c.Expire[p]; d < c.GossipInterval {
			errs = append(errs, fmt.Errorf("Config.Expire: %v for %q is less than the interval of gossip, %v", d, p, c.GossipInterval))
		}
	}
	return errors.Join(errs...)
}

// CheckKey returns an error that matches ErrInvalid unless the key is valid: 1 to MaxKey bytes of
// UTF-8 that do not end in a star.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: key is empty", ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("%w: key %.32q has %d bytes, limit %d", ErrInvalid, key, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %.32q is not UTF-8", ErrInvalid, key)
	case strings.HasSuffix(key, "*"):
		return fmt.Errorf("%w: key %q ends in a star, which marks a prefix", ErrInvalid, key)
	}
	return nil
}

// checkPattern is CheckKey for a pattern, which may end in one star.
func checkPattern(pattern string) error {
	if prefix, found := strings.CutSuffix(pattern, "*"); found {
		if prefix == "" {
			return nil
		}
		return CheckKey(prefix)
	}
	return CheckKey(pattern)
}

// patterns maps keys and prefixes to values.
type patterns[T any] struct {
	exact    map[string]T
	prefixes []prefix[T] // the longest first
}

type prefix[T any] struct {
	text string
	of   T
}

func (p *patterns[T]) add(pattern string, of T) {
	text, found := strings.CutSuffix(pattern, "*")
	if !found {
		if p.exact == nil {
			p.exact = map[string]T{}
		}
		p.exact[pattern] = of
		return
	}
	p.prefixes = append(p.prefixes, prefix[T]{text, of})
	slices.SortFunc(p.prefixes, func(a, b prefix[T]) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
}

func (p *patterns[T]) find(key string) (of T, found bool) {
	if of, found = p.exact[key]; found {
		return of, true
	}
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(key, prefix.text) {
			return prefix.of, true
		}
	}
	return of, false
}
