// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"fmt"
	"strings"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/journal"
)

// naming maps the IDs of the entities of a type to persistence IDs, and back. It is the only place
// that does so.
type naming struct {
	name string
	to   func(id string) string          // Type.PersistenceID; nil for the default
	from func(pid string) (string, bool) // Type.EntityID; nil for the default
}

func (t *Type[S, E]) naming() naming { return naming{t.Name, t.PersistenceID, t.EntityID} }

// PersistenceIDOf returns the persistence ID of the entity with this ID. The error matches ErrArgument
// for an ID that can't be stored, and ErrInvalid if Type.PersistenceID or Type.EntityID breaks its
// rules for the ID.
func (t Type[S, E]) PersistenceIDOf(id string) (string, error) { return t.naming().persistenceID(id) }

// EntityIDOf returns the ID of the entity with this persistence ID. It returns false for the
// persistence ID of an entity of another type.
func (t Type[S, E]) EntityIDOf(persistenceID string) (id string, ok bool) {
	return t.naming().entityID(persistenceID)
}

func (n naming) check(errs *fielderror.Errors) {
	if n.to != nil && n.from == nil {
		errs.Addf("Type.EntityID", "is missing: Type.PersistenceID needs its inverse")
	}
	if n.from != nil && n.to == nil {
		errs.Addf("Type.EntityID", "is set, but Type.PersistenceID is not")
	}
}

// persistenceID checks an ID and returns its persistence ID. Two IDs with the same persistence ID
// would share a history. The check of the inverse refuses at least one of them.
func (n naming) persistenceID(id string) (string, error) {
	if n.to == nil {
		pid := journal.JoinID(n.name, id)
		return pid, checkIDs(id, pid)
	}
	if err := checkID(id); err != nil {
		return "", err
	}
	var pid string
	err := catchPanic(journal.JoinID(n.name, id), func() error { pid = n.to(id); return nil })
	if err != nil {
		return "", fmt.Errorf("%w: type %q: Type.PersistenceID: %w", ErrInvalid, n.name, err)
	}
	if err := journal.CheckID(pid); err != nil {
		return "", fmt.Errorf("%w: type %q: Type.PersistenceID(%q): %w", ErrInvalid, n.name, id, err)
	}
	if journal.IsReserved(pid) {
		return "", fmt.Errorf("%w: type %q: Type.PersistenceID(%q) is %q, which is reserved", ErrInvalid, n.name, id, pid)
	}
	if back, ok := n.entityID(pid); !ok || back != id {
		return "", fmt.Errorf("%w: type %q: Type.PersistenceID(%q) is %q, but Type.EntityID of this is %q, %t", ErrInvalid, n.name, id, pid, back, ok)
	}
	return pid, nil
}

// entityID returns the ID of the entity with a persistence ID, and false if the type has no such
// entity.
func (n naming) entityID(pid string) (id string, ok bool) {
	if n.from == nil {
		id, ok = strings.CutPrefix(pid, n.name+"|")
		return id, ok
	}
	if journal.IsReserved(pid) {
		return "", false
	}
	if err := catchPanic(pid, func() error { id, ok = n.from(pid); return nil }); err != nil {
		return "", false
	}
	return id, ok
}

// display returns the persistence ID of an entity for logs and observers. The ID may be invalid.
func (n naming) display(id string) string {
	if n.to != nil {
		if pid, err := n.persistenceID(id); err == nil {
			return pid
		}
	}
	return n.name + "|" + id
}

// cutID returns the own ID of an entity from its default persistence ID.
func cutID(pid, typeName string) string { return strings.TrimPrefix(pid[len(typeName):], "|") }
