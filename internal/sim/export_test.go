// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/refold-io/refold/ddata/crdt"

// Presence is what is said of a key of a map to which one has added, and which another has deleted.
type Presence struct{ addition, deletion *write }

func NewPresence(id string) Presence {
	k := &datum{key: "dict/1", kind: dict}
	p := Presence{&write{datum: k, do: adds, id: id, done: true}, &write{datum: k, do: deletes, done: true}}
	k.writes = []*write{p.addition, p.deletion}
	return p
}

// Addition returns whether the addition counts as there for a read, and as present.
func (p Presence) Addition(v crdt.Value, deleted, found bool) (there, present bool) {
	return p.addition.contained(v, deleted, found), p.addition.present(v, deleted, found)
}

// Deletion does so for the deletion.
func (p Presence) Deletion(v crdt.Value, deleted, found bool) (there, present bool) {
	return p.deletion.contained(v, deleted, found), p.deletion.present(v, deleted, found)
}
