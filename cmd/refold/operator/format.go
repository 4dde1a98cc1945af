// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// format is how a payload is encoded, as far as that can be told without the Go
// type.
type format uint8

const (
	unknownFormat format = iota
	msgpackFormat
	jsonFormat
)

// formatOf tells the format of an event by the end of its manifest.
func formatOf(manifest string) format {
	_, name, found := strings.Cut(manifest, "+")
	switch {
	case !found:
		return msgpackFormat
	case name == "json":
		return jsonFormat
	}
	return unknownFormat
}

// formatOfState tells the format of a snapshot. What an aggregate encoded by
// itself is taken for what it looks like.
func formatOfState(manifest string, payload []byte) format {
	switch {
	case manifest == eventsourcing.StateManifest, strings.HasPrefix(manifest, eventsourcing.StateManifest+"@"):
		return msgpackFormat
	case json.Valid(payload):
		return jsonFormat
	case len(payload) > 0 && kindOf(payload[0]) == aMap && codec.Check(payload) == nil:
		return msgpackFormat
	}
	return unknownFormat
}

var errNotJSON = errors.New("the payload is not valid JSON")

// check returns an error if the payload is not well-formed.
func (f format) check(payload []byte) error {
	switch f {
	case msgpackFormat:
		return codec.Check(payload)
	case jsonFormat:
		if !json.Valid(payload) {
			return errNotJSON
		}
	case unknownFormat:
	}
	return nil
}
