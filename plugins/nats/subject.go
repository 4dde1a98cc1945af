// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"strconv"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

const root = "refold."

// token returns a name as one token of a subject. A name has no "~".
func token(name string) string { return strings.ReplaceAll(name, ".", "~") }

// subjects are those of one node.
type subjects struct {
	prefix string // of all subjects of the cluster, with a dot at the end
	self   identity.Node
	from   string // the last token of what it sends
}

func newSubjects(cluster string, self identity.Node) subjects {
	return subjects{prefix: root + token(cluster) + ".", self: self, from: token(self.Name)}
}

// to returns where a frame for an incarnation or a name is published.
func (s *subjects) to(lane transport.Lane, node identity.Node) string {
	if node.UID == 0 {
		return s.prefix + "join." + token(node.Name) + "." + s.from
	}
	return s.prefix + lane.String() + "." + token(node.Name) + "." + strconv.FormatUint(node.UID, 16) + "." + s.from
}

// lane returns what a node subscribes to on a lane.
func (s *subjects) lane(lane transport.Lane) string {
	return s.prefix + lane.String() + "." + s.from + "." + strconv.FormatUint(s.self.UID, 16) + ".*"
}

// join returns what a node subscribes to for its bare name.
func (s *subjects) join() string { return s.prefix + "join." + s.from + ".*" }

// sender returns who a subject says a message is from.
func sender(subject string) string {
	return strings.ReplaceAll(subject[strings.LastIndexByte(subject, '.')+1:], "~", ".")
}
