// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/wire"
)

// ErrInvalid is matched by errors about invalid configurations and messages.
var ErrInvalid = errors.New("singleton: invalid")

// MaxNameLength is the largest number of bytes of a singleton's name.
const MaxNameLength = 255

// Config configures a manager. It must be the same on all nodes, except for Self. Fields without a
// comment are documented in cluster.Singleton.
type Config struct {
	Self          identity.Node
	Name          string
	Role          string
	RetryInterval time.Duration
	// MinRetries is the minimum number of requests before the hand-over restarts. With a long
	// removal margin, the number is larger.
	MinRetries int
	// RemovalMargin returns the time between the removal of a member, from a cluster with a number
	// of members, and the moment when the member counts as gone. It comes from the downing settings.
	// Defaults to 0.
	RemovalMargin      func(members int) time.Duration
	UseLease           bool
	LeaseRetryInterval time.Duration
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "singleton")
	c.RetryInterval = cmp.Or(c.RetryInterval, time.Second)
	c.MinRetries = cmp.Or(c.MinRetries, 15)
	if c.RemovalMargin == nil {
		c.RemovalMargin = func(int) time.Duration { return 0 }
	}
	c.LeaseRetryInterval = cmp.Or(c.LeaseRetryInterval, 5*time.Second)
	return c
}

func (c Config) validate() error {
	var errs fielderror.Errors
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		errs.Addf("Config.Self", "is %v, want a valid name and a UID", c.Self)
	}
	if len(c.Name) > MaxNameLength {
		errs.Addf("Config.Name", "has %d bytes, at most %d are allowed", len(c.Name), MaxNameLength)
	}
	fielderror.NotNegative(&errs, "Config.RetryInterval", c.RetryInterval)
	fielderror.NotNegative(&errs, "Config.MinRetries", c.MinRetries)
	fielderror.NotNegative(&errs, "Config.LeaseRetryInterval", c.LeaseRetryInterval)
	return errs.Err(ErrInvalid)
}

// handOverRetries is how often HandOverToMe is repeated before the hand-over restarts. After that
// many requests, any previous oldest member that was removed counts as gone.
func (c *Config) handOverRetries() int {
	return max(c.MinRetries, int(c.RemovalMargin(math.MaxInt)/c.RetryInterval)+3)
}

// Kind is the kind of a message.
type Kind uint8

// The numbers are those of the wire format and never change.
const (
	// HandOverToMe requests that the previous oldest member ends its instance.
	HandOverToMe Kind = 1 + iota
	// HandOverInProgress replies that the instance is being stopped.
	HandOverInProgress
	// HandOverDone replies that there is no instance.
	HandOverDone
	// TakeOverFromMe requests that the next oldest member sends HandOverToMe.
	TakeOverFromMe
	// Identify asks a manager, on behalf of a proxy, whether it runs the instance.
	Identify
	// Identified replies that the sender runs the instance.
	Identified
	// InstanceGone informs the nodes that sent Identify that the sender no longer runs the
	// instance.
	InstanceGone
)

func (k Kind) String() string {
	return enum.Name(k, "kind",
		"", "hand over to me", "hand-over in progress", "hand-over done", "take over from me", "identify",
		"identified", "instance gone")
}

// Message is a message between managers. Sender and receiver are not part of it.
type Message struct {
	Kind Kind
	// Singleton is the name of the singleton.
	Singleton string
	// Round distinguishes the requests of one sender. Replies have the round of the request.
	// TakeOverFromMe and InstanceGone have no round.
	Round uint64
	// Hosted reports in HandOverDone that the sender was the oldest member and that no other node
	// had an instance.
	Hosted bool
}

// version is the first byte of each encoded message. A newer minor version only adds fields at the
// end.
const version = 1

// MaxMessage is the largest number of bytes of an encoded message.
const MaxMessage = 512

const hosted = 1 // flag

// AppendMessage appends an encoded message: version, kind and flags, then round and name with their
// lengths as varints.
func AppendMessage(dst []byte, m Message) []byte {
	flags := byte(0)
	if m.Hosted {
		flags |= hosted
	}
	dst = append(dst, version, byte(m.Kind), flags)
	dst = binary.AppendUvarint(dst, m.Round)
	dst = binary.AppendUvarint(dst, uint64(len(m.Singleton)))
	return append(dst, m.Singleton...)
}

// DecodeMessage decodes the format of AppendMessage. It skips trailing bytes, which are fields of a
// newer version. The error matches ErrInvalid.
func DecodeMessage(b []byte) (Message, error) {
	r := wire.NewReader(b, version, MaxMessage, ErrInvalid)
	m := Message{
		Kind: Kind(r.Byte("kind")), Hosted: r.Byte("flags")&hosted != 0,
		Round: r.Uint(math.MaxUint64, "round"), Singleton: string(r.Text(MaxNameLength, "name")),
	}
	if r.Minor() != version {
		r.Fail("version %d, want %d", r.Minor(), version)
	} else if m.Kind < HandOverToMe || m.Kind > InstanceGone {
		r.Fail("unknown kind %d", uint8(m.Kind))
	}
	if err := r.Err(); err != nil {
		return Message{}, err
	}
	return m, nil
}
