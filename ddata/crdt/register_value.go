// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/refold-io/refold/identity"
)

// register is the value of an LWWRegister.
type register struct {
	noHistory
	elem    elementKind
	time    int64
	node    member
	content string // an encoded element, empty if there is none
}

func (r *register) changes() change                           { return nil }
func (r *register) resetDelta() core                          { return r }
func (r *register) applyDelta(d change) (core, error)         { return nil, wrongType(r.shape(), d) }
func (r *register) pruned(*Self, identity.Node) (core, error) { return r, nil }
func (r *register) cleaned(identity.Node) (core, error)       { return r, nil }
func (r *register) shape() shape                              { return shape{kind: kindRegister, elem: r.elem} }

func (r *register) merge(other core) (core, error) {
	o, err := same(r, other)
	if err != nil {
		return nil, err
	}
	if o.wins(r) {
		return o, nil
	}
	return r, nil
}

// wins reports whether it replaces another content: by the higher timestamp, the
// lower node, and at last by its bytes, so that all nodes choose the same.
func (r *register) wins(other *register) bool {
	if r.content == "" || other.content == "" {
		return other.content == "" && r.content != ""
	}
	return cmp.Or(cmp.Compare(r.time, other.time), compareMembers(other.node, r.node), strings.Compare(other.content, r.content)) > 0
}

func (r *register) eachNode(t *nodeTable) {
	if r.content != "" {
		t.add(r.node)
	}
}

func (r *register) encode(e *encoder) {
	e.text(r.content)
	if r.content != "" {
		e.dst = binary.AppendVarint(e.dst, r.time)
		e.uint(e.nodes.index(r.node))
	}
}

func (d *decoder) register(k elementKind) *register {
	r := &register{elem: k}
	if len(d.b) > 0 && d.b[0] == 0 {
		d.byte("value")
		return r
	}
	r.content = d.element(k, nil, true)
	u := d.uint(1<<64-1, "timestamp")
	r.time = int64(u>>1) ^ -int64(u&1)
	r.node = d.member(d.uint(MaxNodes, "node"))
	return r
}
