// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"errors"

	"github.com/refold-io/refold/internal/wire"
)

// ErrMalformed is matched by the errors about bytes that are no message, event or
// state.
var ErrMalformed = errors.New("coordinator: malformed")

// version is that of the encodings: see package wire.
const version = 0x10

// messageVersion is that of messages which have settings.
const messageVersion = 0x11

// MaxBytes is the largest number of bytes of an encoded message, event or state.
const MaxBytes = 1 << 20

func appendShards(dst []byte, shards []Shard) []byte { return wire.AppendList(dst, shards) }

func readShards(r *wire.Reader) []Shard { return wire.List[Shard](r, MaxShards, "shards") }

func newReader(b []byte) *wire.Reader { return wire.NewReader(b, version, MaxBytes, ErrMalformed) }
