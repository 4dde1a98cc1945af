// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// ErrMalformed is matched by the errors about bytes that are not a valid message.
var ErrMalformed = errors.New("sharding: malformed message about groups")

const wireVersion = 0x10

// Kinds of messages. The numbers never change.
const (
	kindReport byte = 1
	kindUpdate byte = 2
)

// maxRole is the maximum length of a role in bytes.
const maxRole = 128

// maxLoad is the highest load of an instance, in thousandths.
const maxLoad = 1_000_000

// Declaration states that a node takes part in a group.
type Declaration struct {
	Name string
	// Hosts reports that the node can run instances. Other nodes only send messages.
	Hosts bool
	// Exclusive reports that each instance runs at most once in the cluster.
	Exclusive bool
	// Min is the number of instances without load. Max limits the number that the load requires.
	Min, Max int
}

// running is an instance that has not ended.
type running struct {
	Instance

	ready bool
	load  int // thousandths
}

// report describes a node to the coordinator.
type report struct {
	role    string
	seq     uint64  // counts the reports of the node
	version Version // of the node's table
	leaving bool    // the node needs places for its instances
	// declared reports that groups is set. It is not if the coordinator has handled a report with
	// the same groups.
	declared bool
	groups   []Declaration
	running  []running
	table    []Group // the rows of the node's table, if the coordinator may not have them
	full     bool    // table is set
}

// update replaces the table of a node, or acknowledges its report.
type update struct {
	role string
	ack  uint64 // last report that the coordinator has handled
	// known reports that the coordinator has the groups of the node.
	known bool
	// base is the version of the table that the rows change. The zero version is that of an empty
	// table.
	base, version Version
	rows          []Group
}

// MessageRole returns the role in a message.
func MessageRole(b []byte) (string, error) {
	r := wire.NewReader(b, wireVersion, maxBytes, ErrMalformed)
	r.Byte("kind")
	role := string(r.Text(maxRole, "role"))
	return role, r.Err()
}

func appendHead(kind byte, role string) []byte {
	return appendText(append(make([]byte, 0, 256), wireVersion, kind), role)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendInt(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(max(n, 0))) }

func appendVersion(dst []byte, v Version) []byte {
	if v.Node.IsZero() {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, v.UpNumber)
	dst = wire.AppendNode(dst, v.Node)
	return binary.AppendUvarint(dst, v.Rev)
}

func readVersion(r *wire.Reader) Version {
	if !readBool(r, "version") {
		return Version{}
	}
	return Version{UpNumber: r.Uint(math.MaxInt32, "term"), Node: r.Node(), Rev: r.Uint(math.MaxInt64, "revision")}
}

func appendBool(dst []byte, is bool) []byte {
	if is {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func readBool(r *wire.Reader, subject string) bool { return r.Uint(1, subject) == 1 }

func readInt(r *wire.Reader, most int, subject string) int {
	return int(r.Uint(uint64(most), subject)) //nolint:gosec // at most most
}

// appendRows appends the nodes of the rows, and then the rows with the indexes of their nodes.
func appendRows(dst []byte, rows []Group) []byte {
	index := map[identity.Node]int{{}: 0}
	var nodes []identity.Node
	for i := range rows {
		for _, s := range rows[i].Slots {
			for _, n := range []identity.Node{s.Node, s.Next, s.Old} {
				if _, known := index[n]; !known {
					nodes = append(nodes, n)
					index[n] = len(nodes)
				}
			}
		}
	}
	dst = appendInt(dst, len(nodes))
	for _, n := range nodes {
		dst = wire.AppendNode(dst, n)
	}
	dst = appendInt(dst, len(rows))
	for i := range rows {
		g := &rows[i]
		dst = appendText(dst, g.Name)
		dst = appendBool(dst, g.Exclusive)
		dst = binary.AppendUvarint(dst, g.Rev)
		dst = appendInt(appendInt(appendInt(dst, g.Count), g.Override), g.Scaled)
		dst = appendInt(dst, len(g.Slots))
		for _, s := range g.Slots {
			dst = appendInt(appendInt(appendInt(dst, index[s.Node]), index[s.Next]), index[s.Old])
		}
	}
	return dst
}

func readRows(r *wire.Reader) []Group {
	nodes := make([]identity.Node, 1, 1+r.Count(maxNodes, 10, "nodes"))
	for len(nodes) < cap(nodes) {
		n := r.Node()
		if r.Err() != nil {
			return nil
		}
		nodes = append(nodes, n)
	}
	count := r.Count(MaxGroups, 7, "groups")
	rows := make([]Group, 0, count)
	room := maxSlots
	for range count {
		g := Group{Name: readName(r), Exclusive: readBool(r, "exclusive"), Rev: r.Uint(math.MaxInt64, "revision")}
		g.Count, g.Override, g.Scaled = readInt(r, MaxInstances, "count"), readInt(r, MaxInstances, "override"), readInt(r, MaxInstances, "scale")
		slots := r.Count(min(MaxInstances, room), 3, "instances")
		room -= slots
		for range slots {
			g.Slots = append(g.Slots, Slot{nodes[readInt(r, len(nodes)-1, "node")], nodes[readInt(r, len(nodes)-1, "next node")], nodes[readInt(r, len(nodes)-1, "old node")]})
		}
		if len(rows) > 0 && rows[len(rows)-1].Name >= g.Name {
			r.Fail("groups are not sorted")
		}
		if r.Err() != nil {
			return nil
		}
		rows = append(rows, g)
	}
	return rows
}

func readName(r *wire.Reader) string {
	name := string(r.Text(MaxName, "name"))
	if name == "" && r.Err() == nil {
		r.Fail("a group has no name")
	}
	return name
}

func encodeReport(p *report) []byte {
	dst := appendHead(kindReport, p.role)
	dst = binary.AppendUvarint(dst, p.seq)
	dst = appendVersion(dst, p.version)
	dst = appendBool(dst, p.leaving)
	dst = appendBool(dst, p.declared)
	if p.declared {
		dst = appendInt(dst, len(p.groups))
		for _, g := range p.groups {
			dst = appendBool(appendBool(appendText(dst, g.Name), g.Hosts), g.Exclusive)
			dst = appendInt(appendInt(dst, g.Min), g.Max)
		}
	}
	dst = appendInt(dst, len(p.running))
	for _, i := range p.running {
		dst = appendBool(appendInt(appendText(dst, i.Group), i.Nr), i.ready)
		dst = appendInt(dst, i.load)
	}
	dst = appendBool(dst, p.full)
	if p.full {
		dst = appendRows(dst, p.table)
	}
	return dst
}

func readReport(r *wire.Reader, role string) *report {
	p := &report{role: role, seq: r.Uint(math.MaxInt64, "number"), version: readVersion(r), leaving: readBool(r, "leaving")}
	groups := 0
	if p.declared = readBool(r, "groups"); p.declared {
		groups = r.Count(MaxGroups, 6, "groups")
	}
	for range groups {
		g := Declaration{Name: readName(r), Hosts: readBool(r, "host"), Exclusive: readBool(r, "exclusive")}
		g.Min, g.Max = readInt(r, MaxInstances, "minimum"), readInt(r, MaxInstances, "maximum")
		if n := len(p.groups); n > 0 && strings.Compare(p.groups[n-1].Name, g.Name) >= 0 {
			r.Fail("groups are not sorted")
		}
		if g.Min < 1 || g.Max < g.Min {
			r.Fail("group %.100q has %d to %d instances", g.Name, g.Min, g.Max)
		}
		if r.Err() != nil {
			return p
		}
		p.groups = append(p.groups, g)
	}
	for range r.Count(maxSlots, 5, "instances") {
		i := running{Instance: Instance{readName(r), readInt(r, MaxInstances-1, "instance")}, ready: readBool(r, "ready")}
		i.load = readInt(r, maxLoad, "load")
		if r.Err() != nil {
			return p
		}
		p.running = append(p.running, i)
	}
	if p.full = readBool(r, "table"); p.full {
		p.table = readRows(r)
	}
	return p
}

func encodeUpdate(u *update) []byte {
	dst := appendHead(kindUpdate, u.role)
	dst = appendBool(binary.AppendUvarint(dst, u.ack), u.known)
	dst = appendVersion(appendVersion(dst, u.base), u.version)
	return appendRows(dst, u.rows)
}

// decode returns a *report or an *update. The error matches ErrMalformed.
func decode(b []byte) (any, error) {
	r := wire.NewReader(b, wireVersion, maxBytes, ErrMalformed)
	kind := r.Byte("kind")
	role := string(r.Text(maxRole, "role"))
	var m any
	switch kind {
	case kindReport:
		m = readReport(r, role)
	case kindUpdate:
		m = &update{role: role, ack: r.Uint(math.MaxInt64, "number"), known: readBool(r, "known"), base: readVersion(r), version: readVersion(r), rows: readRows(r)}
	default:
		r.Fail("unknown kind %d", kind)
	}
	return m, r.End()
}
