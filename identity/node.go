// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrInvalid is matched by errors about invalid names, nodes and versions.
var ErrInvalid = errors.New("identity: invalid")

// MaxNameLength is the largest number of bytes of a name.
const MaxNameLength = 128

// Node is one incarnation of a named node. The zero value stands for no node.
type Node struct {
	// Name identifies the node, such as "host:port": 1 to 128 bytes of A-Z a-z 0-9 . _ : -
	Name string
	// UID distinguishes the incarnations of a name. 0 means none.
	UID uint64
}

// New returns a new incarnation of a name, with a random UID. The error matches ErrInvalid if the
// name is invalid.
func New(name string) (Node, error) {
	if err := CheckName(name); err != nil {
		return Node{}, err
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return Node{}, fmt.Errorf("identity: draw a UID for %q: %w", name, err)
	}
	return Node{Name: name, UID: max(1, binary.BigEndian.Uint64(b[:]))}, nil
}

// CheckName returns an error that matches ErrInvalid unless s is a valid name of a node.
func CheckName(s string) error {
	return check("name", s, ":.")
}

// CheckCluster returns an error that matches ErrInvalid unless s is a valid name of a cluster. The
// rules are those for the name of a node, but dots are not allowed.
func CheckCluster(s string) error {
	return check("cluster name", s, ":")
}

func check(kind, s, also string) error {
	if s == "" || len(s) > MaxNameLength {
		return fmt.Errorf("%w: %s %.32q has %d bytes, it must have 1 to %d", ErrInvalid, kind, s, len(s), MaxNameLength)
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		case strings.IndexByte(also, c) >= 0:
		default:
			return fmt.Errorf("%w: %s %q contains %q, allowed are A-Z a-z 0-9 _ - %s", ErrInvalid, kind, s, s[i:i+1], also)
		}
	}
	return nil
}

// IsZero reports whether n is the zero value.
func (n Node) IsZero() bool { return n == Node{} }

// Compare orders nodes by name, bytewise, and then by UID.
func (n Node) Compare(other Node) int {
	if c := strings.Compare(n.Name, other.Name); c != 0 {
		return c
	}
	return cmp.Compare(n.UID, other.UID)
}

// String returns the name and the UID in hexadecimal, as in "a:1#9f2c".
func (n Node) String() string {
	if n.IsZero() {
		return "nobody"
	}
	return n.Name + "#" + strconv.FormatUint(n.UID, 16)
}

// Parse parses the format of String. The error matches ErrInvalid.
func Parse(s string) (Node, error) {
	name, hex, found := strings.Cut(s, "#")
	if !found {
		return Node{}, fmt.Errorf("%w: node %.160q has no #uid", ErrInvalid, s)
	}
	if err := CheckName(name); err != nil {
		return Node{}, err
	}
	uid, err := strconv.ParseUint(hex, 16, 64)
	if err != nil || uid == 0 || strconv.FormatUint(uid, 16) != hex {
		return Node{}, fmt.Errorf("%w: node %.160q: the UID must be a hexadecimal number above 0", ErrInvalid, s)
	}
	return Node{Name: name, UID: uid}, nil
}
