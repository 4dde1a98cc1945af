// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"math"

	"github.com/refold-io/refold/internal/wire"
)

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
