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
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
)

// Never is the time of an event that does not happen.
const Never = time.Duration(math.MaxInt64)

// maxDuration is the longest duration, more than 70 years. Longer durations are reduced to
// maxDuration. Twice maxDuration can be added to a time without overflow.
const maxDuration = time.Duration(1 << 61)

// MaxKey is the maximum size of a key in bytes.
const MaxKey = 512

// Config configures a Machine. Fields without a comment have the meaning and the default of the
// field of ddata.Config with the same name.
type Config struct {
	// Name is the name of the replicator in packets, valid for identity.CheckName. Required.
	Name string
	// Self is the node on whose behalf values are changed. Required. Only the machine may use it.
	Self  *crdt.Self
	Types *crdt.Types
	Roles []string
	// Durable are the keys that are stored on disk: exact keys, and prefixes that end in a star.
	// Keys that were loaded stay durable even if no pattern matches them.
	Durable []string
	// Expire is the time without use after which keys are removed. The minimum is GossipInterval;
	// more than 70 years means never.
	Expire map[string]time.Duration
	// Started is the wall time that corresponds to now = 0, see SetClock.
	Started time.Time

	GossipInterval, NotifyInterval, DeltaInterval, PruneInterval time.Duration
	PruneAfter, DurablePruneAfter, MarkerTTL, DurableMarkerTTL   time.Duration
	// Timeout is the timeout of requests without a timeout. Defaults to 5 s.
	Timeout       time.Duration
	DisableDeltas bool
	MaxDeltaOps   int
	// MaxEntry is the maximum size of the encoded value that an update may produce, in bytes.
	// Defaults to 512 KiB.
	MaxEntry int
	// MaxMessage is the maximum size of a message to a node, in bytes: at most the maximum payload
	// of the transport minus Overhead. Defaults to 1 MiB. It must be at least 64 KiB and exceed
	// MaxEntry.
	MaxMessage int
	// MaxBatch is the size up to which entries are combined into one message, in bytes. Defaults to
	// 256 KiB, limited by MaxMessage.
	MaxBatch int
	// MaxParts is the number of bytes that the parts of incomplete messages may have together. A
	// single message may exceed it. Defaults to 64 MiB.
	MaxParts                     int
	MaxKeys, MaxRequests, MaxLog int
	// Rand is the source of random numbers. Required.
	Rand *rand.Rand
}

type durationField struct {
	name   string
	value  *time.Duration
	normal time.Duration // the default
}

func (c *Config) durations() []durationField {
	return []durationField{
		{"GossipInterval", &c.GossipInterval, 2 * time.Second},
		{"NotifyInterval", &c.NotifyInterval, 500 * time.Millisecond},
		{"DeltaInterval", &c.DeltaInterval, 200 * time.Millisecond},
		{"PruneInterval", &c.PruneInterval, 2 * time.Minute},
		{"PruneAfter", &c.PruneAfter, 5 * time.Minute},
		{"DurablePruneAfter", &c.DurablePruneAfter, 24 * time.Hour},
		{"MarkerTTL", &c.MarkerTTL, 6 * time.Hour},
		{"DurableMarkerTTL", &c.DurableMarkerTTL, 10 * 24 * time.Hour},
		{"Timeout", &c.Timeout, 5 * time.Second},
	}
}

func (c Config) withDefaults() Config {
	for _, d := range c.durations() {
		*d.value = min(cmp.Or(*d.value, d.normal), maxDuration)
	}
	c.MaxDeltaOps = cmp.Or(c.MaxDeltaOps, 50)
	c.MaxEntry = cmp.Or(c.MaxEntry, 512<<10)
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.MaxBatch = cmp.Or(c.MaxBatch, min(256<<10, c.MaxMessage))
	c.MaxParts = cmp.Or(c.MaxParts, 64<<20)
	c.MaxKeys = cmp.Or(c.MaxKeys, 10_000_000)
	c.MaxRequests = cmp.Or(c.MaxRequests, 65_536)
	c.MaxLog = cmp.Or(c.MaxLog, 10_000)
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
	var errs fielderror.Errors
	errs.Add("Config.Name", identity.CheckName(c.Name))
	if c.Self == nil {
		errs.Addf("Config.Self", "is missing")
	}
	if c.Rand == nil {
		errs.Addf("Config.Rand", "is missing")
	}
	for _, d := range c.durations() {
		if *d.value <= 0 && d.value != &c.PruneInterval { // a negative PruneInterval disables pruning
			errs.Addf("Config."+d.name, "is %v, it must be more than 0", *d.value)
		}
	}
	for _, n := range []struct {
		name               string
		value, least, most int
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
			errs.Addf("Config."+n.name, "is %d, it must be %d to %d", n.value, n.least, n.most)
		}
	}
	for _, p := range c.Durable {
		errs.Add("Config.Durable", checkPattern(p))
	}
	for _, p := range slices.Sorted(maps.Keys(c.Expire)) {
		errs.Add("Config.Expire", checkPattern(p))
		if d := c.Expire[p]; d < c.GossipInterval {
			errs.Add("Config.Expire", fmt.Errorf("%v for %q is less than GossipInterval, %v", d, p, c.GossipInterval))
		}
	}
	return errs.Err(ErrInvalid)
}

// CheckKey returns an error that matches ErrInvalid unless the key is valid: 1 to MaxKey bytes of
// UTF-8 that do not end in a star.
func CheckKey(key string) error {
	switch {
	case key == "":
		return Errorf(ErrInvalid, "key is empty")
	case len(key) > MaxKey:
		return Errorf(ErrInvalid, "key %.32q has %d bytes, limit %d", key, len(key), MaxKey)
	case !utf8.ValidString(key):
		return Errorf(ErrInvalid, "key %.32q is not UTF-8", key)
	case strings.HasSuffix(key, "*"):
		return Errorf(ErrInvalid, "key %q ends in a star, which marks a prefix", key)
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

var (
	// ErrInvalid matches errors about invalid keys and levels.
	ErrInvalid = errors.New("replication: invalid")
	// ErrMalformed matches errors about bytes that are not a message or record.
	ErrMalformed = errors.New("replication: malformed data")
	// ErrType matches errors about a value whose type differs from the type of the key.
	ErrType = errors.New("replication: type mismatch")
	// ErrForeign is returned if a value was changed with the Self of another node.
	ErrForeign = errors.New("replication: changed with the Self of another node")
	// ErrFull is returned if the number of keys has reached Config.MaxKeys.
	ErrFull = errors.New("replication: too many keys")
)

// kindError is an error that matches kind, with the text of err.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// Errorf is fmt.Errorf, except that the error also matches kind. The text omits the text of kind,
// because the error of a request (ddata.Error) already contains a reason.
func Errorf(kind error, format string, args ...any) error {
	return &kindError{kind, fmt.Errorf(format, args...)}
}

// TooLargeError reports that a value would exceed the maximum size.
type TooLargeError struct {
	Key string
	// Size is the size of the encoded value, Max the limit, in bytes.
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("value of %q would have %d bytes, limit %d", e.Key, e.Size, e.Max)
}
