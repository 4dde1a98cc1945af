// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import "github.com/refold-io/refold/ddata/crdt"

// ValueJSON returns a value of replicated data as compact JSON, elements that a registry has encoded included.
func ValueJSON(v crdt.Value) []byte { return crdt.JSON{Named: renderNamed}.Append(nil, v) }

// PrintJSON prints compact JSON for people: what is long on several lines, and everything escaped that a terminal does not show.
func (e *Env) PrintJSON(compact []byte) error {
	return printState(e, appendPrintable(make([]byte, 0, len(compact)), compact), false)
}
