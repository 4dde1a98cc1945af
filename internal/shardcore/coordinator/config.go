// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// ErrInvalid is matched by the errors about configurations that can't be.
var ErrInvalid = errors.New("coordinator: invalid")

// Config is how a coordinator works. It must be the same on all nodes, but for Self.
type Config struct {
	// Self is the node. Required. It has one coordinator of a type at a time.
	Self identity.Node
	// Type is the name of the entity type. Required, of at most 255 bytes.
	Type string
	// Role is what a member must have to host shards. Defaults to "": all do.
	Role string
	// Shards is how many there are. Defaults to 1,000, at most 100,000.
	Shards int
	// MinRegions is how many regions must have registered with this coordinator before shards are allocated, so that the
	// first one doesn't get all. Defaults to 1. A coordinator that takes over from another one, and finds
	// shards on members, doesn't wait.
	MinRegions int
	// Settings are what regions have to have, too, if they say what they have.
	Settings Settings
	// Remember says that shards are remembered: all that ever had a home get one again without being asked
	// for.
	Remember bool
	// RemovalMargin is how long after its removal from the cluster what a node hosted is started
	// elsewhere. Defaults to 0; the settings of package downing tell what it has to be.
	RemovalMargin time.Duration
	// RetryInterval is how often a message is repeated. Defaults to 2 seconds.
	RetryInterval time.Duration
	// HandOffTimeout is how long moving a shard may take before it is given up. Defaults to 60
	// seconds.
	HandOffTimeout time.Duration
	// StartTimeout is how long a region may take to start a shard before it is told again. Defaults to
	// 10 seconds.
	StartTimeout time.Duration
	// RebalanceInterval is how often it is decided which shards to move. Defaults to 10 seconds.
	RebalanceInterval time.Duration
	// SaveTimeout is how long a save may take before the coordinator looks what is stored. Defaults to 5
	// seconds.
	SaveTimeout time.Duration
	// StoreRetry is how long after a failure the store is tried again. Defaults to 1 second.
	StoreRetry time.Duration
	// ProbeTimeout is how long a region may take to say that it is there, before shards are given to others. Defaults to 500
	// milliseconds.
	ProbeTimeout time.Duration
	// Settle is how long a coordinator that takes over waits for news of nodes that are gone. Defaults to
	// 500 milliseconds.
	Settle time.Duration
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 1000)
	c.MinRegions = cmp.Or(c.MinRegions, 1)
	c.RetryInterval = cmp.Or(c.RetryInterval, 2*time.Second)
	c.HandOffTimeout = cmp.Or(c.HandOffTimeout, 60*time.Second)
	c.StartTimeout = cmp.Or(c.StartTimeout, 10*time.Second)
	c.RebalanceInterval = cmp.Or(c.RebalanceInterval, 10*time.Second)
	c.SaveTimeout = cmp.Or(c.SaveTimeout, 5*time.Second)
	c.StoreRetry = cmp.Or(c.StoreRetry, time.Second)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 500*time.Millisecond)
	c.Settle = cmp.Or(c.Settle, 500*time.Millisecond)
	return c
}

func (c Config) validate() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: Config."+format, append([]any{ErrInvalid}, args...)...))
	}
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		fail("Self is %v, it must be an incarnation", c.Self)
	}
	if len(c.Type) == 0 || len(c.Type) > MaxTypeLength {
		fail("Type has %d bytes, it must have 1 to %d", len(c.Type), MaxTypeLength)
	}
	if c.Shards < 0 || c.Shards > MaxShards {
		fail("Shards is %d, at most %d are allowed: the state of more doesn't fit into one message", c.Shards, MaxShards)
	}
	if !c.Settings.valid() {
		fail("Settings hold a number of shards that can't be, or a text of more than %d bytes", MaxSetting)
	}
	if c.MinRegions < 0 {
		fail("MinRegions is %d, less than 0", c.MinRegions)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RemovalMargin", c.RemovalMargin},
		{"RetryInterval", c.RetryInterval},
		{"HandOffTimeout", c.HandOffTimeout},
		{"StartTimeout", c.StartTimeout},
		{"RebalanceInterval", c.RebalanceInterval},
		{"SaveTimeout", c.SaveTimeout},
		{"StoreRetry", c.StoreRetry},
		{"ProbeTimeout", c.ProbeTimeout},
		{"Settle", c.Settle},
	} {
		if d.value < 0 {
			fail("%s is %v, less than 0", d.field, d.value)
		}
	}
	return errors.Join(errs...)
}

// MaxSetting is the largest number of bytes of a text in Settings.
const MaxSetting = 128

// Settings are what has to be the same on all nodes, of an entity type. A region tells its own when it registers, and is refused if they
// are not those of the coordinator. Without Shards they are not known, and not compared.
type Settings struct {
	// Shards is how many there are.
	Shards int
	// Routing is a fingerprint of what shards IDs belong to.
	Routing uint64
	// Role is what nodes must have to host shards.
	Role string
	// State is the kind of the coordinator's store, Remember that of the store of remembered entities. What is empty is not compared.
	State, Remember string
}

// Differences returns the names of the fields that differ.
func (s Settings) Differences(other Settings) (fields []string) {
	if s.Shards == 0 || other.Shards == 0 {
		return nil
	}
	switch {
	case s.Shards != other.Shards: // which changes the routing
		fields = append(fields, "Shards")
	case s.Routing != other.Routing:
		fields = append(fields, "ShardOf")
	}
	if s.Role != other.Role {
		fields = append(fields, "Role")
	}
	if s.State != other.State && s.State != "" && other.State != "" {
		fields = append(fields, "State")
	}
	if s.Remember != other.Remember && s.Remember != "" && other.Remember != "" {
		fields = append(fields, "Remember")
	}
	return fields
}

func (s *Settings) valid() bool {
	return s.Shards >= 0 && s.Shards <= MaxShards && len(s.Role) <= MaxSetting && len(s.State) <= MaxSetting && len(s.Remember) <= MaxSetting
}

func appendSettings(dst []byte, s Settings) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.Shards)) //nolint:gosec // not negative
	if s.Shards == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, s.Routing)
	for _, text := range []string{s.Role, s.State, s.Remember} {
		dst = append(append(dst, byte(len(text))), text...) //nolint:gosec // at most MaxSetting
	}
	return dst
}

func readSettings(r *wire.Reader) (s Settings) {
	if s.Shards = int(r.Uint(MaxShards, "number of shards")); s.Shards == 0 { //nolint:gosec // at most MaxShards
		return s
	}
	s.Routing = r.Uint(math.MaxUint64, "routing")
	for _, text := range []*string{&s.Role, &s.State, &s.Remember} {
		n := int(r.Byte("length of a setting"))
		if r.Err() == nil && n > MaxSetting {
			r.Fail("a setting has %d bytes, at most %d are allowed", n, MaxSetting)
		}
		*text = string(r.Bytes(n, "setting"))
	}
	if r.Err() != nil {
		return Settings{}
	}
	return s
}

// refuseRegion tells a region that it can't register.
func (m *Machine) refuseRegion(msg Message, to Note) {
	m.refused = with(m.refused, to.Node)
	m.note(to)
	m.out.Send = append(m.out.Send, Outgoing{to.Node, Message{
		Kind: Refused, Type: m.cfg.Type, Term: m.term, Round: m.round, Instance: msg.Instance, Settings: m.cfg.Settings,
	}})
}

// Refused returns how many regions and proxies of members can't register, since their settings are others.
func (m *Machine) Refused() int { return len(m.refused) }
