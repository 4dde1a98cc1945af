// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/refold-io/refold/ddata/crdt"

// Presence checks a map key with an addition by one node and a deletion by another node.
type Presence struct{ addition, deletion *write }

func NewPresence(id string) Presence {
	k := &datum{key: "dict/1", kind: dict}
	p := Presence{&write{datum: k, do: adds, id: id, done: true}, &write{datum: k, do: deletes, done: true}}
	k.writes = []*write{p.addition, p.deletion}
	return p
}

// Addition reports whether the addition counts as contained, and as present.
func (p Presence) Addition(v crdt.Value, deleted, found bool) (there, present bool) {
	return p.addition.contained(v, deleted, found), p.addition.present(v, deleted, found)
}

// Deletion reports whether the deletion counts as contained, and as present.
func (p Presence) Deletion(v crdt.Value, deleted, found bool) (there, present bool) {
	return p.deletion.contained(v, deleted, found), p.deletion.present(v, deleted, found)
}
