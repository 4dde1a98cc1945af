// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

const (
	msgpackName = "msgpack"
	jsonName    = "json"
)

// Format turns values into bytes. It is the way to store something else than
// msgpack or JSON; see Registry.Using.
//
// A Format is used by many goroutines at the same time, writes the same bytes
// for the same value, and sets its own limits on what it reads.
type Format interface {
	// Name is stored beside every value, so it must never change. It obeys
	// the rules of Name.
	Name() string
	// Marshal returns bytes that nobody changes afterwards. The value has the
	// registered type.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills the fresh value that v points to. It neither changes
	// data nor keeps it.
	Unmarshal(data []byte, v any) error
}
