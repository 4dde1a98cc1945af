// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding/allocation"
)

// Pin keeps a shard on a node. It has the name of the node, not an incarnation, so that it outlasts
// a restart. While no incarnation of the node can host the shard, the pin has no effect, and the
// strategy chooses the home. As soon as the node can host the shard again, the shard returns.
type Pin struct {
	Shard Shard
	Node  string
}

// MaxPins is the maximum number of pins of an entity type.
const MaxPins = 1000

// ErrCannotPin is matched by the errors about shards and nodes that cannot be pinned.
var ErrCannotPin = errors.New("cannot pin the shard")

// Pins returns the pins, sorted by shard.
func (s State) Pins() []Pin { return s.pins }

// Pin returns the name of the node that a shard is pinned to.
func (s State) Pin(shard Shard) (node string, pinned bool) {
	i, found := findPin(s.pins, shard)
	if !found {
		return "", false
	}
	return s.pins[i].Node, true
}

func findPin(pins []Pin, s Shard) (int, bool) {
	return slices.BinarySearchFunc(pins, s, func(p Pin, s Shard) int { return cmp.Compare(p.Shard, s) })
}

func withPin(pins []Pin, p Pin) []Pin {
	i, found := findPin(pins, p.Shard)
	if found {
		pins[i] = p
		return pins
	}
	return slices.Insert(pins, i, p)
}

func withoutPin(pins []Pin, s Shard) []Pin {
	i, found := findPin(pins, s)
	if !found {
		return pins
	}
	return slices.Delete(pins, i, i+1)
}

// checkPins returns the reason for which an event about pins is invalid, or "".
func (f *Fold) checkPins(e *Event) string {
	added := 0
	for _, s := range e.Shards {
		switch _, pinned := f.state.Pin(s); {
		case s >= MaxShards:
			return fmt.Sprintf("shard %d is above the maximum", s)
		case e.Kind == ShardsReleased && !pinned:
			return fmt.Sprintf("shard %d is not pinned", s)
		case !pinned:
			added++
		}
	}
	if e.Kind == ShardsPinned && identity.CheckName(e.Node.Name) != nil {
		return "the name of the node is invalid"
	}
	if len(f.state.pins)+added > MaxPins && added > 0 {
		return fmt.Sprintf("there are more than %d pins", MaxPins)
	}
	return ""
}

func appendPins(dst []byte, pins []Pin) []byte {
	if len(pins) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(pins)))
	for _, p := range pins {
		dst = binary.AppendUvarint(dst, uint64(p.Shard))
		dst = append(append(dst, byte(len(p.Node))), p.Node...) //nolint:gosec // at most identity.MaxNameLength
	}
	return dst
}

func readStatePins(r *wire.Reader) []Pin {
	var pins []Pin
	for range r.Count(MaxPins, 3, "pins") {
		p := Pin{Shard: Shard(r.Uint(MaxShards-1, "shard")), Node: readName(r)} //nolint:gosec // below MaxShards
		if r.Err() == nil && len(pins) > 0 && pins[len(pins)-1].Shard >= p.Shard {
			r.Fail("the pin of shard %d follows that of shard %d", p.Shard, pins[len(pins)-1].Shard)
		}
		if r.Err() != nil {
			break
		}
		pins = append(pins, p)
	}
	return pins
}

// readName reads the name of a node.
func readName(r *wire.Reader) string {
	name := string(r.Bytes(int(r.Byte("length of a name")), "name"))
	if r.Err() == nil {
		if err := identity.CheckName(name); err != nil {
			r.Fail("node: %v", err)
		}
	}
	return name
}

// CheckPin returns an error that matches ErrCannotPin if a shard cannot be pinned to the node with a
// name, or if its pin cannot be removed because the name is "" and there is none.
func (m *Machine) CheckPin(s Shard, node string) error {
	next := m.nextState()
	_, pinned := next.Pin(s)
	switch _, fit := m.pinTarget(node); {
	case int(s) >= m.cfg.Shards:
		return fmt.Errorf("%w: type %q has the shards 0 to %d, not %d", ErrCannotPin, m.cfg.Type, m.cfg.Shards-1, s)
	case node == "" && !pinned:
		return fmt.Errorf("%w: shard %d of type %q is not pinned", ErrCannotPin, s, m.cfg.Type)
	case node == "" || fit && (pinned || len(next.pins) < MaxPins):
		return nil
	case fit:
		return fmt.Errorf("%w: type %q has %d pins already", ErrCannotPin, m.cfg.Type, MaxPins)
	}
	return fmt.Errorf("%w to node %.64q: %s", ErrCannotPin, node, m.unfitReason(node))
}

// unfitReason returns why no incarnation of a node can host shards.
func (m *Machine) unfitReason(node string) string {
	i := slices.IndexFunc(m.view.Members, func(at identity.Member) bool { return at.Node.Name == node })
	if i < 0 {
		return "it is not a member of the cluster"
	}
	at := &m.view.Members[i]
	_, hosts := m.state.Region(at.Node)
	switch {
	case m.state.HasProxy(at.Node):
		return fmt.Sprintf("it has only a proxy of type %q", m.cfg.Type)
	case !hosts:
		return fmt.Sprintf("it does not host type %q", m.cfg.Type)
	case at.Status != identity.Up:
		return fmt.Sprintf("it is %v, not up", at.Status)
	case m.unavailable(at.Node):
		return "its region is leaving or drained"
	}
	return "it is unreachable, or does not respond"
}

// pinTarget returns the incarnation of a node that can host shards now.
func (m *Machine) pinTarget(name string) (identity.Node, bool) {
	i, _ := slices.BinarySearchFunc(m.state.regions, name, func(r allocation.Region, name string) int { return strings.Compare(r.Node.Name, name) })
	for ; i < len(m.state.regions) && m.state.regions[i].Node.Name == name; i++ {
		n := m.state.regions[i].Node
		at := membership.Lookup(m.view.Members, n)
		if at != nil && at.Status == identity.Up && at.HasRole(m.cfg.Role) && !has(m.view.Unreachable, n) && !has(m.silent, n) && !m.unavailable(n) && m.instances[n] != 0 {
			return n, true
		}
	}
	return identity.Node{}, false
}

func (m *Machine) setPin(in SetPin) {
	kind := ShardsPinned
	if in.Node == "" {
		kind = ShardsReleased
	}
	if m.phase == Active {
		m.queue = append(m.queue, request{kind: kind, node: identity.Node{Name: in.Node}, shards: []Shard{in.Shard}})
	}
}

// isPinned reports whether the strategy must not move a shard: it is on the node that it is pinned
// to, or that node can host it.
func (m *Machine) isPinned(s Shard) bool {
	node, pinned := m.state.Pin(s)
	if !pinned {
		return false
	}
	if home, found := m.state.Home(s); found && home.Name == node {
		return true
	}
	_, fit := m.pinTarget(node)
	return fit
}

// pinned returns the shards that the strategy must not move, sorted.
func (m *Machine) pinned() (shards []Shard) {
	for _, p := range m.state.pins {
		if m.isPinned(p.Shard) {
			shards = append(shards, p.Shard)
		}
	}
	return shards
}

// movePinned moves the pinned shards that are on other nodes than their own.
func (m *Machine) movePinned() {
	if m.phase != Active || m.clusterIsStopping() {
		return
	}
	var away []Shard
	for _, p := range m.state.pins {
		home, found := m.state.Home(p.Shard)
		if !found || home.Name == p.Node || m.isStarting(p.Shard) {
			continue
		}
		if _, fit := m.pinTarget(p.Node); fit {
			away = append(away, p.Shard)
		}
	}
	m.beginHandOff(away)
}

// isStarting reports whether a shard has a home and has not started there. Commands may be buffered
// for it. If it moved repeatedly, its commands would be forwarded twice.
func (m *Machine) isStarting(s Shard) bool {
	_, starting := m.unstarted[s]
	return starting
}

// takeDecided moves the shards whose pin or whose standbys determine the home to the end of the shards
// of the strategy call, and sets their homes. It returns the other shards.
func (m *Machine) takeDecided(view *allocation.View) (free []Shard) {
	call := &m.strategyCall
	var decided []Shard
	for _, s := range call.shards {
		n, ok := m.pinnedHome(s)
		if removed := m.requests.byShard[s].removed; !ok && m.cfg.Standbys > 0 && removed.UID != 0 {
			n, ok = m.promoted(s, removed, view)
		}
		if !ok {
			free = append(free, s)
			continue
		}
		decided = append(decided, s)
		call.decided = append(call.decided, n)
	}
	call.shards = slices.Concat(free, decided)
	return free
}

// pinnedHome returns the node of a pinned shard, if the node can host it.
func (m *Machine) pinnedHome(s Shard) (identity.Node, bool) {
	node, found := m.state.Pin(s)
	if !found {
		return identity.Node{}, false
	}
	return m.pinTarget(node)
}
