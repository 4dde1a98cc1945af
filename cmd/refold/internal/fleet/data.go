// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"time"
)

// Data says how a node holds replicated data.
type Data struct {
	// Dir is the directory in which all of it is kept on disk. Defaults to none: it is in memory only.
	Dir string
	// PruneInterval and PruneAfter are those of ddata.Config.
	PruneInterval, PruneAfter time.Duration
}

// Request is what the parent wants done with replicated data. It is answered by one Report with its ID, unless the process
// is gone before.
type Request struct {
	ID   uint64
	Do   Doing
	Key  string
	Name string // of an element, or of a key of a map
	N    int64
	// Local asks no other node.
	Local   bool
	Timeout time.Duration
}

// Doing is what is done with a key.
type Doing string

// What can be done.
const (
	// Count adds N to a crdt.PNCounter, CountIn to the counter Name of a crdt.PNCounterMap.
	Count   Doing = "count"
	CountIn Doing = "count in"
	// Add adds the element Name to a crdt.ORSet, Remove removes it. It is refused if the node does not have the
	// element: then there is nothing that it could remove.
	Add    Doing = "add"
	Remove Doing = "remove"
	// Show answers with the value, as this node has it.
	Show Doing = "show"
	// Digest answers with the digest of all that the node holds.
	Digest Doing = "digest"
)

// Answer is what has become of a Request.
type Answer struct {
	ID uint64
	// Error is empty if it was done. Unknown says that it may have been done all the same.
	Error   string `json:",omitempty"`
	Unknown bool   `json:",omitempty"`
	// Value is what was asked for, as JSON.
	Value json.RawMessage `json:",omitempty"`
}

// ask is the word that a request follows in a line.
const ask = "data "

// Ask asks a node to do something with replicated data. The answer comes as a Report.
func (f *Fleet) Ask(name string, r Request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ask node %s: %w", name, err)
	}
	return f.Say(name, ask+string(line))
}
