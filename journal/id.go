// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxIDLength is the length of the longest persistence ID, in bytes.
const MaxIDLength = 512

// CheckID returns an error that matches ErrInvalid unless id is a persistence
// ID: 1 to MaxIDLength bytes of valid UTF-8 without NUL, not all of it blank.
func CheckID(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return fmt.Errorf("%w: persistence ID %q is blank", ErrInvalid, id)
	case len(id) > MaxIDLength:
		return fmt.Errorf("%w: persistence ID %.32q… has %d bytes, at most %d are allowed", ErrInvalid, id, len(id), MaxIDLength)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: persistence ID %q is not valid UTF-8", ErrInvalid, id)
	case strings.IndexByte(id, 0) >= 0:
		return fmt.Errorf("%w: persistence ID %q holds a NUL", ErrInvalid, id)
	}
	return nil
}

// JoinID returns the persistence ID of an entity: the name of its type and its
// own ID with a "|" between them. The type has no "|"; an entity's ID may.
func JoinID(typeName, entityID string) string { return typeName + "|" + entityID }

// SplitID cuts a persistence ID at its first "|". Without one the type is empty
// and the entity's ID is all of it.
func SplitID(id string) (typeName, entityID string) {
	typeName, entityID, found := strings.Cut(id, "|")
	if !found {
		return "", id
	}
	return typeName, entityID
}
