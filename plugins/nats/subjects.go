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

// anyNode stands where a node's name would: no name has an "@".
const anyNode = "@any"

// admin returns what a node subscribes to for operators: what is for its name, or for
// any node.
func (s *subjects) admin() (named, any string) {
	return s.prefix + "admin." + s.from + ".*", s.prefix + "admin." + anyNode + ".*"
}

// ask returns where an operator's request to a node is published, to any one if it is
// empty.
func ask(cluster, node, operator string) string {
	to := anyNode
	if node != "" {
		to = token(node)
	}
	return root + token(cluster) + ".admin." + to + "." + token(operator)
}

// Who has an inbox.
const (
	inboxOperator = "operator"
	inboxLease    = "lease"
)

// inbox returns the prefix of the subjects on which a user gets answers. Nobody else
// is allowed to listen there.
func inbox(cluster, what, name string) string {
	return root + token(cluster) + ".inbox." + what + "." + token(name)
}

// sender returns who a subject says a message is from.
func sender(subject string) string {
	return strings.ReplaceAll(subject[strings.LastIndexByte(subject, '.')+1:], "~", ".")
}
