// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"runtime/debug"
	"strings"
)

// contain runs user code and returns its panic as an error.
func contain(id string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(id, v)
		}
	}()
	f()
	return nil
}

func newPanicError(id string, value any) *PanicError {
	return &PanicError{PersistenceID: id, Value: value, Stack: debug.Stack()}
}

// cutID returns the entity's own part of a persistence ID of a type.
func cutID(pid, typeName string) string { return strings.TrimPrefix(pid[len(typeName):], "|") }
