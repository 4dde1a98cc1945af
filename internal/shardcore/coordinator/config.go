// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/wire"
)

// ErrInvalid is matched by the errors about an invalid configuration.
var ErrInvalid = errors.New("coordinator: invalid")

// Config configures a coordinator. All fields except Self and FirstID must be equal on all nodes.
type Config struct {
	// Self is this node. Required. A node has at most one coordinator of a type.
	Self identity.Node
	// FirstID is less than the IDs of all calls. A driver that replaces a coordinator sets it above
	// the IDs of the previous coordinator, so that late replies to that coordinator are ignored.
	// Defaults to 0.
	FirstID uint64
	// Type is the name of the entity type. Required. At most 255 bytes.
	Type string
	// Role is the role that a member needs to host shards. Defaults to "", no role.
	Role string
	// Shards is the number of shards. Defaults to 1,000, at most 100,000.
	Shards int
	// HandOffAtOnce sends HandOff together with BeginHandOff, without waiting for BeginHandOffAck.
	HandOffAtOnce bool
	// MinRegions is the number of regions that must have registered with this coordinator before
	// shards are allocated, so that the first region does not get all shards. Defaults to 1. A
	// coordinator that takes over and finds shards on members does not wait.
	MinRegions int
	// ReadsLoad is set if the strategy reads the load. Otherwise the coordinator ignores reports.
	ReadsLoad bool
	// Settings must be equal to those of each region that sends its settings.
	Settings Settings
	// Standbys is the number of standbys of a shard. If the home of a shard is removed, a standby becomes
	// the home, and the strategy has no influence. Defaults to 0, at most 9.
	Standbys int
	// Remember stores which shards have ever had a home. Such shards get a home again without a request.
	Remember bool
	// RemovalMargin returns the time between the removal of a node, from a cluster with a number of
	// members, and the start of its shards on other nodes. Defaults to 0. Package downing defines the
	// necessary value.
	RemovalMargin func(members int) time.Duration
	// RetryInterval, HandOffTimeout, StartTimeout and RebalanceInterval have the meaning and the
	// defaults of the fields of sharding.Tuning.
	RetryInterval, HandOffTimeout, StartTimeout, RebalanceInterval time.Duration
	// SaveTimeout is the time after which the coordinator loads to find out whether a change was
	// stored. Defaults to 5 seconds.
	SaveTimeout time.Duration
	// StoreRetry is the time between a failure of the store and the next attempt. Defaults to 1
	// second.
	StoreRetry time.Duration
	// ProbeTimeout is the time that a region has to respond to a probe before shards are allocated
	// to other regions. Defaults to 500 milliseconds.
	ProbeTimeout time.Duration
	// Settle is the time that a coordinator that takes over waits for terminations of regions.
	// Defaults to 500 milliseconds.
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
	var errs fielderror.Errors
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		errs.Addf("Config.Self", "is %v, want a valid name and a UID", c.Self)
	}
	if len(c.Type) == 0 || len(c.Type) > MaxTypeLength {
		errs.Addf("Config.Type", "has %d bytes, it must have 1 to %d", len(c.Type), MaxTypeLength)
	}
	if c.Shards < 0 || c.Shards > MaxShards {
		errs.Addf("Config.Shards", "is %d, it must be at most %d: the state must fit into one message", c.Shards, MaxShards)
	}
	if s := &c.Settings; s.Shards < 0 || s.Shards > MaxShards || max(len(s.Role), len(s.State), len(s.Remember), len(s.Wake)) > MaxSetting {
		errs.Addf("Config.Settings", "has an invalid number of shards, or a text of more than %d bytes", MaxSetting)
	}
	fielderror.NotNegative(&errs, "Config.MinRegions", c.MinRegions)
	if c.Standbys < 0 || c.Standbys > MaxStandbys {
		errs.Addf("Config.Standbys", "is %d, it must be from 0 to %d", c.Standbys, MaxStandbys)
	}
	fielderror.NotNegative(&errs, "Config.RetryInterval", c.RetryInterval)
	fielderror.NotNegative(&errs, "Config.HandOffTimeout", c.HandOffTimeout)
	fielderror.NotNegative(&errs, "Config.StartTimeout", c.StartTimeout)
	fielderror.NotNegative(&errs, "Config.RebalanceInterval", c.RebalanceInterval)
	fielderror.NotNegative(&errs, "Config.SaveTimeout", c.SaveTimeout)
	fielderror.NotNegative(&errs, "Config.StoreRetry", c.StoreRetry)
	fielderror.NotNegative(&errs, "Config.ProbeTimeout", c.ProbeTimeout)
	fielderror.NotNegative(&errs, "Config.Settle", c.Settle)
	return errs.Err(ErrInvalid)
}

// MaxSetting is the maximum length of a text in Settings, in bytes.
const MaxSetting = 128

// Settings must be equal on all nodes of an entity type. A region sends its settings when it
// registers, and is refused if they differ from those of the coordinator. Without Shards, the
// settings are unknown and not compared.
type Settings struct {
	// Shards is the number of shards.
	Shards int
	// Routing is a fingerprint of the function from IDs to shards.
	Routing uint64
	// Role is the role that a node needs to host shards.
	Role string
	// State is the kind of the coordinator's store. Remember is the kind of the store of remembered
	// entities, Wake that of the index of entities with pending work. An empty value is not compared.
	State, Remember, Wake string
}

// Differences returns the names of the fields that differ.
func (s Settings) Differences(other Settings) (fields []string) {
	if s.Shards == 0 || other.Shards == 0 {
		return nil
	}
	if s.Shards != other.Shards { // the routing then differs as well
		fields = append(fields, "Shards")
	} else if s.Routing != other.Routing {
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
	if s.Wake != other.Wake && s.Wake != "" && other.Wake != "" {
		fields = append(fields, "Wake")
	}
	return fields
}

func appendSettings(dst []byte, s Settings) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.Shards)) //nolint:gosec // not negative
	if s.Shards == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, s.Routing)
	for _, text := range []string{s.Role, s.State, s.Remember} {
		dst = appendSetting(dst, text)
	}
	return dst
}

func readSetting(r *wire.Reader) string {
	n := int(r.Byte("length of a setting"))
	if r.Err() == nil && n > MaxSetting {
		r.Fail("a setting has %d bytes, at most %d are allowed", n, MaxSetting)
	}
	return string(r.Bytes(n, "setting"))
}

func appendSetting(dst []byte, text string) []byte {
	return append(append(dst, byte(len(text))), text...) //nolint:gosec // at most MaxSetting
}

func readSettings(r *wire.Reader) (s Settings) {
	if s.Shards = int(r.Uint(MaxShards, "number of shards")); s.Shards == 0 { //nolint:gosec // at most MaxShards
		return s
	}
	s.Routing = r.Uint(math.MaxUint64, "routing")
	for _, text := range []*string{&s.Role, &s.State, &s.Remember} {
		*text = readSetting(r)
	}
	if r.Err() != nil {
		return Settings{}
	}
	return s
}

func (m *Machine) refuseRegion(msg Message, to Note) {
	m.refused = with(m.refused, to.Node)
	m.note(to)
	m.out.Send = append(m.out.Send, Outgoing{to.Node, Message{
		Kind: Refused, Type: m.cfg.Type, Term: m.term, Round: m.round, Instance: msg.Instance, Settings: m.cfg.Settings,
	}})
}

// Refused returns the number of members' regions and proxies that cannot register because their
// settings differ.
func (m *Machine) Refused() int { return len(m.refused) }
