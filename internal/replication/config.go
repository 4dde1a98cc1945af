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

// Never is the time of something that is not going to happen.
const Never = time.Duration(math.MaxInt64)

// longest is how long anything lasts, more than 70 years: what is longer is for ever. Twice as much can still be added to a time.
const longest = time.Duration(1 << 61)

// MaxKey is the largest number of bytes of a key.
const MaxKey = 512

// Config configures a Machine. Nodes of a cluster may differ in it, but should not
// in Roles, Expire and MaxMessage.
type Config struct {
	// Self is the node, on whose behalf values are changed. Required; the machine
	// is the only one that uses it.
	Self *crdt.Self
	// Types are the data types of the program. Defaults to those of package crdt.
	Types *crdt.Types
	// Roles are those that a member must have, all of them, to hold the data. Defaults
	// to none: all members do.
	Roles []string
	// Durable are the keys that are kept on disk: exact ones, and prefixes that end
	// in a star. What was loaded is kept there as well, whether it is among them or not.
	Durable []string
	// Expire says after which time without use keys are forgotten, by key or by prefix
	// that ends in a star. An exact key goes before prefixes, a longer prefix before
	// a shorter one. At least GossipInterval. More than 70 years is never.
	Expire map[string]time.Duration
	// Started is the wall time at which now is 0, see SetClock.
	Started time.Time
	// GossipInterval is how often the data is compared with that of another node.
	// Defaults to 2 s.
	GossipInterval time.Duration
	// NotifyInterval is how often subscribers are told of changes. Defaults to
	// 500 ms.
	NotifyInterval time.Duration
	// DeltaInterval is how often changes are sent to the others. Defaults to
	// 200 ms. A change after some quiet is sent at once.
	DeltaInterval time.Duration
	// PruneInterval is how often it is looked for nodes that have left. Defaults
	// to 2 minutes; below 0 they are kept for ever.
	PruneInterval time.Duration
	// PruneAfter is how long a node must have been away, while all others could be
	// reached, before it is pruned. Defaults to 5 minutes, DurablePruneAfter for durable
	// keys to 24 hours: who comes back later loses what only its disk had of a node
	// that was pruned meanwhile.
	PruneAfter, DurablePruneAfter time.Duration
	// MarkerTTL is how long it is remembered that a node was pruned. What it has left
	// behind and comes back later counts again. Defaults to 6 hours, DurableMarkerTTL
	// for durable keys to 10 days.
	MarkerTTL, DurableMarkerTTL time.Duration
	// Timeout is that of requests that have none. Defaults to 5 s.
	Timeout time.Duration
	// DisableDeltas makes all changes be sent as whole values.
	DisableDeltas bool
	// MaxDeltaOps is from how many operations on a whole value is sent instead of a
	// delta. Defaults to 50.
	MaxDeltaOps int
	// MaxEntry is the largest encoded value that an update may make, in bytes. Defaults
	// to 512 KiB.
	MaxEntry int
	// MaxMessage is the largest message that can be sent to a node, in bytes. Defaults
	// to 1 MiB. At least MaxEntry and 64 KiB.
	MaxMessage int
	// MaxBatch is up to how many bytes are put together in one message. Defaults to
	// 256 KiB.
	MaxBatch int
	// MaxKeys is how many keys are held, deleted ones included. Defaults to
	// 10,000,000.
	MaxKeys int
	// MaxRequests is how many requests may be open. Defaults to 65,536.
	MaxRequests int
	// MaxLog is how many changes wait for nodes that do not get them at once. Defaults
	// to 10,000. Those that are dropped are found missing, and come with the whole value.
	MaxLog int
	// Rand is where random numbers come from. Required: a machine never seeds itself.
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
		*d = min(*d, longest)
	}
	if len(c.Expire) > 0 {
		expire := make(map[string]time.Duration, len(c.Expire))
		for p, d := range c.Expire {
			expire[p] = min(d, longest)
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

// CheckKey returns an error that matches ErrInvalid unless there can be such a key:
// 1 to MaxKey bytes of UTF-8 that do not end in a star.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: a key is empty", ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("%w: key %.32q has %d bytes, at most %d are allowed", ErrInvalid, key, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %.32q is not UTF-8", ErrInvalid, key)
	case strings.HasSuffix(key, "*"):
		return fmt.Errorf("%w: key %q ends in a star, which stands for a prefix", ErrInvalid, key)
	}
	return nil
}

// checkPattern is CheckKey for what may end in one star.
func checkPattern(pattern string) error {
	if prefix, found := strings.CutSuffix(pattern, "*"); found {
		if prefix == "" {
			return nil
		}
		return CheckKey(prefix)
	}
	return CheckKey(pattern)
}

// patterns are keys and prefixes with something for each.
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
